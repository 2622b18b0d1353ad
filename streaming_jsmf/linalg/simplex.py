"""Least squares over the probability simplex, for very many rows and one set of vertices.

The third step of Algorithms 1 and 5 of LR-JSMF (Lee et al., ICML 2021): every word is written as the convex
combination of the anchor words nearest to it. Three methods: a compiled active set (exact to rounding); batched
accelerated projected gradients (FISTA, Beck and Teboulle 2009), the default where numba is not installed; and
exponentiated gradient, which the papers name. Each leaves a certificate for every row.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streaming_jsmf.config import SimplexMethod
from streaming_jsmf.linalg.simplex_gradient import exponentiated_gradient, fista
from streaming_jsmf.linalg.typing import BlockSolver

try:
    from streaming_jsmf.linalg import simplex_kernel as _kernel

    HAVE_NUMBA = True
except ImportError:  # pragma: no cover - numba is a dependency, but has no wheel for every new Python
    HAVE_NUMBA = False

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

BLOCK_ROWS = 1024


@dataclass(frozen=True)
class SimplexSolution:
    """Convex combinations and their certificates.

    Attributes
    ----------
    weights
        N x K, rows non-negative with sum 1.
    gap
        (N,) in units of ||x||^2; ||x_i - V'b_i||^2 is at most gap_i above its minimum (Frank-Wolfe gap).
    iterations
        The most steps any row took.
    """

    weights: Floats
    gap: Floats
    iterations: int


def simplex_least_squares(
    X: ArrayLike,
    vertices: ArrayLike,
    *,
    method: SimplexMethod = "auto",
    tolerance: float = 1e-8,
    block_rows: int = BLOCK_ROWS,
    threads: int | None = None,
) -> SimplexSolution:
    """Minimise ||x_i - V'b_i||^2 over the probability simplex for every row x_i of X.

    Parameters
    ----------
    X
        N x d; may be float32 and memory-mapped, one block at a time becomes float64.
    vertices
        V, K x d.
    method
        "active-set", "fista", "exponentiated-gradient", or "auto": the active set where numba is installed,
        else FISTA.
    tolerance
        Of the gradient methods: a row is done at gap_i <= tolerance * ||x_i||^2, or after 20,000 (FISTA) or
        2,000 (exponentiated gradient) steps: look at the gap. The active set works to rounding.
    block_rows
        Rows are taken in blocks of this many.
    threads
        Blocks worked on at once; default: one per processor. The result does not depend on it.

    Raises
    ------
    ValueError
        For shapes that do not fit, entries that are not finite, unknown methods, and ``block_rows``,
        ``threads`` or ``tolerance`` that are not positive.
    """
    rows, corners = _checked(X, vertices)
    chosen = _choose(method)
    if block_rows < 1 or (threads is not None and threads < 1) or not tolerance > 0:
        raise ValueError("block_rows, threads and tolerance must be positive")
    n_rows, n_vertices = rows.shape[0], corners.shape[0]
    weights = np.empty((n_rows, n_vertices))
    gap = np.empty(n_rows)
    steps = np.zeros(n_rows, dtype=np.int64)
    solve = _solver(chosen, corners, tolerance)

    def one_block(start: int) -> None:
        part = slice(start, start + block_rows)
        # One block at a time becomes f64: X may be f32 and memory-mapped.
        block = np.ascontiguousarray(rows[part], dtype=np.float64)
        if not np.isfinite(block).all():
            raise ValueError(f"X has entries that are not finite in rows {start} to {start + len(block) - 1}")
        solve(block, weights[part], gap[part], steps[part])

    _for_each(one_block, range(0, n_rows, block_rows), threads or os.cpu_count() or 1)
    return SimplexSolution(weights, gap, int(steps.max(initial=0)))


def _for_each(task: Callable[[int], None], starts: range, threads: int) -> None:
    """Run the task for each start, in a pool where there is more than one; the first error is raised."""
    workers = min(threads, max(len(starts), 1))
    if workers == 1:
        for start in starts:
            task(start)
        return
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(task, starts))


def _checked(X: ArrayLike, vertices: ArrayLike) -> tuple[NDArray[np.floating], Floats]:
    rows = np.asarray(X)
    corners = np.ascontiguousarray(vertices, dtype=np.float64)
    if rows.ndim != 2 or corners.ndim != 2 or rows.shape[1] != corners.shape[1]:
        raise ValueError(
            f"X and vertices must be matrices of equal width, not of shapes {rows.shape} and {corners.shape}"
        )
    if len(corners) == 0:
        raise ValueError("at least one vertex is needed")
    if not np.isfinite(corners).all():
        raise ValueError("vertices has entries that are not finite")
    return rows, corners


def _choose(method: SimplexMethod) -> SimplexMethod:
    if method == "auto":
        return "active-set" if HAVE_NUMBA else "fista"
    if method not in get_args(SimplexMethod):
        raise ValueError(f"method must be one of {', '.join(get_args(SimplexMethod))}, not {method!r}")
    if method == "active-set" and not HAVE_NUMBA:
        raise ValueError("method active-set needs numba; install it or use method fista")
    return method


def _solver(method: SimplexMethod, vertices: Floats, tolerance: float) -> BlockSolver:
    if method == "active-set":
        return _active_set(vertices)
    gradient_method = fista if method == "fista" else exponentiated_gradient
    return gradient_method(vertices, tolerance)


def _active_set(vertices: Floats) -> BlockSolver:
    """The compiled solver, with Gram matrix and shift of these vertices."""
    columns = np.ascontiguousarray(vertices.T)
    gram = np.empty((len(vertices), len(vertices)))
    # The same loop as for c = V x, so that a row equal to a vertex sees the very same numbers.
    _kernel.inner_products(vertices, columns, gram)
    diagonal = np.diag(gram)
    shift = float(np.median(diagonal)) or float(diagonal.mean()) or 1.0

    def solve(block: Floats, weights: Floats, gap: Floats, steps: Integers) -> None:
        _kernel.solve_block(block, columns, gram, shift, weights, gap, steps)

    return solve
