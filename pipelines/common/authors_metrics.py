"""Metrics that the authors' code (github.com/moontae/JSMF) prints in addition to those of the papers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from pipelines.common.results import Arrays, Row
from streaming_jsmf.linalg.panels import ratio

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Replaces probabilities of 0 in the second argument of a divergence.
FLOOR = float(np.finfo(np.float64).eps)


def authors_metrics(found: Arrays) -> Row:
    """The metrics of topics in the format of ``Setup.topics``, which have anchors."""
    B, p = found["word_topic"], found["topic_probability"]
    rank, quality = basis_rank(B, found["anchors"]), basis_quality(B, found["anchors"])
    return {
        "validity": validity(found["topic_topic"], p),
        "entropy": word_entropy(B, p),
        **{f"basis_rank_{kind}": value for kind, value in rank.items()},
        **{
            f"basis_quality_{kind}": value
            for kind, value in (quality or {"hard": None, "soft": None}).items()
        },
    }


def validity(topic_topic: Floats, topic_probability: Floats) -> float:
    """Symmetric divergence in bits between the row sums of A (K, K) and p(topic) (K,); 0 if they are equal.

    Computes (D(a || p) + D(p || a)) / 2. Only the second argument of D is normalized, so the result also increases if
    A does not sum to 1.

    Examples
    --------
    Row sums (1/2, 1/2) against (1/4, 3/4): D = log2(4/3) / 2 = 0.2075 and (1/4) log2(1/2) + (3/4) log2(3/2) = 0.1887.

    >>> print(f"{validity(np.full((2, 2), 0.25), np.array([0.25, 0.75])):.4f}")
    0.1981
    """
    sums = topic_topic.sum(axis=1)
    return 0.5 * (_divergence(sums, topic_probability) + _divergence(topic_probability, sums))


def _divergence(p: Floats, q: Floats) -> float:
    """D(p || q / sum q) in bits, with zeros of q replaced by FLOOR."""
    lifted = np.maximum(q, FLOOR)
    return float((xlogy(p, p) - xlogy(p, lifted / lifted.sum())).sum() / np.log(2))


def word_entropy(word_topic: Floats, topic_probability: Floats) -> float:
    """Mean entropy of p(topic | word) over words with a topic, divided by log K: 0 if certain, 1 if uniform.

    Examples
    --------
    Two topics with equal shares; the first word belongs to one topic, the second to both.

    >>> print(f"{word_entropy(np.array([[0.5, 0.0], [0.5, 0.5], [0.0, 0.5]]), np.full(2, 0.5)):.4f}")
    0.3333
    """
    joint = word_topic * topic_probability
    shares = ratio(joint, joint.sum(axis=1, keepdims=True))
    words, width = int((shares.max(axis=1) > 0).sum()), word_topic.shape[1]
    return (
        -float(xlogy(shares, shares).sum()) / (words * float(np.log(width))) if width > 1 and words else 0.0
    )


def basis_rank(word_topic: Floats, anchors: Integers) -> dict[str, float | None]:
    """Measure whether the anchors (K,) are the most probable words of their own topics in B (N, K).

    ``hard`` is the mean rank of the anchors, from 1; ``soft`` is the mean log ratio of the largest probability to that
    of the anchor, or None if an anchor has probability 0.

    Examples
    --------
    The anchor of the first topic is its second word, with half the probability of the first.

    >>> B = np.array([[0.6, 0.0], [0.3, 0.0], [0.1, 1.0]])
    >>> {name: round(value, 4) for name, value in basis_rank(B, np.array([1, 2])).items()}
    {'hard': 1.5, 'soft': 0.3466}
    """
    own = word_topic[anchors, np.arange(len(anchors))]
    soft = float(np.log(word_topic.max(axis=0) / own).mean()) if (own > 0).all() else None
    return {"hard": float(np.diag(anchor_ranks(word_topic, anchors)).mean()), "soft": soft}


def basis_quality(word_topic: Floats, anchors: Integers) -> dict[str, float] | None:
    """Mean rank (``hard``, from 1) and mean probability (``soft``) of anchors in the other topics; None for one topic.

    Examples
    --------
    Each anchor is the last of three words in the other topic; only the second one has a probability there, 0.1.

    >>> basis_quality(np.array([[0.9, 0.0], [0.0, 0.5], [0.1, 0.5]]), np.array([0, 2]))
    {'hard': 2.5, 'soft': 0.05}
    """
    if len(anchors) == 1:
        return None
    others = ~np.eye(len(anchors), dtype=bool)
    ranks = anchor_ranks(word_topic, anchors)
    return {"hard": float(ranks[others].mean()), "soft": float(word_topic[anchors][others].mean())}


def anchor_ranks(word_topic: Floats, anchors: Integers) -> Floats:
    """Rank, from 1, of anchor k among the words of topic l, (K, K); ties are broken by word id."""
    ranks = np.empty((len(anchors), len(anchors)))
    for topic, probability in enumerate(word_topic.T):
        rank = np.empty(len(probability), dtype=np.int64)
        rank[np.argsort(-probability, kind="stable")] = np.arange(1, len(probability) + 1)
        ranks[:, topic] = rank[anchors]
    return ranks
