"""Comparing topics and rectified factors with a truth, a reference, or models of other samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from streaming_jsmf.evaluation.inputs import Floats, Integers
from streaming_jsmf.linalg.gram import triangle


@dataclass(frozen=True)
class TopicMatching:
    """Topics of one model assigned to those of another, one to one.

    Attributes
    ----------
    permutation
        (K,) topic k of the first goes with topic ``permutation[k]`` of the second.
    l1
        (K,) sum over words of absolute differences, between 0 and 2.
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
        Mean over replicas, between 0 (no word in common) and 1 (the same topics).
    standard_error
        Of that mean; None for a single replica.
    per_replica
        The value of each.
    """

    value: float
    standard_error: float | None
    per_replica: tuple[float, ...]


def match_topics(B1: ArrayLike, B2: ArrayLike) -> TopicMatching:
    """The assignment of topics with the smallest total L1 distance.

    Parameters
    ----------
    B1, B2
        Topics, N x K, columns sum to one.

    Raises
    ------
    ValueError
        If the shapes differ.

    Examples
    --------
    Straight the distances are 1.5 and 1, crossed 1 and 0.5.

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

    With K topics and K* true ones the best min(K, K*) pairs are taken; what is left over costs nothing, so compare
    errors only at equal K.

    Parameters
    ----------
    word_topic, truth
        (N, K) and (N, K*), columns sum to 1, the same words in the same order.

    Raises
    ------
    ValueError
        If the numbers of words differ.

    Examples
    --------
    The second topic is the true one, half of it moved: |0.5 - 1| + |0.5 - 0|.

    >>> recovery_error(np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([[1.0], [0.0]]))
    1.0
    """
    if word_topic.ndim != 2 or truth.ndim != 2 or len(word_topic) != len(truth):
        raise ValueError(f"topics of shapes {word_topic.shape} and {truth.shape} are not over the same words")
    distance = _distances(word_topic, truth)
    rows, columns = linear_sum_assignment(distance)
    return float(distance[rows, columns].mean()) if len(rows) else 0.0


def stability(word_topic: Floats, replicas: Sequence[Floats]) -> Stability:
    """Mean over replicas of 1 - L1 / 2 under the best assignment: the share of probability they agree on.

    Parameters
    ----------
    word_topic
        (N, K).
    replicas
        One or more of (N, K'), topics of models fitted on bootstrap samples of the corpus' partitions. If K' differs
        from K, the best min(K, K') pairs count.

    Raises
    ------
    ValueError
        Without replicas, or if the numbers of words differ.

    Examples
    --------
    One replica is the model with its topics exchanged, the other has lost a quarter of one topic: (1 + 0.75) / 2.

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

    The difference is [Y, Y*] diag(I, -I) [Y, Y*]', whose norm is that of R diag(I, -I) R' with R from a QR:
    exact to rounding even where Y and Y* are close, which the sum of three squared norms is not.

    Parameters
    ----------
    Y, Y_ref
        The factors Y and Y*, N x K; their widths may differ.

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
    upper = triangle(factor, reference)
    signs = np.repeat([1.0, -1.0], [factor.shape[1], reference.shape[1]])
    return float(np.linalg.norm((upper * signs) @ upper.T)) / size


def _distances(first: Floats, second: Floats) -> Floats:
    """L1 distances of all columns, (K, K'); temporaries of N x K."""
    return np.asarray(cdist(first.T, second.T, metric="cityblock"))
