"""AP: alternating projections of the complete C (LR-JSMF, Algorithm 2).

They project onto: positive semidefinite of rank K, sum 1, non-negative. Each iteration recomputes C from Y in place,
panel by panel, so only one N x N matrix is in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streaming_jsmf.linalg.eigen import Eigenpairs, leading_pairs
from streaming_jsmf.linalg.panels import each, panels
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.rectification.result import Rectification, iterated, positive_half

#: Rows of C recomputed at a time. Affects the bits, because the norm of the step is summed over panels.
PANEL_ROWS = 512


def alternating_projection(
    matrix: Floats, pairs: Eigenpairs, n_topics: int, **stopping: Any
) -> Rectification:
    """AP on the complete C, O(N^2 K) per iteration, warm-started from the eigenvectors of the previous one.

    ``matrix`` is C, N x N, symmetric, and is overwritten; ``pairs`` are its leading algebraic eigenpairs, at least K
    (more speed up the iteration). ``stopping`` are keyword arguments of ``iterated``; the change is that of C_t,
    ||C_t+1 - C_t||_F / ||C_t||_F. Returns C*, non-negative, as ``matrix`` and its nearest Y Y' as ``rectified``.
    """
    shift = 0.0

    def step(_: int) -> float:
        nonlocal pairs, shift
        y = positive_half(pairs, n_topics)
        shift = missing_constant(y)
        change = _replace(matrix, y, shift)
        pairs = leading_pairs(matrix, pairs.vectors, n_topics)
        return change

    ended = iterated(step, **stopping)
    n = len(matrix)
    y = positive_half(pairs, n_topics)
    return Rectification(y, **ended, uniform_mass=shift * n**2, checked_words=n, matrix=matrix)


def missing_constant(y: Floats) -> float:
    """The constant that makes the sum of Y Y' 1 if added to each entry, which gives the nearest such matrix."""
    return (1.0 - float(np.sum(y.sum(axis=0) ** 2))) / len(y) ** 2


def _replace(c: Floats, y: Floats, shift: float) -> float:
    """Set C to max(Y Y' + shift, 0); return the relative change."""

    def panel(rows: slice) -> tuple[float, float]:
        new = y[rows] @ y.T
        new += shift
        np.maximum(new, 0.0, out=new)
        old = c[rows]
        lengths = float(np.sum((new - old) ** 2)), float(np.sum(old**2))
        c[rows] = new
        return lengths

    return relative_change(panel, c.shape[0])


def relative_change(panel: Callable[[slice], tuple[float, float]], n: int) -> float:
    """Relative change of a matrix; ``panel`` replaces rows and returns squared norms of the change and the old rows."""
    moved = norm = 0.0
    for part, old in each(panel, panels(n, PANEL_ROWS)):
        moved += part
        norm += old
    return float(np.sqrt(moved / norm)) if norm > 0 else 0.0
