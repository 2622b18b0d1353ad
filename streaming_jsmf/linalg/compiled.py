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

    A function with ``fastmath`` becomes part of every compiled function that calls it. Otherwise a process that has
    just compiled both would call the one made by itself, and a process that reads both from the cache the one that was
    made within its caller, where sums may be in another order: other bits.
    """
    options.setdefault("forceinline", "fastmath" in options)

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
