"""Two processes never write one store: the second is refused with the name of the first; dead ones block nobody."""

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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.lock import lock_path, read_owner, sole_writer
from tests.corpora import planted, write_corpus
from tests.outcomes import Command, refused
from tests.processes import PATIENCE, command, started, wait_for, wait_until

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
    with started(command(*scan)) as first:
        wait_for(first, lambda: bool(list(store.glob("records/range-*/zarr.json"))))
        first.send_signal(signal.SIGSTOP)
        owner = read_owner(lock_path(store))
        assert owner is not None
        assert (owner.pid, owner.host) == (first.pid, socket.gethostname())
        for more in ([], ["--add", corpus], ["--remove", corpus]):
            holder = f"process {first.pid} (streaming_jsmf scan {corpus} {store}"
            refused(invoke(*scan, *more), 2, holder, "has been writing it for")
        assert invoke("info", store, "--json").code == 0, "reading needs no lock"
        first.kill()
        first.wait(timeout=PATIENCE)
        done = invoke(*scan)
    assert done.code == 0, done.err
    for part in (f"process {first.pid}", BROKEN, "were committed by an earlier run"):
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
