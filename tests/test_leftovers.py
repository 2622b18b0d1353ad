"""What killed processes leave is cleared by who comes next, and nobody else's files with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.config import fingerprint
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage.lock import announce_commit, is_left, lock_path, recover, sole_writer, work_place
from streaming_jsmf.storage.replace import directory_written_beside, put_in_place
from streaming_jsmf.topics.store import read_model
from tests.campaigns.kills import states
from tests.corpora import planted, write_corpus
from tests.outcomes import Command, refused
from tests.processes import PATIENCE, command, ended, started, wait_for, wait_until

SCAN = ("--max-topics", "3", "--partition-nonzeros", "900", "--keep-partitions", "--scheduler", "synchronous")
INFER = ("--topics", "3", "--anchor-min-df", "2")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, its moments and a model."""
    folder = tmp_path_factory.mktemp("made")
    write_corpus(folder / "corpus", planted(120, 40, 3, length=30, seed=7).counts, row_group_rows=10)
    assert run(["scan", str(folder / "corpus"), str(folder / "m"), *SCAN]) == 0
    assert run(["infer", str(folder / "m"), str(folder / "model"), *INFER]) == 0
    return folder


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


def test_a_target_between_two_renames_comes_back(tmp_path: Path) -> None:
    (tmp_path / ".t.old").mkdir()
    (tmp_path / ".t.old" / "mine").touch()
    (tmp_path / ".t.new").mkdir()
    recover(tmp_path / "t")
    assert names(tmp_path) == {"t"}
    assert names(tmp_path / "t") == {"mine"}


def test_rests_go_and_what_is_named_otherwise_stays(tmp_path: Path) -> None:
    target = tmp_path / "t"
    (target / "a").mkdir(parents=True)
    hex_name = "0123456789abcdef" * 2
    for rest in (f"a/.zarr.json.{hex_name}", f"a/0.{hex_name}.partial"):
        (target / rest).touch()
    kept = (".hidden", f"{hex_name}", f"a.{hex_name}", ".t.partial")
    for name in kept:
        (target / name).touch()
    for name in (".t.new", ".t.old", "t.partial", ".t.other"):
        (tmp_path / name).mkdir()
    leave_lock(target)
    recover(target)
    assert names(tmp_path) == {"t", "t.partial", ".t.other"}
    assert names(target) == {"a", *kept}
    assert names(target / "a") == set()


def test_what_a_living_process_writes_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "t"
    with sole_writer(target), directory_written_beside(target) as beside:
        recover(target)
        assert beside.exists()
    assert names(tmp_path) == {"t"}
    assert not is_left(target)


def test_a_replacement_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    with pytest.raises(FileNotFoundError):
        put_in_place(tmp_path / "nothing", tmp_path / "t")
    assert names(tmp_path) == {"t"}


def test_the_work_for_a_result_goes_only_when_the_result_is_there(tmp_path: Path) -> None:
    work = Workspace.beside(tmp_path / "t", "simulation", {"a": 1})
    with work.acquire():
        work.checkpoints().commit_metadata("00000", {})
        announce_commit(tmp_path / "t", "of-t", work=True)
        announced = lock_path(tmp_path / "t").read_text()
    for there in (False, True):
        if there:
            (tmp_path / "t").mkdir()
        lock_path(tmp_path / "t").write_text(announced)
        recover(tmp_path / "t")
        assert work.directory.exists() is not there


def test_a_result_is_known_by_the_command_that_was_killed_and_by_no_other(tmp_path: Path) -> None:
    work = Workspace.beside(tmp_path / "t", "simulation", {"a": 1})
    (tmp_path / "t").mkdir()
    leave_lock(tmp_path / "t", commits=f"{fingerprint({'a': 1})} {fingerprint({})}")
    with pytest.raises(InputError, match="t exists; remove it"), replace(work, arguments={"a": 2}).acquire():
        pass
    assert names(tmp_path) == {"t", ".t.lock.json"}, "the other command has come to nothing"
    with work.acquire() as commit:
        assert commit is None
    assert names(tmp_path) == {"t"}


def test_a_result_that_is_damaged_is_replaced_once_it_is_made_again(tmp_path: Path) -> None:
    work = Workspace.beside(tmp_path / "t", "simulation", {"a": 1})
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "part").write_text("damaged")
    leave_lock(tmp_path / "t", commits=f"{fingerprint({'a': 1})} {fingerprint({'part': '0' * 64})}")

    def make_again() -> None:
        with work.acquire() as commit:
            assert commit is not None
            assert (tmp_path / "t" / "part").read_text() == "damaged"
            (work.directory / "made").mkdir()
            (work.directory / "made" / "part").write_text("whole")
            commit(work.directory / "made")

    # What somebody has put there is not deleted with it.
    (tmp_path / "t" / "thesis").write_text("mine")
    with pytest.raises(InputError, match=r"t/thesis .*; move it away"):
        make_again()
    (tmp_path / "t" / "thesis").rename(tmp_path / "thesis")
    make_again()
    assert names(tmp_path) == {"t", "thesis"}
    assert (tmp_path / "t" / "part").read_text() == "whole"


def test_what_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    work = Workspace.beside(tmp_path / "t", "simulation", {"a": 1})
    with work.acquire() as commit:
        assert commit is not None
        (tmp_path / "t").write_text("mine")
        with pytest.raises(InputError, match=r"t .*; move it away"):
            commit(work.directory)
    assert (tmp_path / "t").read_text() == "mine"


# -- models -------------------------------------------------------------------------------------------------------


def test_a_model_behind_a_link_is_replaced_where_it_lies(folder: Path, invoke: Command) -> None:
    (folder / "disk").mkdir()
    (folder / "model").rename(folder / "disk" / "real")
    (folder / "model").symlink_to(folder / "disk" / "real")
    done = invoke(
        "infer", folder / "m", folder / "model", "--topics", "2", "--anchor-min-df", "2", "--overwrite"
    )
    assert done.code == 0, done.err
    assert (folder / "model").is_symlink()
    assert read_model(folder / "disk" / "real").arrays["anchors"].size == 2
    assert names(folder / "disk") == {"real"}
    assert names(folder) == {"corpus", "disk", "m", "model"}


def test_the_working_directory_is_not_replaced(
    folder: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "model")
    for place in (".", "../model"):
        refused(invoke("infer", "../m", place, *INFER, "--overwrite"), 2, "working directory", "another one")
    monkeypatch.chdir(folder / "model" / "word")
    refused(invoke("infer", "../../m", "..", *INFER, "--overwrite"), 2, "working directory")
    assert names(folder) == {"corpus", "m", "model"}


def test_a_changed_digit_in_the_metadata_of_a_model_is_told(folder: Path, invoke: Command) -> None:
    root = folder / "model" / "zarr.json"
    text = root.read_text()
    for key in ("topic_topic_sum", "n_topics", "fingerprint", "sha256", "seconds"):
        place = text.index(f'"{key}"') + len(key) + 2
        at = next(i for i in range(place, len(text)) if text[i].isdigit())
        root.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
        for verb in ("info", "evaluate"):
            refused(invoke(verb, folder / "model"), 3, str(folder / "model"))
    root.write_text(text)
    assert invoke("info", folder / "model").code == 0


def test_a_change_that_ended_well_is_refused_as_a_new_wish(folder: Path, invoke: Command) -> None:
    write_corpus(folder / "more", planted(60, 40, 3, length=30, seed=8).counts, row_group_rows=10)
    for option in ("--add", "--remove"):
        change = (
            "scan",
            folder / "corpus",
            folder / "m",
            option,
            folder / "more",
            "--scheduler",
            "synchronous",
        )
        assert invoke(*change).code == 0
        digests = read_store(folder / "m").digests()
        assert invoke(*change).code == 2
        assert read_store(folder / "m").digests() == digests


# -- what info says -----------------------------------------------------------------------------------------------


def test_info_names_what_is_dead_and_writes_nothing(folder: Path, invoke: Command) -> None:
    model = folder / "model"
    counts = model / "evaluation" / ("f" * 32)
    shutil.copytree(model, folder / ".model.old")
    counts.with_name(f".{counts.name}.new").mkdir(parents=True)
    shutil.copytree(folder / "m" / "records" / "basis", folder / "m" / "records" / f"range-part-{'0' * 32}")
    (folder / "m" / "partials" / f"projection-fold-{'0' * 32}-{'1' * 32}").mkdir()
    for place in (model, counts):
        leave_lock(place)
    before = states(folder)
    said = json.loads(invoke("info", model, "--json").out)
    new = counts.with_name(f".{counts.name}.new")
    left = (lock_path(model), folder / ".model.old", lock_path(counts), new)
    assert sorted(said["leftovers"]) == sorted(map(str, left))
    said = json.loads(invoke("info", folder / "m", "--json").out)
    assert sorted(said["leftovers"]) == sorted(map(str, read_store(folder / "m").leftovers()))
    assert len(said["leftovers"]) == 2
    assert states(folder) == before
    assert invoke("scan", folder / "corpus", folder / "m", *SCAN).code == 0
    assert not read_store(folder / "m").leftovers()


def test_info_of_what_is_between_two_renames_says_so(folder: Path, invoke: Command) -> None:
    (folder / "model").rename(folder / ".model.old")
    said = json.loads(invoke("info", folder / "model", "--json").out)
    assert said == {
        "kind": "nothing yet",
        "complete": False,
        "leftovers": [str(folder / ".model.old")],
    }
    assert names(folder) == {"corpus", "m", ".model.old"}


def test_info_names_work_that_can_be_gone_on_with(folder: Path, invoke: Command) -> None:
    work = work_place(folder / "model")
    work.mkdir()
    assert json.loads(invoke("info", folder / "model", "--json").out)["unfinished"] == [str(work)]
    assert work.exists()


def test_info_of_a_store_whose_records_are_lost_is_one_line(folder: Path, invoke: Command) -> None:
    shutil.rmtree(folder / "m" / "records")
    refused(invoke("info", folder / "m"), 3, str(folder / "m"), "--repair")


@pytest.mark.slow
def test_a_repair_that_is_killed_keeps_the_history(
    folder: Path, invoke: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streaming_jsmf.moments import store as module

    # Without the results of parts: their notes are in the record alone.
    store = folder / "sums"
    assert invoke("scan", folder / "corpus", store, *(word for word in SCAN if "keep" not in word)).code == 0
    outcome = read_store(store).outcome("range")
    assert outcome is not None
    assert len(outcome["history"]) > 1
    (store / "factor" / "c" / "0" / "0").write_bytes(b"")

    def killed(*_: object) -> None:
        raise StoreError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_record", killed)
        assert invoke("scan", folder / "corpus", store, "--repair").code == 3
    assert invoke("scan", folder / "corpus", store, "--repair").code == 0
    mended = read_store(store).outcome("range")
    assert mended is not None
    assert mended["history"] == outcome["history"]


# -- processes ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_processes_end_with_their_parent(tmp_path: Path) -> None:
    counts = planted(900, 800, 10, length=60, seed=7).counts
    corpus, store = write_corpus(tmp_path / "corpus", counts, row_group_rows=30), tmp_path / "m"
    line = command("scan", corpus, store, "--max-topics", "20", "--partition-nonzeros", "1500")
    with started([*line, "--scheduler", "processes", "--workers", "2"]) as process:
        wait_for(process, lambda: bool(list(store.glob("records/range-*/zarr.json"))))
        workers = psutil.Process(process.pid).children(recursive=True)
        assert len(workers) >= 2
        process.kill()
        process.wait(PATIENCE)
        wait_until(lambda: not any(_lives(worker) for worker in workers), "the end of the workers")


def _lives(process: psutil.Process) -> bool:
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
def test_closed_standard_streams_are_no_error(made: Path, tmp_path: Path) -> None:
    line = command("scan", made / "corpus", tmp_path / "m", *SCAN)
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


@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")], ids=["INT", "TERM"]
)
def test_an_interrupt_while_modules_are_imported_is_one_line(number: int, word: str) -> None:
    done = ended([sys.executable, "-c", SLOW_IMPORT, str(number)])
    assert done.code == 128 + number
    assert done.err == f"{word}; run the same command again to go on from what is committed\n"


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


def test_what_an_interrupt_leaves_half_made_says_nothing() -> None:
    done = ended([sys.executable, "-c", HALF_MADE])
    assert done.code == 130
    assert done.err == "interrupted; run the same command again to go on from what is committed\n"


@pytest.mark.slow
def test_an_interrupt_at_work_is_one_line(made: Path, tmp_path: Path) -> None:
    line = command("scan", made / "corpus", tmp_path / "m", *SCAN)
    with started(line, stderr=subprocess.PIPE) as process:
        wait_for(process, lambda: lock_path(tmp_path / "m").exists() or (tmp_path / "m").exists())
        os.kill(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=PATIENCE)
    assert process.returncode in (130, 0)
    assert "Traceback" not in error


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
