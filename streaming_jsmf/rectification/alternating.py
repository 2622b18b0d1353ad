"""Alternating projections on the whole C (LR-JSMF, Algorithm 2), and Dykstra's variant of them.

Three sets in turn: positive semidefinite of rank K, entries that sum to 1, no negative entries. After each turn C is
made anew from Y alone, panel by panel and in place, so that one N x N matrix is held (two for Dykstra's).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.dense import leading_pairs, symmetric_eigenpairs
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.rectification.result import OnIteration, Rectification, positive_half, require_pairs

#: Rows of C made at a time. Part of the bits: each panel adds to the length of the step.
PANEL_ROWS = 512

#: Makes some rows anew; squared lengths of their step and of what they were.
_Panel = Callable[[slice], tuple[float, float]]


def normalising_shift(total: float, n_words: int) -> float:
    """What every entry of an N x N matrix of this sum has to gain for the sum to be 1: the nearest such matrix."""
    return (1.0 - total) / n_words**2


def nearest_normalised(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest matrix whose entries sum to 1."""
    return matrix + normalising_shift(float(matrix.sum()), matrix.shape[0])


def nearest_nonnegative(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest matrix without negative entries."""
    return np.maximum(matrix, 0.0)


def nearest_semidefinite(
    matrix: NDArray[np.float64], n_topics: int, block: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The nearest positive semidefinite matrix of rank at most K, from a block of vectors that is near its span."""
    with ThreadPoolExecutor(1) as pool:
        y = positive_half(leading_pairs(matrix, block, n_topics, pool), n_topics)
    return y @ y.T


def alternating_projection(
    matrix: NDArray[np.float64],
    pairs: Eigenpairs,
    n_topics: int,
    *,
    max_iterations: int = 150,
    tolerance: float = 1e-5,
    overwrite: bool = False,
    threads: int = 1,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """AP on the full C. A block of eigenvectors stays warm from one turn to the next; O(N^2 K) a turn.

    Parameters
    ----------
    matrix
        C, N x N, symmetric.
    pairs
        Its leading algebraic eigenpairs, at least K; more keep the block warm.
    n_topics
        K.
    max_iterations, tolerance
        Stop once ||C_t+1 - C_t||_F is below ``tolerance`` ||C_t||_F, or after so many turns.
    overwrite
        Work in the memory of ``matrix``.
    threads
        Panels worked on at once. The bits do not depend on it.
    on_iteration
        Told the number and the relative length of each turn.

    Returns
    -------
    Rectification
        ``matrix`` is C*, not negative; ``rectified`` its nearest Y Y'.

    Raises
    ------
    ValueError
        If there are fewer than K eigenpairs.
    """
    require_pairs(pairs, n_topics, "alternating projections")
    c = matrix if overwrite else matrix.copy()
    n, change, number, shift = c.shape[0], np.inf, 0, 0.0
    y = positive_half(pairs, n_topics)
    with ThreadPoolExecutor(threads) as pool:
        for number in range(1, max_iterations + 1):
            shift = normalising_shift(float(np.sum(y.sum(axis=0) ** 2)), n)
            change = _replace(c, y, shift, pool)
            pairs = leading_pairs(c, pairs.vectors, n_topics, pool)
            y = positive_half(pairs, n_topics)
            if on_iteration is not None:
                on_iteration(number, change)
            if change < tolerance:
                break
    return Rectification(
        y, number, change, change < tolerance, uniform_mass=shift * n**2, checked_words=n, matrix=c
    )


def _replace(c: NDArray[np.float64], y: NDArray[np.float64], shift: float, pool: ThreadPoolExecutor) -> float:
    """C becomes max(Y Y' + shift, 0); returns the relative length of the step."""

    def panel(rows: slice) -> tuple[float, float]:
        new = y[rows] @ y.T
        new += shift
        np.maximum(new, 0.0, out=new)
        old = c[rows]
        lengths = float(np.sum((new - old) ** 2)), float(np.sum(old**2))
        c[rows] = new
        return lengths

    return _relative(pool, panel, c.shape[0])


def dykstra_projection(
    matrix: NDArray[np.float64],
    pairs: Eigenpairs,
    n_topics: int,
    *,
    max_iterations: int = 150,
    tolerance: float = 1e-5,
    overwrite: bool = False,
    threads: int = 1,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """As ``alternating_projection``, with Dykstra's corrections: what a projection took is given back before its next.

    For convex sets this finds the nearest common point, not just any. The matrices of rank K are not convex, so nothing
    is promised; each turn costs more, because the spectrum that is given back has no gap. Two N x N matrices are held.

    Parameters and result are those of ``alternating_projection``.

    Raises
    ------
    ValueError
        If there are fewer than K eigenpairs.
    """
    require_pairs(pairs, n_topics, "Dykstra's projections")
    # Before its positive part is taken: the positive part is C_t, the negative one what non-negativity took.
    signed = matrix if overwrite else matrix.copy()
    # C_t and what the rank took.
    whole = signed.copy()
    n, change, number, shift = signed.shape[0], np.inf, 0, 0.0
    with ThreadPoolExecutor(threads) as pool:
        for number in range(1, max_iterations + 1):
            y = positive_half(pairs, n_topics)
            shift = normalising_shift(float(np.sum(y.sum(axis=0) ** 2)), n)
            change = _replace_both(signed, whole, y, shift, pool)
            pairs = symmetric_eigenpairs(whole, n_topics)
            if on_iteration is not None:
                on_iteration(number, change)
            if change < tolerance:
                break
        c = np.maximum(signed, 0.0, out=signed)
    y = positive_half(symmetric_eigenpairs(c, n_topics), n_topics)
    return Rectification(
        y, number, change, change < tolerance, uniform_mass=shift * n**2, checked_words=n, matrix=c
    )


def _replace_both(
    signed: NDArray[np.float64],
    whole: NDArray[np.float64],
    y: NDArray[np.float64],
    shift: float,
    pool: ThreadPoolExecutor,
) -> float:
    def panel(rows: slice) -> tuple[float, float]:
        low_rank = y[rows] @ y.T
        old = np.maximum(signed[rows], 0.0)
        new = np.minimum(signed[rows], 0.0)
        new += low_rank
        new += shift
        signed[rows] = new
        np.maximum(new, 0.0, out=new)
        lengths = float(np.sum((new - old) ** 2)), float(np.sum(old**2))
        whole[rows] -= low_rank
        whole[rows] += new
        return lengths

    return _relative(pool, panel, signed.shape[0])


def _relative(pool: ThreadPoolExecutor, panel: _Panel, n: int) -> float:
    moved = norm = 0.0
    for part, old in pool.map(panel, panels(n, PANEL_ROWS)):
        moved += part
        norm += old
    return float(np.sqrt(moved / norm)) if norm > 0 else 0.0
