"""Comparison of topics and rectified factors with a ground truth, a reference, or models of other samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from streaming_jsmf.linalg.panels import stacked_qr
from streaming_jsmf.linalg.probes import Estimate
from streaming_jsmf.linalg.typing import Floats, Integers


@dataclass(frozen=True)
class TopicMatching:
    """One-to-one assignment: topic k of the first model matches topic ``permutation[k]`` of the second, (K,).

    ``l1`` (K,) are the L1 distances, between 0 and 2; ``mean_l1`` is their mean.
    """

    permutation: Integers
    l1: Floats
    mean_l1: float


def match_topics(B1: ArrayLike, B2: ArrayLike) -> TopicMatching:
    """Match the topics of two models, (N, K) each, one to one with the smallest total L1 distance.

    Examples
    --------
    The distances are 1.5 and 1 in order, and 1 and 0.5 in reverse order.

    >>> match_topics([[1.0, 0.0], [0.0, 1.0]], [[0.25, 0.5], [0.75, 0.5]]).l1.tolist()
    [1.0, 0.5]
    """
    return _assign(np.asarray(B1, dtype=np.float64), np.asarray(B2, dtype=np.float64))


def recovery_error(word_topic: Floats, truth: Floats) -> float:
    """Mean L1 distance to the true topics under the best matching (STOD paper, section 6.1); between 0 and 2.

    For (N, K) topics and (N, K*) true topics, only the best min(K, K*) pairs count, so compare errors only for equal K.

    Examples
    --------
    Half of the mass of the best topic is on the wrong word: |0.5 - 1| + |0.5 - 0|.

    >>> recovery_error(np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([[1.0], [0.0]]))
    1.0
    """
    return _assign(word_topic, truth).mean_l1


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


def yy_error(Y: ArrayLike, Y_ref: ArrayLike) -> float:
    """||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F for Y and Y* with N rows each, without N x N matrices.

    The difference is [Y, Y*] diag(I, -I) [Y, Y*]', whose norm is that of R diag(I, -I) R' with R from a QR
    decomposition; this stays accurate if Y is close to Y*, which must not be 0.

    Examples
    --------
    Y Y' = diag(1, 0) against diag(1, 1): 1 / sqrt(2).

    >>> print(f"{yy_error([[1.0], [0.0]], [[1.0, 0.0], [0.0, 1.0]]):.4f}")
    0.7071
    """
    factor, reference = np.asarray(Y, dtype=np.float64), np.asarray(Y_ref, dtype=np.float64)
    upper = stacked_qr(factor, reference)
    signs = np.repeat([1.0, -1.0], [factor.shape[1], reference.shape[1]])
    return float(np.linalg.norm((upper * signs) @ upper.T)) / float(np.linalg.norm(reference.T @ reference))


def _assign(first: Floats, second: Floats) -> TopicMatching:
    """Matching of the topics of the smaller model, (min(K, K'),), with the smallest total L1 distance."""
    # Importing them takes a tenth of the start-up time, and few commands compare models.
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    distance = cdist(first.T, second.T, metric="cityblock")
    rows, permutation = linear_sum_assignment(distance)
    l1 = distance[rows, permutation]
    return TopicMatching(permutation.astype(np.int64), l1, float(l1.mean()) if len(l1) else 0.0)
