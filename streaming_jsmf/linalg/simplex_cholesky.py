"""The Cholesky factor of the active-set solver: grown and shrunk by one vertex, and solved with.

Compiled, and compiled into ``simplex_kernel``: numba's cache of that module does not notice a change made
here, so ``__pycache__`` has to go after one.
Names: ``order[:size]`` are the passive vertices, ``lower`` the Cholesky factor of their block of the shifted
Gram matrix. Only the loops marked for it may be reassociated (vector registers).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: A Cholesky pivot below this share of its diagonal means: this vertex lies in the span of the others.
SINGULAR = 1e-13


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def solve_forward(lower: Floats, size: int, right: Floats) -> None:
    """Solve lower z = right in place."""
    for i in range(size):
        total = right[i]
        for j in range(i):
            total -= lower[i, j] * right[j]
        right[i] = total / lower[i, i]


@njit(cache=True, nogil=True)
def solve_backward(lower: Floats, size: int, right: Floats) -> None:
    """Solve lower' z = right in place, by rows of ``lower`` so that memory is read in order."""
    for i in range(size - 1, -1, -1):
        right[i] /= lower[i, i]
        for j in range(i):
            right[j] -= lower[i, j] * right[i]


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def append_vertex(shifted: Floats, lower: Floats, order: Integers, size: int, vertex: int) -> bool:
    """Add one vertex to the factor at position ``size``; False, and nothing added, where it is dependent."""
    total = shifted[vertex, vertex]
    for i in range(size):
        entry = shifted[vertex, order[i]]
        for j in range(i):
            entry -= lower[i, j] * lower[size, j]
        entry /= lower[i, i]
        lower[size, i] = entry
        total -= entry * entry
    if total <= SINGULAR * shifted[vertex, vertex]:
        return False
    lower[size, size] = np.sqrt(total)
    order[size] = vertex
    return True


@njit(cache=True, nogil=True)
def remove_vertex(lower: Floats, order: Integers, size: int, place: int) -> int:
    """Take the vertex at ``place`` out of the factor by Givens rotations; returns the new size."""
    size -= 1
    for i in range(place, size):
        order[i] = order[i + 1]
        for j in range(i + 2):
            lower[i, j] = lower[i + 1, j]
    for j in range(place, size):
        # Row j now reaches one column too far: rotate columns j and j + 1 to clear that entry.
        radius = np.hypot(lower[j, j], lower[j, j + 1])
        cosine = lower[j, j] / radius
        sine = lower[j, j + 1] / radius
        for i in range(j, size):
            left = lower[i, j]
            right = lower[i, j + 1]
            lower[i, j] = cosine * left + sine * right
            lower[i, j + 1] = cosine * right - sine * left
    return size
