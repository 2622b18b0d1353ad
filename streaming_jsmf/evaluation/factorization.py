"""Recovery and Approximation: how well B, A and the anchors explain C, by rows of C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_jsmf.evaluation.inputs import Cooccurrence, TopicArrays, row_blocks
from streaming_jsmf.evaluation.topic_shape import topic_given_word
from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.probes import Estimate
from streaming_jsmf.linalg.typing import Floats, Integers

#: Each error is a product of powers of the sums over words of ``_of_words``: their powers, by error.
POWERS = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, -0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.5], [0.0, 0.0, -0.5, 0.5]])


@dataclass(frozen=True)
class FactorizationErrors:
    """Errors of a model with respect to C, or estimates of them. Errors that need A are None without it.

    ``recovery`` is the mean over occurring words of ||C-bar_i - sum_k p(k | i) C-bar_{s_k}||_2, where C-bar has the
    rows of C divided by their sums, and ``approximation`` is ||C - B A B'||_F (JSMF 2015). The relative errors are
    divided by ||C-bar||_F and ||C||_F (LR-JSMF 2021, section 5).
    """

    recovery: float | Estimate
    relative_recovery: float | Estimate
    approximation: float | Estimate | None = None
    relative_approximation: float | Estimate | None = None


def factorization_errors(topics: TopicArrays, cooccurrence: Cooccurrence) -> FactorizationErrors:
    """Recovery and Approximation, absolute and relative, from rows of C, a few at a time. No pass over the documents.

    They are those of all rows, up to rounding, or estimates with standard errors if ``cooccurrence`` has a draw of
    words. Words that never occur (u = 0) are omitted. O(N^2 K) operations, besides those that give the rows.

    Examples
    --------
    Documents "a a" and "b b": C = D = diag(1/2, 1/2), and C-bar = I. One topic (1/2, 1/2) with the anchor a: row
    a is recovered and row b is off by |(1, -1)|, so Recovery is sqrt(2) / 2, and ||C-bar||_F = sqrt(2). B A B' is 1/4
    everywhere: Approximation is sqrt(4 / 16), and ||C||_F = sqrt(1/2).

    >>> half = np.array([0.5, 0.5])
    >>> C = Cooccurrence(half, np.diag(half).__getitem__)
    >>> one = TopicArrays(half[:, None], np.array([[0, 1]]), half, np.eye(1), np.ones(1), np.array([0]))
    >>> errors = factorization_errors(one, C)
    >>> print(f"{errors.recovery:.4f} {errors.relative_recovery:.4f} {errors.approximation:.4f}")
    0.7071 0.5000 0.5000
    """
    n_words, shown = cooccurrence.row_sum.size, 2 if topics.topic_topic is None else 4
    occurring = max(int(np.count_nonzero(cooccurrence.row_sum > 0)), 1)
    anchors = cooccurrence.rows(topics.representatives)
    anchors *= ratio(1.0, cooccurrence.row_sum[topics.representatives])[:, None]
    if (draw := cooccurrence.draw) is None:
        blocks = row_blocks(n_words, n_words)
        sums = sum(
            (
                _of_words(topics, cooccurrence, np.arange(b.start, b.stop), anchors).sum(axis=1)
                for b in blocks
            ),
            np.zeros(4),
        )
        return FactorizationErrors(*_errors(sums, occurring)[:shown].tolist())
    words, drawn = np.unique(draw.words, return_inverse=True)
    parts = [
        _of_words(topics, cooccurrence, words[block], anchors) for block in row_blocks(words.size, n_words)
    ]
    samples = np.hstack(parts)[:, drawn] / draw.density
    sums = samples.mean(axis=1)
    values = _errors(sums, occurring)
    # To first order, an error changes with the relative changes of its sums, weighted by their powers.
    pairs = (POWERS @ ratio(samples, sums[:, None])).reshape(4, -1, 2)
    deviations = values * np.linalg.norm(pairs[..., 0] - pairs[..., 1], axis=1) / drawn.size
    found = [
        Estimate(value, error) for value, error in zip(values.tolist(), deviations.tolist(), strict=True)
    ]
    return FactorizationErrors(*found[:shown])


def _of_words(topics: TopicArrays, cooccurrence: Cooccurrence, words: Integers, anchors: Floats) -> Floats:
    """Each word's term of Recovery, and of the squares of ||C-bar||_F, ||C||_F and Approximation, (4, n).

    ``anchors`` (K, N) are the rows of C-bar of the representatives. Approximation is 0 without A.
    """
    A, B, scale = topics.topic_topic, topics.word_topic, ratio(1.0, cooccurrence.row_sum[words])
    rows = cooccurrence.rows(words)
    found = np.zeros((4, words.size))
    found[2] = np.einsum("ij,ij->i", rows, rows)
    if A is not None:
        rest = rows - (B[words] @ A) @ B.T
        found[3] = np.einsum("ij,ij->i", rest, rest)
    found[1] = found[2] * scale**2
    residual = rows * scale[:, None] - topic_given_word(topics, words) @ anchors
    found[0] = np.linalg.norm(residual, axis=1) * (scale > 0)
    return found


def _errors(sums: Floats, occurring: int) -> Floats:
    """The four errors from the sums over words; 0 where a sum is."""
    recovery, (row_norm, norm, approximation) = sums[0] / occurring, np.sqrt(sums[1:])
    return np.array([recovery, ratio(recovery, row_norm), approximation, ratio(approximation, norm)])
