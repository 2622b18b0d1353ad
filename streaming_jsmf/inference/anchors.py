"""Anchor words by column-pivoted QR on low-rank rows (LR-JSMF, Algorithm 5 and Lemma 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Below this ratio of the last pivot to the first the anchors no longer span K topics.
SMALLEST_PIVOT_RATIO = 1e-6

#: A word may be an anchor only if rectification kept more than this share of its row sum.
KEPT_ROW_SUM = 0.1


@dataclass(frozen=True)
class Anchors:
    """Chosen words and how far each lay from the span of those before it.

    Attributes
    ----------
    words
        S, (K,), word ids in the order of choice.
    pivots
        (K,), diagonal of R in the pivoted QR, falling.
    """

    words: NDArray[np.int64]
    pivots: NDArray[np.float64]


class DegenerateAnchorsError(ValueError):
    """Fewer than K words are far enough apart to be anchors."""


def anchor_candidates(
    rectified_row_sum: NDArray[np.float64],
    row_sum: NDArray[np.float64],
    document_frequency: NDArray[np.int64],
    min_document_frequency: float,
) -> NDArray[np.bool_]:
    """Words that may be anchors, (N,).

    Truncation to rank K leaves row sums d near or below zero for rare words, and dividing by them sends
    their rows far out, where greedy pivoting finds them first. Hence d > 0.1 u, and a least document frequency.
    """
    kept = rectified_row_sum > np.maximum(KEPT_ROW_SUM * row_sum, 0.0)
    return np.asarray(kept & (document_frequency >= min_document_frequency))


def pivoted_anchors(rows: NDArray[np.float64], candidates: NDArray[np.bool_], n_topics: int) -> Anchors:
    """Greedy choice of the row farthest from the span of those chosen; ties go to the lowest id.

    The same pivots as LAPACK's ``geqp3`` on the candidates' columns of X', in 2 n K^2 operations for n candidates.

    Parameters
    ----------
    rows
        X = Ybar R', N x K, rows of the normalised co-occurrence in an orthonormal basis.
    candidates
        (N,), words that may be chosen.
    n_topics
        K.

    Raises
    ------
    DegenerateAnchorsError
        If there are fewer candidates than topics, or the pivots fall below 1e-6 of the first.
    """
    ids = np.flatnonzero(candidates)
    if ids.size < n_topics:
        raise DegenerateAnchorsError(
            f"{ids.size} words may be anchors and {n_topics} topics were asked for; lower --anchor-min-df or --topics"
        )
    residual = rows[ids].copy()
    chosen: list[int] = []
    pivots: list[float] = []
    for _ in range(n_topics):
        squared = np.einsum("ij,ij->i", residual, residual)
        squared[chosen] = -1.0
        pivot = int(np.argmax(squared))
        length = float(np.sqrt(max(squared[pivot], 0.0)))
        if length <= SMALLEST_PIVOT_RATIO * (pivots[0] if pivots else 0.0):
            raise DegenerateAnchorsError(
                f"only {len(chosen)} words are far enough apart to be anchors and {n_topics} topics were asked "
                "for; lower --topics"
            )
        direction = residual[pivot] / length
        residual -= np.outer(residual @ direction, direction)
        chosen.append(pivot)
        pivots.append(length)
    return Anchors(ids[chosen].astype(np.int64), np.array(pivots))
