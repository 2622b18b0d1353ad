"""Commands interrupted at difficult moments, each in a fork of one process that has imported the package.

``python -m tests.interrupted FOLDER`` runs every moment with every signal in ``FOLDER/<moment>-<signal>``, and prints
the outcomes (``_ended``) as a JSON object.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import streaming_jsmf.__main__
from streaming_jsmf.cli import interrupts
from streaming_jsmf.cli.main import cli
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.storage.lock import sole_writer
from tests.processes import PATIENCE

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOG, STORE = "log.jsonl", "store"


def in_the_start_of_a_worker_thread(number: int) -> None:
    """The thread is running but not yet registered with its executor, so it would wait for work forever."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("blas-control"):
            threading.Thread.start = start  # type: ignore[method-assign]
            signal.raise_signal(number)

    threading.Thread.start = interrupted  # type: ignore[method-assign]
    with single_blas_thread():
        pass


def with_a_thread_that_waits(number: int) -> None:
    """The thread is not a daemon, so the interpreter would wait for it on exit."""
    threading.Thread(target=threading.Event().wait).start()
    signal.raise_signal(number)


def in_a_library_that_makes_another_error_of_it(number: int) -> None:
    try:
        signal.raise_signal(number)
    except BaseException:
        raise ValueError("what a library says") from None


def in_a_finalizer(number: int) -> None:
    """Exceptions do not propagate from a finalizer."""

    class Interrupted:
        def __del__(self) -> None:
            signal.raise_signal(number)

    Interrupted()
    while True:
        time.sleep(0.01)


def with_much_to_complain_about(number: int) -> None:
    """Libraries print errors about canceled work, as distributed does about its tasks."""
    try:
        signal.raise_signal(number)
    finally:
        try:
            raise asyncio.CancelledError
        except asyncio.CancelledError:
            logging.getLogger("asyncio").exception("Task exception was never retrieved")
        logging.getLogger("distributed.client").error("lost")
        warnings.warn("coroutine was never awaited", RuntimeWarning, stacklevel=1)
        failing = threading.Thread(target=lambda: 1 / 0)
        failing.start()
        failing.join()


def while_nobody_reads(number: int) -> None:
    read, write = os.pipe()
    os.close(read)
    os.dup2(write, 1)
    os.dup2(write, 2)
    signal.raise_signal(number)


def in_a_task_without_end(number: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(threading.Event().wait)
        signal.raise_signal(number)


def _kill_once(number: int, ready: Callable[[], bool]) -> None:
    """Send the signal to another thread than the main one, a moment after ``ready()``."""

    def kill() -> None:
        while not ready():
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), number)

    threading.Thread(target=kill, daemon=True).start()


def in_compiled_code(number: int) -> None:
    """The signal does not reach the main thread, as during a long call of a library."""
    main = threading.get_ident()
    _kill_once(number, lambda: sys._current_frames()[main].f_code.co_name == "wait")
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    threading.Event().wait()


def twice(number: int) -> None:
    """The second signal ends the process without waiting."""
    interrupts.GRACE, interrupts._ONE = float(PATIENCE), 0.0
    _kill_once(number, lambda: interrupts._raised is not None)
    in_a_task_without_end(number)


def after_the_end(number: int) -> None:
    atexit.register(signal.raise_signal, number)


ORDERLY: tuple[Callable[[int], None], ...] = (
    in_the_start_of_a_worker_thread,
    with_a_thread_that_waits,
    in_a_library_that_makes_another_error_of_it,
    in_a_finalizer,
    with_much_to_complain_about,
    while_nobody_reads,
)
FORCED: tuple[Callable[[int], None], ...] = (in_a_task_without_end, in_compiled_code, twice)


def _command(moment: Callable[[int], None], number: int) -> None:
    """Run ``streaming-jsmf interrupted``, a command that is interrupted while it writes a store and a log."""

    @cli.command()
    def interrupted() -> None:
        with observed(LOG), sole_writer(Path(STORE)):
            moment(number)

    sys.argv = ["streaming-jsmf", interrupted.name or ""]
    # An orderly exit takes no time here, except on a busy machine.
    interrupts.GRACE = 0.3 if moment in FORCED else float(PATIENCE)
    streaming_jsmf.__main__.main()


def _ended(moment: Callable[[int], None], number: int, folder: Path) -> list[Any]:
    """Exit code, standard error, outcome and message of the log's last line, and names of leftover files."""
    folder.mkdir()
    child = os.fork()
    if not child:
        os.chdir(folder)
        output = os.open("err", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 2)
        try:
            _command(moment, number)
        except Exception:
            traceback.print_exc()
            os._exit(1)
    deadline = time.monotonic() + PATIENCE
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    last = json.loads((folder / LOG).read_text(encoding="utf-8").splitlines()[-1])
    return [
        os.waitstatus_to_exitcode(ended[1]),
        (folder / "err").read_text(encoding="utf-8").strip(),
        last.get("outcome"),
        last.get("message"),
        sorted(path.name for path in folder.iterdir() if path.name not in (LOG, "err")),
    ]


def main() -> None:
    base = Path(sys.argv[1])
    found = {
        f"{moment.__name__}-{number.name}": _ended(moment, number, base / f"{moment.__name__}-{number.name}")
        for moment in (*ORDERLY, *FORCED, after_the_end)
        for number in SIGNALS
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
