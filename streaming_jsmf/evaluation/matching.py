"""Comparing topics and rectified factors with a truth or a reference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
    """
    first, second = np.asarray(B1, dtype=np.float64), np.asarray(B2, dtype=np.float64)
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(f"topics of shapes {first.shape} and {second.shape} cannot be matched one to one")
    distance = np.empty((first.shape[1], first.shape[1]))
    # Column by column: the temporary stays N x K.
    for topic in range(first.shape[1]):
        distance[topic] = np.abs(first[:, topic, None] - second).sum(axis=0)
    rows, permutation = linear_sum_assignment(distance)
    l1 = distance[rows, permutation]
    return TopicMatching(permutation.astype(np.int64), l1, float(l1.mean()) if len(l1) else 0.0)


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
    """
    factor, reference = np.asarray(Y, dtype=np.float64), np.asarray(Y_ref, dtype=np.float64)
    if factor.ndim != 2 or reference.ndim != 2 or len(factor) != len(reference):
        raise ValueError(f"factors of shapes {factor.shape} and {reference.shape} cannot be compared")
    size = float(np.linalg.norm(reference.T @ reference))
    if size == 0.0:
        raise ValueError("the reference is zero")
    triangle = np.linalg.qr(np.hstack([factor, reference])).R
    signs = np.repeat([1.0, -1.0], [factor.shape[1], reference.shape[1]])
    return float(np.linalg.norm((triangle * signs) @ triangle.T)) / size
