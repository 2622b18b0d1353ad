"""Commands in child processes: run to the end, started, or killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import streaming_jsmf
from tests.outcomes import Outcome

#: Maximum seconds to wait for a process.
PATIENCE = 300

#: Directory of the package under test.
SOURCE = str(Path(streaming_jsmf.__file__).parents[1])

Process = subprocess.Popen[str]

# A shell ignores SIGINT in what it starts in the background, and children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "streaming_jsmf", *map(str, arguments)]


#: Runs a command until so many parts of a step are committed, and waits there, whatever the load of the machine is.
HELD = """
import threading
from streaming_jsmf.__main__ import main
from streaming_jsmf.jobs.checkpoints import Checkpoints

commit = Checkpoints.commit_part

def commit_and_hold(records, *arguments):
    commit(records, *arguments)
    if len(records.committed().parts) >= {parts}:
        threading.Event().wait()

Checkpoints.commit_part = commit_and_hold
main()
"""


def held(parts: int, *arguments: object) -> list[str]:
    """A command that stops in its middle, to be killed or interrupted there."""
    return [sys.executable, "-c", HELD.format(parts=parts), *map(str, arguments)]


#: Runs a command that reads each file of its source in a task of its own, however small it is.
SPREAD = """
from streaming_jsmf.__main__ import main
from streaming_jsmf.ingestion import job

job.GROUP_BYTES = 1, 1
main()
"""


def spread(*arguments: object) -> list[str]:
    """A command whose ingest has a task for each file, and writes other shards than without."""
    return [sys.executable, "-c", SPREAD, *map(str, arguments)]


def _environment(changes: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE, **changes}


def ended(
    line: Sequence[str], *, folder: Path | None = None, stdin: IO[str] | None = None, **environment: str
) -> Outcome:
    done = subprocess.run(
        line,
        stdin=stdin,
        cwd=folder,
        env=_environment(environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def finished(line: Sequence[str], *, folder: Path | None = None, **environment: str) -> str:
    """Run a command that must succeed, and return its standard error."""
    done = ended(line, folder=folder, **environment)
    assert done.code == 0, done.err
    return done.err


def wait_until(now: Callable[[], bool], what: str) -> None:
    """Wait until ``now()``; fail after ``PATIENCE`` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not now():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.002)


def wait_for(process: Process, now: Callable[[], bool]) -> None:
    """Wait until ``now()`` while the process is running; fail if it ends before."""
    wait_until(lambda: process.poll() is not None or now(), "a moment that did not come")
    assert process.poll() is None, "it ended before the moment came"


@contextmanager
def started(
    line: Sequence[str],
    *,
    folder: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: Any = subprocess.DEVNULL,
    stderr: Any = subprocess.DEVNULL,
    **environment: str,
) -> Iterator[Process]:
    """Start a process in its own session; it is killed with all its children at the end of the block."""
    with subprocess.Popen(
        line,
        cwd=folder,
        env=_environment(environment),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def killed(
    line: Sequence[str], now: Callable[[], bool], *, folder: Path | None = None, **environment: str
) -> Iterator[None]:
    """Run a command until ``now()`` and kill it; its orphans are killed at the end of the block."""
    with started(line, folder=folder, **environment) as process:
        wait_for(process, now)
        process.kill()
        process.wait()
        assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
        yield
