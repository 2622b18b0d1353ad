"""Jobs: how they are ordered, locked, given to workers, and interrupted."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from shutil import copytree
from typing import Any
from unittest.mock import Mock

import dask
import numpy as np
import pyarrow as pa
import pytest

import streaming_jsmf as sj
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs import execution
from streaming_jsmf.jobs.checkpoints import (
    FILES,
    Checkpoints,
    PartialResult,
    Record,
    SumReduction,
    key_of,
    write_record,
)
from streaming_jsmf.jobs.events import Event, PartitionCommitted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, Part, map_job, run_job, run_steps
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.linalg import panels
from streaming_jsmf.storage.lock import lock_path, read_owner, sole_writer
from streaming_jsmf.storage.paths import make_directory, sha256_of, store_path, write_bytes
from streaming_jsmf.storage.tables import read_table, write_table
from tests.cases import first_cases
from tests.corpora import planted, write_corpus
from tests.damage import ALL, Damage
from tests.interrupted import FORCED, ORDERLY, SIGNALS, after_the_end, while_nobody_reads
from tests.outcomes import Command, refused
from tests.processes import PATIENCE, ended, held, started, wait_for, wait_until
from tests.results import wanted_of

ALONE = Execution("synchronous")

# -- tasks without a reduction ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Squares:
    folder: Path
    bad: int = -1


def write_square(squares: Squares, index: int) -> Record:
    if index == squares.bad:
        raise OSError("no room")
    path = squares.folder / f"{index}.txt"
    path.write_text(str(index**2))
    return {"square": index**2, FILES: {path.name: sha256_of(path)}}


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return Workspace.beside(tmp_path / "out", "test", {"power": 2, "words": "a" * 64})


def run_squares(work: Workspace, bad: int = -1, then: BaseException | None = None) -> list[int]:
    """Return the numbers that this run squares."""
    events: list[Event] = []
    with work.acquire(wanted_of(work)), ALONE.executor(events.append, on_bad_input=work.remove) as executor:
        job = map_job(write_square, Squares(work.root, bad), [1] * 4, work.checkpoints("squares"))
        run_job(job, executor)
        if then is not None:
            raise then
        assert [record["square"] for record in job.records()] == [index**2 for index in range(4)]
    found = [event for event in events if isinstance(event, PartitionCommitted)]
    assert all(event.cost is not None for event in found)
    return sorted(event.index for event in found)


def test_committed_tasks_are_not_run_again(work: Workspace) -> None:
    with pytest.raises(OSError, match="no room"):
        run_squares(work, bad=2)
    done = {int(key) for key in work.checkpoints("squares").committed().parts}
    assert (2 in done, work.steps_done) == (False, {"squares": len(done)})
    assert set(run_squares(work)) == {0, 1, 2, 3} - done
    assert run_squares(work) == []


@pytest.mark.parametrize("name", ["1.txt", "records/squares-part-00001/zarr.json"])
@pytest.mark.parametrize("damage", ALL)
def test_a_damaged_task_is_run_again(name: str, damage: Damage, work: Workspace) -> None:
    run_squares(work)
    damage(work.root / name)
    assert run_squares(work) == [1]
    assert (work.root / "1.txt").read_text() == "1"
    assert run_squares(work) == []


@pytest.mark.parametrize(
    ("error", "stays"), [(KeyboardInterrupt(), True), (OSError(28, "no room"), True), (InputError(), False)]
)
def test_only_bad_input_removes_the_work(error: BaseException, stays: bool, work: Workspace) -> None:
    with pytest.raises(type(error)):
        run_squares(work, then=error)
    assert work.root.exists() == stays


def test_work_without_commits_is_removed(work: Workspace, tmp_path: Path) -> None:
    with work.acquire(wanted_of(work)):
        assert work.exists()
    assert list(tmp_path.iterdir()) == []
    # A kill leaves it.
    Workspace(work.root, "test", {"power": 3}).start()
    (work.root / "half").mkdir()
    with work.acquire(wanted_of(work)):
        assert not (work.root / "half").exists()


# -- steps of parts and folds -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scaled(SumReduction):
    """Each part contributes its number times the result before, and logs that it was computed."""

    results: Checkpoints
    before: str
    log: Path

    def compute(self, number: int) -> PartialResult:
        with self.log.open("a") as file:
            file.write(f"{self.before} {number}\n")
        total = number * self.results.read_fold(self.before).arrays["total"]
        return PartialResult({"total": total}, {"parts": 1})


def multiply(path: Path, *, interrupted: bool = False) -> list[float]:
    """Three steps, each of which multiplies by 0 + 1 + 2; ``interrupted`` in the third."""
    work = Workspace(path / "w", "test", {"seed": 1})
    with ALONE.executor(on_bad_input=work.remove) as executor:
        work.start()
        results, sums = work.checkpoints("results"), work.checkpoints("scaled")

        def step(number: int, key: str, before: PartialResult) -> PartialResult:
            assert before.arrays["total"].tolist() == [3**number]
            keys = [key_of(str(i), key) for i in range(3)]
            parts = [Part(part, 1, i) for i, part in enumerate(keys)]
            job = Job(sums, Scaled(results, key, path / "log"), parts, FoldOrder(tuple(keys), ""))
            run_job(job, executor)
            if interrupted and number == 2:
                raise KeyboardInterrupt
            total = job.result()
            assert total.scalars == {"parts": 3}
            sums.clear()
            return total

        total = run_steps(results, PartialResult({"total": np.ones(1)}), 3, step).arrays["total"]
    assert len(results.committed().folds) == 1
    return [float(value) for value in total]


def test_committed_steps_and_parts_are_not_computed_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        multiply(tmp_path, interrupted=True)
    assert multiply(tmp_path) == [27]
    log = (tmp_path / "log").read_text().splitlines()
    assert len(log) == len(set(log)) == 9
    assert multiply(tmp_path) == [27]
    assert (tmp_path / "log").read_text().splitlines() == log


# -- whose work it is -------------------------------------------------------------------------------------------------


def test_unfinished_work_of_other_arguments_is_refused(work: Workspace) -> None:
    work.start()
    write_record(work.root, "first-part-a", {"arrays": {}, "scalars": {}, "note": {}})
    other = Workspace(work.root, "test", {"power": 3, "words": "b" * 64})
    for begin in (other.start, other.acquire(wanted_of(other)).__enter__):
        with pytest.raises(SettingsMismatchError, match=r"power: stored 2, asked 3; finish it"):
            begin()
    assert work.steps_done == {"first": 1}
    other.start(replace=True)
    assert other.steps_done == {}


def test_files_of_others_are_left_alone(work: Workspace) -> None:
    work.root.mkdir()
    (work.root / "thesis.txt").write_text("mine")
    for begin in (work.start, work.acquire(wanted_of(work)).__enter__):
        with pytest.raises(InputError, match=f"{work.root}.* something else"):
            begin()
    assert [path.name for path in work.root.iterdir()] == ["thesis.txt"]


# -- tables of tasks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("root", ["{folder}", "memory://{folder}"])
def test_a_table_of_a_task_is_read_back_or_its_damage_is_named(root: str, tmp_path: Path) -> None:
    place = store_path(f"{root.format(folder=tmp_path)}/c.partial")
    make_directory(place)
    write_table(place / "words.arrow", pa.table({"word": ["a", "b"]}))
    assert read_table(place / "words.arrow").to_pydict() == {"word": ["a", "b"]}
    write_bytes(place / "words.arrow", b"ARROW1")
    for name in ("words.arrow", "missing.arrow"):
        with pytest.raises(StoreError, match=f"{name}.*remove .*/c.partial and run again"):
            read_table(place / name)


# -- Two processes never write one store: the second is refused with the name of the first; dead ones block nobody --


SETTINGS = ("--max-topics", "20", "--partition-nonzeros", "2000", "--scheduler", "threads", "--workers", "1")
TRIES = 20
BROKEN = "is broken: its process has ended"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(900, 800, 10, length=60, seed=7).counts
    return write_corpus(tmp_path_factory.mktemp("lock") / "corpus", counts, row_group_rows=30)


def test_a_second_scan_is_refused_and_resumes_once_the_first_is_killed(
    corpus: Path, tmp_path: Path, invoke: Command
) -> None:
    store = tmp_path / "moments"
    scan = ("scan", corpus, store, *SETTINGS)
    with started(held(1, *scan)) as first:
        wait_for(first, lambda: bool(list(store.glob("records/sums-*/zarr.json"))))
        owner = read_owner(lock_path(store))
        assert owner is not None
        assert (owner.pid, owner.host) == (first.pid, socket.gethostname())
        for more in ([], ["--follow"]):
            holder = f"process {first.pid} (-c scan {corpus} {store}"
            refused(invoke(*scan, *more), 2, holder, "has been writing it for")
        assert invoke("info", store, "--json").code == 0, "reading needs no lock"
        first.kill()
        first.wait(timeout=PATIENCE)
        done = invoke(*scan)
    assert done.code == 0, done.err
    for part in (f"process {first.pid}", BROKEN, "were finished by an earlier run"):
        assert part in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["moments"]


def test_a_complete_store_is_used_while_another_writes_it(tmp_path: Path, invoke: Command) -> None:
    path = write_corpus(tmp_path / "c", planted(60, 40, 3).counts)
    scan = ("scan", path, tmp_path / "m", *SETTINGS, "--max-topics", "3")
    assert invoke(*scan).code == 0
    with sole_writer(tmp_path / "m"):
        assert invoke(*scan).code == 0


def refusal(store: Path) -> str | None:
    """The message with which the lock of a store is refused; None if it can be taken."""
    try:
        with sole_writer(store):
            return None
    except InputError as error:
        return str(error)


def test_the_lock_is_removed_when_the_work_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with sole_writer(tmp_path / "m"):
            assert lock_path(tmp_path / "m").exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_link_to_a_store_has_the_lock_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "m")
    with sole_writer(tmp_path / "m"):
        assert "writing it" in (refusal(tmp_path / "link") or "")


def left_behind(**changes: Any) -> bytes:
    """The lock of a process that has ended."""
    owner = {"user": "anna", "host": "elsewhere", "pid": 1, "command": "streaming-jsmf scan", "started": 0.0}
    return json.dumps(owner | changes).encode()


LEFT_BEHIND = {
    "of another host": left_behind(),
    "of a process that lives": left_behind(host=socket.gethostname(), pid=os.getppid()),
    "not a number": left_behind(started=float("nan")),
    "wrong types": left_behind(started="today", pid=[1], user=None, host={}),
    "several lines": left_behind(user="anna\nerror: all is lost"),
    "too few fields": b"{}",
    "cut": b"{",
    "empty": b"",
    "no text": b"\xff\x00",
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("text", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
def test_the_text_of_a_lock_neither_holds_nor_breaks_it(
    text: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = lock_path(tmp_path / "m")
    place.write_bytes(text)
    with sole_writer(tmp_path / "m"):
        owner = read_owner(place)
        assert owner is not None
        assert owner.pid == os.getpid()
        place.write_bytes(text)
        said = refusal(tmp_path / "m") or ""
        assert ("writing it" in said, "; wait until" in said, "\n" in said) == (True, True, False)
    assert list(tmp_path.iterdir()) == []
    assert len(caplog.messages) == bool(text)
    assert all(BROKEN in line and "\n" not in line for line in caplog.messages)


def test_links_and_pipes_in_the_place_of_a_lock_are_replaced(tmp_path: Path) -> None:
    mine, place = tmp_path / "thesis.txt", lock_path(tmp_path / "m")
    mine.write_text("mine")
    for make in (
        lambda: place.symlink_to(mine),
        lambda: place.symlink_to("nowhere"),
        lambda: os.mkfifo(place),
    ):
        make()
        with sole_writer(tmp_path / "m"):
            assert place.is_file()
            assert not place.is_symlink()
    assert mine.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [mine]


def test_a_directory_in_the_place_of_a_lock_is_named(tmp_path: Path) -> None:
    lock_path(tmp_path / "m").mkdir()
    assert re.search(r"\.m\.lock\.json: a directory .*move it away", refusal(tmp_path / "m") or "")


HOLD = """
import subprocess, sys, time
from pathlib import Path
from streaming_jsmf.storage.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    time.sleep(600)
"""


def test_a_killed_process_holds_no_lock_though_its_child_lives_and_nobody_waits_for_it(
    tmp_path: Path,
) -> None:
    store = tmp_path / "m"
    with started([sys.executable, "-c", HOLD, str(store)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        assert f"process {holder.pid} " in (refusal(store) or "")
        holder.kill()
        # The system releases the lock of a zombie soon, not at once.
        wait_until(lambda: refusal(store) is None, "the lock of a killed process")
        with sole_writer(store):
            os.kill(child, 0)


def test_a_lock_that_was_deleted_by_hand_takes_no_other_with_it(tmp_path: Path) -> None:
    place = lock_path(tmp_path / "m")
    with sole_writer(tmp_path / "m"):
        place.unlink()
        place.write_text("of another")
    assert place.read_text() == "of another"


def test_a_file_system_without_locks_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    with sole_writer(tmp_path / "m"):
        pass
    [line] = caplog.messages
    assert "no locks on this file system" in line
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_not_unicode_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["streaming-jsmf", "scan", "caf\udce9"])
    with sole_writer(tmp_path / "m"):
        assert re.search(r"scan caf.udce9\) ", refusal(tmp_path / "m") or "")


def _try_together(root: Path, barrier: Any, seconds: float, results: Connection) -> None:
    """Take one lock after another at the same time as another process, and send which were obtained."""
    had = []
    for number in range(TRIES):
        barrier.wait(seconds)
        try:
            with sole_writer(root / str(number)):
                had.append(True)
                barrier.wait(seconds)
        except InputError:
            had.append(False)
            barrier.wait(seconds)
    results.send(had)


@pytest.mark.slow
def test_exactly_one_of_two_simultaneous_processes_gets_the_lock(tmp_path: Path) -> None:
    # At every second try, both find a lock left by a dead process.
    for number in range(0, TRIES, 2):
        lock_path(tmp_path / str(number)).write_bytes(left_behind())
    context = multiprocessing.get_context("spawn")
    barrier, pipes = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)]
    processes = [
        context.Process(target=_try_together, args=(tmp_path, barrier, PATIENCE, sending))
        for _, sending in pipes
    ]
    for process in processes:
        process.start()
    had = [receiving.recv() for receiving, _ in pipes if receiving.poll(PATIENCE)]
    for process in processes:
        process.join(PATIENCE)
        process.kill()
    assert [sum(pair) for pair in zip(*had, strict=True)] == [1] * TRIES
    assert list(tmp_path.iterdir()) == []


# -- ``workers`` is the number of tasks at once and of threads, in every function; None stands for one per core --


CORES, K = 4, 3
TEXTS = [f"ship{i % 5} sail{i % 7} wave{i % 6} harbour{i % 9} anchor{i % 8} storm{i % 6}" for i in range(99)]
COUNTS = planted(300, 60, K, length=40, seed=0).counts


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pools of threads that compute, on a machine of four cores."""
    sizes = list[int]()

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers: int, **options: Any) -> None:
            sizes.append(workers)
            super().__init__(workers, **options)

    monkeypatch.setattr(os, "cpu_count", lambda: CORES)
    monkeypatch.setattr(panels, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(execution, "ThreadPoolExecutor", Pool)
    return sizes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, its moments and a model."""
    root = tmp_path_factory.mktemp("workers")
    write_corpus(root / "c", COUNTS)
    sj.fit(root / "c", root / "m", K, polish=False, scheduler="synchronous")
    return root


def estimated(engine: Any, workers: int | None, **more: Any) -> None:
    model = engine(K, workers=workers, polish_steps=1, **more).fit(COUNTS)
    model.score(COUNTS)
    model.transform(COUNTS)


CALLS: dict[str, Callable[[Path, Path, int | None], Any]] = {
    "ingest": lambda _, out, n: sj.ingest(TEXTS, out / "c", stop_words="none", execution=Execution(workers=n)),
    "scan": lambda root, out, n: sj.scan(root / "c", out / "m", max_topics=K, execution=Execution(workers=n)),
    "infer": lambda root, out, n: sj.infer(root / "m.moments", out / "m", K, workers=n),
    "fit": lambda root, out, n: sj.fit(root / "c", out / "m", K, workers=n),
    "fit, execution": lambda root, out, n: sj.fit(root / "c", out / "m", K, execution=Execution(workers=n)),
    "fit, stod": lambda root, out, n: sj.fit(root / "c", out / "m", K, engine="stod", workers=n),
    "polish": lambda root, out, n: sj.polish(root / "m", root / "c", out / "m", workers=n),
    "transform": lambda root, out, n: sj.transform(root / "m", root / "c", out / "s.parquet", workers=n),
    "evaluate": lambda root, out, n: sj.evaluate(copytree(root / "m", out / "m"), corpus=root / "c", workers=n),
    "choose_k": lambda root, out, n: sj.choose_k(root / "c", [2, K], out=out / "k", workers=n),
    "choose_k, moments": lambda root, out, n: sj.choose_k(root / "m.moments", [2, K], out=out / "k", workers=n),
    "LRJSMF": lambda _, __, n: estimated(sj.LRJSMF, n),
    "STOD": lambda _, __, n: estimated(sj.STOD, n),
}  # fmt: skip


@pytest.mark.parametrize("name", first_cases(CALLS, 5))
def test_one_worker_is_one_thread(name: str, folder: Path, tmp_path: Path, pools: list[int]) -> None:
    CALLS[name](folder, tmp_path, 1)
    assert {*pools} <= {1}


@pytest.mark.parametrize(
    "name",
    first_cases(
        sorted(CALLS.keys() - {"fit, execution", "fit, stod", "choose_k, moments", "STOD"}, reverse=True), 5
    ),
)
def test_the_default_is_one_per_core(name: str, folder: Path, tmp_path: Path, pools: list[int]) -> None:
    CALLS[name](folder, tmp_path, None)
    assert max(pools) == CORES


def test_a_synchronous_scheduler_uses_one_thread_throughout(
    folder: Path, tmp_path: Path, pools: list[int]
) -> None:
    sj.fit(folder / "c", tmp_path / "m", K, scheduler="synchronous")
    estimated(sj.LRJSMF, None, scheduler="synchronous")
    assert pools == []


def test_more_workers_than_cores_are_no_more_threads_of_the_inference(
    folder: Path, tmp_path: Path, pools: list[int]
) -> None:
    sj.infer(folder / "m.moments", tmp_path / "m", K, workers=100)
    assert {*pools} == {CORES}
    with pytest.raises(sj.InputError, match="workers is 0; give a whole number of at least 1"):
        sj.infer(folder / "m.moments", tmp_path / "n", K, workers=0)


@pytest.mark.parametrize("kind", [np.uint8, pytest.param(np.int64, marks=pytest.mark.slow)])
def test_integers_of_numpy_are_integers(kind: Any, folder: Path, tmp_path: Path) -> None:
    moments, how = folder / "m.moments", {"workers": kind(1), "polish": False}
    model = sj.infer(moments, tmp_path / "i", kind(K), workers=kind(1), max_iterations=kind(20))
    assert model.arrays["anchors"].size == K
    assert sj.fit(folder / "c", tmp_path / "f", kind(K), **how).n_topics == K
    assert len(sj.fit(folder / "c", tmp_path / "several", [kind(2), kind(K)], **how).models) == 2
    assert len(sj.choose_k(moments, np.array([2, K], kind), out=tmp_path / "k").models) == 2
    with pytest.raises(sj.InputError, match="a single number of topics"):
        sj.choose_k(moments, kind(K))
    with pytest.raises(sj.InputError, match="the second argument is where the model goes"):
        sj.fit(folder / "c", kind(K))
    with pytest.raises(sj.InputError, match="n_topics is 0; give a whole number"):
        sj.infer(moments, tmp_path / "none", kind(0))


# -- Ctrl-C and SIGTERM end a command within seconds, in one line, and leave nothing that the next command trips over --


WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated"}
LOCK = ".store.lock.json"


@pytest.mark.slow
def test_a_signal_ends_a_command_whatever_it_meets(tmp_path: Path) -> None:
    done = ended([sys.executable, "-m", "tests.interrupted", str(tmp_path)])
    found = json.loads(done.out)
    for number in SIGNALS:
        line = f"{WORDS[number.name]}; run the same command again to go on from what is committed"
        expected = (128 + number, line, "interrupted", line)
        for moment in ORDERLY:
            lines = ("", *expected[2:]) if moment is while_nobody_reads else expected[1:]
            assert found[f"{moment.__name__}-{number.name}"] == [expected[0], *lines, []]
        for moment in FORCED:
            # The lock tells the next command that there is something to clear.
            assert found[f"{moment.__name__}-{number.name}"] == [*expected, [LOCK]]
        assert found[f"{after_the_end.__name__}-{number.name}"] == [0, "", "done", None, []]


def note_blocked(file: Path) -> None:
    file.write_text(repr(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())))


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["processes", pytest.param("cluster", marks=pytest.mark.slow)])
def test_workers_leave_ctrl_c_to_the_command_from_their_first_moment_on(
    scheduler: str, tmp_path: Path
) -> None:
    """They are started with it blocked: what they do at it themselves would come too late for their imports."""
    with Execution(scheduler, workers=1).executor() as executor:
        executor.compute(dask.delayed(note_blocked)(tmp_path / "blocked"))
    assert (tmp_path / "blocked").read_text() == "True"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
