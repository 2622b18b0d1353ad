"""Anchor words by column-pivoted QR (LR-JSMF, Algorithms 1 and 5, Lemma 2).

Pivoting selects the row farthest from the span of the previous ones and therefore prefers noisy rows;
``anchor_candidates`` and ``shrunken_rows`` reduce the effect of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from streaming_jsmf.config import ANCHOR_ROW_SUM
from streaming_jsmf.errors import option
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import Floats, Integers, Mask

#: Word ids of each anchor: usually one, several for a tandem anchor.
Groups = Sequence[Sequence[int]]

#: If the ratio of a pivot to the largest pivot is below this, the anchors do not span K topics.
SMALLEST_PIVOT_RATIO = 1e-6

#: Rows projected at a time, which limits the size of temporaries.
BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class Anchors:
    """Anchor words and the distance of each from the span of the previous ones.

    Attributes
    ----------
    words : S, (K,), word ids in the order of selection; the first word of a tandem anchor.
    pivots : (K,), diagonal of R in the pivoted QR of the (shrunken) rows; decreasing, except for given anchors.
    groups : K tuples of word ids: one word each, or all words of a tandem anchor.
    cliques, clique_weights : Word ids (C, K) and weights (C,) of the cliques found by SoftClique, the lightest first; C
        = 0 for pivoting.
    """

    words: Integers
    pivots: Floats
    groups: tuple[tuple[int, ...], ...]
    cliques: Integers = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    clique_weights: Floats = field(default_factory=lambda: np.empty(0))


class DegenerateAnchorsError(ValueError):
    """Fewer than K words are far enough apart to be anchors."""


class RejectedAnchorError(ValueError):
    """A given anchor word does not meet a requirement.

    ``reason`` completes a sentence that starts with the ``word`` id.
    """

    def __init__(self, word: int, reason: str) -> None:
        super().__init__(f"word {word} {reason}")
        self.word, self.reason = word, reason


def anchor_candidates(
    rectified_row_sum: Floats,
    row_sum: Floats,
    document_frequency: Integers,
    min_document_frequency: float,
    min_row_sum: float = ANCHOR_ROW_SUM,
) -> Mask:
    """Return a mask (N,) of the words that may be anchors.

    Truncation to rank K leaves rare words with row sums d near or below zero; division by d makes their rows outliers,
    which greedy pivoting selects first. Candidates therefore need d > ``min_row_sum`` * u and a minimum document
    frequency. The papers require only d > 0.
    """
    kept = rectified_row_sum > np.maximum(min_row_sum * row_sum, 0.0)
    return np.asarray(kept & (document_frequency >= min_document_frequency))


def require_candidates(
    given: Groups,
    candidates: Mask,
    document_frequency: Integers,
    min_document_frequency: float,
    min_row_sum: float = ANCHOR_ROW_SUM,
) -> None:
    """Raise ``RejectedAnchorError`` for the first given word that is not among the ``anchor_candidates``."""
    require_frequent(given, document_frequency, min_document_frequency)
    rejected = next((word for group in given for word in group if not candidates[word]), None)
    if rejected is not None:
        reason = (
            f"keeps less than {min_row_sum:.2g} of its co-occurrences at this number of topics; use another word, "
            f"or lower {option.anchor_row_sum}"
            if min_row_sum > 0
            else "keeps none of its co-occurrences at this number of topics; use another word"
        )
        raise RejectedAnchorError(rejected, reason)


def require_frequent(given: Groups, document_frequency: Integers, min_document_frequency: float) -> None:
    """Raise ``RejectedAnchorError`` for the first given word in too few documents. Does not need rectified moments."""
    for word in (word for group in given for word in group):
        if document_frequency[word] < min_document_frequency:
            raise RejectedAnchorError(
                word,
                f"occurs in {document_frequency[word]} documents, an anchor must occur in at least "
                f"{min_document_frequency:.0f}; use another word, or lower {option.anchor_min_df}",
            )


def shrunken_rows(
    rows: Floats, mass: Floats, document_frequency: Integers, ids: Integers, shrinkage: float
) -> Floats:
    """Rows of the words ``ids``, shrunk towards the mean row according to document frequency, (len(ids), K).

    A row averages over the df documents of its word, so its noise has a variance of the order of 1 / df. It becomes c +
    df / (df + shrinkage) (x - c), where c is the mean of all rows weighted by their positive mass d. Among words in
    similar directions, pivoting then selects one with many documents. ``shrinkage`` is in documents; 0 leaves the rows
    unchanged. Shrinkage commutes with orthonormal maps of the rows, so Lemma 2 still holds.
    """
    chosen: Floats = rows[ids]
    weights = np.maximum(mass, 0.0)
    total = float(weights.sum())
    if shrinkage == 0 or total == 0:
        return chosen
    centre = weights @ rows / total
    kept = document_frequency[ids] / (document_frequency[ids] + shrinkage)
    chosen -= centre
    chosen *= kept[:, None]
    chosen += centre
    return chosen


def pivoted_anchors(
    rows: Floats, ids: Integers, n_topics: int, given: Groups = (), mass: Floats | None = None
) -> Anchors:
    """Greedily select the row farthest from the span of the previous ones; ties go to the lowest id.

    Selects the same pivots as LAPACK's ``geqp3`` on X', in 2 n K^2 operations for n candidates. Raises
    ``DegenerateAnchorsError`` if there are fewer candidates than topics, or if a pivot falls below 1e-6 of the largest.

    Parameters
    ----------
    rows, ids : X = Ybar R', n x K, rows of the normalised co-occurrence in an orthonormal basis (overwritten), and
        their word ids, ascending.
    given, mass : Anchors that come first, in this order, from ``ids``; d of the rows, (n,), for tandem anchors
        (``group_means``).
    """
    if ids.size < n_topics:
        raise DegenerateAnchorsError(
            f"{ids.size} words may be anchors for {n_topics} topics; lower {option.anchor_min_df} or {option.n_topics}"
        )
    mass = np.ones(ids.size) if mass is None else mass
    positions = [tuple(np.searchsorted(ids, list(group)).tolist()) for group in given]
    taken = [position for group in positions for position in group]
    pivots: list[float] = []
    for number in range(n_topics):
        squared = np.einsum("ij,ij->i", rows, rows)
        squared[taken] = -1.0
        if number == len(positions):
            pivot = int(np.argmax(squared))
            positions.append((pivot,))
            taken.append(pivot)
        # Projections are linear, so the mean of residuals is the residual of the mean.
        remainder = group_means(rows, mass, positions[number : number + 1])[0]
        length = float(np.linalg.norm(remainder))
        if length <= SMALLEST_PIVOT_RATIO * max(pivots, default=0.0):
            raise DegenerateAnchorsError(
                f"only {number} words are far enough apart to be anchors for {n_topics} topics; lower {option.n_topics}"
                + (", or give other anchor words" if number < len(given) else "")
            )
        direction = remainder / length
        for panel in panels(len(rows), BLOCK_ROWS):
            part = rows[panel]
            part -= np.outer(part @ direction, direction)
        pivots.append(length)
    groups = tuple(tuple(ids[list(group)].tolist()) for group in positions)
    return Anchors(np.array([group[0] for group in groups], dtype=np.int64), np.array(pivots), groups)


def group_means(rows: Floats, mass: Floats, groups: Groups) -> Floats:
    """One row per anchor, (K, width): the row of its word, or the mean of the rows of its words weighted by mass.

    The weighted mean is the row that the words would have if they were counted as one word.
    """
    means = np.empty((len(groups), rows.shape[1]))
    for k, group in enumerate(groups):
        words = list(group)
        means[k] = rows[words[0]] if len(words) == 1 else mass[words] @ rows[words] / mass[words].sum()
    return means
