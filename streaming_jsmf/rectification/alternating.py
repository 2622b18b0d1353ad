"""Alternating projections on the complete C (LR-JSMF, Algorithm 2), and Dykstra's variant.

The sets are: positive semidefinite of rank K, sum 1, non-negative. Each iteration recomputes C from Y in place, panel
by panel, so only one N x N matrix is in memory (two for Dykstra's variant).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streaming_jsmf.linalg.dense import leading_pairs, symmetric_eigenpairs
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import each, panel_threads, panels
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.rectification.result import OnIteration, Rectification, positive_half, require_pairs

#: Rows of C recomputed at a time. Affects the bits, because the norm of the step is summed over panels.
PANEL_ROWS = 512


def alternating_projection(
    matrix: Floats,
    pairs: Eigenpairs,
    n_topics: int,
    *,
    dykstra: bool = False,
    max_iterations: int = 150,
    tolerance: float = 1e-5,
    overwrite: bool = False,
    threads: int = 1,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """AP on the complete C, O(N^2 K) per iteration, warm-started from the eigenvectors of the previous one.

    ``matrix`` is C, N x N, symmetric, and is overwritten if ``overwrite``; ``pairs`` are its leading algebraic
    eigenpairs, at least K (more speed up the iteration). Stops once ||C_t+1 - C_t||_F is below ``tolerance`` ||C_t||_F;
    ``on_iteration`` receives the number and the relative change of each iteration. The bits do not depend on
    ``threads``. Returns C*, non-negative, as ``matrix`` and its nearest Y Y' as ``rectified``. Raises ``ValueError`` if
    there are fewer than K eigenpairs.

    With ``dykstra`` each projection first restores what it last removed. For convex sets this finds the nearest common
    point instead of any one. Matrices of rank K are not convex, so nothing is guaranteed. Iterations are slower,
    because the restored spectrum has no gap, and two N x N matrices are in memory.
    """
    require_pairs(pairs, n_topics, "Dykstra's projections" if dykstra else "alternating projections")
    # For Dykstra, the positive part is C_t, the negative part is what the non-negative projection removed.
    c = matrix if overwrite else matrix.copy()
    # C_t plus what the rank-K projection removed.
    restored = c.copy() if dykstra else None
    n, change, number, shift = c.shape[0], np.inf, 0, 0.0
    with panel_threads(threads):
        for number in range(1, max_iterations + 1):
            y = positive_half(pairs, n_topics)
            shift = _normalising_shift(y)
            if restored is None:
                change = _replace(c, y, shift)
                pairs = leading_pairs(c, pairs.vectors, n_topics)
            else:
                change = _replace_both(c, restored, y, shift)
                pairs = symmetric_eigenpairs(restored, n_topics)
            if on_iteration is not None:
                on_iteration(number, change)
            if change < tolerance:
                break
    if dykstra:
        np.maximum(c, 0.0, out=c)
        pairs = symmetric_eigenpairs(c, n_topics)
    y = positive_half(pairs, n_topics)
    return Rectification(
        y, number, change, change < tolerance, uniform_mass=shift * n**2, checked_words=n, matrix=c
    )


def _normalising_shift(y: Floats) -> float:
    """The constant to add to each entry of Y Y' to make the sum 1, which gives the nearest such matrix."""
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

    return _relative_change(panel, c.shape[0])


def _replace_both(signed: Floats, restored: Floats, y: Floats, shift: float) -> float:
    def panel(rows: slice) -> tuple[float, float]:
        low_rank = y[rows] @ y.T
        old = np.maximum(signed[rows], 0.0)
        new = np.minimum(signed[rows], 0.0)
        new += low_rank
        new += shift
        signed[rows] = new
        np.maximum(new, 0.0, out=new)
        lengths = float(np.sum((new - old) ** 2)), float(np.sum(old**2))
        restored[rows] -= low_rank
        restored[rows] += new
        return lengths

    return _relative_change(panel, signed.shape[0])


def _relative_change(panel: Callable[[slice], tuple[float, float]], n: int) -> float:
    """Relative change of a matrix; ``panel`` replaces rows and returns squared norms of the change and the old rows."""
    moved = norm = 0.0
    for part, old in each(panel, panels(n, PANEL_ROWS)):
        moved += part
        norm += old
    return float(np.sqrt(moved / norm)) if norm > 0 else 0.0
