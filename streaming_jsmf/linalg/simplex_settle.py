"""The minimum over the passive vertices, for the active-set solver of simplex least squares.

Compiled into ``simplex_kernel``, whose cache does not notice a change made here (see ``simplex_cholesky``).
Names: ``order[:size]`` are the passive vertices, ``inverse`` the inverse Cholesky factor W of their block,
``gradient`` = G b - c; ``work`` has four rows, of which 0 and 1 are free, 2 is the gradient, and 3 holds the
``sums`` W'W 1 of the passive vertices.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.lanes import sum_of
from streaming_jsmf.linalg.simplex_cholesky import multiply, multiply_transposed, remove_vertex

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@compiled(nogil=True)
def _add_columns(gram: Floats, vertices: Integers, count: int, change: Floats, gradient: Floats) -> None:
    """gradient += G change, for changes at the first ``count`` of ``vertices``; four columns at a time."""
    n_vertices = gram.shape[0]
    whole = count - count % 4
    for i in range(0, whole, 4):
        a, b, c, d = vertices[i], vertices[i + 1], vertices[i + 2], vertices[i + 3]
        w, x, y, z = change[i], change[i + 1], change[i + 2], change[i + 3]
        for k in range(n_vertices):
            gradient[k] += (w * gram[a, k] + x * gram[b, k]) + (y * gram[c, k] + z * gram[d, k])
    for i in range(whole, count):
        a, w = vertices[i], change[i]
        for k in range(n_vertices):
            gradient[k] += w * gram[a, k]


@compiled(nogil=True)
def _blocked(order: Integers, size: int, step: Floats, weights: Floats) -> tuple[float, int]:
    """How much of ``step`` can be taken until a weight reaches zero, and its place, or -1 for the full step."""
    length = 1.0
    blocking = -1
    for i in range(size):
        weight = weights[order[i]]
        if weight + step[i] <= 0.0 and step[i] < 0.0 and weight < -length * step[i]:
            length = -weight / step[i]
            blocking = i
        elif weight + step[i] <= 0.0 and blocking < 0:
            blocking = i
    return length, blocking


@compiled(nogil=True)
def settle(
    gram: Floats, inverse: Floats, order: Integers, size: int, weights: Floats, gradient: Floats, work: Floats
) -> int:
    """Minimise over the passive vertices from any weights, dropping those that reach zero; the size left."""
    step, other, sums = work[0], work[1], work[3]
    while size > 1:
        for i in range(size):
            step[i] = gradient[order[i]]
        multiply(inverse, size, step, other)
        multiply_transposed(inverse, size, other, step)
        # To the minimum over the affine hull: the step sums to zero.
        share = sum_of(step, size) / sum_of(sums, size)
        for i in range(size):
            step[i] = share * sums[i] - step[i]
        length, blocking = _blocked(order, size, step, weights)
        for i in range(size):
            step[i] *= length
            weights[order[i]] += step[i]
        _add_columns(gram, order, size, step, gradient)
        if blocking < 0:
            break
        weights[order[blocking]] = 0.0
        size = remove_vertex(inverse, order, size, blocking, sums)
    return size


@compiled(nogil=True)
def settle_entered(
    gram: Floats,
    inverse: Floats,
    order: Integers,
    size: int,
    slope: float,
    weights: Floats,
    gradient: Floats,
    work: Floats,
    start: Integers,
) -> int:
    """``settle`` where all passive vertices but the last share one gradient, and the last is ``slope`` off it.

    This stays so when a part of a step is taken or a vertex leaves, so that the last row of W and ``sums`` give
    each step, and the gradient is worked out once, at the end.
    """
    step, change, sums = work[0], work[1], work[3]
    start_size, entered = size, order[size - 1]
    for i in range(size):
        start[i] = order[i]
        change[i] = weights[order[i]]
    while size > 1:
        # W'W e = last row times its last entry.
        pace = slope * inverse[size - 1, size - 1]
        for i in range(size):
            step[i] = pace * inverse[size - 1, i]
        share = sum_of(step, size) / sum_of(sums, size)
        for i in range(size):
            step[i] = share * sums[i] - step[i]
        length, blocking = _blocked(order, size, step, weights)
        for i in range(size):
            weights[order[i]] += length * step[i]
        if blocking < 0:
            break
        weights[order[blocking]] = 0.0
        slope *= 1.0 - length
        size = remove_vertex(inverse, order, size, blocking, sums)
        if order[size - 1] != entered:
            break
    for i in range(start_size):
        change[i] = weights[start[i]] - change[i]
    _add_columns(gram, start, start_size, change, gradient)
    return size
