"""SoftClique: anchors as K words that hardly co-occur (He, Wang, Wang, Hopcroft).

Words are the nodes of a graph and co-occurrence probabilities its edges. A K-clique of small total weight is
found in two steps: MergeInit grows cliques greedily from many words and keeps the K words found most often,
LocalSearch then exchanges one word at a time. Only rows of the graph are needed, so it need not be stored:
``low_rank_similarity`` makes them from Y.

The paper starts from words drawn at random. Here the starts lie evenly among the word ids and ties go to the
lowest id: nothing is random, and many pairs of weight zero do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streaming_jsmf.inference.anchors import DegenerateAnchorsError
from streaming_jsmf.linalg.typing import Floats, Integers, Mask

#: Places of words among the candidates -> their rows of the graph, (len(places), n); may be overwritten.
Similarity = Callable[[Integers], Floats]

#: MergeInit's starts: n / K as in the paper, but no more than this.
MOST_STARTS = 128
#: Starts grown at once: that many rows of n entries are in memory.
STARTS_AT_ONCE = 32
#: A word is exchanged if the weight falls by more than this share of it; less is rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Clique:
    """K words and the weights on the way to them.

    Attributes
    ----------
    words
        (K,) word ids, rising.
    weights
        Total weight of the edges after MergeInit and after each exchange; falling.
    """

    words: Integers
    weights: tuple[float, ...]

    @property
    def weight(self) -> float:
        """Total weight of the edges between the words."""
        return self.weights[-1]


def dense_similarity(cooccurrence: Floats, ids: Integers) -> Similarity:
    """Rows of C among the words ``ids``. C is N x N, symmetric."""
    return lambda places: np.asarray(cooccurrence[np.ix_(ids[places], ids)])


def low_rank_similarity(rectified: Floats, ids: Integers) -> Similarity:
    """Rows of max(Y Y', 0) among the words ``ids``, n K operations each. Y is N x K."""
    factor = rectified[ids]
    return lambda places: np.maximum(factor[places] @ factor.T, 0.0)


def soft_cliques(
    similarity: Similarity,
    candidates: Mask,
    n_topics: int,
    *,
    multiple: int = 1,
    max_exchanges: int = 1000,
) -> tuple[Clique, ...]:
    """Cliques of K words of small weight; the lightest first.

    Parameters
    ----------
    similarity
        Rows of the graph among the candidates. Edges must not be negative.
    candidates
        (N,), words that may be chosen. Without a least document frequency rare words win, which hardly
        co-occur with anything.
    n_topics
        K.
    multiple
        Searches from different starts. Equal cliques are returned once, so there may be fewer.
    max_exchanges
        Where LocalSearch ends at the latest.

    Raises
    ------
    DegenerateAnchorsError
        If there are fewer candidates than topics.
    """
    ids = np.flatnonzero(candidates)
    if ids.size < n_topics:
        raise DegenerateAnchorsError(
            f"{ids.size} words may be anchors and {n_topics} topics were asked for; lower --anchor-min-df or --topics"
        )
    found: dict[tuple[int, ...], Clique] = {}
    for search in range(multiple):
        starts = _starts(ids.size, n_topics, (search + 0.5) / multiple)
        merged = _merge_init(similarity, ids.size, n_topics, starts)
        clique = _local_search(similarity, merged, max_exchanges)
        words = ids[clique.words]
        found.setdefault(tuple(words.tolist()), Clique(words, clique.weights))
    return tuple(sorted(found.values(), key=lambda clique: (clique.weight, clique.words.tolist())))


def _starts(n: int, n_topics: int, offset: float) -> Integers:
    """Places of the starts, evenly spaced; ``offset``, in (0, 1), moves them within their spaces."""
    count = min(-(-n // n_topics), MOST_STARTS)
    return np.asarray((np.arange(count) + offset) * n / count, dtype=np.int64)


def _merge_init(similarity: Similarity, n: int, n_topics: int, starts: Integers) -> Integers:
    """Grow a clique from each start by the word of least weight to it; the K words found most often, rising."""
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
    """Exchange the pair of words that lowers the weight most, until none does; places, rising."""
    clique, each = clique.copy(), np.arange(clique.size)
    rows = similarity(clique)
    history = [_weight(rows, clique)]
    for _ in range(max_exchanges):
        # What each word would add in place of each word of the clique; words of the clique itself cannot.
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
