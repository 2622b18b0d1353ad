"""Tall matrices, panel by panel: work on several threads, Gram matrices and changes of basis.

Temporaries stay in the cache, and the bits do not depend on threads. Tall matrices are float32, because a scan is
limited by memory bandwidth. Products are accumulated in float64, which keeps eigenvalues below 1e-7 of the largest
meaningful; panels with nearly orthogonal columns may be multiplied in float32.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from streaming_jsmf.linalg.typing import FloatArray, Floats, Single
from streaming_jsmf.storage.large_arrays import large_copy, large_empty

#: Default number of rows of a panel.
PANEL_ROWS = 4096
#: Rows of a panel multiplied in float32; few, so that the rounding error stays at the level of the entries.
SINGLE_ROWS = 1024
#: Eigenvalues of X'AX below this fraction of the largest are noise of float32 products.
CORE_FLOOR = 1e-7
#: The same for a Gram matrix, whose eigenvalues are squares: directions down to 1e-6 of the strongest are kept.
GRAM_FLOOR = 1e-12

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Type of a matrix that is overwritten by the result.
Tall = TypeVar("Tall", Single, Floats)

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

    The items are taken from this thread, and an error of theirs is raised after the results of those before it. At most
    one result per thread plus one is in memory.
    """
    found = _pool.get()
    if found is None:
        yield from map(function, items)
        return
    pool, threads = found
    waiting: deque[Future[Result]] = deque()
    failed: Exception | None = None
    remaining = iter(items)
    while failed is None:
        try:
            waiting.append(pool.submit(function, next(remaining)))
        except StopIteration:
            break
        except Exception as error:
            failed = error
        if len(waiting) > threads:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
    if failed is not None:
        raise failed


def on_each(function: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Like ``each``, without results."""
    for _ in each(function, items):
        pass


class InSingle:
    """A tall matrix of which the functions below see each panel in float32, without a copy of the whole."""

    dtype = np.dtype(np.float32)

    def __init__(self, matrix: Floats) -> None:
        self._matrix, self.shape = matrix, matrix.shape

    def __len__(self) -> int:
        return len(self._matrix)

    def __getitem__(self, rows: slice) -> Single:
        return self._matrix[rows].astype(np.float32)


def ratio(values: ArrayLike, sizes: Floats, missing: float = 0.0) -> Floats:
    """values / sizes in float64, or ``missing`` where a size is not positive; one of the shapes is that of both."""
    # In the memory order of the larger, on which the bits of later sums depend.
    larger = max((sizes, values), key=lambda array: (np.ndim(array), np.size(array)))
    found: Floats = np.full_like(larger, missing, dtype=np.float64)
    return np.divide(values, sizes, out=found, where=sizes > 0)


def side_by_side(*parts: Floats) -> Floats:
    """The matrices (N x p_i) as one, N x sum of p_i."""
    width = sum(part.shape[1] for part in parts)
    return np.concatenate(parts, axis=1, out=large_empty((len(parts[0]), width)))


def gram(left: FloatArray, right: FloatArray | None = None) -> Floats:
    """left' right (left' left if ``right`` is None) in float64; ``left`` is N x p, ``right`` N x q."""
    total = np.zeros((left.shape[1], (left if right is None else right).shape[1]))

    def product(rows: slice) -> Floats:
        panel = left[rows].astype(np.float64, copy=False)
        # With the same object on both sides, BLAS computes a symmetric product at half the cost.
        other = panel if right is None else right[rows].astype(np.float64, copy=False)
        return np.asarray(panel.T @ other)

    for part in each(product, panels(left.shape[0])):
        total += part
    return total


def single_gram(left: FloatArray | InSingle, right: FloatArray | None = None) -> Floats:
    """Like ``gram``, but panels are multiplied in their own type and added in float64, in a quarter of the time.

    With float32, each entry has an error of about 1e-7 times the norms of its two columns. This is harmless if weak
    directions have short columns of their own, as in a factor, but not if long columns hide them, as after a power
    step.
    """
    total = np.zeros((left.shape[1], (left if right is None else right).shape[1]))

    def product(rows: slice) -> FloatArray:
        panel = left[rows]
        return np.asarray(panel.T @ (panel if right is None else right[rows]))

    for part in each(product, panels(left.shape[0], SINGLE_ROWS)):
        total += part
    return total


def stacked_qr(*parts: FloatArray) -> Floats:
    """R of the QR decomposition of ``parts`` (each N x p_i) side by side, min(N, p) x p with p the sum of p_i.

    R'R is the Gram matrix, but R preserves small differences of long columns to rounding, the Gram matrix only to its
    square root.
    """
    upper = np.empty((0, sum(part.shape[1] for part in parts)))
    for rows in panels(parts[0].shape[0]):
        panel = np.hstack([part[rows] for part in parts])
        # asarray: numpy's type hints do not know the mode without Q.
        upper = np.asarray(np.linalg.qr(np.vstack([upper, panel]), mode="r"))
    return upper


def inverse_square_root(core: FloatArray, floor: float = CORE_FLOOR) -> Floats:
    """R (n x r) with R' core R = I on the directions of ``core`` stronger than ``floor`` times the first.

    ``core`` is n x n, symmetric up to rounding; r <= n is the number of directions kept, 0 for a zero matrix.
    """
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    order = np.arange(values.size)[::-1]
    keep = order[values[order] > max(floor * values[-1], 0.0)] if values.size else order
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep]))


def multiply_into(matrix: FloatArray | InSingle, small: FloatArray, out: FloatArray) -> None:
    """Set ``out`` (N x r, may be part of ``matrix``) to ``matrix @ small`` (N x p, p x r), in its type."""
    small = small.astype(matrix.dtype, copy=False)
    on_each(lambda rows: np.copyto(out[rows], matrix[rows] @ small), panels(matrix.shape[0]))


def rotate(matrix: Tall, basis: FloatArray) -> Tall:
    """``matrix @ basis`` in the memory and type of ``matrix`` (N x p, overwritten); ``basis`` is p x r, r <= p."""
    width = basis.shape[1]
    multiply_into(matrix, basis, matrix[:, :width])
    return matrix if width == matrix.shape[1] else large_copy(matrix[:, :width])
