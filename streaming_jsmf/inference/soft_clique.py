"""SoftClique: anchors as K words that rarely co-occur (He, Wang, Wang, Hopcroft).

Words are the nodes of a graph with co-occurrence probabilities as edges. MergeInit extends cliques greedily from many
words and keeps the K words found most often; LocalSearch then exchanges one word at a time. The graph is not stored:
``low_rank_similarity`` computes its rows from Y. Unlike the paper's random starts, starts are evenly spaced among the
word ids, and ties go to the lowest id, so the result is deterministic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streaming_jsmf.errors import option
from streaming_jsmf.inference.anchors import DegenerateAnchorsError
from streaming_jsmf.linalg.typing import Floats, Integers, Mask

#: Maps positions among the candidates to their rows of the graph, (len(positions), n), which may be overwritten.
Similarity = Callable[[Integers], Floats]

#: Maximum number of starts of MergeInit; the paper uses n / K.
MAX_STARTS = 128
#: Starts extended at a time; each needs a row of n entries in memory.
STARTS_AT_ONCE = 32
#: A word is exchanged only if the weight decreases by more than this fraction; smaller changes are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Clique:
    """K words (ids, ascending), and the total edge weights after MergeInit and after each exchange, decreasing."""

    words: Integers
    weights: tuple[float, ...]

    @property
    def weight(self) -> float:
        """Final total weight of the edges."""
        return self.weights[-1]


def dense_similarity(cooccurrence: Floats, ids: Integers) -> Similarity:
    """Rows of C (N x N, symmetric) restricted to the words ``ids``."""
    return lambda positions: np.asarray(cooccurrence[np.ix_(ids[positions], ids)])


def low_rank_similarity(rectified: Floats, ids: Integers) -> Similarity:
    """Rows of max(Y Y', 0) restricted to the words ``ids``, n K operations each; Y is N x K."""
    factor = rectified[ids]
    return lambda positions: np.maximum(factor[positions] @ factor.T, 0.0)


def soft_cliques(
    similarity: Similarity, candidates: Mask, n_topics: int, *, multiple: int = 1, max_exchanges: int = 1000
) -> tuple[Clique, ...]:
    """Distinct cliques of K words of small weight from ``multiple`` searches, the lightest first.

    ``similarity`` returns rows of the graph among the candidates, without negative edges. ``candidates`` (N,) should
    require a minimum document frequency, because rare words hardly co-occur with any word. Raises
    ``DegenerateAnchorsError`` if there are fewer candidates than topics.
    """
    ids = np.flatnonzero(candidates)
    if ids.size < n_topics:
        raise DegenerateAnchorsError(
            f"{ids.size} words may be anchors for {n_topics} topics; lower {option.anchor_min_df} or {option.n_topics}"
        )
    found: dict[tuple[int, ...], Clique] = {}
    for search in range(multiple):
        # Evenly spaced positions; each search has another offset.
        n_starts = min(-(-ids.size // n_topics), MAX_STARTS)
        offset = (search + 0.5) / multiple
        starts = np.asarray((np.arange(n_starts) + offset) * ids.size / n_starts, dtype=np.int64)
        merged = _merge_init(similarity, ids.size, n_topics, starts)
        clique = _local_search(similarity, merged, max_exchanges)
        words = ids[clique.words]
        found.setdefault(tuple(words.tolist()), Clique(words, clique.weights))
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


def _local_search(similarity: Similarity, clique: Integers, max_exchanges: int) -> Clique:
    """Exchange the pair of words that lowers the weight most, until no exchange does; positions are ascending."""
    clique, each = clique.copy(), np.arange(clique.size)
    rows = similarity(clique)
    history = [_weight(rows, clique)]
    for _ in range(max_exchanges):
        # Weight that each word outside the clique would add in place of each word of the clique.
        outside = rows.sum(axis=0) - rows
        inside = outside[each, clique]
        outside[:, clique] = np.inf
        best = outside.argmin(axis=1)
        change = outside[each, best] - inside
        leaving = int(change.argmin())
        if not change[leaving] < -ROUNDING * history[-1]:
            break
        clique[leaving] = best[leaving]
        rows[leaving] = similarity(clique[leaving : leaving + 1])[0]
        history.append(_weight(rows, clique))
    return Clique(np.sort(clique), tuple(history))


def _weight(rows: Floats, clique: Integers) -> float:
    block = rows[:, clique]
    return float(block.sum() - np.trace(block)) / 2
