"""Compiled active-set solver for least squares over the probability simplex.

For one row x the problem is min_b ||x - V'b||^2 subject to b >= 0 and sum(b) = 1. It is solved from
G = V V' and c = V x by the primal active-set method: start at the nearest vertex, let the vertex with the
most negative reduced gradient enter, solve the equality-constrained problem on the *passive* vertices (those
of positive weight) by a Cholesky factor that grows with them, and step back to the first weight that would
turn negative.

The factor is that of G + s e e'. On the simplex this changes the objective by a constant only, and it is
positive definite whenever the passive vertices are *affinely* independent, which is what the problem needs.

No BLAS is called and nothing is shared between rows: for one machine the bits depend on the row and the
vertices alone. Only the triangular solves may be reassociated (vector registers); the inner products are
summed in rising order, so that a row equal to a vertex sees the Gram matrix's own numbers.
Names: ``order[:size]`` are the passive vertices, ``lower`` the Cholesky factor of their block.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streaming_jsmf.linalg.simplex_cholesky import append_vertex, remove_vertex, solve_backward, solve_forward

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Gradient differences below this share of the norms involved are rounding, not descent.
ROUNDING = 2e-14
#: Pairwise exchange goes on while the gap exceeds this share of ||x||^2.
POLISHED = 1e-13


@njit(cache=True, nogil=True)
def inner_products(rows: Floats, columns: Floats, out: Floats) -> None:
    """out = rows @ columns for rows (n x d) and columns (d x K), summed over d in rising order."""
    for i in range(rows.shape[0]):
        for k in range(columns.shape[1]):
            out[i, k] = 0.0
        for j in range(rows.shape[1]):
            value = rows[i, j]
            for k in range(columns.shape[1]):
                out[i, k] += value * columns[j, k]


@njit(cache=True, nogil=True)
def _direction(
    lower: Floats, order: Integers, size: int, gradient: Floats, step: Floats, ones: Floats
) -> None:
    """Step (by place) to the minimum over the affine hull of the passive vertices; sums to zero."""
    for i in range(size):
        step[i] = gradient[order[i]]
        ones[i] = 1.0
    for right in (step, ones):
        solve_forward(lower, size, right)
        solve_backward(lower, size, right)
    total = 0.0
    scale = 0.0
    for i in range(size):
        total += step[i]
        scale += ones[i]
    for i in range(size):
        step[i] = total / scale * ones[i] - step[i]


@njit(cache=True, nogil=True)
def _advance(
    gram: Floats, order: Integers, size: int, step: Floats, weights: Floats, gradient: Floats
) -> int:
    """Go along ``step`` until the first weight reaches zero; its place, or -1 for the full step."""
    length = 1.0
    blocking = -1
    for i in range(size):
        weight = weights[order[i]]
        if weight + step[i] <= 0.0 and step[i] < 0.0 and weight < -length * step[i]:
            length = -weight / step[i]
            blocking = i
        elif weight + step[i] <= 0.0 and blocking < 0:
            blocking = i
    for i in range(size):
        change = length * step[i]
        weights[order[i]] += change
        row = gram[order[i]]
        for k in range(gram.shape[0]):
            gradient[k] += change * row[k]
    return blocking


@njit(cache=True, nogil=True)
def _settle(
    gram: Floats,
    lower: Floats,
    order: Integers,
    size: int,
    weights: Floats,
    gradient: Floats,
    work: Floats,
) -> int:
    """Minimise over the passive vertices, dropping those whose weight reaches zero; returns the size left."""
    while size > 1:
        _direction(lower, order, size, gradient, work[0], work[1])
        blocking = _advance(gram, order, size, work[0], weights, gradient)
        if blocking < 0:
            break
        weights[order[blocking]] = 0.0
        size = remove_vertex(lower, order, size, blocking)
    return size


@njit(cache=True, nogil=True)
def _swap(
    shifted: Floats, lower: Floats, order: Integers, size: int, vertex: int, weights: Floats, share: Floats
) -> bool:
    """Let a dependent vertex take the place of a passive one; False, and nothing changed, where it cannot.

    With v = sum_p share_p v_p weight moves to v from the passive vertices in proportion to their shares,
    until one of them is empty. Follows a failed ``append_vertex``, whose half-solved row it uses.
    """
    for i in range(size):
        share[i] = lower[size, i]
    solve_backward(lower, size, share)
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
    remove_vertex(lower, order, size, blocking)
    if not append_vertex(shifted, lower, order, size - 1, vertex):
        append_vertex(shifted, lower, order, size - 1, leaving)
        return False
    place = 0
    for i in range(size):
        # `order` has closed up over the vertex that left, `share` has not.
        if i != blocking:
            weights[order[place]] = max(weights[order[place]] - amount * share[i], 0.0)
            place += 1
    weights[leaving] = 0.0
    weights[vertex] = amount
    return True


@njit(cache=True, nogil=True)
def _level(gradient: Floats, weights: Floats) -> float:
    """b' gradient: what every passive vertex has at the minimum over the passive set."""
    level = 0.0
    for k in range(gradient.shape[0]):
        level += weights[k] * gradient[k]
    return level


@njit(cache=True, nogil=True)
def _refresh(
    gram: Floats, linear: Floats, order: Integers, size: int, weights: Floats, gradient: Floats
) -> float:
    """gradient = G b - c afresh, with the weights scaled to sum to one; returns b' gradient."""
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
    level: float = _level(gradient, weights)
    return level


@njit(cache=True, nogil=True)
def _entering(
    gradient: Floats, level: float, weights: Floats, lengths: Floats, size_x: float, closed: NDArray[np.bool_]
) -> int:
    """The vertex outside the passive set with the steepest descent beyond rounding, or -1."""
    best = -1
    steepest = 0.0
    for k in range(gradient.shape[0]):
        slope = gradient[k] - level
        bound = (size_x + lengths[k]) * max(size_x, lengths[k])
        if slope < steepest and weights[k] == 0.0 and not closed[k] and slope < -ROUNDING * bound:
            best = k
            steepest = slope
    return best


@njit(cache=True, nogil=True)
def _exchange(gram: Floats, weights: Floats, gradient: Floats, target: float) -> int:
    """Move weight between the best and the worst vertex until the Frank-Wolfe gap is at most ``target``.

    Needs no factor, so it serves the vertices that are too close to others to enter one. Returns the steps.
    """
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


@njit(cache=True, nogil=True)
def _admit(
    gram: Floats,
    shifted: Floats,
    lower: Floats,
    order: Integers,
    size: int,
    entering: int,
    linear: Floats,
    weights: Floats,
    gradient: Floats,
    work: Floats,
) -> int:
    """Let one vertex into the passive set and minimise over it; the new size, or 0 where it cannot enter."""
    if append_vertex(shifted, lower, order, size, entering):
        size += 1
    elif _swap(shifted, lower, order, size, entering, weights, work[0]):
        _refresh(gram, linear, order, size, weights, gradient)
    else:
        return 0
    return int(_settle(gram, lower, order, size, weights, gradient, work))


@njit(cache=True, nogil=True)
def _nearest(gram: Floats, linear: Floats) -> int:
    """The vertex nearest to the row; the lowest number of those equally near."""
    best = 0
    for k in range(1, gram.shape[0]):
        if 0.5 * gram[k, k] - linear[k] < 0.5 * gram[best, best] - linear[best]:
            best = k
    return best


@njit(cache=True, nogil=True)
def _search(
    gram: Floats,
    shifted: Floats,
    lengths: Floats,
    linear: Floats,
    square: float,
    weights: Floats,
    lower: Floats,
    work: Floats,
    order: Integers,
    closed: NDArray[np.bool_],
) -> tuple[int, int]:
    """Let vertices enter until none descends, from one passive vertex; returns (passive vertices, steps)."""
    gradient = work[2]
    size = 1
    steps = 0
    level = _refresh(gram, linear, order, size, weights, gradient)
    fresh = True
    # The passive set seldom grows beyond a third of the vertices; the bound only stops cycling by rounding.
    while steps < 10 * gram.shape[0] + 20:
        entering = _entering(gradient, level, weights, lengths, np.sqrt(square), closed)
        if entering < 0 and fresh:
            break
        if entering < 0:
            # The gradient is carried from step to step; only one worked out afresh may end the search.
            level = _refresh(gram, linear, order, size, weights, gradient)
            fresh = True
            continue
        steps += 1
        closed[entering] = True
        admitted = _admit(gram, shifted, lower, order, size, entering, linear, weights, gradient, work)
        if admitted == 0:
            continue
        size = admitted
        level = _level(gradient, weights)
        fresh = False
        if weights[entering] > 0.0:
            closed[:] = False
    return size, steps


@njit(cache=True, nogil=True)
def _solve_row(
    gram: Floats,
    shifted: Floats,
    lengths: Floats,
    linear: Floats,
    square: float,
    weights: Floats,
    lower: Floats,
    work: Floats,
    order: Integers,
    closed: NDArray[np.bool_],
) -> tuple[float, int]:
    """Solve one row into ``weights``; returns (Frank-Wolfe gap of ||x - V'b||^2, steps)."""
    gradient = work[2]
    weights[:] = 0.0
    closed[:] = False
    start = _nearest(gram, linear)
    append_vertex(shifted, lower, order, 0, start)
    weights[start] = 1.0
    size, steps = _search(gram, shifted, lengths, linear, square, weights, lower, work, order, closed)
    _refresh(gram, linear, order, size, weights, gradient)
    steps += _exchange(gram, weights, gradient, POLISHED * square)
    return _gap(gradient, weights), steps


@njit(cache=True, nogil=True)
def _gap(gradient: Floats, weights: Floats) -> float:
    """2 (b'g - min g): ||x - V'b||^2 is at most this far above its minimum (Frank and Wolfe 1956)."""
    return float(max(0.0, 2.0 * (_level(gradient, weights) - gradient.min())))


@njit(cache=True, nogil=True)
def solve_block(
    rows: Floats, columns: Floats, gram: Floats, shift: float, weights: Floats, gap: Floats, steps: Integers
) -> None:
    """Solve every row of a block in place.

    Working memory of O(K^2), besides c = V x of every row (n x K).

    Parameters
    ----------
    rows
        (n, d).
    columns
        V', (d, K).
    gram
        V V', (K, K).
    shift
        s > 0 of the factor of G + s e e'.
    weights, gap, steps
        (n, K), (n,) and (n,): filled.
    """
    n_vertices = gram.shape[0]
    shifted = gram + shift
    lengths = np.sqrt(np.diag(gram))
    lower = np.zeros((n_vertices, n_vertices))
    work = np.zeros((3, n_vertices))
    order = np.zeros(n_vertices, dtype=np.int64)
    closed = np.zeros(n_vertices, dtype=np.bool_)
    linear = np.empty((rows.shape[0], n_vertices))
    inner_products(rows, columns, linear)
    for i in range(rows.shape[0]):
        square = 0.0
        for j in range(rows.shape[1]):
            square += rows[i, j] * rows[i, j]
        gap[i], steps[i] = _solve_row(
            gram, shifted, lengths, linear[i], square, weights[i], lower, work, order, closed
        )
