"""Dense, slow oracle of the topic shares of documents. Nothing here is used by the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

Floats = NDArray[np.float64]


def log_posterior(shares: Floats, counts: Floats, word_topic: Floats, prior: Floats) -> float:
    """sum c log(B theta) + sum alpha log theta, over the words that some topic has."""
    known = word_topic.sum(axis=1) > 0
    fit = counts[known] @ np.log(word_topic[known] @ shares)
    return float(fit + prior @ np.log(shares))


def shares_by_steps(counts: Floats, word_topic: Floats, prior: Floats, steps: int) -> Floats:
    """Steps of expectation-maximisation for one document, with the responsibilities written out."""
    shares = prior / prior.sum()
    for _ in range(steps):
        joint = word_topic * shares
        total = joint.sum(axis=1, keepdims=True)
        responsible = np.divide(joint, total, out=np.zeros_like(joint), where=total > 0)
        tokens = prior + counts @ responsible
        shares = tokens / tokens.sum()
    return shares


def best_shares(counts: Floats, word_topic: Floats, prior: Floats) -> Floats:
    """The maximum by a general optimiser over the logarithms of the shares: no step of the method is used."""

    def falling(logarithms: Floats) -> float:
        return -log_posterior(softmax(logarithms), counts, word_topic, prior)

    found = minimize(falling, np.log(prior), method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    shares: Floats = softmax(found.x)
    return shares
