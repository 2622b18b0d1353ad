"""DP: Dykstra's projections of the complete C (Boyle and Dykstra 1986), a variant of the package's AP."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.eigen import Eigenpairs, symmetric_eigenpairs
from streaming_jsmf.rectification.ap import missing_constant, relative_change
from streaming_jsmf.rectification.result import Rectification, iterated, positive_half

Floats = NDArray[np.float64]


def dykstra_projection(matrix: Floats, pairs: Eigenpairs, n_topics: int, **stopping: Any) -> Rectification:
    """``alternating_projection`` where each projection first restores what it last removed.

    For convex sets this finds the nearest common point instead of any one. Matrices of rank K are not convex, so
    nothing is guaranteed. Iterations are slower, because the restored spectrum has no gap, and two N x N matrices are
    in memory. Arguments and result are those of ``rectification.ap.alternating_projection``.
    """
    # Its positive part is C_t, its negative part is what the non-negative projection removed.
    signed = matrix
    # C_t plus what the rank-K projection removed.
    restored = signed.copy()
    n, shift = len(signed), 0.0

    def step(_: int) -> float:
        nonlocal pairs, shift
        y = positive_half(pairs, n_topics)
        shift = missing_constant(y)
        change = _replace_both(signed, restored, y, shift)
        pairs = symmetric_eigenpairs(restored, n_topics)
        return change

    ended = iterated(step, **stopping)
    np.maximum(signed, 0.0, out=signed)
    y = positive_half(symmetric_eigenpairs(signed, n_topics), n_topics)
    return Rectification(y, **ended, uniform_mass=shift * n**2, checked_words=n, matrix=signed)


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

    return relative_change(panel, signed.shape[0])
