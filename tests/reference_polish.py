"""The oracle of polish: dense CVB0 and draws of topics in float64, one word at a time, independent of the package.

Asuncion, Welling, Smyth and Teh (UAI 2009), with given topics and prior, and weights that go on by .4 of
their change between rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def gibbs(
    counts: Floats, topics: Floats, prior: Floats, rounds: int, keys: list[int], lane: int
) -> Documents:
    """Draws of a topic per word, all words at once, with the random numbers of SplitMix64 for the keys of documents.

    The cumulative sum goes through topics k, k + lane, k + 2 lane, ..., then through those of k + 1. No weights.
    """
    order = sorted(range(len(prior)), key=lambda k: (k % lane, k))
    tokens, likelihood = np.zeros_like(topics), 0.0
    for document, key in zip(counts, keys, strict=True):
        words, numbers = np.flatnonzero(document), splitmix64(mixed(key))
        votes = np.tile(document.sum() * prior / prior.sum(), (len(words), 1))
        for _ in range(rounds - 1):
            chosen = []
            for w, others in zip(words, votes, strict=True):
                ends = np.cumsum((topics[w] * (others + prior))[order])
                limit = (next(numbers) >> 40) / 2**24 * ends[-1]
                chosen.append(order[int(np.argmax(ends > limit))])
            heard = np.zeros((len(words), len(prior)))
            heard[np.arange(len(words)), chosen] = document[words] * (topics[words].sum(axis=1) > 0)
            votes = heard.sum(axis=0) - heard
        for w, others in zip(words, votes, strict=True):
            raw = topics[w] * (others + prior)
            if raw.sum() > 0:
                tokens[w] += document[w] * raw / raw.sum()
                mass = document.sum() + prior.sum() - document[w]
                likelihood += document[w] * np.log(raw.sum() / mass)
    return Documents(tokens, np.zeros((0, len(prior))), likelihood)


def splitmix64(state: int) -> Iterator[int]:
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        yield mixed(state)


def mixed(state: int) -> int:
    """The number of a state of SplitMix64 (Steele, Lea and Flood 2014)."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def dirichlet_moments(parameters: Floats) -> tuple[Floats, Floats]:
    """Mean (K,) and mean product (K x K) of the shares under Dirichlet(parameters)."""
    total = parameters.sum()
    pairs = np.outer(parameters, parameters) + np.diag(parameters)
    return parameters / total, pairs / (total * (total + 1))
