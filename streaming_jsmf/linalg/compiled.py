"""``numba.njit`` with a cache on disk where possible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from multiprocessing import parent_process
from typing import Any

from streaming_jsmf.errors import InputError, first_line

try:
    from numba import config, njit
except ValueError as error:
    raise InputError(f"numba cannot be loaded ({first_line(error)}); unset NUMBA_NUM_THREADS") from error
if config.DISABLE_JIT:
    raise InputError("NUMBA_DISABLE_JIT is set, and without compilation nothing can be computed; unset it")

logger = logging.getLogger(__name__)


def compiled(*, internal: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True, **options)``, or without the cache if no directory for it is writable.

    ``internal`` functions are called by compiled functions only. They have no wrapper for Python, which takes almost
    .1 s to compile.

    Raises ``ValueError`` for ``fastmath``: it lets the order of a sum depend on the compiler and on array addresses, so
    bits differ between processes. Use ``linalg.lanes`` for fast sums in a fixed order.
    """
    if "fastmath" in options:
        raise ValueError("with fastmath, results depend on memory addresses; use linalg.lanes for fast sums")

    options |= {"no_cpython_wrapper": internal, "no_cfunc_wrapper": True}

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator" not in str(error):
                raise
        _warn_once()
        return njit(**options)(function)

    return decorate


@cache
def _warn_once() -> None:
    if parent_process() is None:
        logger.warning(
            "compiled functions cannot be cached, so every run compiles them again (some seconds); set NUMBA_CACHE_DIR "
            "to a writable directory"
        )
