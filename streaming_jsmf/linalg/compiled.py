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

    Numba caches compiled functions beside the source or in the user's cache directory, and raises if it can write to
    neither, as in a read-only installation of a user without a home directory. Then every process compiles anew.

    ``fastmath`` is refused: it lets the order of a sum depend on the compiler and on the addresses of arrays, so that
    the same call gives different bits in different processes. ``linalg.lanes`` has fast sums in a fixed order.

    Raises
    ------
    ValueError
        If ``fastmath`` is among the options.
    """
    if "fastmath" in options:
        raise ValueError("with fastmath, results depend on memory addresses; use linalg.lanes for fast sums")

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
