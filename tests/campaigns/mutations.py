"""The power of a test suite: the fraction of random mutants of its source tree that it kills.

    python -m tests.campaigns.mutations record --tree TREE --contexts FILE [--workers 2] [TESTS ...]
    python -m tests.campaigns.mutations run --tree TREE --contexts FILE --out RESULTS.json
                                            [--seed 0] [--number 40] [--seconds 120] [--jobs 1]

``record`` runs the default tests of a tree once under coverage.py and stores which test executes which line, also in
child processes, and the CPU time of each test. ``run`` draws mutants (see ``mutants``) and runs, for each, the tests
that reach it, fastest first, until one fails. Both use copies of TREE, such as a git worktree, which may have other
tests than this one. To compare two trees, use the same seed and number: mutants are spread evenly over the lines of
each. Linux is needed.

- A mutant is tested by tests that took at most half of ``--seconds`` of CPU time in total. If a process exceeds
  ``--seconds`` of CPU time, or all of them ten times that on the clock, the mutant counts as killed: usually a loop no
  longer ends, or a process waits for another one forever. Other programs on the machine do not change the result.
- Lines executed on import are reached by all tests that execute any line of the file; lines of compiled functions,
  which tracers do not see, by tests that execute a line with a call. Compiling kernels gets additional time.
- A test that kills a mutant must pass without it. Tests that fail under coverage.py are omitted.

Results are written after each mutant; running the same command again continues an interrupted run.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import json
import os
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

PACKAGE = "streaming_jsmf"

#: Maximum CPU seconds to compile a kernel and its callers.
COMPILATION = 240

#: Seconds on the clock per CPU second, before a mutant counts as never ending.
PATIENCE = 10

SETTINGS = """[run]
data_file = {folder}/data/lines
parallel = true
include = {tree}/streaming_jsmf/*
context = ${{MUTATIONS_CONTEXT-}}
sigterm = true
patch = _exit
disable_warnings = no-data-collected,module-not-measured,already-imported,couldnt-parse
"""


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
    with tempfile.TemporaryDirectory(prefix="mutant-", dir=_scratch()) as scratch:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "--color=no", "--tb=line", *arguments],
            cwd=copy,
            env={**inherited, "PYTHONPATH": str(copy), "PYTEST_DEBUG_TEMPROOT": scratch, **environment},
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


# Contexts


def record(tree: Path, file: Path, workers: int, chosen: Sequence[str] = ()) -> None:
    """Run tests of a tree (the default ones if none are chosen) under coverage.py and write which lines they reach."""
    with copied(tree) as copy:
        folder = copy.parent
        (folder / "data").mkdir()
        (folder / "coveragerc").write_text(SETTINGS.format(folder=folder, tree=copy), encoding="utf-8")
        shutil.copy(Path(__file__).with_name("contexts.py"), folder / "mutation_contexts.py")
        parallel = ["-n", str(workers)] if workers > 1 else []
        environment = {
            "PYTHONPATH": f"{copy}{os.pathsep}{folder}",
            "COVERAGE_PROCESS_START": str(folder / "coveragerc"),
            "MUTATIONS_FOLDER": str(folder),
        }
        started = [sys.executable, "-c", "import coverage, sys; sys.exit(not coverage.Coverage.current())"]
        if subprocess.run(started, env={**os.environ, **environment}, check=False).returncode:
            sys.exit("coverage.py does not start with Python; coverage>=7.13 in this environment is needed")
        code, out = tests_of(copy, ["-p", "mutation_contexts", *parallel, *chosen], None, **environment)
        print(out[-2000:])
        if code not in (0, 1):
            sys.exit(f"pytest ended with {code}")
        found = _contexts(copy, folder)
    with gzip.open(file, "wt", encoding="utf-8") as stream:
        json.dump(found, stream)
    print(
        f"{len(found['tests'])} tests, {sum(map(len, found['lines'].values()))} lines, {len(found['failed'])} failed"
    )


def _contexts(copy: Path, folder: Path) -> dict[str, Any]:
    from coverage import Coverage

    from tests.campaigns.contexts import FIXTURE

    coverage = Coverage(config_file=str(folder / "coveragerc"))
    coverage.combine()
    data = coverage.get_data()
    results, fixtures = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("results", "fixtures")
    )
    numbers = {name: number for number, name in enumerate(results["passed"])}
    users: dict[str, set[int]] = {}
    for name, wanted in fixtures.items():
        for fixture in wanted:
            users.setdefault(FIXTURE + fixture, set()).update([numbers[name]] if name in numbers else [])
    lines: dict[str, dict[int, list[int]]] = {}
    for path in data.measured_files():
        by_line = lines.setdefault(Path(path).relative_to(copy).as_posix(), {})
        for line, contexts in data.contexts_by_lineno(path).items():
            reached = {numbers[name] for name in contexts if name in numbers}
            by_line[line] = sorted(reached.union(*(users.get(name, ()) for name in contexts)))
    digests = {name: _sha256(copy / name) for name in lines}
    seconds = [[name, round(results["passed"][name], 3)] for name in numbers]
    return {"tests": seconds, "failed": results["failed"], "lines": lines, "sha256": digests}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Reach:
    """Finds the tests that reach a mutant."""

    def __init__(self, tree: Path, contexts: dict[str, Any]) -> None:
        self.tests: list[tuple[str, float]] = [(name, seconds) for name, seconds in contexts["tests"]]
        self._lines: dict[str, dict[int, list[int]]] = {
            file: {int(line): tests for line, tests in by_line.items()}
            for file, by_line in contexts["lines"].items()
        }
        #: Uses of each name: file, lines of the statement, and the function if it is compiled.
        self._uses: dict[str, list[tuple[str, tuple[int, int], str | None]]] = {}
        self._importers: dict[str, set[str]] = {}
        self.kernels: set[str] = set()
        for path in sorted((tree / PACKAGE).rglob("*.py")):
            file = path.relative_to(tree).as_posix()
            if contexts["sha256"].get(file, _sha256(path)) != _sha256(path):
                sys.exit(f"{file} is not as it was recorded; record the contexts of this tree")
            self._read(file, ast.parse(path.read_bytes()))

    def _read(self, file: str, syntax: ast.Module) -> None:
        for place in places(syntax):
            if place.compiled:
                self.kernels.add(file)
            for head in place.heads:
                for node in ast.walk(head):
                    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
                    if name is not None and name != place.function:
                        used = (file, place.lines, place.function if place.compiled else None)
                        self._uses.setdefault(name, []).append(used)
        for node in ast.walk(syntax):
            if isinstance(node, ast.ImportFrom) and node.module:
                base = node.module.replace(".", "/")
                for module in (f"{base}.py", *(f"{base}/{alias.name}.py" for alias in node.names)):
                    self._importers.setdefault(module, set()).add(file)

    def of(self, mutant: Mutant) -> list[tuple[str, float]]:
        found = self._at(mutant.file, mutant.lines) if mutant.function is not None else set()
        if not found and mutant.compiled and mutant.function is not None:
            found = self._calling(mutant.function, set())
        if mutant.function is None:
            found = self._anywhere(mutant.file) or set().union(
                *(self._anywhere(file) for file in self._importers.get(mutant.file, ()))
            )
        return sorted((self.tests[number] for number in found), key=lambda test: (test[1], test[0]))

    def _at(self, file: str, lines: tuple[int, int]) -> set[int]:
        by_line = self._lines.get(file, {})
        return set().union(*(by_line.get(line, ()) for line in range(lines[0], lines[1] + 1)))

    def _anywhere(self, file: str) -> set[int]:
        return set().union(*self._lines.get(file, {}).values())

    def _calling(self, function: str, seen: set[str]) -> set[int]:
        seen.add(function)
        found: set[int] = set()
        for file, lines, caller in self._uses.get(function, []):
            found |= self._at(file, lines)
            if caller is not None and caller not in seen:
                found |= self._calling(caller, seen)
        return found


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


def verdict(mutant: Mutant, reach: Reach, copy: Path, seconds: int) -> Verdict:
    """Apply a mutant to a copy, run its tests, and revert it."""
    reached = reach.of(mutant)
    chosen = chosen_of(reached, seconds / 2)
    started = time.monotonic()
    status, by = "survived" if reached else "unreached", ""
    while chosen:
        status, by = _tried(mutant, copy, chosen, seconds, kernels=mutant.file in reach.kernels)
        if status != "killed" or tests_of(copy, ["-x", by], seconds)[0] == 0:
            break
        chosen.remove(by)
        status, by = "survived", ""
    return Verdict(
        asdict(mutant), status, by, len(reached), len(chosen), round(time.monotonic() - started, 1)
    )


def _tried(
    mutant: Mutant, copy: Path, chosen: Sequence[str], seconds: int, *, kernels: bool
) -> tuple[str, str]:
    """Status of the tests with a mutant, and the test that fails."""
    path = copy / mutant.file
    source, times = path.read_bytes(), path.stat()
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


def run(tree: Path, contexts: Path, out: Path, asked: dict[str, int], jobs: int) -> None:
    with gzip.open(contexts, "rt", encoding="utf-8") as stream:
        reach = Reach(tree, json.load(stream))
    done: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {"asked": asked, "mutants": {}}
    if done["asked"] != asked:
        sys.exit(f"{out} is of {done['asked']}, not of {asked}; give another file")
    drawn = {str(number): mutant for number, mutant in enumerate(draw(tree, asked["seed"], asked["number"]))}
    free: SimpleQueue[Path] = SimpleQueue()
    lock = Lock()

    def one(number: str) -> None:
        copy = free.get()
        try:
            found = verdict(drawn[number], reach, copy, asked["seconds"])
        finally:
            free.put(copy)
        with lock:
            done["mutants"][number] = asdict(found)
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
        list(pool.map(one, [number for number in drawn if number not in done["mutants"]]))
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
        command.add_argument("--contexts", type=Path, required=True, help="gzipped JSON")
    commands.choices["record"].add_argument("--workers", type=int, default=2)
    commands.choices["record"].add_argument("tests", nargs="*", help="files or ids, instead of all")
    for option, value in (("seed", 0), ("number", 40), ("seconds", 120), ("jobs", 1)):
        commands.choices["run"].add_argument(f"--{option}", type=int, default=value)
    commands.choices["run"].add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "record":
        record(given.tree.resolve(), given.contexts, given.workers, given.tests)
    else:
        asked = {"seed": given.seed, "number": given.number, "seconds": given.seconds}
        run(given.tree.resolve(), given.contexts, given.out, asked, given.jobs)


if __name__ == "__main__":
    main()
