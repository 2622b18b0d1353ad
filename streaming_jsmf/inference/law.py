"""The low-rank anchor word algorithm, LAW (LR-JSMF, Algorithm 5): topics from the compressed co-occurrence alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.anchors import Anchors, anchor_candidates, pivoted_anchors
from streaming_jsmf.linalg.simplex import simplex_least_squares


@dataclass(frozen=True)
class AnchorWordTopics:
    """Topics and their correlations.

    Attributes
    ----------
    anchors
        S and the pivots.
    word_topic
        B, N x K, p(word | topic); columns sum to 1.
    topic_given_word
        N x K, p(topic | word); rows sum to 1, or to 0 for words without a positive row sum.
    topic_topic
        A, K x K, joint topic probabilities as recovered from the anchors' rows. Non-negative. Sums to 1 only as
        far as the anchors represent all words: a sum above 1.1 is the cheapest alarm.
    rectified_row_sum
        d = Y(Y'e), (N,).
    largest_gap
        Largest duality gap of the simplex problems, relative to the squared norm of the word's row.
    words_without_mass
        Words with d <= 0, which get no topic.
    """

    anchors: Anchors
    word_topic: NDArray[np.float64]
    topic_given_word: NDArray[np.float64]
    topic_topic: NDArray[np.float64]
    rectified_row_sum: NDArray[np.float64]
    largest_gap: float
    words_without_mass: int


def low_rank_anchor_words(
    rectified: NDArray[np.float64],
    row_sum: NDArray[np.float64],
    document_frequency: NDArray[np.int64],
    *,
    min_document_frequency: float = 0.0,
    threads: int = 1,
) -> AnchorWordTopics:
    """Anchors, topics and topic correlations from C* ~ Y Y', O(N K^2). No pass over the data.

    Parameters
    ----------
    rectified
        Y, N x K.
    row_sum
        u = C e, (N,), of the co-occurrence before rectification: what d is compared with.
    document_frequency
        (N,), documents that hold the word.
    min_document_frequency
        Of an anchor; 0 is the papers' choice.
    threads
        For the simplex problems. The bits do not depend on it.

    Raises
    ------
    DegenerateAnchorsError
        If K anchors cannot be found.
    """
    n_topics = rectified.shape[1]
    d = rectified @ rectified.sum(axis=0)
    positive = d > 0
    _, r = np.linalg.qr(rectified)
    # X = diag(d)^-1 Y R': the rows of the normalised C* up to an orthonormal map (Lemma 2).
    rows = np.zeros_like(rectified)
    np.divide(rectified @ r.T, d[:, None], out=rows, where=positive[:, None])
    candidates = anchor_candidates(d, row_sum, document_frequency, min_document_frequency)
    anchors = pivoted_anchors(rows, candidates, n_topics)
    topic_given_word, largest_gap = _topic_given_word(rows, positive, anchors, threads)
    joint = topic_given_word * np.where(positive, d, 0.0)[:, None]
    word_topic = joint / joint.sum(axis=0)
    return AnchorWordTopics(
        anchors,
        word_topic,
        topic_given_word,
        _topic_topic(rectified, word_topic, anchors.words),
        d,
        largest_gap,
        int(np.count_nonzero(~positive)),
    )


def _topic_given_word(
    rows: NDArray[np.float64], positive: NDArray[np.bool_], anchors: Anchors, threads: int
) -> tuple[NDArray[np.float64], float]:
    solution = simplex_least_squares(rows, rows[anchors.words], threads=threads)
    shares = np.where(positive[:, None], solution.weights, 0.0)
    squared = np.einsum("ij,ij->i", rows, rows)
    relative = np.divide(solution.gap, squared, out=np.zeros_like(squared), where=positive & (squared > 0))
    return shares, float(relative.max(initial=0.0))


def _topic_topic(
    rectified: NDArray[np.float64], word_topic: NDArray[np.float64], anchors: NDArray[np.int64]
) -> NDArray[np.float64]:
    """A = B_S^-1 C*_SS B_S^-1 with the diagonal of B_S: an anchor belongs to one topic.

    Negative entries of Y_S Y_S' are what the correction E of ENN lifts to zero, so they are zero here.
    """
    block = np.maximum(rectified[anchors] @ rectified[anchors].T, 0.0)
    scale = 1.0 / np.diag(word_topic[anchors])
    correlations = scale[:, None] * block * scale
    return (correlations + correlations.T) / 2
