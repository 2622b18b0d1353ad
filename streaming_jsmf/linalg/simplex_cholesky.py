"""The inverse Cholesky factor of the active-set solver: grown and shrunk by one vertex, and multiplied with.

W is lower triangular with W P W' = 1, where P is the block of the passive vertices in the shifted Gram matrix.
Multiplying with W has no chain of divisions as solving with its inverse has, its last row is what the last
vertex adds to P^-1 = W'W, and a vertex leaves by rotations of whole rows: every loop runs along memory.

Compiled, and compiled into ``simplex_kernel``: numba's cache of that module does not notice a change made
here, so ``__pycache__`` has to go after one.
Names: ``order[:size]`` are the passive vertices, ``inverse[:size, :size]`` is W. Only sums of products may be
reassociated (vector registers).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.lanes import dot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: A Cholesky pivot below this share of its diagonal means: this vertex lies in the span of the others.
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
    """Add one vertex to the factor at position ``size``; False, and nothing added, where it is dependent.

    ``column`` is left with W p, where p holds the inner products of the vertex with those before it: W'W p is
    what a dependent vertex is made of.
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
    """Take the vertex at ``place`` out of the factor; returns the new size.

    Rotations of rows i and i + 1 move the vertex's column into the last row, which then goes with it.
    ``sums`` = W'W 1 follows.
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
    """Let ``sums`` = W'W 1 of all vertices but the last become that of all."""
    total = 0.0
    for j in range(size):
        total += inverse[size - 1, j]
    sums[size - 1] = 0.0
    for j in range(size):
        sums[j] += total * inverse[size - 1, j]
