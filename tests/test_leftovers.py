"""The next command clears what killed processes leave, and nobody else's files."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.moments import run as moments_run
from streaming_jsmf.moments.integrity import leftovers
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage.lock import is_left, lock_path, recover, sole_writer, work_place
from streaming_jsmf.storage.replace import put_in_place, store_written
from streaming_jsmf.topics.store import read_model
from tests.campaigns.kills import states
from tests.corpora import planted, with_more, write_corpus
from tests.outcomes import described, invoked, refused
from tests.processes import PATIENCE, command, ended, started, wait_for, wait_until
from tests.results import INFER, SCAN, WHOLE, wanted_of, write_result, write_stores

OTHER = ("--topics", "2", *INFER[2:])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stores(tmp_path_factory.mktemp("made"))


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "f")


def leave_lock(store: Path, **told: object) -> None:
    """The lock file of a process that was killed."""
    owner = {"user": "anna", "host": "h", "pid": 1, "command": "c", "started": 0.0, **told}
    lock_path(store).write_text(json.dumps(owner))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- directories --------------------------------------------------------------------------------------------------


def test_a_target_between_two_renames_is_restored(tmp_path: Path) -> None:
    (tmp_path / ".t.old").mkdir()
    (tmp_path / ".t.old" / "mine").touch()
    (tmp_path / ".t.new").mkdir()
    recover(tmp_path / "t")
    assert (names(tmp_path), names(tmp_path / "t")) == ({"t"}, {"mine"})


def test_temporary_files_are_removed_and_others_stay(tmp_path: Path) -> None:
    target = tmp_path / "t"
    (target / "a").mkdir(parents=True)
    hex_name = "0123456789abcdef" * 2
    kept = (".hidden", hex_name, f"a.{hex_name}", ".t.partial")
    for name in (f"a/.zarr.json.{hex_name}", f"a/0.{hex_name}.partial", *kept):
        (target / name).touch()
    for name in (".t.new", ".t.old", "t.partial", ".t.other"):
        (tmp_path / name).mkdir()
    leave_lock(target)
    recover(target)
    assert names(tmp_path) == {"t", "t.partial", ".t.other"}
    assert names(target) == {"a", *kept}
    assert names(target / "a") == set()


def test_files_of_a_running_process_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "t"
    with sole_writer(target), store_written(target) as beside:
        recover(target)
        assert beside.exists()
    assert names(tmp_path) == {"t"}
    assert not is_left(target)


def test_an_interrupt_removes_what_other_threads_still_write(tmp_path: Path) -> None:
    beside = tmp_path / ".t.new"

    def write_on() -> None:
        # As Zarr's threads, which an interrupt of the main thread does not stop.
        with suppress(FileNotFoundError):
            for number in range(1000):
                (beside / f"later-{number}").touch()
                time.sleep(0.005)

    def interrupted() -> None:
        for number in range(5000):
            (beside / f"first-{number}").touch()
        pool.submit(write_on)
        wait_until((beside / "later-0").exists, "the thread")
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyboardInterrupt), store_written(tmp_path / "t"):
        interrupted()
    assert not names(tmp_path)


def test_a_replacement_that_fails_keeps_the_target(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "nothing", tmp_path / "t")
    assert names(tmp_path) == {"t"}


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    """The workspace of the target t."""
    return Workspace.beside(tmp_path / "t", "simulation", {"a": 1})


def commit_killed(work: Workspace, part: str = WHOLE) -> None:
    """Leave what a process leaves that is killed behind the rename of its result."""
    leave_work(work)
    write_result(work.target, dict(work.arguments), part)
    leave_lock(work.target)


def leave_work(work: Workspace) -> None:
    work.start()
    work.checkpoints().commit_part("00000", PartialResult({}), {})


def test_the_work_for_a_result_is_removed_only_once_the_result_exists(
    work: Workspace, tmp_path: Path
) -> None:
    leave_work(work)
    leave_lock(work.target)
    recover(work.target)
    assert names(tmp_path) == {"t.partial"}, "it may be resumed"
    commit_killed(work)
    for _ in range(2):
        with work.acquire(wanted_of(work)) as publish:
            assert publish is None
        assert names(tmp_path) == {"t"}


def test_the_work_for_another_result_stays(work: Workspace, tmp_path: Path) -> None:
    commit_killed(work)
    other = replace(work, arguments={"a": 2})
    with pytest.raises(InputError, match=r"t: exists already.* \(a: stored 1, asked 2; "):
        other.acquire(wanted_of(other)).__enter__()
    assert names(tmp_path) == {"t", "t.partial", ".t.lock.json"}, "the other command changes nothing"
    work.remove()
    leave_work(other)
    with work.acquire(wanted_of(work)) as publish:
        assert publish is None
    assert names(tmp_path) == {"t", "t.partial"}, "it would have replaced the result"


def run_out_of_room(work: Workspace) -> None:
    with work.acquire(wanted_of(work), resumable=False):
        work.checkpoints().commit_part("00000", PartialResult({}), {})
        raise OSError("no room")


def test_work_that_cannot_be_resumed_is_removed_under_the_lock_alone(work: Workspace, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no room"):
        run_out_of_room(work)
    assert names(tmp_path) == set()
    with work.acquire(wanted_of(work)):
        work.checkpoints().commit_part("00000", PartialResult({}), {})
        with pytest.raises(InputError, match="has been writing it"):
            work.acquire(wanted_of(work), resumable=False).__enter__()
        assert work.steps_done


def test_a_damaged_result_is_replaced_by_a_new_one_but_foreign_files_are_not(
    work: Workspace, tmp_path: Path
) -> None:
    write_result(work.target, dict(work.arguments), "damaged")

    def make_again() -> None:
        with work.acquire(wanted_of(work)) as publish:
            assert publish is not None
            assert (work.target / "part-00000.parquet").read_text() == "damaged"
            with publish() as place:
                write_result(place, dict(work.arguments))

    (work.target / "thesis").write_text("mine")
    with pytest.raises(InputError, match=r"t/thesis: .*move it away"):
        make_again()
    (work.target / "thesis").rename(tmp_path / "thesis")
    make_again()
    assert names(tmp_path) == {"t", "thesis"}
    assert (work.target / "part-00000.parquet").read_text() == WHOLE


def test_a_target_that_appears_meanwhile_is_not_replaced(work: Workspace, tmp_path: Path) -> None:
    with work.acquire(wanted_of(work)) as publish:
        assert publish is not None
        (tmp_path / "t").write_text("mine")
        with pytest.raises(InputError, match=r"t .*move it away"), publish():
            pass
    assert (tmp_path / "t").read_text() == "mine"


# -- models -------------------------------------------------------------------------------------------------------


def test_a_model_behind_a_link_is_replaced_in_place(folder: Path) -> None:
    (folder / "disk").mkdir()
    (folder / "model").rename(folder / "disk" / "real")
    (folder / "model").symlink_to(folder / "disk" / "real")
    done = invoked("infer", folder / "m", folder / "model", *INFER, "--topics", "2", "--overwrite")
    assert done.code == 0, done.err
    assert (folder / "model").is_symlink()
    assert read_model(folder / "disk" / "real").arrays["anchors"].size == 2
    assert names(folder / "disk") == {"real"}
    assert names(folder) == {"a", "disk", "m", "model", "texts.jsonl"}


def test_the_working_directory_is_not_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder / "model")
    for place in (".", "../model"):
        other = invoked("infer", folder / "m", place, *OTHER, "--overwrite")
        refused(other, 2, "working directory", "another")
        assert invoked("infer", folder / "m", place, *INFER, "--overwrite").code == 0, "nothing to replace"
    monkeypatch.chdir(folder / "model" / "word")
    refused(invoked("infer", folder / "m", "..", *OTHER, "--overwrite"), 2, "working directory")
    assert names(folder) == {"a", "m", "model", "texts.jsonl"}


def test_a_store_that_has_followed_does_nothing_when_it_is_told_again(folder: Path) -> None:
    more = with_more(folder / "a", folder / "more", planted(60, 40, 3, length=30, seed=8).counts)
    for corpus in (more, folder / "a"):
        follow = ("scan", corpus, folder / "m", "--follow", *SCAN[-2:])
        assert invoked(*follow).code == 0
        before = states(folder)
        outcome = invoked(*follow)
        assert (outcome.code, states(folder)) == (0, before)


# -- what info says -----------------------------------------------------------------------------------------------


def test_info_names_leftovers_and_writes_nothing(folder: Path) -> None:
    model, store = folder / "model", folder / "m"
    counts = model / "evaluation" / ("f" * 32)
    new = counts.with_name(f".{counts.name}.new")
    shutil.copytree(model, folder / ".model.old")
    new.mkdir(parents=True)
    shutil.copytree(store / "records" / "sums", store / "records" / f"sums-part-{'0' * 32}")
    (store / "partials" / f"projection-fold-{'0' * 32}-{'1' * 32}").mkdir()
    for place in (model, counts):
        leave_lock(place)
    before = states(folder)
    left = (lock_path(model), folder / ".model.old", lock_path(counts), new)
    assert sorted(described(model)["leftovers"]) == sorted(map(str, left))
    named = described(store)["leftovers"]
    assert sorted(named) == sorted(map(str, leftovers(read_store(store))))
    assert len(named) == 2
    assert states(folder) == before
    assert invoked("scan", folder / "a", store, *SCAN).code == 0
    assert not leftovers(read_store(store))


def test_info_names_unfinished_work_and_what_is_between_two_renames(folder: Path) -> None:
    work, old = work_place(folder / "model"), folder / ".model.old"
    work.mkdir()
    assert described(folder / "model")["unfinished"] == [str(work)]
    work.rmdir()
    (folder / "model").rename(old)
    expected = {"kind": "nothing yet", "complete": False, "leftovers": [str(old)]}
    assert described(folder / "model") == expected
    assert names(folder) == {"a", "m", ".model.old", "texts.jsonl"}


@pytest.mark.slow
def test_a_repair_that_is_killed_keeps_the_history(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the results of parts: their notes are in the record alone.
    store = folder / "sums"
    scan = ("scan", folder / "a", store, *(word for word in SCAN if "keep" not in word))
    assert invoked(*scan).code == 0
    outcome = read_store(store).outcome("sums")
    assert outcome is not None
    assert len(outcome["history"]) > 1
    (store / "row_sum" / "c" / "0").write_bytes(b"")

    with monkeypatch.context() as patch:
        patch.setattr(moments_run, "write_record", Mock(side_effect=StoreError("killed")))
        assert invoked(*scan).code == 3
    assert invoked(*scan).code == 0
    mended = read_store(store).outcome("sums")
    assert mended is not None
    assert mended["history"] == outcome["history"]


# -- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_processes_end_with_their_parent(tmp_path: Path) -> None:
    counts = planted(900, 800, 10, length=60, seed=7).counts
    corpus, store = write_corpus(tmp_path / "corpus", counts, row_group_rows=30), tmp_path / "m"
    line = command("scan", corpus, store, "--max-topics", "20", "--partition-nonzeros", "1500")
    with started([*line, "--scheduler", "processes", "--workers", "2"]) as process:
        wait_for(process, lambda: bool(list(store.glob("records/sums-*/zarr.json"))))
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        process.kill()
        process.wait(PATIENCE)
        wait_until(lambda: not any(_is_alive(worker) for worker in workers), "the end of the workers")


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.cluster
def test_a_local_cluster_listens_to_this_machine_alone() -> None:
    with Execution("cluster", workers=1).executor():
        listening = [
            connection.laddr.ip
            for process in (psutil.Process(), *psutil.Process().children(recursive=True))
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        ]
    assert listening
    assert set(listening) <= {"127.0.0.1", "::1"}


@pytest.mark.slow
def test_closed_standard_streams_cause_no_error(made: Path, tmp_path: Path) -> None:
    line = command("scan", made / "a", tmp_path / "m", *SCAN)
    done = ended(["sh", "-c", 'exec "$@" 2>&-', "sh", *line])
    assert (done.code, done.out) == (0, f"moments: {tmp_path / 'm'}\n")
    assert not read_store(tmp_path / "m").missing_stages


SLOW_IMPORT = """
import signal, sys
import streaming_jsmf.__main__

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "streaming_jsmf.cli.main":
            try:
                signal.raise_signal(int(sys.argv[1]))
            except KeyboardInterrupt:
                raise ImportError("a package that makes another error of it") from None

sys.meta_path.insert(0, Slow())
streaming_jsmf.__main__.main()
"""


HALF_MADE = """
import os, signal
import streaming_jsmf.__main__
import streaming_jsmf.cli.main as commands

class HalfMade:
    def __init__(self):
        os.kill(os.getpid(), signal.SIGINT)
        self.open = True

    def __del__(self):
        self.open

commands.cli.main = lambda **_: HalfMade()
streaming_jsmf.__main__.main()
"""


@pytest.mark.parametrize(
    ("script", "number", "word"),
    [
        (SLOW_IMPORT, signal.SIGINT, "interrupted"),
        (SLOW_IMPORT, signal.SIGTERM, "terminated"),
        (HALF_MADE, signal.SIGINT, "interrupted"),
    ],
    ids=["INT in an import", "TERM in an import", "an object is half made"],
)
def test_an_interrupt_is_one_line(script: str, number: int, word: str) -> None:
    done = ended([sys.executable, "-c", script, str(int(number))])
    assert done.code == 128 + number
    assert done.err == f"{word}; run the same command again to go on from what is committed\n"


FORK = """
import os
from streaming_jsmf.jobs.blas import single_blas_thread

with single_blas_thread():
    pass
child = os.fork()
if not child:
    with single_blas_thread():
        os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_can_work_too() -> None:
    assert ended([sys.executable, "-c", FORK]).out == "0\n"
