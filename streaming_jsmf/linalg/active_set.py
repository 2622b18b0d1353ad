"""Compiled active-set solver for least squares over the probability simplex.

For each row x, min_b ||x - V'b||^2 subject to b >= 0 and sum(b) = 1 is solved from G = V V' and c = V x by the primal
active-set method: start at the nearest vertex, add the vertex with the most negative reduced gradient, solve the
equality-constrained problem on the *passive* vertices (those of positive weight) with an updated Cholesky factor, and
step back to the first weight that would become negative. The factor is that of G + s e e', which changes the objective
on the simplex by a constant only and is positive definite if the passive vertices are *affinely* independent.

No BLAS is used and rows are independent, so on one machine the bits depend only on the row and the vertices. Inner
products are summed in ascending order, so that a row equal to a vertex has exactly the entries of the Gram matrix.
"""

from __future__ import annotations

import numpy as np

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.lanes import dot
from streaming_jsmf.linalg.passive_set import (
    add_last,
    append_vertex,
    minimize,
    minimize_after_entry,
    multiply_transposed,
    remove_vertex,
)
from streaming_jsmf.linalg.typing import Floats, Integers, Mask

#: Gradient differences below this fraction of the norms involved are rounding errors.
ROUNDING = 2e-14
#: Pairwise exchange continues while the gap exceeds this fraction of ||x||^2.
POLISHED = 1e-13


@compiled(nogil=True)
def inner_products(rows: Floats, columns: Floats, out: Floats) -> None:
    """Set ``out`` to rows @ columns for rows (n x d) and columns (d x K), summed over d in ascending order."""
    for i in range(rows.shape[0]):
        for k in range(columns.shape[1]):
            out[i, k] = 0.0
        for j in range(rows.shape[1]):
            value = rows[i, j]
            for k in range(columns.shape[1]):
                out[i, k] += value * columns[j, k]


@compiled(nogil=True)
def _swap(
    shifted: Floats, inverse: Floats, order: Integers, size: int, vertex: int, weights: Floats, work: Floats
) -> bool:
    """Replace a passive vertex by a dependent one (column in ``work[0]``); return False, unchanged, if impossible."""
    column, share, sums = work[0], work[1], work[3]
    multiply_transposed(inverse, size, column, share)
    total = share[:size].sum()
    blocking = -1
    amount = np.inf
    for i in range(size):
        share[i] /= total
        if share[i] > 0.0 and weights[order[i]] < amount * share[i]:
            amount = weights[order[i]] / share[i]
            blocking = i
    if blocking < 0:
        return False
    leaving = order[blocking]
    remove_vertex(inverse, order, size, blocking, sums)
    entered = append_vertex(shifted, inverse, order, size - 1, vertex, column, work[4])
    if not entered:
        append_vertex(shifted, inverse, order, size - 1, leaving, column, work[4])
    add_last(inverse, size, sums)
    if not entered:
        return False
    place = 0
    for i in range(size):
        # The removed vertex is no longer in `order`, but still in `share`.
        if i != blocking:
            weights[order[place]] = max(weights[order[place]] - amount * share[i], 0.0)
            place += 1
    weights[leaving] = 0.0
    weights[vertex] = amount
    return True


@compiled(nogil=True)
def _refresh(
    gram: Floats, linear: Floats, order: Integers, size: int, weights: Floats, gradient: Floats
) -> float:
    """Recompute gradient = G b - c, with the weights scaled to sum 1; return b' gradient."""
    total = 0.0
    for i in range(size):
        total += weights[order[i]]
    for k in range(gram.shape[0]):
        gradient[k] = -linear[k]
    for i in range(size):
        vertex = order[i]
        weights[vertex] /= total
        row = gram[vertex]
        for k in range(gram.shape[0]):
            gradient[k] += weights[vertex] * row[k]
    level: float = dot(weights, gradient, gradient.size)
    return level


@compiled(nogil=True)
def _entering(
    gradient: Floats, level: float, weights: Floats, lengths: Floats, size_x: float, closed: Mask
) -> int:
    """Vertex outside the passive set with the steepest descent beyond rounding, or -1."""
    best = -1
    steepest = 0.0
    for k in range(gradient.shape[0]):
        slope = gradient[k] - level
        if slope < steepest and weights[k] == 0.0 and not closed[k]:
            bound = (size_x + lengths[k]) * max(size_x, lengths[k])
            if slope < -ROUNDING * bound:
                best = k
                steepest = slope
    return best


@compiled(nogil=True)
def _exchange(gram: Floats, weights: Floats, gradient: Floats, target: float) -> int:
    """Move weight between the best and worst vertices until the gap is at most ``target``; return the step count."""
    n_vertices = gram.shape[0]
    for count in range(20 * n_vertices):
        level = 0.0
        low = 0
        high = -1
        for k in range(n_vertices):
            level += weights[k] * gradient[k]
            if gradient[k] < gradient[low]:
                low = k
            if weights[k] > 0.0 and (high < 0 or gradient[k] > gradient[high]):
                high = k
        if 2.0 * (level - gradient[low]) <= target or low == high:
            return count
        slope = gradient[high] - gradient[low]
        curvature = gram[low, low] + gram[high, high] - 2.0 * gram[low, high]
        move = weights[high]
        if slope < move * curvature:
            move = slope / curvature
        weights[low] += move
        weights[high] = weights[high] - move if move < weights[high] else 0.0
        for k in range(n_vertices):
            gradient[k] += move * (gram[low, k] - gram[high, k])
    return int(20 * n_vertices)


@compiled(nogil=True)
def _admit(
    gram: Floats,
    shifted: Floats,
    inverse: Floats,
    places: Integers,
    size: int,
    entering: int,
    slope: float,
    linear: Floats,
    weights: Floats,
    gradient: Floats,
    work: Floats,
) -> int:
    """Add a vertex to the passive set and minimise over it; return the new size, or 0 if it cannot enter."""
    order = places[0]
    if append_vertex(shifted, inverse, order, size, entering, work[0], work[1]):
        add_last(inverse, size + 1, work[3])
        return int(
            minimize_after_entry(gram, inverse, order, size + 1, slope, weights, gradient, work, places[1])
        )
    if _swap(shifted, inverse, order, size, entering, weights, work):
        _refresh(gram, linear, order, size, weights, gradient)
        return int(minimize(gram, inverse, order, size, weights, gradient, work))
    return 0


@compiled(nogil=True)
def _nearest(gram: Floats, linear: Floats) -> int:
    """Vertex nearest to the row; ties go to the lowest id."""
    best = 0
    for k in range(1, gram.shape[0]):
        if 0.5 * gram[k, k] - linear[k] < 0.5 * gram[best, best] - linear[best]:
            best = k
    return best


@compiled(nogil=True)
def _search(
    gram: Floats,
    shifted: Floats,
    lengths: Floats,
    linear: Floats,
    square: float,
    weights: Floats,
    inverse: Floats,
    work: Floats,
    places: Integers,
    closed: Mask,
) -> tuple[int, int]:
    """Add vertices, from one passive vertex, until none descends; return (passive vertices, steps)."""
    gradient, order = work[2], places[0]
    size = 1
    steps = 0
    level = _refresh(gram, linear, order, size, weights, gradient)
    work[3, 0] = 0.0
    add_last(inverse, size, work[3])
    fresh = True
    # The passive set seldom exceeds a third of the vertices; the bound only stops cycling due to rounding.
    while steps < 10 * gram.shape[0] + 20:
        entering = _entering(gradient, level, weights, lengths, np.sqrt(square), closed)
        if entering < 0 and fresh:
            break
        if entering < 0:
            # The gradient is updated incrementally; only a recomputed gradient may end the search.
            _refresh(gram, linear, order, size, weights, gradient)
            size = minimize(gram, inverse, order, size, weights, gradient, work)
            level = _refresh(gram, linear, order, size, weights, gradient)
            fresh = True
            continue
        steps += 1
        closed[entering] = True
        slope = gradient[entering] - level
        admitted = _admit(
            gram, shifted, inverse, places, size, entering, slope, linear, weights, gradient, work
        )
        if admitted == 0:
            continue
        size = admitted
        level = dot(weights, gradient, gradient.size)
        fresh = False
        if weights[entering] > 0.0:
            closed[:] = False
    return size, steps


@compiled(nogil=True)
def _solve_row(
    gram: Floats,
    shifted: Floats,
    lengths: Floats,
    linear: Floats,
    square: float,
    weights: Floats,
    inverse: Floats,
    work: Floats,
    places: Integers,
    closed: Mask,
) -> tuple[float, int]:
    """Solve one row into ``weights``; return (Frank-Wolfe gap of ||x - V'b||^2, steps)."""
    gradient, order = work[2], places[0]
    weights[:] = 0.0
    closed[:] = False
    start = _nearest(gram, linear)
    append_vertex(shifted, inverse, order, 0, start, work[0], work[1])
    weights[start] = 1.0
    size, steps = _search(gram, shifted, lengths, linear, square, weights, inverse, work, places, closed)
    _refresh(gram, linear, order, size, weights, gradient)
    steps += _exchange(gram, weights, gradient, POLISHED * square)
    return _gap(gradient, weights), steps


@compiled(nogil=True)
def _gap(gradient: Floats, weights: Floats) -> float:
    """Frank-Wolfe gap 2 (b'g - min g): bounds how far ||x - V'b||^2 is above its minimum."""
    return float(max(0.0, 2.0 * (dot(weights, gradient, gradient.size) - gradient.min())))


@compiled(nogil=True)
def solve_block(
    rows: Floats, columns: Floats, gram: Floats, shift: float, weights: Floats, gap: Floats, steps: Integers
) -> None:
    """Solve a block of rows (n x d); fills ``weights`` (n x K), ``gap`` (n,) and ``steps`` (n,).

    ``columns`` is V' (d x K), ``gram`` is V V', ``shift`` is the s > 0 of G + s e e'. Needs O(K^2) working memory and n
    x K for c = V x.
    """
    n_vertices = gram.shape[0]
    shifted = gram + shift
    lengths = np.sqrt(np.diag(gram))
    inverse = np.zeros((n_vertices, n_vertices))
    work = np.zeros((5, n_vertices))
    places = np.zeros((2, n_vertices), dtype=np.int64)
    closed = np.zeros(n_vertices, dtype=np.bool_)
    linear = np.empty((rows.shape[0], n_vertices))
    inner_products(rows, columns, linear)
    for i in range(rows.shape[0]):
        square = 0.0
        for j in range(rows.shape[1]):
            square += rows[i, j] * rows[i, j]
        gap[i], steps[i] = _solve_row(
            gram, shifted, lengths, linear[i], square, weights[i], inverse, work, places, closed
        )
