"""Ctrl-C and SIGTERM: an interrupted command shuts down in order if it can, and within seconds in any case.

The first signal raises ``KeyboardInterrupt`` in the main thread: running tasks finish and commit, temporary files are
removed and locks released. This may never complete: an interrupt can leave a lock or a thread pool of a library in an
inconsistent state, and it is not delivered while the main thread waits in compiled code. A thread, notified by the C
handler of the signal, therefore ends the process with all its threads and worker processes after ``GRACE`` seconds, or
at the second signal. The store is then as after a kill: the system releases the lock, and the next command cleans up.

This module has no heavy imports, because ``__main__`` imports it before everything else.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

#: How the outcome of a command is named after each signal, and the default handlers.
SIGNALS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}

#: Seconds for an orderly shutdown, and for calling ``last_words`` after it.
GRACE, LAST_WORDS = 5.0, 1.0

#: Seconds within which a second signal counts as the first: wrappers forward what a terminal sends to all processes.
_ONE = 1.0

#: Seconds after which the main thread is interrupted again if the interrupt was lost or deferred.
_AGAIN = 0.05

#: Called in reverse order if the process is ended by force.
last_words: list[Callable[[], None]] = []

_ours: list[signal.Signals] = []
_received: int | None = None
_raised: float | None = None
_is_urgent = False


def received() -> int | None:
    """Return the number of the first signal, or None before any signal."""
    return _received


def line(number: int) -> str:
    """The last line of a command after a signal."""
    return f"{SIGNALS[signal.Signals(number)]}; run the same command again to go on from what is committed"


def end_at_once() -> None:
    """From now on, end the process at a signal: no work has begun, and imports may replace exceptions by others.

    A signal that the parent process set to be ignored stays ignored.
    """
    _ours[:] = [number for number, default in _DEFAULTS.items() if signal.getsignal(number) == default]
    _handle(lambda number, _frame: _leave(number))
    # Runs last. The interpreter then resets its handlers, and a late signal would kill a command that has finished.
    atexit.register(_ignore_late_signals)


def end_in_order() -> None:
    """From now on, raise ``KeyboardInterrupt`` at a signal, and end the process if that has no effect."""
    signals, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    last_words.append(_say)
    threading.Thread(target=_watch, args=(signals,), name="interrupts", daemon=True).start()
    _handle(_interrupt)


def end(code: int) -> NoReturn:
    """End the process with ``code``; after a signal, without waiting for other threads."""
    _handle(lambda _number, _frame: os._exit(code))
    _flush()
    # Packages of file systems then close connections with an event loop that Zarr has closed.
    sys.excepthook = lambda *_: None
    if _received is None:
        # Otherwise Python searches all objects for reference cycles before it ends, which takes .3 seconds.
        gc.freeze()
        sys.exit(code)
    _clean()
    os._exit(code)


def _ignore_late_signals() -> None:
    if threading.current_thread() is threading.main_thread():  # the watching thread also runs exit functions
        _handle(signal.SIG_IGN)


def _handle(handler: Callable[[int, FrameType | None], Any] | signal.Handlers) -> None:
    for number in _ours:
        signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Interrupt the main thread unless it ``_must_finish`` first; a second signal makes it urgent."""
    global _received, _raised, _is_urgent
    _received = _received or number
    if _raised is not None:
        _is_urgent = time.monotonic() - _raised > _ONE
    elif not _must_finish(frame):
        _raised = time.monotonic()
        # Discarding unfinished objects may raise further errors, which are not worth reporting.
        sys.unraisablehook = _lost
        threading.excepthook = lambda _: None
        warnings.simplefilter("ignore")
        logging.disable()
        raise KeyboardInterrupt


def _must_finish(frame: FrameType | None) -> bool:
    """Return whether an exception would break what the main thread does, so that the interrupt must wait.

    That is importing a module or loading a compiled function, which can crash, and starting a worker process: without
    the data that it waits for, the worker prints a traceback. Blocking the signal does not help, because other threads
    receive it.
    """
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] in ("numba", "llvmlite") or module == "multiprocessing.popen_spawn_posix":
            return True
        frame = frame.f_back
    return False


def _lost(failed: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again if it occurred where exceptions are ignored, such as in a finalizer."""
    global _raised
    if issubclass(failed.exc_type, KeyboardInterrupt):
        _raised = None


def _watch(signals: int) -> None:
    """Wait for a signal, and end the process after ``GRACE`` seconds or a second signal."""
    global _received
    while (number := os.read(signals, 1)[0]) not in _ours:
        pass
    _received = _received or number
    deadline = time.monotonic() + GRACE
    while not _is_urgent and time.monotonic() < deadline:
        time.sleep(_AGAIN)
        if _raised is None:
            signal.raise_signal(number)
    # The lock of a log or a stream may never be released.
    words = threading.Thread(target=_say_all, daemon=True)
    words.start()
    words.join(LAST_WORDS)
    os._exit(128 + _received)


def _say_all() -> None:
    while last_words:
        with suppress(Exception):
            last_words.pop()()
    _flush()
    _clean()


def _say() -> None:
    assert _received is not None
    os.write(2, f"\n{line(_received)}\n".encode())


def _leave(number: int) -> NoReturn:
    with suppress(OSError):
        os.write(2, f"{line(number)}\n".encode())
    os._exit(128 + number)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()


def _clean() -> None:
    """Do what the interpreter does on exit, except for waiting: remove temporary directories, end worker processes."""
    processes = sys.modules.get("multiprocessing")
    for child in processes.active_children() if processes is not None else ():
        child.kill()
    atexit._run_exitfuncs()
