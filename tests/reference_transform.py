"""The oracle of topic shares of documents: dense, slow and independent of the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def shares_by_rounds(counts: Floats, word_topic: Floats, prior: Floats, rounds: int) -> Floats:
    """Posterior means of CVB0 for one document, with explicit topic shares of tokens."""
    known = (word_topic.sum(axis=1) > 0) & (counts > 0)
    B, c = word_topic[known], counts[known]
    tokens = counts.sum() * prior / prior.sum()
    own = np.zeros_like(B)
    for _ in range(rounds):
        joint = B * np.maximum(tokens + prior - np.minimum(c, 1)[:, None] * own, 1e-6)
        own = joint / joint.sum(axis=1, keepdims=True)
        tokens = c @ own
    mean: Floats = (tokens + prior) / (tokens + prior).sum()
    return mean
