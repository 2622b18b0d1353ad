"""Compiled functions that are kept between runs where that is possible."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from multiprocessing import parent_process
from typing import Any

from numba import njit

logger = logging.getLogger(__name__)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit(cache=True, **options)``; without the cache where none can be written.

    numba keeps what it has compiled beside the source, or else in the user's cache, and refuses if it can do neither:
    an installation that is read only, and a user without a home. Then each process compiles what it needs anew.

    ``fastmath`` is refused. With it the order of a sum depends on the compiler's choices, and some of those on the
    addresses of arrays: the same call then gives other bits in the next process. Without it the arithmetic is that of
    the source, however it is vectorized; ``lanes`` has fast sums.

    Raises
    ------
    ValueError
        If ``fastmath`` is among the options.
    """
    if "fastmath" in options:
        raise ValueError("fastmath makes bits depend on where arrays lie in memory; use linalg.lanes for fast sums")

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator" not in str(error):
                raise
        _tell()
        return njit(**options)(function)

    return decorate


@cache
def _tell() -> None:
    """Once, and not in each worker."""
    if parent_process() is None:
        logger.warning(
            "compiled functions cannot be kept, so every run compiles them anew (some seconds); set NUMBA_CACHE_DIR to "
            "a directory that can be written"
        )
