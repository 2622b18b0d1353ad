"""The Hellinger distance of distributions, from 0 to 1: sqrt(sum (sqrt(p) - sqrt(q))^2 / 2) = sqrt(1 - sum sqrt(p q)).

Of topics it follows from their affinity sum sqrt(p q), which is additive over panels of words. Of documents it is
computed from differences, because distances of nearest neighbors would be lost in the rounding error of 1 - affinity.
"""

from __future__ import annotations

import numpy as np

from streaming_jsmf.linalg.panels import gram
from streaming_jsmf.linalg.typing import Floats


def affinity(topics: Floats, others: Floats | None = None) -> Floats:
    """Sums over words of sqrt(p(word | i) p(word | j)), (K, K'), of topics (N, K) and others (N, K') or themselves.

    Rounding may have left a probability a little below 0.
    """
    roots = [
        np.sqrt(np.maximum(each, 0.0, dtype=np.float64)) for each in (topics, others) if each is not None
    ]
    return gram(*roots)


def distances(affinities: Floats) -> Floats:
    """Hellinger distances from affinities, in the same shape."""
    return np.asarray(np.sqrt(np.clip(1.0 - affinities, 0.0, 1.0)))


def distances_from(one: Floats, shares: Floats) -> Floats:
    """Hellinger distances of documents with topic shares (m, K) from one of them (K,); (m,)."""
    differences = np.sqrt(shares) - np.sqrt(one)
    return np.asarray(np.sqrt(0.5 * np.einsum("mk,mk->m", differences, differences)))


def distances_between(shares: Floats) -> Floats:
    """Hellinger distances between documents with topic shares (m, K); (m, m)."""
    from scipy.spatial.distance import pdist, squareform

    return np.asarray(squareform(pdist(np.sqrt(0.5 * shares))))
