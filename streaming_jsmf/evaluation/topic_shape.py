"""Metrics that need only B, A and p(topic), or the topics to compare with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming_jsmf.evaluation.inputs import TopicArrays
from streaming_jsmf.inference.words import frex
from streaming_jsmf.linalg.panels import panels, ratio
from streaming_jsmf.linalg.probes import Estimate
from streaming_jsmf.linalg.typing import Floats, Integers

#: Number of top words that Dissimilarity compares (both papers).
DISSIMILARITY_WORDS = 20


def dominancy(topic_topic: Floats) -> float:
    """Mean of p(z2 = k | z1 = k) = A_kk / sum_l A_kl (JSMF 2015); 1 if no two topics co-occur. Zero rows count as 0.

    Examples
    --------
    >>> print(f"{dominancy(np.array([[0.3, 0.1], [0.1, 0.5]])):.4f} = (0.3 / 0.4 + 0.5 / 0.6) / 2")
    0.7917 = (0.3 / 0.4 + 0.5 / 0.6) / 2
    """
    return float(ratio(np.diag(topic_topic), topic_topic.sum(axis=1)).mean())


def relative_dominancy(topic_topic: Floats) -> float:
    """(1 / K) sum_k A_kk / ||A||_F (LR-JSMF 2021, section 5), at most 1 / sqrt(K); 0 for A = 0.

    Examples
    --------
    (0.3 + 0.5) / 2 over sqrt(0.09 + 0.01 + 0.01 + 0.25) = 0.6.

    >>> print(f"{relative_dominancy(np.array([[0.3, 0.1], [0.1, 0.5]])):.4f}")
    0.6667
    """
    size = float(np.linalg.norm(topic_topic))
    return float(np.diag(topic_topic).mean()) / size if size > 0 else 0.0


def specificity(word_topic: Floats, word_probability: Floats) -> float:
    """Mean over topics of KL(B_k || p) in nats, for B (N, K); the authors' code uses bits.

    p (N,), with any positive sum, is the unigram distribution in JSMF 2015 and the row sums u of C in LR-JSMF 2021,
    which weights documents instead of tokens. Words with p = 0 would make the divergence infinite; they are omitted
    and the topic is renormalized. A topic without other words counts as 0.

    Examples
    --------
    The topic (1, 0) against (1/2, 1/2) is log 2; (1/2, 1/2) is 0.

    >>> print(f"{specificity(np.array([[1.0, 0.5], [0.0, 0.5]]), np.array([0.5, 0.5])):.4f}")
    0.3466
    """
    from scipy.special import xlogy

    present = word_probability > 0
    log_p = np.log(word_probability, out=np.zeros_like(word_probability), where=present)
    mass = np.zeros(word_topic.shape[1])
    total = np.zeros(word_topic.shape[1])
    for rows in panels(len(word_topic)):
        b = word_topic[rows][present[rows]]
        mass += b.sum(axis=0)
        total += xlogy(b, b).sum(axis=0) - log_p[rows][present[rows]] @ b
    shift = np.log(word_probability.sum()) if present.any() else 0.0
    # With m the mass of the remaining words: KL(b / m || p / sum p).
    divergence = ratio(total, mass)
    divergence += np.where(mass > 0, shift - np.log(np.where(mass > 0, mass, 1.0)), 0.0)
    return float(np.maximum(divergence, 0.0).mean())


def dissimilarity(top_words: Integers) -> float:
    """Mean number of the first 20 words of a topic, of ids (K, n), that no other topic lists (both papers).

    Examples
    --------
    Of (1, 2) and (2, 3) one word each is unique; of (4, 5) both are.

    >>> print(f"{dissimilarity(np.array([[1, 2], [2, 3], [4, 5]])):.4f}")
    1.3333
    """
    words = top_words[:, :DISSIMILARITY_WORDS]
    _, inverse, times = np.unique(words, return_inverse=True, return_counts=True)
    return float((times[inverse].reshape(words.shape) == 1).sum(axis=1).mean())


def exclusivity(word_topic: Floats, top_words: Integers, totals: Floats | None = None) -> Floats:
    """Sum of FREX over the top words of each topic, (K,), as ``exclusivity`` of R's stm; at most their number.

    For B (N, K) and word ids (K, n). A topic whose top words are as frequent in others has less; see ``frex``.
    ``totals`` (N,) are the sums over all topics, if B has only some of their columns.

    Examples
    --------
    The first topic has its top word alone, the second shares it.

    >>> B = np.array([[0.9, 0.0], [0.1, 0.4], [0.0, 0.6]])
    >>> exclusivity(B, np.array([[0], [1]])).round(3).tolist()
    [1.0, 0.667]
    """
    known = np.maximum(word_topic, 0.0)
    totals = known.sum(axis=1) if totals is None else totals
    return np.array([frex(known[:, k], totals, words).sum() for k, words in enumerate(top_words)])


def effective_topics(topic_probability: Floats) -> float:
    """Exponential of the entropy of p(topic), (K,): K for equal shares, near 1 if one topic dominates.

    Examples
    --------
    (1/2, 1/4, 1/4): the entropy is 1.5 log 2, so 2^1.5.

    >>> print(f"{effective_topics(np.array([0.5, 0.25, 0.25])):.4f}")
    2.8284
    """
    from scipy.special import xlogy

    total = topic_probability.sum()
    if total <= 0:
        return float(topic_probability.size)
    p = topic_probability / total
    return float(np.exp(-xlogy(p, p).sum()))


def hoyer_sparsity(word_topic: Floats) -> float:
    """Mean over topics of (sqrt(N) - |b|_1 / |b|_2) / (sqrt(N) - 1) (Hoyer 2004): 0 if uniform, 1 for a single word.

    B is (N, K). A topic of zeros counts as 0. If N = 1, every nonzero topic counts as 1.

    Examples
    --------
    Over four words: all on one is 1; (1/2, 1/2, 0, 0) has norms 1 and sqrt(1/2), so 2 - sqrt(2).

    >>> print(f"{hoyer_sparsity(np.array([[1, 0.5], [0, 0.5], [0, 0], [0, 0]])):.4f}")
    0.7929
    """
    one = np.abs(word_topic).sum(axis=0)
    two = np.linalg.norm(word_topic, axis=0)
    root = np.sqrt(len(word_topic))
    if root == 1.0:
        return float((two > 0).mean())
    return float(np.clip((root - ratio(one, two, root)) / (root - 1.0), 0.0, 1.0).mean())


def topic_given_word(topics: TopicArrays, rows: slice | Integers) -> Floats:
    """p(topic | word) of a block of words by Bayes' rule, (n, K); rows of words without a topic are 0.

    p(topic) is ``topic_probability`` if available, otherwise the row sums of A, otherwise uniform.
    """
    prior = topics.topic_probability
    if prior is None and topics.topic_topic is not None:
        prior = topics.topic_topic.sum(axis=1)
    joint: Floats = topics.word_topic[rows] * (1.0 if prior is None else prior)
    return ratio(joint, joint.sum(axis=1, keepdims=True))


def recovery_error(word_topic: Floats, truth: Floats) -> float:
    """Mean L1 distance to the true topics under the best matching (STOD paper, section 6.1); between 0 and 2.

    For (N, K) topics and (N, K*) true topics, only the best min(K, K*) pairs count, so compare errors only for equal K.

    Examples
    --------
    Half of the mass of the best topic is on the wrong word: |0.5 - 1| + |0.5 - 0|.

    >>> recovery_error(np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([[1.0], [0.0]]))
    1.0
    """
    # Importing them takes a tenth of the start-up time, and few commands compare models.
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    distance = cdist(word_topic.T, truth.T, metric="cityblock")
    matched = distance[linear_sum_assignment(distance)]
    return float(matched.mean()) if matched.size else 0.0


def stability(word_topic: Floats, replicas: Sequence[Floats]) -> Estimate:
    """Mean over replicas (N, K') of 1 - L1 / 2 under the best matching: 0 without common words, 1 for equal topics.

    Replicas, at least one, are topics of models of resampled partitions; only the best min(K, K') pairs count.

    Examples
    --------
    One replica has the topics in reverse order; the other lost a quarter of one topic: (1 + 0.875) / 2.

    >>> B = np.eye(2)
    >>> stability(B, [B[:, ::-1], np.array([[1.0, 0.25], [0.0, 0.75]])])
    Estimate(value=0.9375, standard_error=0.0625)
    """
    agreement = np.array([1.0 - recovery_error(word_topic, replica) / 2.0 for replica in replicas])
    error = float(agreement.std(ddof=1) / np.sqrt(agreement.size)) if agreement.size > 1 else None
    return Estimate(float(agreement.mean()), error)
