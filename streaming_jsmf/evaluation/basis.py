"""Metrics printed by the authors' code in addition to those of their papers (github.com/moontae/JSMF).

They measure whether A is a distribution, whether B and A agree, and how well anchors represent their topics. As in
that code, divergences are in bits and ranks in natural logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from streaming_jsmf.evaluation.factorization import topic_given_word
from streaming_jsmf.evaluation.inputs import Floats, TopicArrays
from streaming_jsmf.linalg.panels import panels

#: Replaces probabilities of 0 in the second argument of a divergence.
FLOOR = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Pair:
    """A metric computed from ranks, and from probabilities; None if a probability of 0 makes the latter infinite."""

    hard: float
    soft: float | None


def legality(topic_topic: Floats) -> float:
    """Sum of A, (K, K); 1 if A is a joint distribution.

    Examples
    --------
    >>> print(f"{legality(np.array([[0.3, 0.1], [0.1, 0.6]])):.4f}")
    1.1000
    """
    return float(topic_topic.sum())


def validity(topic_topic: Floats, topic_probability: Floats) -> float:
    """Symmetric divergence in bits between the row sums of A, (K, K), and p(topic), (K,); 0 if they agree.

    (D(a || p) + D(p || a)) / 2, where only the second distribution of each D is normalized, so that a sum of A other
    than 1 increases the result.

    Examples
    --------
    Row sums (1/2, 1/2) against (1/4, 3/4): D = log2(4/3) / 2 = 0.2075 and (1/4) log2(1/2) + (3/4) log2(3/2) = 0.1887.

    >>> print(f"{validity(np.full((2, 2), 0.25), np.array([0.25, 0.75])):.4f}")
    0.1981
    """
    sums = topic_topic.sum(axis=1)
    return 0.5 * (_bits(sums, topic_probability) + _bits(topic_probability, sums))


def word_entropy(topics: TopicArrays) -> float:
    """Mean entropy of p(topic | word) over words with a topic, over log K: 0 if certain, 1 if uniform. 0 for K = 1.

    Examples
    --------
    Two topics with equal shares; the first word belongs to one topic, the second to both.

    >>> B = np.array([[0.5, 0.0], [0.5, 0.5], [0.0, 0.5]])
    >>> print(f"{word_entropy(TopicArrays(B, np.array([[0], [1]]), np.full(3, 1 / 3))):.4f}")
    0.3333
    """
    total, words = 0.0, 0
    for rows in panels(len(topics.word_topic)):
        shares = topic_given_word(topics, rows)
        total -= float(xlogy(shares, shares).sum())
        words += int((shares.max(axis=1) > 0).sum())
    width = topics.word_topic.shape[1]
    return total / (words * float(np.log(width))) if width > 1 and words else 0.0


def basis_rank(topics: TopicArrays) -> Pair:
    """Mean rank (from 1) of the anchors in their own topics; mean log(largest probability / that of the anchor).

    Engines without anchors use the most probable words, whose rank is 1.

    Examples
    --------
    The anchor of the first topic is its second word, with half the probability of the first.

    >>> B = np.array([[0.6, 0.0], [0.3, 0.0], [0.1, 1.0]])
    >>> topics = TopicArrays(B, np.array([[0], [2]]), np.full(3, 1 / 3), anchors=np.array([1, 2]))
    >>> found = basis_rank(topics)
    >>> print(f"{found.hard:.4f} {found.soft:.4f}")
    1.5000 0.3466
    """
    ranks = anchor_ranks(topics)
    own = topics.word_topic[topics.representatives, np.arange(len(ranks))]
    largest = topics.word_topic.max(axis=0)
    soft = float(np.log(largest / own).mean()) if (own > 0).all() else None
    return Pair(float(np.diag(ranks).mean()), soft)


def basis_quality(topics: TopicArrays) -> Pair | None:
    """Mean rank (from 1) of the anchors in the other topics, and mean probability there; None for one topic.

    Examples
    --------
    Each anchor is the last of three words in the other topic; only the second one has a probability there, 0.1.

    >>> B = np.array([[0.9, 0.0], [0.0, 0.5], [0.1, 0.5]])
    >>> topics = TopicArrays(B, np.array([[0], [1]]), np.full(3, 1 / 3), anchors=np.array([0, 2]))
    >>> found = basis_quality(topics)
    >>> print(f"{found.hard:.4f} {found.soft:.4f}")
    2.5000 0.0500
    """
    ranks = anchor_ranks(topics)
    if len(ranks) == 1:
        return None
    others = ~np.eye(len(ranks), dtype=bool)
    elsewhere = topics.word_topic[topics.representatives]
    return Pair(float(ranks[others].mean()), float(elsewhere[others].mean()))


def anchor_ranks(topics: TopicArrays) -> Floats:
    """Rank, from 1, of anchor k among the words of topic l, (K, K); ties are ordered by word id.

    Examples
    --------
    >>> B = np.array([[0.6, 0.0], [0.3, 0.0], [0.1, 1.0]])
    >>> anchor_ranks(TopicArrays(B, np.array([[0], [2]]), np.full(3, 1 / 3), anchors=np.array([1, 2])))
    array([[2., 3.],
           [3., 1.]])
    """
    words = topics.representatives
    ranks = np.empty((len(words), len(words)))
    for topic, probability in enumerate(topics.word_topic.T):
        order = np.argsort(-probability, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(1, len(order) + 1)
        ranks[:, topic] = place[words]
    return ranks


def _bits(p: Floats, q: Floats) -> float:
    """D(p || q / sum q) in bits, with zeros of q replaced by FLOOR."""
    lifted = np.maximum(q, FLOOR)
    return float((xlogy(p, p) - xlogy(p, lifted / lifted.sum())).sum() / np.log(2))
