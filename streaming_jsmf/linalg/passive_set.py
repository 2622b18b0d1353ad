"""The passive set of the active-set solver: its inverse Cholesky factor, and the minimum over its affine hull.

W is lower triangular with W P W' = 1, where P is the block of the passive vertices in the shifted Gram matrix. Unlike
triangular solves, products with W have no chain of divisions; the last row of W is the contribution of the last vertex
to P^-1 = W'W, and rotations of rows remove a vertex. All loops access memory contiguously.

Compiled into ``active_set``, whose numba cache does not detect changes here: delete ``__pycache__`` after a change.
``order[:size]`` are the passive vertices, ``inverse[:size, :size]`` is W, ``gradient`` = G b - c. Rows 0 and 1 of
``work`` are free, row 2 is the gradient, row 3 holds the ``sums`` W'W 1.
"""

from __future__ import annotations

import numpy as np

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.lanes import dot, sum_of
from streaming_jsmf.linalg.typing import Floats, Integers

#: A vertex is dependent on the others if its Cholesky pivot is below this fraction of its diagonal entry.
SINGULAR = 1e-12


@compiled(nogil=True, forceinline=True)
def multiply(inverse: Floats, size: int, right: Floats, out: Floats) -> None:
    """out = W right."""
    for i in range(size):
        out[i] = dot(inverse[i], right, i + 1)


@compiled(nogil=True)
def multiply_transposed(inverse: Floats, size: int, right: Floats, out: Floats) -> None:
    """out = W'right."""
    for i in range(size):
        value = right[i]
        for j in range(i):
            out[j] += value * inverse[i, j]
        out[i] = value * inverse[i, i]


@compiled(nogil=True, forceinline=True)
def append_vertex(
    shifted: Floats, inverse: Floats, order: Integers, size: int, vertex: int, column: Floats, work: Floats
) -> bool:
    """Add a vertex to the factor at position ``size``; return False, and add nothing, if it depends on the others.

    Leaves W p in ``column``, where p holds the inner products of the vertex with the previous ones; W'W p are the
    coefficients of a dependent vertex.
    """
    for i in range(size):
        work[i] = shifted[vertex, order[i]]
    multiply(inverse, size, work, column)
    total = shifted[vertex, vertex] - dot(column, column, size)
    if not total > SINGULAR * shifted[vertex, vertex]:
        return False
    scale = 1.0 / np.sqrt(total)
    multiply_transposed(inverse, size, column, work)
    for i in range(size):
        inverse[size, i] = -scale * work[i]
    inverse[size, size] = scale
    order[size] = vertex
    return True


@compiled(nogil=True)
def remove_vertex(inverse: Floats, order: Integers, size: int, place: int, sums: Floats) -> int:
    """Remove the vertex at position ``place`` from the factor and from ``sums``; return the new size.

    Rotations of rows i and i + 1 move the vertex's column into the last row, which is then dropped.
    """
    for i in range(place, size - 1):
        upper = inverse[i, place]
        lower = inverse[i + 1, place]
        radius = np.hypot(upper, lower)
        cosine = lower / radius
        sine = upper / radius
        inverse[i, i + 1] = 0.0
        for j in range(i + 2):
            above = inverse[i, j]
            below = inverse[i + 1, j]
            inverse[i, j] = cosine * above - sine * below
            inverse[i + 1, j] = sine * above + cosine * below
        if inverse[i, i + 1] < 0.0:
            for j in range(i + 2):
                inverse[i, j] = -inverse[i, j]
    total = 0.0
    for j in range(size):
        total += inverse[size - 1, j]
    for j in range(size):
        sums[j] -= total * inverse[size - 1, j]
    for j in range(place, size - 1):
        order[j] = order[j + 1]
        sums[j] = sums[j + 1]
    for i in range(place, size - 1):
        for j in range(place, i + 1):
            inverse[i, j] = inverse[i, j + 1]
    return size - 1


@compiled(nogil=True)
def add_last(inverse: Floats, size: int, sums: Floats) -> None:
    """Add the contribution of the last vertex to ``sums`` = W'W 1."""
    total = 0.0
    for j in range(size):
        total += inverse[size - 1, j]
    sums[size - 1] = 0.0
    for j in range(size):
        sums[j] += total * inverse[size - 1, j]


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
    """Fraction of ``step`` until a weight reaches zero, and the position of that weight, or -1 for the full step."""
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
def minimize(
    gram: Floats, inverse: Floats, order: Integers, size: int, weights: Floats, gradient: Floats, work: Floats
) -> int:
    """Minimise over the passive vertices from any weights; remove those that reach zero and return the new size."""
    step, other, sums = work[0], work[1], work[3]
    while size > 1:
        for i in range(size):
            step[i] = gradient[order[i]]
        multiply(inverse, size, step, other)
        multiply_transposed(inverse, size, other, step)
        # The step to the minimum over the affine hull sums to zero.
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
def minimize_after_entry(
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
    """``minimize`` if all passive vertices have equal gradients, except the last, which differs by ``slope``.

    This property survives partial steps and removals, so the last row of W and ``sums`` determine each step, and the
    gradient is computed only once, at the end.
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
