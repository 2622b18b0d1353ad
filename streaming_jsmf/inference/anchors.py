"""Anchor words by column-pivoted QR (LR-JSMF, Algorithms 1 and 5, Lemma 2), or by SoftClique.

Pivoting selects the row farthest from the span of the previous ones and therefore prefers noisy rows;
``anchor_candidates`` and ``shrunken_rows`` reduce the effect of noise.

SoftClique (He, Wang, Wang, Hopcroft) finds K words that rarely co-occur. Words are the nodes of a graph with
co-occurrence probabilities as edges. MergeInit extends cliques greedily from many words and keeps the K words found
most often; LocalSearch then exchanges one word at a time. The graph is not stored: ``low_rank_similarity`` computes its
rows from Y. Unlike the paper's random starts, starts are evenly spaced among the word ids, and ties go to the lowest
id, so the result is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from streaming_jsmf.config import ANCHOR_ROW_SUM
from streaming_jsmf.errors import option
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import Floats, Integers, Mask
from streaming_jsmf.storage.large_arrays import large_copy

#: Word ids of each anchor: usually one, several for a tandem anchor.
Groups = Sequence[Sequence[int]]

#: If the ratio of a pivot to the largest pivot is below this, the anchors do not span K topics.
SMALLEST_PIVOT_RATIO = 1e-6
#: Rows projected at a time, which limits the size of temporaries.
BLOCK_ROWS = 65_536
#: Maps positions among the candidates to their rows of the graph, (len(positions), n), which may be overwritten.
Similarity = Callable[[Integers], Floats]

#: Maximum number of starts of MergeInit; the paper uses n / K.
MAX_STARTS = 128
#: Starts extended at a time; each needs a row of n entries in memory.
STARTS_AT_ONCE = 32
#: Maximum number of exchanges of LocalSearch.
MOST_EXCHANGES = 1000
#: A word is exchanged only if the weight decreases by more than this fraction; smaller changes are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Anchors:
    """Anchor words and the distance of each from the span of the previous ones.

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


def usable_groups(given: Groups, rectified_row_sum: Floats, row_sum: Floats, min_row_sum: float) -> Groups:
    """The words of each given anchor that keep enough of their co-occurrences after rectification.

    These need d > ``min_row_sum`` * u, as other anchors do, and any document frequency. Raises ``RejectedAnchorError``
    if none of the words of an anchor does.
    """
    kept = anchor_candidates(
        rectified_row_sum, row_sum, np.zeros(row_sum.size, dtype=np.int64), 0, min_row_sum
    )
    groups = [[word for word in group if kept[word]] for group in given]
    for group, usable in zip(given, groups, strict=True):
        if not usable:
            raise RejectedAnchorError(group[0], too_little_mass(min_row_sum))
    return groups


def too_little_mass(min_row_sum: float) -> str:
    """The reason to leave a word out of an anchor that ``usable_groups`` leaves out."""
    if min_row_sum > 0:
        return (
            f"keeps less than {min_row_sum:.2g} of its co-occurrences at this number of topics; use another word, or "
            f"lower {option.anchor_row_sum}"
        )
    return "keeps none of its co-occurrences at this number of topics; use another word"


def shrunken_rows(
    rows: Floats, mass: Floats, document_frequency: Integers, ids: Integers, shrinkage: float
) -> Floats:
    """Rows of the words ``ids``, shrunk towards the mean row according to document frequency, (len(ids), K).

    A row averages over the df documents of its word, so its noise has a variance of the order of 1 / df. It becomes c +
    df / (df + shrinkage) (x - c), where c is the mean of all rows weighted by their positive mass d. Among words in
    similar directions, pivoting then selects one with many documents. ``shrinkage`` is in documents; 0 leaves the rows
    unchanged. Shrinkage commutes with orthonormal maps of the rows, so Lemma 2 still holds.
    """
    chosen: Floats = large_copy(rows, rows=ids)
    weights = np.maximum(mass, 0.0)
    total = float(weights.sum())
    if shrinkage == 0 or total == 0:
        return chosen
    center = weights @ rows / total
    kept = document_frequency[ids] / (document_frequency[ids] + shrinkage)
    chosen -= center
    chosen *= kept[:, None]
    chosen += center
    return chosen


def pivoted_anchors(
    rows: Floats, ids: Integers, n_topics: int, given: Groups = (), mass: Floats | None = None
) -> Anchors:
    """Greedily select the row farthest from the span of the previous ones; ties go to the lowest id.

    Selects the same pivots as LAPACK's ``geqp3`` on X', in 2 n K^2 operations for n candidates. Raises
    ``DegenerateAnchorsError`` if there are fewer candidates than topics, or if a pivot falls below 1e-6 of the largest.

    Parameters
    ----------
    rows, ids : X = Ybar R', n x K, rows of the normalized co-occurrence in an orthonormal basis (overwritten), and
        their word ids, ascending.
    given, mass : Anchors that come first, in this order, from ``ids``; d of the rows, (n,), for tandem anchors
        (``group_means``).
    """
    _require_enough(ids, n_topics)
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


def _require_enough(ids: Integers, n_topics: int) -> None:
    if ids.size < n_topics:
        raise DegenerateAnchorsError(
            f"{ids.size} words may be anchors for {n_topics} topics; lower {option.anchor_min_df} or {option.n_topics}"
        )


def group_means(rows: Floats, mass: Floats, groups: Groups) -> Floats:
    """One row per anchor, (K, width): the row of its word, or the mean of the rows of its words weighted by mass.

    The weighted mean is the row that the words would have if they were counted as one word.
    """
    means = np.empty((len(groups), rows.shape[1]))
    for k, group in enumerate(groups):
        words = list(group)
        means[k] = rows[words[0]] if len(words) == 1 else mass[words] @ rows[words] / mass[words].sum()
    return means


@dataclass(frozen=True)
class Clique:
    """K words (ids, ascending), and the total weight of the edges between them."""

    words: Integers
    weight: float


def dense_similarity(cooccurrence: Floats, ids: Integers) -> Similarity:
    """Rows of C (N x N, symmetric) restricted to the words ``ids``."""
    return lambda positions: np.asarray(cooccurrence[np.ix_(ids[positions], ids)])


def low_rank_similarity(rectified: Floats, ids: Integers) -> Similarity:
    """Rows of max(Y Y', 0) restricted to the words ``ids``, n K operations each; Y is N x K."""
    factor = rectified[ids]
    return lambda positions: np.maximum(factor[positions] @ factor.T, 0.0)


def soft_cliques(
    similarity: Similarity, candidates: Mask, n_topics: int, *, multiple: int = 1
) -> tuple[Clique, ...]:
    """Distinct cliques of K words of small weight from ``multiple`` searches, the lightest first.

    ``similarity`` returns rows of the graph among the candidates, without negative edges. ``candidates`` (N,) should
    require a minimum document frequency, because rare words hardly co-occur with any word. Raises
    ``DegenerateAnchorsError`` if there are fewer candidates than topics.
    """
    ids = np.flatnonzero(candidates)
    _require_enough(ids, n_topics)
    found: dict[tuple[int, ...], Clique] = {}
    for search in range(multiple):
        # Evenly spaced positions; each search has another offset.
        n_starts = min(-(-ids.size // n_topics), MAX_STARTS)
        offset = (search + 0.5) / multiple
        starts = np.asarray((np.arange(n_starts) + offset) * ids.size / n_starts, dtype=np.int64)
        merged = _merge_init(similarity, ids.size, n_topics, starts)
        clique = _local_search(similarity, merged)
        words = ids[clique.words]
        found.setdefault(tuple(words.tolist()), Clique(words, clique.weight))
    return tuple(sorted(found.values(), key=lambda clique: (clique.weight, clique.words.tolist())))


def _merge_init(similarity: Similarity, n: int, n_topics: int, starts: Integers) -> Integers:
    """Extend a clique greedily from each start; return the K words found most often, ascending."""
    found = np.zeros(n, dtype=np.int64)
    for first in range(0, starts.size, STARTS_AT_ONCE):
        latest = starts[first : first + STARTS_AT_ONCE]
        each = np.arange(latest.size)
        weights = np.zeros((latest.size, n))
        for size in range(1, n_topics + 1):
            found += np.bincount(latest, minlength=n)
            if size == n_topics:
                break
            weights += similarity(latest)
            weights[each, latest] = np.inf
            latest = weights.argmin(axis=1)
    return np.sort(np.argsort(-found, kind="stable")[:n_topics])


def _local_search(similarity: Similarity, clique: Integers) -> Clique:
    """Exchange the pair of words that lowers the weight most, until no exchange does; positions are ascending."""
    clique, each = clique.copy(), np.arange(clique.size)
    rows = similarity(clique)
    weight = _weight(rows, clique)
    for _ in range(MOST_EXCHANGES):
        # Weight that each word outside the clique would add in place of each word of the clique.
        outside = rows.sum(axis=0) - rows
        inside = outside[each, clique]
        outside[:, clique] = np.inf
        best = outside.argmin(axis=1)
        change = outside[each, best] - inside
        leaving = int(change.argmin())
        if not change[leaving] < -ROUNDING * weight:
            break
        clique[leaving] = best[leaving]
        rows[leaving] = similarity(clique[leaving : leaving + 1])[0]
        weight = _weight(rows, clique)
    return Clique(np.sort(clique), weight)


def _weight(rows: Floats, clique: Integers) -> float:
    block = rows[:, clique]
    return float(block.sum() - np.trace(block)) / 2
