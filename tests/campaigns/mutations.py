"""The power of a test suite: the fraction of random mutants of its source tree that it kills.

    python -m tests.campaigns.mutations record --tree TREE --contexts FILE.json [--seed 0] [--number 40]
                                               [--workers 2] [TESTS ...]
    python -m tests.campaigns.mutations run --tree TREE --contexts FILE.json --out RESULTS.json
                                            [--seconds 120] [--jobs 1]

``record`` draws mutants (see ``mutants``), runs the default tests of a tree once and stores which test reaches which
mutant, also in child processes, and the CPU time of each test (see ``probes``). ``run`` runs, for each mutant, the
tests that reach it, fastest first, until one fails. Both use copies of TREE, such as a git worktree, which may have
other tests than this one. To compare two trees, use the same seed and number: mutants are spread evenly over the lines
of each. Linux is needed.

- A mutant is tested by tests that took at most half of ``--seconds`` of CPU time in total. If a process exceeds
  ``--seconds`` of CPU time, or all of them ten times that on the clock, the mutant counts as killed: usually a loop no
  longer ends, or a process waits for another one forever. Other programs on the machine do not change the result.
- A test that kills a mutant must pass without it. Tests that fail while they are recorded are omitted.

Results are written after each mutant; running the same command again continues an interrupted run.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

from tests.campaigns.mutants import Mutant, draw, places
from tests.campaigns.probes import insert_probes, reaching

#: Maximum CPU seconds to compile a kernel and its callers.
COMPILATION = 240

#: Seconds on the clock per CPU second, before a mutant counts as never ending.
PATIENCE = 10


@contextmanager
def copied(tree: Path) -> Iterator[Path]:
    """A temporary copy of a tree with its compiled kernels; modification times are preserved."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copy = Path(folder).resolve() / "tree"
        shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv", "_build"))
        yield copy


def tests_of(
    copy: Path, arguments: Sequence[str], seconds: int | None, **environment: str
) -> tuple[int | None, str]:
    """Run pytest in a copy with a limit of CPU seconds per process.

    Returns the exit code (None if it exceeded the limit, or ``PATIENCE`` times that on the clock) and the output.
    """
    # Workers of pytest-xdist pass their variables to child processes, which would then act as workers too.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    paths = [str(copy), str(copy.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=_scratch()) as scratch:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "--color=no", "--tb=line", *arguments],
            cwd=copy,
            env={
                **inherited,
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTEST_DEBUG_TEMPROOT": scratch,
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            if seconds is not None:
                resource.prlimit(process.pid, resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
            out = process.communicate(timeout=None if seconds is None else seconds * PATIENCE)[0]
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # so that tests end the processes that they started
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)
            return None, ""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if process.returncode == -signal.SIGXCPU else process.returncode, out


def _scratch() -> str | None:
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 4 << 30 else None


def record(tree: Path, file: Path, asked: dict[str, int], workers: int, chosen: Sequence[str] = ()) -> None:
    """Run tests of a tree (the default ones if none are chosen) and write which of them reach which mutants."""
    drawn = draw(tree, asked["seed"], asked["number"])
    with copied(tree) as copy:
        folder = copy.parent
        insert_probes(copy, drawn, folder / "reached")
        shutil.copy(Path(__file__).with_name("contexts.py"), folder / "mutation_contexts.py")
        parallel = ["-n", str(workers)] if workers > 1 else []
        arguments = ["-p", "mutation_contexts", *parallel, *chosen]
        code, out = tests_of(copy, arguments, None, MUTATIONS_FOLDER=str(folder))
        print(out[-2000:])
        if code not in (0, 1):
            sys.exit(f"pytest ended with {code}")
        tests, fixtures = (
            json.loads((folder / f"{name}.json").read_text()) for name in ("results", "fixtures")
        )
        if not tests["passed"]:
            sys.exit("no test passed")
        reached = reaching(folder / "reached", fixtures)
        # Kernels that were compiled are kept: runs of mutants copy them.
        kernels = shutil.ignore_patterns("*.py", "*.pyc")
        shutil.copytree(copy / "streaming_jsmf", tree / "streaming_jsmf", ignore=kernels, dirs_exist_ok=True)
    mutants = [
        {**asdict(mutant), "tests": sorted(reached.get(number, set()) & tests["passed"].keys())}
        for number, mutant in enumerate(drawn)
    ]
    file.write_text(
        json.dumps({"asked": asked, **tests, "mutants": mutants}, indent=1) + "\n", encoding="utf-8"
    )
    print(f"{len(tests['passed'])} tests, {len(tests['failed'])} failed")


# Mutants


@dataclass(frozen=True)
class Verdict:
    """Outcome of a mutant; ``by`` is the test that killed it."""

    mutant: dict[str, Any]
    status: str
    by: str
    reached: int
    tests: int
    seconds: float


def chosen_of(reached: Sequence[tuple[str, float]], seconds: float) -> list[str]:
    """The fastest tests within ``seconds`` in total, grouped by file because tests of a file share fixtures."""
    by_file: dict[str, list[tuple[str, float]]] = {}
    for (name, needed), spent in zip(reached, accumulate(needed for _, needed in reached), strict=True):
        if spent <= seconds:
            by_file.setdefault(name.partition("::")[0], []).append((name, needed))
    files = sorted(by_file.values(), key=lambda tests: sum(needed for _, needed in tests))
    return [name for tests in files for name, _ in tests]


def verdict(mutant: Mutant, reached: Sequence[tuple[str, float]], copy: Path, seconds: int) -> Verdict:
    """Apply a mutant to a copy, run the tests that reach it, and revert it."""
    chosen = chosen_of(reached, seconds / 2)
    started = time.monotonic()
    status, by = "survived" if reached else "unreached", ""
    while chosen:
        status, by = _tried(mutant, copy, chosen, seconds)
        if status != "killed" or tests_of(copy, ["-x", by], seconds)[0] == 0:
            break
        chosen.remove(by)
        status, by = "survived", ""
    return Verdict(
        asdict(mutant), status, by, len(reached), len(chosen), round(time.monotonic() - started, 1)
    )


def _tried(mutant: Mutant, copy: Path, chosen: Sequence[str], seconds: int) -> tuple[str, str]:
    """Status of the tests with a mutant, and the test that fails."""
    path = copy / mutant.file
    source, times = path.read_bytes(), path.stat()
    kernels = any(place.compiled for place in places(ast.parse(source)))
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        names = Path(folder) / "tests.txt"
        names.write_text("\n".join(chosen) + "\n", encoding="utf-8")
        # A separate cache, because cached kernels may inline functions of other files and must not contain a mutant.
        environment = {"NUMBA_CACHE_DIR": folder} if kernels else {}
        path.write_bytes(mutant.applied(source))
        try:
            code, out = tests_of(copy, ["-x", f"@{names}"], seconds + COMPILATION * kernels, **environment)
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    if code in (None, 0):
        return "timeout" if code is None else "survived", ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", out, re.MULTILINE)
    return "killed", failed.group(1) if failed and failed.group(1) in chosen else chosen[0]


def run(tree: Path, contexts: Path, out: Path, seconds: int, jobs: int) -> None:
    recorded = json.loads(contexts.read_text(encoding="utf-8"))
    asked = {**recorded["asked"], "seconds": seconds}
    drawn = dict(enumerate(draw(tree, asked["seed"], asked["number"])))
    reached = {
        number: sorted(
            ((name, recorded["passed"][name]) for name in mutant["tests"]), key=lambda test: test[::-1]
        )
        for number, mutant in enumerate(recorded["mutants"])
    }
    if [mutant["start"] for mutant in recorded["mutants"]] != [mutant.start for mutant in drawn.values()]:
        sys.exit(f"{tree} is not as it was recorded; record it again")
    done: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"asked": asked, "mutants": {}}
    if done["asked"] != asked:
        sys.exit(f"{out} is of {done['asked']}, not of {asked}; give another file")
    free: SimpleQueue[Path] = SimpleQueue()
    lock = Lock()

    def one(number: int) -> None:
        copy = free.get()
        try:
            found = verdict(drawn[number], reached[number], copy, seconds)
        finally:
            free.put(copy)
        with lock:
            done["mutants"][str(number)] = asdict(found)
            done["shares"] = shares(done["mutants"].values())
            out.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
            mutant = drawn[number]
            print(
                f"{number}: {mutant.file}:{mutant.line} {mutant.kind} {mutant.before!r} -> {mutant.after!r}"
            )
            print(
                f"    {found.status} {found.by} ({found.tests} of {found.reached} tests, {found.seconds} s)",
                flush=True,
            )

    with ExitStack() as copies, ThreadPoolExecutor(jobs) as pool:
        for _ in range(jobs):
            free.put(copies.enter_context(copied(tree)))
        left = [number for number in drawn if str(number) not in done["mutants"]]
        random.Random(asked["seed"]).shuffle(left)  # Files of an interrupted run are then a sample of all.
        list(pool.map(one, left))
    print(json.dumps(done["shares"], indent=1))


def shares(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counts = Counter(verdict["status"] for verdict in verdicts)
    noticed = counts["killed"] + counts["timeout"]
    return {**counts, "killed or timeout": round(noticed / max(1, counts.total()), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.mutations")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "run"):
        command = commands.add_parser(name)
        command.add_argument("--tree", type=Path, default=Path.cwd())
        command.add_argument("--contexts", type=Path, required=True, help="JSON file")
    recorder, runner = commands.choices["record"], commands.choices["run"]
    for command, option, value in (
        (recorder, "seed", 0),
        (recorder, "number", 40),
        (recorder, "workers", 2),
        (runner, "seconds", 120),
        (runner, "jobs", 1),
    ):
        command.add_argument(f"--{option}", type=int, default=value)
    recorder.add_argument("tests", nargs="*", help="files or ids, instead of all")
    runner.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "record":
        asked = {"seed": given.seed, "number": given.number}
        record(given.tree.resolve(), given.contexts, asked, given.workers, given.tests)
    else:
        run(given.tree.resolve(), given.contexts, given.out, given.seconds, given.jobs)


if __name__ == "__main__":
    main()
