"""The oracle of topic shares of documents: dense, slow and independent of the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def log_posterior(shares: Floats, counts: Floats, word_topic: Floats, prior: Floats) -> float:
    """sum c log(B theta) + sum alpha log theta, over words with topics."""
    known = word_topic.sum(axis=1) > 0
    fit = counts[known] @ np.log(word_topic[known] @ shares)
    return float(fit + prior @ np.log(shares))


def shares_by_steps(counts: Floats, word_topic: Floats, prior: Floats, steps: int) -> Floats:
    """Expectation-maximisation for one document, with explicit responsibilities."""
    shares = prior / prior.sum()
    for _ in range(steps):
        joint = word_topic * shares
        total = joint.sum(axis=1, keepdims=True)
        responsible = np.divide(joint, total, out=np.zeros_like(joint), where=total > 0)
        tokens = prior + counts @ responsible
        shares = tokens / tokens.sum()
    return shares


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


def best_shares(counts: Floats, word_topic: Floats, prior: Floats) -> Floats:
    """Maximum of the log posterior by dense Newton steps with step halving, over positive numbers.

    With the term (n + sum of alpha) (1 - sum of theta) the unconstrained maximum sums to 1. The result does not depend
    on the method, because it is returned only if all derivatives are 0; otherwise AssertionError is raised.
    """
    known = word_topic.sum(axis=1) > 0
    B, c = word_topic[known], counts[known]
    weight = c.sum() + prior.sum()

    def rising(shares: Floats) -> float:
        return float(c @ np.log(B @ shares) + prior @ np.log(shares) - weight * shares.sum())

    shares = shares_by_steps(counts, word_topic, prior, 20)
    for _ in range(200):
        expected = B @ shares
        slope = B.T @ (c / expected) + prior / shares - weight
        if abs(shares * slope).max() < 1e-11 * weight:
            return shares
        curvature = (B.T * (c / expected**2)) @ B + np.diag(prior / shares**2)
        step = np.linalg.solve(curvature, slope)
        length = min(1.0, 0.9 / max(1e-9, (-step / shares).max()))
        while rising(shares + length * step) < rising(shares) - 1e-9 * weight:
            length /= 2
        shares = shares + length * step
    raise AssertionError("the oracle has found no maximum")
