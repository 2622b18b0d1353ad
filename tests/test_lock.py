"""Two processes never write one store: one is refused and told by whom, and a dead one is in nobody's way."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.lock import lock_path, read_owner, sole_writer
from tests.corpora import planted, write_corpus
from tests.processes import PATIENCE, command, started, wait_for, wait_until

SETTINGS = ("--max-topics", "20", "--partition-nonzeros", "2000", "--scheduler", "threads", "--workers", "1")
TRIES = 20


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(900, 800, 10, length=60, seed=7).counts
    return write_corpus(tmp_path_factory.mktemp("lock") / "corpus", counts, row_group_rows=30)


def scan_of(corpus: Path, store: Path) -> list[str]:
    return ["scan", str(corpus), str(store), *SETTINGS]


def test_a_second_scan_is_refused_and_goes_on_once_the_first_is_killed(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "moments"
    with started(command(*scan_of(corpus, store))) as first:
        wait_for(first, lambda: bool(list(store.glob("records/range-*/zarr.json"))))
        first.send_signal(signal.SIGSTOP)
        owner = read_owner(lock_path(store))
        assert owner is not None
        assert (owner.pid, owner.host) == (first.pid, socket.gethostname())
        for more in ([], ["--repair"], ["--add", str(corpus)], ["--remove", str(corpus)]):
            capsys.readouterr()
            code, error = run([*scan_of(corpus, store), *more]), capsys.readouterr().err
            assert (code, error.count("\n")) == (2, 1), error
            assert f"process {first.pid} (streaming_jsmf scan {corpus} {store}" in error
            assert "has been writing it for" in error
        assert run(["info", str(store), "--json"]) == 0, "reading needs no lock"
        first.kill()
        first.wait(timeout=PATIENCE)
        capsys.readouterr()
        assert run(scan_of(corpus, store)) == 0
    error = capsys.readouterr().err
    assert f"process {first.pid}" in error
    assert "is broken: its process has ended" in error
    assert "were committed by an earlier run" in error
    assert [path.name for path in tmp_path.iterdir()] == ["moments"]


def test_a_complete_store_is_used_while_another_writes_it(tmp_path: Path) -> None:
    scan = scan_of(write_corpus(tmp_path / "c", planted(60, 40, 3).counts), tmp_path / "m")
    scan[scan.index("20")] = "3"
    assert run(scan) == 0
    with sole_writer(tmp_path / "m"):
        assert run(scan) == 0


def test_the_lock_goes_when_a_scan_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with sole_writer(tmp_path / "m"):
            assert lock_path(tmp_path / "m").exists()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_is_that_of_the_store_whatever_the_way_to_it(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "m")
    with (
        sole_writer(tmp_path / "m"),
        pytest.raises(InputError, match="has been writing it"),
        sole_writer(tmp_path / "link"),
    ):
        pass


def left_behind(**changes: Any) -> bytes:
    """The lock of a process that has ended, as earlier versions wrote it too."""
    now = time.time()
    fields = {
        "token": "0" * 32,
        "user": "anna",
        "host": "elsewhere",
        "processes": "pid:[1]",
        "pid": 1,
        "command": "streaming-jsmf scan",
        "started": now - 60,
        "heartbeat": now,
    }
    return json.dumps(fields | changes).encode()


LEFT_BEHIND = {
    "of another host, a moment ago": left_behind(),
    "of this host, and the number is that of a process that lives": left_behind(
        host=socket.gethostname(), pid=os.getppid()
    ),
    "of a clock that is ahead": left_behind(started=time.time() + 1e9, heartbeat=time.time() + 1e9),
    "not a number": left_behind(started=float("nan"), heartbeat=float("nan")),
    "infinite": left_behind(started=float("-inf"), heartbeat=float("inf")),
    "wrong types": left_behind(started="today", pid=[1], user=None, host={}),
    "far too large a number": left_behind(started=-(10**400), pid=10**400),
    "several lines": left_behind(user="anna\nerror: all is lost"),
    "too few fields": b"{}",
    "no object": b"[1]",
    "cut": b"{",
    "empty": b"",
    "no text": b"\xff\x00",
    "deep": b"[" * 100_000,
    "of another program": b"filelock/2\npid=1\nhost=elsewhere\nmode=exclusive\n",
}


@pytest.mark.parametrize("text", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
def test_what_is_left_of_a_lock_blocks_nobody(
    text: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = lock_path(tmp_path / "m")
    place.write_bytes(text)
    with sole_writer(tmp_path / "m"):
        owner = read_owner(place)
        assert owner is not None
        assert owner.pid == os.getpid()
    assert list(tmp_path.iterdir()) == []
    assert len(caplog.messages) == bool(text)
    assert all("is broken: its process has ended" in line and "\n" not in line for line in caplog.messages)


@pytest.mark.parametrize("text", LEFT_BEHIND.values(), ids=LEFT_BEHIND.keys())
def test_a_lock_holds_whatever_is_written_into_it(text: bytes, tmp_path: Path) -> None:
    with sole_writer(tmp_path / "m"):
        lock_path(tmp_path / "m").write_bytes(text)
        with pytest.raises(InputError, match="writing it") as refused, sole_writer(tmp_path / "m"):
            pass
        assert "\n" not in str(refused.value)
        assert "; wait until it has ended" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    mine = tmp_path / "thesis.txt"
    mine.write_text("mine")
    for target in (mine, tmp_path / "nowhere"):
        lock_path(tmp_path / "m").symlink_to(target)
        with sole_writer(tmp_path / "m"):
            assert not lock_path(tmp_path / "m").is_symlink()
    assert mine.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [mine]


def test_a_pipe_in_the_place_of_a_lock_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(lock_path(tmp_path / "m"))
    with sole_writer(tmp_path / "m"):
        assert lock_path(tmp_path / "m").is_file()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_the_place_of_a_lock_is_named(tmp_path: Path) -> None:
    lock_path(tmp_path / "m").mkdir()
    with (
        pytest.raises(InputError, match=r"\.m\.lock\.json: a directory .* move it away"),
        sole_writer(tmp_path / "m"),
    ):
        pass


HOLD = """
import subprocess, sys, time
from pathlib import Path
from streaming_jsmf.storage.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    time.sleep(600)
"""


def test_a_killed_holder_is_in_nobodys_way_though_a_child_lives_and_its_parent_does_not_look(
    tmp_path: Path,
) -> None:
    store = tmp_path / "m"
    with started([sys.executable, "-c", HOLD, str(store)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        child = int(holder.stdout.readline())
        with pytest.raises(InputError, match=f"process {holder.pid} "), sole_writer(store):
            pass
        holder.kill()
        # Of a zombie, which nobody has waited for, the system has let go: soon, not at once.
        wait_until(lambda: holder_of(store) is None, "the lock of a killed process")
        with sole_writer(store):
            os.kill(child, 0)


def holder_of(store: Path) -> str | None:
    try:
        with sole_writer(store):
            return None
    except InputError as error:
        return str(error)


def test_a_lock_that_was_deleted_by_hand_takes_no_other_with_it(tmp_path: Path) -> None:
    place = lock_path(tmp_path / "m")
    with sole_writer(tmp_path / "m"):
        place.unlink()
        place.write_text("of another")
    assert place.read_text() == "of another"


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_the_system_has_no_locks_work_goes_on_without(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with sole_writer(tmp_path / "m"):
        pass
    assert [line.partition(": ")[2] for line in caplog.messages] == [
        "no locks on this file system; let no other process write there"
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_is_no_unicode_is_spelled_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["streaming-jsmf", "scan", "caf\udce9"])
    with (
        sole_writer(tmp_path / "m"),
        pytest.raises(InputError, match=r"scan caf.udce9\) has been writing it"),
        sole_writer(tmp_path / "m"),
    ):
        pass


def _try_together(root: Path, barrier: Any, seconds: float, results: Connection) -> None:
    """Take one lock after another at the same time as another process does; tell which were had."""
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


def test_of_two_at_the_same_instant_one_wins(tmp_path: Path) -> None:
    # At every second try both find what is left of a lock.
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
