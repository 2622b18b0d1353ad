"""Comparison of topics and rectified factors with a truth, a reference, or models of other samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from streaming_jsmf.evaluation.inputs import Floats, Integers
from streaming_jsmf.linalg.gram import stacked_qr


@dataclass(frozen=True)
class TopicMatching:
    """One-to-one assignment of the topics of two models.

    Attributes
    ----------
    permutation
        (K,) topic k of the first model matches topic ``permutation[k]`` of the second.
    l1
        (K,) L1 distances, between 0 and 2.
    mean_l1
        Their mean.
    """

    permutation: Integers
    l1: Floats
    mean_l1: float


@dataclass(frozen=True)
class Stability:
    """Agreement of a model with its replicas.

    Attributes
    ----------
    value
        Mean over replicas, between 0 (no common word) and 1 (equal topics).
    standard_error
        Standard error of the mean; None for a single replica.
    per_replica
        Value of each replica.
    """

    value: float
    standard_error: float | None
    per_replica: tuple[float, ...]


def match_topics(B1: ArrayLike, B2: ArrayLike) -> TopicMatching:
    """Assign the topics of two models to each other with the smallest total L1 distance.

    Parameters
    ----------
    B1, B2
        Topics, (N, K); columns sum to 1.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    The distances are 1.5 and 1 in order, and 1 and 0.5 in reverse order.

    >>> match_topics([[1.0, 0.0], [0.0, 1.0]], [[0.25, 0.5], [0.75, 0.5]]).l1.tolist()
    [1.0, 0.5]
    """
    first, second = np.asarray(B1, dtype=np.float64), np.asarray(B2, dtype=np.float64)
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(f"topics of shapes {first.shape} and {second.shape} cannot be matched one to one")
    distance = _distances(first, second)
    rows, permutation = linear_sum_assignment(distance)
    l1 = distance[rows, permutation]
    return TopicMatching(permutation.astype(np.int64), l1, float(l1.mean()) if len(l1) else 0.0)


def recovery_error(word_topic: Floats, truth: Floats) -> float:
    """Mean L1 distance to the true topics under the best assignment (STOD paper, section 6.1); between 0 and 2.

    For K topics and K* true topics, the best min(K, K*) pairs count and the others are ignored, so compare errors only
    for equal K.

    Parameters
    ----------
    word_topic, truth
        (N, K) and (N, K*) over the same words; columns sum to 1.

    Raises
    ------
    ValueError
        If the numbers of words differ.

    Examples
    --------
    Half of the mass of the best topic is on the wrong word: |0.5 - 1| + |0.5 - 0|.

    >>> recovery_error(np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([[1.0], [0.0]]))
    1.0
    """
    if word_topic.ndim != 2 or truth.ndim != 2 or len(word_topic) != len(truth):
        raise ValueError(f"topics of shapes {word_topic.shape} and {truth.shape} are not over the same words")
    distance = _distances(word_topic, truth)
    rows, columns = linear_sum_assignment(distance)
    return float(distance[rows, columns].mean()) if len(rows) else 0.0


def stability(word_topic: Floats, replicas: Sequence[Floats]) -> Stability:
    """Mean over replicas of 1 - L1 / 2 under the best assignment, the probability mass on which topics agree.

    Parameters
    ----------
    word_topic
        (N, K).
    replicas
        (N, K') topics of models of resampled partitions. If K' differs from K, the best min(K, K') pairs count.

    Raises
    ------
    ValueError
        Without replicas, or if the numbers of words differ.

    Examples
    --------
    One replica has the topics in reverse order; the other lost a quarter of one topic: (1 + 0.75) / 2.

    >>> B = np.eye(2)
    >>> stability(B, [B[:, ::-1], np.array([[1.0, 0.25], [0.0, 0.75]])]).per_replica
    (1.0, 0.875)
    """
    if not replicas:
        raise ValueError("stability needs at least one replica")
    agreement = np.array([1.0 - recovery_error(word_topic, replica) / 2.0 for replica in replicas])
    error = float(agreement.std(ddof=1) / np.sqrt(agreement.size)) if agreement.size > 1 else None
    return Stability(float(agreement.mean()), error, tuple(agreement.tolist()))


def yy_error(Y: ArrayLike, Y_ref: ArrayLike) -> float:
    """||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F without N x N matrices.

    The difference is [Y, Y*] diag(I, -I) [Y, Y*]'. Its norm is that of R diag(I, -I) R' with R from a QR decomposition,
    which is accurate even if Y and Y* are close.

    Parameters
    ----------
    Y, Y_ref
        Y and Y*, with N rows each; their widths may differ.

    Raises
    ------
    ValueError
        For different numbers of rows or a reference of zero.

    Examples
    --------
    Y Y' = diag(1, 0) against diag(1, 1): 1 / sqrt(2).

    >>> print(f"{yy_error([[1.0], [0.0]], [[1.0, 0.0], [0.0, 1.0]]):.4f}")
    0.7071
    """
    factor, reference = np.asarray(Y, dtype=np.float64), np.asarray(Y_ref, dtype=np.float64)
    if factor.ndim != 2 or reference.ndim != 2 or len(factor) != len(reference):
        raise ValueError(f"factors of shapes {factor.shape} and {reference.shape} cannot be compared")
    size = float(np.linalg.norm(reference.T @ reference))
    if size == 0.0:
        raise ValueError("the reference is zero")
    upper = stacked_qr(factor, reference)
    signs = np.repeat([1.0, -1.0], [factor.shape[1], reference.shape[1]])
    return float(np.linalg.norm((upper * signs) @ upper.T)) / size


def _distances(first: Floats, second: Floats) -> Floats:
    """L1 distances between all columns, (K, K')."""
    return np.asarray(cdist(first.T, second.T, metric="cityblock"))
