"""Two processes never write one store: one is refused and told by whom, and a dead one is in nobody's way."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from streaming_jsmf.cli.main import run
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs import lock as locks
from streaming_jsmf.jobs.lock import lock_path, read_owner, sole_writer, this_process
from tests.corpora import planted, write_corpus

SETTINGS = ("--max-topics", "20", "--partition-nonzeros", "2000", "--scheduler", "threads", "--workers", "1")
TRIES = 20
SECONDS = 60


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = planted(900, 800, 10, length=60, seed=7).counts
    return write_corpus(tmp_path_factory.mktemp("lock") / "corpus", counts, row_group_rows=30)


def command(corpus: Path, store: Path) -> list[str]:
    return [sys.executable, "-m", "streaming_jsmf", "scan", str(corpus), str(store), *SETTINGS]


@contextmanager
def stopped_in_the_middle(arguments: list[str], store: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + SECONDS
            while not list(store.glob("records/range-*/zarr.json")) and time.monotonic() < end:
                assert process.poll() is None
                time.sleep(0.002)
            process.send_signal(signal.SIGSTOP)
            yield process
        finally:
            process.kill()


def test_a_second_scan_is_refused_and_goes_on_once_the_first_is_killed(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "moments"
    with stopped_in_the_middle(command(corpus, store), store) as first:
        owner = read_owner(lock_path(store))
        assert owner is not None
        assert (owner.pid, owner.host) == (first.pid, socket.gethostname())
        for more in ([], ["--repair"], ["--add", str(corpus)], ["--remove", str(corpus)]):
            capsys.readouterr()
            code, error = run([*command(corpus, store)[3:], *more]), capsys.readouterr().err
            assert (code, error.count("\n")) == (2, 1), error
            assert f"process {first.pid} (streaming_jsmf scan {corpus} {store}" in error
            assert "has been writing it for" in error
        assert run(["info", str(store)]) == 0, "reading needs no lock"
        first.kill()
        first.wait(timeout=SECONDS)
        capsys.readouterr()
        assert run(command(corpus, store)[3:]) == 0
    error = capsys.readouterr().err
    assert f"process {first.pid}" in error
    assert "is broken: its process has ended" in error
    assert "were committed by an earlier run" in error
    assert [path.name for path in tmp_path.iterdir()] == ["moments"]


def test_a_complete_store_is_used_while_another_writes_it(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "moments"
    assert run(command(corpus, store)[3:]) == 0
    with sole_writer(store):
        assert run(command(corpus, store)[3:]) == 0


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


def held_elsewhere(store: Path, **changes: Any) -> Path:
    place = lock_path(store)
    place.write_text(json.dumps(asdict(replace(this_process(), host="elsewhere", user="anna", **changes))))
    return place


def test_a_lock_of_another_host_holds_while_it_shows_signs_of_life(tmp_path: Path) -> None:
    now = time.time()
    place = held_elsewhere(tmp_path / "m", started=now - 7200, heartbeat=now - locks.LIMIT_SECONDS / 2)
    with (
        pytest.raises(InputError, match=r"anna@elsewhere, process .* for 2hr 0m"),
        sole_writer(tmp_path / "m"),
    ):
        pass
    assert place.exists()


@pytest.mark.parametrize("damage", [None, "", "{", "[1]"])
def test_a_lock_without_signs_of_life_is_broken(
    damage: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = held_elsewhere(tmp_path / "m", heartbeat=time.time() - locks.LIMIT_SECONDS - 1)
    if damage is not None:
        place.write_text(damage)
    with sole_writer(tmp_path / "m"):
        owner = read_owner(place)
        assert owner is not None
        assert owner.pid == os.getpid()
    assert "is broken" in caplog.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("space", ["same", "another"])
def test_the_number_of_a_process_counts_in_its_own_container_only(space: str, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    held = replace(this_process(), pid=ended.pid)
    lock_path(tmp_path / "m").write_text(
        json.dumps(asdict(held if space == "same" else replace(held, processes="pid:[1]")))
    )
    if space == "same":
        with sole_writer(tmp_path / "m"):
            return
    with pytest.raises(InputError, match="has been writing it"), sole_writer(tmp_path / "m"):
        pass


def test_a_holder_keeps_its_lock_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.02)
    with sole_writer(tmp_path / "m"):
        first = read_owner(lock_path(tmp_path / "m"))
        assert first is not None
        end = time.monotonic() + SECONDS
        while read_owner(lock_path(tmp_path / "m")) == first and time.monotonic() < end:
            time.sleep(0.01)
        later = read_owner(lock_path(tmp_path / "m"))
        assert later is not None
        assert later.heartbeat > first.heartbeat
        assert replace(later, heartbeat=0) == replace(first, heartbeat=0)


def test_a_holder_that_stood_still_too_long_makes_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.02)

    def stand_still() -> None:
        with sole_writer(tmp_path / "m"):
            held_elsewhere(tmp_path / "m")
            time.sleep(SECONDS)

    with pytest.raises(InputError, match=r"stood still, and anna@elsewhere"):
        stand_still()
    assert lock_path(tmp_path / "m").exists(), "the lock of the other stays"


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
    # At every second try both find a lock that is to be broken.
    for number in range(0, TRIES, 2):
        held_elsewhere(tmp_path / str(number), heartbeat=0.0)
    context = multiprocessing.get_context("spawn")
    barrier, pipes = context.Barrier(2), [context.Pipe(duplex=False) for _ in range(2)]
    processes = [
        context.Process(target=_try_together, args=(tmp_path, barrier, SECONDS, sending))
        for _, sending in pipes
    ]
    for process in processes:
        process.start()
    had = [receiving.recv() for receiving, _ in pipes if receiving.poll(SECONDS)]
    for process in processes:
        process.join(SECONDS)
        process.kill()
    assert [sum(pair) for pair in zip(*had, strict=True)] == [1] * TRIES
    assert list(tmp_path.iterdir()) == []


# A file system without hard links: nothing is created exclusively, so what was written is read back after a while.
@pytest.mark.parametrize("second_writes", [False, True])
def test_where_nothing_is_exclusive_the_last_writer_has_the_lock(
    second_writes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "m"

    def no_links(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(locks.os, "link", no_links)
    monkeypatch.setattr(locks, "SETTLE_SECONDS", 0.05)
    other = replace(this_process(), host="elsewhere")

    def settle(seconds: float) -> None:
        assert seconds == 0.05
        if second_writes:
            lock_path(store).write_text(json.dumps(asdict(other)))

    monkeypatch.setattr(locks.time, "sleep", settle)
    if second_writes:
        with pytest.raises(InputError, match="@elsewhere"), sole_writer(store):
            pass
        lock_path(store).unlink()
    with monkeypatch.context() as undone:
        undone.setattr(locks.time, "sleep", lambda _: None)
        with sole_writer(store):
            with pytest.raises(InputError, match=f"process {os.getpid()}"), sole_writer(store):
                pass
            assert lock_path(store).exists()
    assert not lock_path(store).exists()
