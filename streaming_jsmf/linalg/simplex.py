"""Least squares over the probability simplex, for many rows and one set of vertices.

The third step of Algorithms 1 and 5 of LR-JSMF (Lee et al., ICML 2021): each word is written as the nearest convex
combination of the anchor words. Two methods, a compiled active set (exact to rounding) and exponentiated gradient (used
in the papers); both return a certificate for each row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from streaming_jsmf.config import SimplexMethod
from streaming_jsmf.linalg.active_set import inner_products, solve_block
from streaming_jsmf.linalg.panels import on_each, panel_threads
from streaming_jsmf.linalg.typing import FloatArray, Floats, Integers

BLOCK_ROWS = 1024

EXPONENTIATED_ITERATIONS = 2_000
#: Iterations between evaluations of the gap, each of which costs as much as an iteration.
CHECK_EVERY = 10
#: Factors applied to the step size of exponentiated gradient: after a descent, and otherwise.
LONGER, SHORTER = 1.5, 0.5


@dataclass(frozen=True)
class SimplexSolution:
    """Convex combinations and their certificates.

    ``weights`` are N x K with non-negative rows of sum 1. ``gap`` (N,) is the Frank-Wolfe gap: ||x_i - V'b_i||^2 is at
    most gap_i above its minimum. ``iterations`` is the maximum over rows.
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

    X is N x d and may be float32 and memory-mapped, because blocks of ``block_rows`` rows are converted to float64 one
    at a time; V (``vertices``) is K x d. Raises ``ValueError`` if shapes do not match, entries are not finite, or an
    option is invalid.

    Parameters
    ----------
    method : "active-set" (also "auto"), exact to rounding, or "exponentiated-gradient".
    tolerance : For exponentiated gradient: a row is finished at gap_i <= tolerance * ||x_i||^2, or after 2,000
        iterations.
    threads : Blocks solved in parallel; None: one per processor. The result does not depend on it.
    """
    rows, corners = _checked(X, vertices)
    if method not in get_args(SimplexMethod):
        raise ValueError(f"method must be one of {', '.join(get_args(SimplexMethod))}, not {method!r}")
    if block_rows < 1 or (threads is not None and threads < 1) or not tolerance > 0:
        raise ValueError("block_rows, threads and tolerance must be positive")
    n_rows, n_vertices = rows.shape[0], corners.shape[0]
    weights, gap = np.empty((n_rows, n_vertices)), np.empty(n_rows)
    iterations = np.zeros(n_rows, dtype=np.int64)
    columns = np.ascontiguousarray(corners.T)
    gram = np.empty((n_vertices, n_vertices))
    # The same loop as for c = V x, so that a row equal to a vertex has identical inner products.
    inner_products(corners, columns, gram)
    diagonal = np.diag(gram)
    shift = float(np.median(diagonal)) or float(diagonal.mean()) or 1.0

    def solve(start: int) -> None:
        part = slice(start, start + block_rows)
        block = np.ascontiguousarray(rows[part], dtype=np.float64)
        if not np.isfinite(block).all():
            raise ValueError(f"X has entries that are not finite in rows {start} to {start + len(block) - 1}")
        if method == "exponentiated-gradient":
            _exponentiated_gradient(block, corners, tolerance, weights[part], gap[part], iterations[part])
        else:
            solve_block(block, columns, gram, shift, weights[part], gap[part], iterations[part])

    with panel_threads(threads):
        on_each(solve, range(0, n_rows, block_rows))
    return SimplexSolution(weights, gap, int(iterations.max(initial=0)))


def _checked(X: ArrayLike, vertices: ArrayLike) -> tuple[FloatArray, Floats]:
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


def _exponentiated_gradient(
    block: Floats, vertices: Floats, tolerance: float, weights: Floats, gap: Floats, iterations: Integers
) -> None:
    """Multiply weights by exp(-step x gradient) and rescale them to sum 1, with one step size per row."""
    gram, linear = vertices @ vertices.T, block @ vertices.T
    target = tolerance * np.einsum("ij,ij->i", block, block)
    active = np.arange(len(block))
    current = np.full(weights.shape, 1.0 / len(vertices))
    product = current @ gram
    step = np.full(len(block), 1.0 / (float(np.abs(gram).max()) or 1.0))
    for iteration in range(EXPONENTIATED_ITERATIONS + 1):
        gradient = product - linear[active]
        if iteration % CHECK_EVERY == 0:
            reached = 2.0 * (np.einsum("ij,ij->i", current, gradient) - gradient.min(axis=1))
            weights[active], gap[active], iterations[active] = current, np.maximum(reached, 0.0), iteration
            unfinished = reached > target[active]
            if iteration == EXPONENTIATED_ITERATIONS or not unfinished.any():
                return
            active, current, product, step, gradient = (
                values[unfinished] for values in (active, current, product, step, gradient)
            )
        # Shift the exponents of each row so that the largest is 0, which avoids overflow.
        exponent = -step[:, None] * (gradient - gradient.min(axis=1)[:, None])
        trial = current * np.exp(exponent)
        trial /= trial.sum(axis=1)[:, None]
        trial_product = trial @ gram
        # Half the change of the objective, exactly: (b1 - b0)'(G (b0 + b1) / 2 - c).
        change = np.einsum("ij,ij->i", trial - current, 0.5 * (product + trial_product) - linear[active])
        descends = change <= 0.0
        current[descends], product[descends] = trial[descends], trial_product[descends]
        step = np.where(descends, LONGER * step, SHORTER * step)
