"""Least squares over the probability simplex, for very many rows and one set of vertices.

The third step of Algorithms 1 and 5 of LR-JSMF (Lee et al., ICML 2021): every word is written as the convex
combination of the anchor words nearest to it. Two methods: a compiled active set (exact to rounding), and
batched accelerated projected gradients (FISTA, Beck and Teboulle 2009) where numba is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    from streaming_jsmf.linalg import simplex_kernel as _kernel

    HAVE_NUMBA = True
except ImportError:  # pragma: no cover - numba is a dependency, but has no wheel for every new Python
    HAVE_NUMBA = False

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Method = Literal["auto", "active-set", "fista"]
_Solver = Callable[[Floats, Floats, Floats, Integers], None]

BLOCK_ROWS = 1024
FISTA_ITERATIONS = 20_000
#: FISTA looks at the gap only every so often: it costs as much as a step.
FISTA_CHECK_EVERY = 10


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
    method: Method = "auto",
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
        "active-set", "fista", or "auto": the active set where numba is installed, else FISTA.
    tolerance
        FISTA's: a row is done at gap_i <= tolerance * ||x_i||^2, or after ``FISTA_ITERATIONS`` steps (look at
        the gap). The active set works to rounding.
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
    solve = _active_set(corners) if chosen == "active-set" else _fista(corners, tolerance)

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


def _choose(method: Method) -> Literal["active-set", "fista"]:
    if method == "auto":
        return "active-set" if HAVE_NUMBA else "fista"
    if method not in ("active-set", "fista"):
        raise ValueError(f"method must be auto, active-set or fista, not {method!r}")
    if method == "active-set" and not HAVE_NUMBA:
        raise ValueError("method active-set needs numba; install it or use method fista")
    return method


def _active_set(vertices: Floats) -> _Solver:
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


def project_to_simplex(points: Floats) -> Floats:
    """Nearest points of the probability simplex, row by row (n x K), by sorting (Held et al. 1974)."""
    descending = -np.sort(-points, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    ranks = np.arange(1, points.shape[1] + 1)
    support = np.count_nonzero(descending * ranks > excess, axis=1)
    threshold = np.take_along_axis(excess, support[:, None] - 1, axis=1) / support[:, None]
    projected: Floats = np.maximum(points - threshold, 0.0)
    return projected


def _fista(vertices: Floats, tolerance: float) -> _Solver:
    """Batched FISTA with restarts, in coordinates centred on the mean vertex.

    Centring changes nothing on the simplex and takes the largest eigenvalue, which sets the step, out of G.
    """
    centre = vertices.mean(axis=0)
    centred = vertices - centre
    gram = centred @ centred.T
    lipschitz = float(np.linalg.eigvalsh(gram)[-1]) or 1.0

    def solve(block: Floats, weights: Floats, gap: Floats, steps: Integers) -> None:
        target = tolerance * np.einsum("ij,ij->i", block, block)
        linear = (block - centre) @ centred.T
        weights[:] = 0.0
        nearest = np.argmin(0.5 * np.diag(gram) - linear, axis=1)
        weights[np.arange(len(block)), nearest] = 1.0
        _fista_block(gram, linear, lipschitz, target, weights, gap, steps)

    return solve


def _fista_block(
    gram: Floats,
    linear: Floats,
    lipschitz: float,
    target: Floats,
    weights: Floats,
    gap: Floats,
    steps: Integers,
) -> None:
    """Iterate the rows not yet done; fills weights (n x K, holding the start), gap and steps in place."""
    active = np.arange(len(weights))
    current = weights.copy()
    point = current.copy()
    momentum = np.ones((len(weights), 1))
    for iteration in range(FISTA_ITERATIONS + 1):
        if iteration % FISTA_CHECK_EVERY == 0:
            gradient = current @ gram - linear[active]
            reached = 2.0 * (np.einsum("ij,ij->i", current, gradient) - gradient.min(axis=1))
            weights[active], gap[active], steps[active] = current, np.maximum(reached, 0.0), iteration
            open_rows = reached > target[active]
            if iteration == FISTA_ITERATIONS or not open_rows.any():
                return
            active, current, point = active[open_rows], current[open_rows], point[open_rows]
            momentum = momentum[open_rows]
        step = project_to_simplex(point - (point @ gram - linear[active]) / lipschitz)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        # O'Donoghue and Candes 2015: momentum that points uphill is forgotten, row by row.
        uphill = np.einsum("ij,ij->i", point - step, step - current)[:, None] > 0
        following[uphill] = 1.0
        point = np.where(uphill, step, step + (momentum - 1.0) / following * (step - current))
        current, momentum = step, following
