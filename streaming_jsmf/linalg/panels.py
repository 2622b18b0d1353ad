"""Panel-wise processing of tall matrices: temporaries stay in the cache, and the bits do not depend on threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

#: Default number of rows of a panel.
PANEL_ROWS = 4096

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Thread pool that ``each`` uses in this thread; the threads of the pool have no pool themselves.
_pool: ContextVar[tuple[ThreadPoolExecutor, int] | None] = ContextVar("panel_threads", default=None)


def panels(n_rows: int, height: int | None = None) -> Iterator[slice]:
    """Consecutive slices that cover ``n_rows`` rows, of ``height`` (default ``PANEL_ROWS``) rows except the last."""
    step = PANEL_ROWS if height is None else height
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


@contextmanager
def panel_threads(count: int | None) -> Iterator[None]:
    """Let ``each`` use ``count`` threads (None: one per core) when called from this thread inside the block."""
    if count is None:
        count = os.cpu_count() or 1
    if count <= 1:
        yield
        return
    with ThreadPoolExecutor(count, thread_name_prefix="panels") as pool:
        token = _pool.set((pool, count))
        try:
            yield
        finally:
            _pool.reset(token)


def each(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``map`` on the threads of ``panel_threads``, if any; results are in order, so sums have the same bits.

    At most one result per thread plus one is in memory.
    """
    found = _pool.get()
    if found is None:
        yield from map(function, items)
        return
    pool, threads = found
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > threads:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def on_each(function: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Like ``each``, for functions without a result."""
    for _ in each(function, items):
        pass
