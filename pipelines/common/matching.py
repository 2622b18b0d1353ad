"""Comparison of topics and rectified factors with a reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from streaming_jsmf.linalg.panels import stacked_qr
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
    distance = cdist(
        np.asarray(B1, dtype=np.float64).T, np.asarray(B2, dtype=np.float64).T, metric="cityblock"
    )
    rows, permutation = linear_sum_assignment(distance)
    l1 = distance[rows, permutation]
    return TopicMatching(permutation.astype(np.int64), l1, float(l1.mean()))


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
