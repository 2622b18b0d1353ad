"""Tall matrices are worked through panel by panel: temporaries stay in the cache, and threads change no bit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

#: Rows of a panel, unless a loop has a reason for another height.
PANEL_ROWS = 4096

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Threads for ``each`` in this thread; those of the pool itself have none.
_pool: ContextVar[tuple[ThreadPoolExecutor, int] | None] = ContextVar("panel_threads", default=None)


def panels(n_rows: int, height: int | None = None) -> Iterator[slice]:
    """Consecutive slices that cover ``n_rows`` rows, each ``height`` (default ``PANEL_ROWS``) rows but for the last."""
    step = PANEL_ROWS if height is None else height
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


@contextmanager
def panel_threads(count: int) -> Iterator[None]:
    """Let ``each`` use so many threads where this thread calls it inside the block."""
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
    """``map``, on the threads of ``panel_threads`` if there are any: results in the order of the items.

    So sums of them have the same bits on any number of threads. Few results wait at a time.
    """
    found = _pool.get()
    if found is None:
        yield from map(function, items)
        return
    pool, threads = found
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > 2 * threads:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def on_each(function: Callable[[Item], None], items: Iterable[Item]) -> None:
    """As ``each``, for what writes its results itself, in rows of its own."""
    for _ in each(function, items):
        pass
