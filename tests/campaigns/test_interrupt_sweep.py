"""Long verbs interrupted at random times end with one line, and the same command completes their work."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.campaigns import FEW_AND_ALL
from tests.campaigns.kills import (
    CASES,
    Case,
    Server,
    Undisturbed,
    arguments,
    contents,
    difference,
    left_after,
    server,
    undisturbed,
)
from tests.processes import PATIENCE, Process, command, started, wait_until

SEED = 24

SWEPT = (
    "ingest", "simulate", "scan", "scan-third-moment", "follow", "follow-back", "infer", "fit", "polish",
    "evaluate", "transform-directory", "choose-k", "report",
)  # fmt: skip
WITH_WORKERS = ("ingest", "scan", "polish", "evaluate")
SWEEPS = [
    (case, scheduler)
    for case in CASES
    if case.name in SWEPT
    for scheduler in ("threads", "processes", "cluster")
    if scheduler == "threads" or case.name in WITH_WORKERS
]

#: What the slow run leaves out, because another case ends in the same way.
CAMPAIGN_ONLY = {
    *((name, "threads") for name in ("scan-third-moment", "follow-back", "polish", "evaluate")),
    *(("ingest", "processes"), ("scan", "processes"), ("evaluate", "processes")),
    *(("ingest", "cluster"), ("polish", "cluster")),
}

#: Interrupts per case: in the slow run, and by hand.
FEW, MANY = 1, {"threads": 23, "processes": 10, "cluster": 10}

ADVICE = "run the same command again to go on from what is committed"
COMPLAINTS = re.compile(r"Traceback|Exception|Warning|leaked|never")

#: What ``info`` says of a directory whose result is not in place yet.
NOTHING = re.compile(r"there is no |no corpus in ")


@dataclass(frozen=True)
class Interrupt:
    """A signal after ``after`` seconds, to the command only or, like Ctrl-C in a terminal, to its process group."""

    after: float
    number: signal.Signals
    to_all: bool

    def send(self, process: Process) -> None:
        with suppress(ProcessLookupError):
            (os.killpg if self.to_all else os.kill)(process.pid, self.number)


def drawn(salt: str, seconds: float, count: int) -> Iterator[Interrupt]:
    """Draw random interrupts, some of them after the end of a command that takes ``seconds``."""
    rng = random.Random(f"{SEED} {salt}")
    for _ in range(count):
        number = signal.SIGTERM if rng.random() < 0.25 else signal.SIGINT
        yield Interrupt(round(rng.uniform(0, 1.05 * seconds), 3), number, rng.random() < 0.5)


def catches_signals(process: Process) -> bool:
    """Whether the command has installed its signal handlers, which it cannot do before the interpreter has started."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def living(session: int) -> list[str]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
    return found


@dataclass(frozen=True)
class End:
    """Exit code and standard error of a command, and seconds since the interrupt (without one, since the start)."""

    code: int
    said: str
    seconds: float

    def fault(self, interrupt: Interrupt) -> str:
        """Describe what is wrong; empty if nothing is."""
        if self.code not in (0, 128 + interrupt.number):
            return f"exit code {self.code}: {self.said[-2000:]}"
        if COMPLAINTS.search(self.said):
            return self.said[-2000:]
        word = "terminated" if interrupt.number == signal.SIGTERM else "interrupted"
        if self.code and self.said.splitlines()[-1] != f"{word}; {ADVICE}":
            return f"the last line is {self.said.splitlines()[-1]}"
        return ""


def ended(line: tuple[str, ...], served: Server, interrupt: Interrupt | None = None) -> End:
    """Run a command, interrupt it, and wait until it and all its child processes have ended."""
    errors = served.base / "errors"
    with errors.open("w") as file, started(command(*line), folder=served.folder, stderr=file) as process:
        wait_until(lambda: process.poll() is not None or catches_signals(process), "a command that listens")
        began = time.monotonic()
        if interrupt is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(interrupt.after)
            began = time.monotonic()
            interrupt.send(process)
        code = process.wait(PATIENCE)
        seconds = time.monotonic() - began
        wait_until(lambda: not living(process.pid), "the end of its worker processes")
    return End(code, errors.read_text(encoding="utf-8"), seconds)


def fault_of_info(clean: Undisturbed, served: Server) -> str:
    """Describe a fault of ``info`` for a directory that the command makes; empty if it has no fault."""
    for place in {name.partition("/")[0] for name in clean.contents} - set(served.sources):
        if (served.folder / place).is_dir():
            code, said = served.run(("info", place)), served.log.read_text(encoding="utf-8")
            if code and not (code == 2 and NOTHING.search(said)):
                return f"info {place}: exit code {code}: {said[-2000:]}"
    return ""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("interrupts")) as running:
        yield running


@pytest.mark.parametrize(
    ("case", "scheduler", "many"),
    [
        pytest.param(case, scheduler, *each.values, id=f"{case}-{scheduler}-{each.id}", marks=each.marks)
        for each in FEW_AND_ALL
        for case, scheduler in SWEEPS
        if each.id == "all" or (case.name, scheduler) not in CAMPAIGN_ONLY
    ],
)
def test_an_interrupted_command_ends_and_is_finished_by_itself(
    case: Case, scheduler: str, many: bool, served: Server
) -> None:
    shutil.rmtree(served.base / "starts", ignore_errors=True)
    clean, line = undisturbed(case, served), arguments(case.line, scheduler)
    served.place(clean.start)
    whole = ended(line, served)
    assert whole.code == 0, whole.said
    count = MANY[scheduler] if many else FEW
    codes, faults = Counter[int](), []
    for interrupt in drawn(f"{case} {scheduler}", whole.seconds, count):
        served.place(clean.start)
        end = ended(line, served, interrupt)
        codes[end.code] += 1
        locks = [path.name for path in served.folder.glob(".*.lock.json")]
        fault = end.fault(interrupt)
        if end.code:
            fault = fault or fault_of_info(clean, served) or left_after(case, clean, served)
        else:
            fault = fault or ", ".join(difference(clean.contents, contents(served.folder)))
        print(f"{interrupt}: {end.code} after {end.seconds:.2f} s", *locks, fault)
        faults += [f"{interrupt}: {fault}"] * bool(fault)
    print(f"{case} on {scheduler}, {whole.seconds:.1f} s: {dict(codes)}")
    assert not faults, "\n".join(faults)
