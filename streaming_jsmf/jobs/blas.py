"""Limit BLAS to one thread inside tasks: more threads change the bits of a Gram matrix and oversubscribe the cores."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import threadpoolctl

_lock = threading.Lock()
_inside = 0
_limits: Any = None
_control: ThreadPoolExecutor | None = None

#: Number of imported modules, and the controller of the libraries that they had loaded.
_controller: tuple[int, threadpoolctl.ThreadpoolController] | None = None


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any thread of this process is inside the block.

    OpenBLAS has one limit per process, so the first of several concurrent tasks to finish would lift a plain
    ``threadpool_limits`` for all of them; since threadpoolctl 3.8 the limit also obeys only one thread, silently. A
    dedicated thread therefore sets and restores it. Libraries with a limit per thread (MKL) set it in the calling
    thread.
    """
    _enter()
    try:
        with _one_thread():
            yield
    finally:
        _leave()


def _one_thread() -> Any:
    """Limit the loaded BLAS libraries to one thread.

    Finding the loaded libraries takes milliseconds, so they are searched again only after another import.
    """
    global _controller
    modules = len(sys.modules)
    if _controller is None or _controller[0] != modules:
        _controller = modules, threadpoolctl.ThreadpoolController()
    return _controller[1].limit(limits=1, user_api="blas")


def _enter() -> None:
    global _inside, _control
    with _lock:
        _inside += 1
        if _inside == 1:
            _control = _control or ThreadPoolExecutor(1, thread_name_prefix="blas-control")
            _control.submit(_set).result()


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0 and _control is not None:
            _control.submit(_restore).result()


def _set() -> None:
    global _limits
    # The previous owner restores its own limit; we restore its current value.
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
    _limits = _one_thread()


def _restore() -> None:
    global _limits
    if _limits is not None:
        _limits.unregister()
        _limits = None
    clear = getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear()


def _forget() -> None:
    """Reset the state in a forked child, which has none of the threads of its parent."""
    global _lock, _inside, _limits, _control
    _lock, _inside, _limits, _control = threading.Lock(), 0, None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
