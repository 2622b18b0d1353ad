"""The oracle of polish: dense CVB0 in float64, one word at a time, independent of the package.

Asuncion, Welling, Smyth and Teh (UAI 2009), with given topics and prior, and weights that go on by .4 of
their change between rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Documents:
    """tokens (N x K): expected counts; weights (M x K): n_k + alpha_k; log_likelihood of tokens given the others."""

    tokens: Floats
    weights: Floats
    log_likelihood: float


def cvb0(counts: Floats, topics: Floats, prior: Floats, rounds: int) -> Documents:
    """CVB0 of counts (M x N) with topics (N x K) and prior (K,)."""
    tokens = np.zeros_like(topics)
    weights = np.zeros((len(counts), len(prior)))
    likelihood = 0.0
    for m, document in enumerate(counts):
        length = document.sum()
        weights_now = in_topics = length * prior / prior.sum() + prior
        shares: dict[int, Floats] = {}
        predicted: dict[int, float] = {}
        for number in range(rounds):
            if number:
                further = np.maximum(in_topics + 0.4 * (in_topics - weights_now), prior)
                weights_now = further * in_topics.sum() / further.sum()
            before = dict(shares)
            for w in np.flatnonzero(document):
                own = before.get(w, np.zeros(len(prior))) * min(document[w], 1.0)
                raw = topics[w] * np.maximum(weights_now - own, 1e-6)
                if raw.sum() == 0:
                    continue
                shares[w] = raw / raw.sum()
                predicted[w] = raw.sum() / (length + prior.sum() - min(document[w], 1.0))
            in_topics = sum((document[w] * g for w, g in shares.items()), prior.copy())
        for w, g in shares.items():
            tokens[w] += document[w] * g
            likelihood += document[w] * np.log(predicted[w])
        weights[m] = in_topics
    return Documents(tokens, weights, likelihood)


def dirichlet_moments(parameters: Floats) -> tuple[Floats, Floats]:
    """Mean (K,) and mean product (K x K) of the shares under Dirichlet(parameters)."""
    total = parameters.sum()
    pairs = np.outer(parameters, parameters) + np.diag(parameters)
    return parameters / total, pairs / (total * (total + 1))
