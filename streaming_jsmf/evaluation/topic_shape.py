"""Metrics of B, A and p(topic) alone: specificity, dissimilarity, dominancy, evenness and sparsity."""

from __future__ import annotations

import numpy as np
from scipy.special import xlogy

from streaming_jsmf.evaluation.inputs import Floats, Integers
from streaming_jsmf.linalg.panels import panels

#: Number of top words that Dissimilarity compares (both papers).
DISSIMILARITY_WORDS = 20


def dominancy(topic_topic: Floats) -> float:
    """Mean of p(z2 = k | z1 = k) = A_kk / sum_l A_kl (JSMF 2015); 1 if no two topics occur together.

    A topic whose row of A (K, K) is 0 counts as 0.

    Examples
    --------
    Rows (0.3, 0.1) and (0.1, 0.5): 0.3 / 0.4 = 0.75 and 0.5 / 0.6.

    >>> print(f"{dominancy(np.array([[0.3, 0.1], [0.1, 0.5]])):.4f}")
    0.7917
    """
    sums = topic_topic.sum(axis=1)
    return float(np.divide(np.diag(topic_topic), sums, out=np.zeros_like(sums), where=sums > 0).mean())


def relative_dominancy(topic_topic: Floats) -> float:
    """(1 / K) sum_k A_kk / ||A||_F (LR-JSMF 2021, section 5); at most 1 / sqrt(K), and 0 for A = 0.

    Examples
    --------
    (0.3 + 0.5) / 2 over sqrt(0.09 + 0.01 + 0.01 + 0.25) = 0.6.

    >>> print(f"{relative_dominancy(np.array([[0.3, 0.1], [0.1, 0.5]])):.4f}")
    0.6667
    """
    size = float(np.linalg.norm(topic_topic))
    return float(np.diag(topic_topic).mean()) / size if size > 0 else 0.0


def specificity(word_topic: Floats, word_probability: Floats) -> float:
    """Mean over topics of KL(B_k || p) in nats; the authors' code uses bits (divide by log 2 to compare).

    p is the unigram distribution of the corpus in JSMF 2015 and the row sum u of C in LR-JSMF 2021, which weights
    documents instead of tokens. Words with p = 0 are omitted, since they make the divergence infinite, and the rest of
    a topic is normalized. A topic without other words counts as 0.

    Parameters
    ----------
    word_topic
        B, (N, K).
    word_probability
        p, (N,), with any positive sum.

    Examples
    --------
    The topic (1, 0) against (1/2, 1/2) is log 2; (1/2, 1/2) is 0.

    >>> print(f"{specificity(np.array([[1.0, 0.5], [0.0, 0.5]]), np.array([0.5, 0.5])):.4f}")
    0.3466
    """
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
    divergence = np.divide(total, mass, out=np.zeros_like(total), where=mass > 0)
    divergence += np.where(mass > 0, shift - np.log(np.where(mass > 0, mass, 1.0)), 0.0)
    return float(np.maximum(divergence, 0.0).mean())


def dissimilarity(top_words: Integers, count: int = DISSIMILARITY_WORDS) -> float:
    """Mean number of the first ``count`` words of a topic that no other topic lists (both papers).

    Parameters
    ----------
    top_words
        (K, n) word ids in descending order of probability.

    Examples
    --------
    Of (1, 2) and (2, 3) one word each is unique; of (4, 5) both are.

    >>> print(f"{dissimilarity(np.array([[1, 2], [2, 3], [4, 5]])):.4f}")
    1.3333
    """
    words = top_words[:, :count]
    _, inverse, times = np.unique(words, return_inverse=True, return_counts=True)
    return float((times[inverse].reshape(words.shape) == 1).sum(axis=1).mean())


def effective_topics(topic_probability: Floats) -> float:
    """Exponential of the entropy of p(topic), (K,): K for equal shares, near 1 if one topic dominates.

    Examples
    --------
    (1/2, 1/4, 1/4): the entropy is 1.5 log 2, so 2^1.5.

    >>> print(f"{effective_topics(np.array([0.5, 0.25, 0.25])):.4f}")
    2.8284
    """
    total = topic_probability.sum()
    p = (
        topic_probability / total
        if total > 0
        else np.full_like(topic_probability, 1 / topic_probability.size)
    )
    return float(np.exp(-xlogy(p, p).sum()))


def hoyer_sparsity(word_topic: Floats) -> float:
    """Mean over topics of (sqrt(N) - |b|_1 / |b|_2) / (sqrt(N) - 1) (Hoyer 2004): 0 if even, 1 for a single word.

    B is (N, K). A topic of zeros counts as 0. With a vocabulary of one word, every nonzero topic counts as 1.

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
    ratio = np.divide(one, two, out=np.full_like(two, root), where=two > 0)
    return float(np.clip((root - ratio) / (root - 1.0), 0.0, 1.0).mean())
