"""Collapsed Gibbs sampling, token by token: sweeps from given topics, at any temperature, and shares of new documents.

A token of word w in document d gets topic k with probability proportional to (n_dk + alpha_k) (n_wk + eta) / (n_k + N
eta), where n counts all other tokens, raised to 1 / temperature. Sums depend on the order of tokens, so this has one
thread and needs all tokens in memory; the package itself has CVB0 instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from streaming_jsmf.inference.cvb0 import document_topics
from streaming_jsmf.inference.perplexity import Completer, observed_half
from streaming_jsmf.linalg.compiled import compiled

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Parameter of each word, as in tomotopy.
ETA = 0.01

#: Sweeps over an observed half before its shares are summed, and over which they are summed.
BURN_IN, SUMMED = 20, 40


def sweeps(
    counts: sparse.csr_array, topics: Floats, prior: Floats, temperatures: Sequence[float], seed: int
) -> Iterator[Floats]:
    """Expected tokens of words and topics (N x K) after a sweep at each temperature.

    ``counts`` are documents x N, integers; ``topics`` (N x K) and ``prior`` (K,) give the first topic of each token.
    """
    shares = document_topics(counts, topics, prior, threads=1).shares
    starts, tokens = _tokens(counts)
    drawn = np.empty(tokens.size, np.int64)
    random = np.random.default_rng(seed)
    _first(starts, tokens, topics, shares, drawn, random)
    found, none = np.zeros(topics.shape), np.zeros((0, 0))
    np.add.at(found, (tokens, drawn), 1)
    for temperature in temperatures:
        weights, total = (found + ETA) ** (1 / temperature), found.sum(axis=0) + len(topics) * ETA
        _sweep(starts, tokens, drawn, prior, found, weights, total, 1 / temperature, True, none, random)
        yield found


def sampled_perplexity(completer: Completer, counts: sparse.csr_array) -> float:
    """Perplexity of the completion of documents as in ``Completer``, with shares from Gibbs sampling, not CVB0."""
    halves = observed_half(counts, completer.keys, 0)
    starts, tokens = _tokens(halves)
    topics, prior, drawn = completer.topics, completer.prior, np.empty(tokens.size, np.int64)
    even = np.broadcast_to(prior, (counts.shape[0], prior.size))
    random = np.random.default_rng(0)
    _first(starts, tokens, topics, np.ascontiguousarray(even), drawn, random)
    weights, sums = topics.copy(), np.zeros(even.shape)
    for number in range(BURN_IN + SUMMED):
        into = sums if number >= BURN_IN else np.zeros((0, 0))
        _sweep(starts, tokens, drawn, prior, weights, weights, np.ones(prior.size), 1.0, False, into, random)
    shares = sums / sums.sum(axis=1, keepdims=True)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    scored = np.where(completer.unigram[counts.indices] > 0, counts.data - halves.data, 0.0)
    chosen = scored > 0
    expected = np.einsum("ik,ik->i", topics[counts.indices[chosen]], shares[rows[chosen]])
    return float(np.exp(-(scored[chosen] @ np.log(expected)) / scored.sum()))


def _tokens(counts: sparse.csr_array) -> tuple[Integers, Integers]:
    """Where documents start among the tokens, and the word of each token."""
    numbers = counts.data.astype(np.int64)
    ends = np.concatenate([[0], np.cumsum(numbers)])
    return ends[counts.indptr], np.repeat(counts.indices.astype(np.int64), numbers)


@compiled(nogil=True, internal=True)
def _raised(value: float, power: float) -> float:
    return value if power == 1.0 else value**power


@compiled(nogil=True, internal=True)
def _drawn(here: Floats, weights: Floats, scale: Floats, ends: Floats, random: np.random.Generator) -> int:
    """Draw a topic in proportion to the products of three weights; ``ends`` is memory for their sums."""
    total, chosen = 0.0, 0
    for k in range(here.size):
        total += here[k] * weights[k] * scale[k]
        ends[k] = total
    limit = random.random() * total
    while chosen < here.size - 1 and ends[chosen] <= limit:
        chosen += 1
    return chosen


@compiled(nogil=True)
def _first(
    starts: Integers, tokens: Integers, topics: Floats, shares: Floats, drawn: Integers,
    random: np.random.Generator,
) -> None:  # fmt: skip
    """Draw the first topic of each token from the shares of its document."""
    ends = np.empty(shares.shape[1])
    for document in range(starts.size - 1):
        for token in range(starts[document], starts[document + 1]):
            ends[:] = np.cumsum(topics[tokens[token]] * shares[document])
            chosen = np.searchsorted(ends, random.random() * ends[-1], side="right")
            drawn[token] = min(chosen, ends.size - 1)


@compiled(nogil=True)
def _sweep(
    starts: Integers, tokens: Integers, drawn: Integers, prior: Floats, found: Floats, weights: Floats, totals: Floats,
    power: float, learn: bool, sums: Floats, random: np.random.Generator,
) -> None:  # fmt: skip
    """Draw the topic of each token given all others.

    ``weights`` are (n_wk + eta)^power, updated with ``found``, or fixed topics unless ``learn``. The expected tokens of
    each document and topic are added to ``sums`` unless it is empty.
    """
    here, ends, scale = np.empty(prior.size), np.empty(prior.size), totals**-power
    for document in range(starts.size - 1):
        inside = prior.copy()
        for token in range(starts[document], starts[document + 1]):
            inside[drawn[token]] += 1
        here[:] = inside**power
        for token in range(starts[document], starts[document + 1]):
            word, chosen = tokens[token], drawn[token]
            for change in (-1.0, 1.0):
                if change > 0:
                    chosen = _drawn(here, weights[word], scale, ends, random)
                    drawn[token] = chosen
                inside[chosen] += change
                here[chosen] = _raised(inside[chosen], power)
                if learn:
                    found[word, chosen] += change
                    totals[chosen] += change
                    weights[word, chosen] = _raised(found[word, chosen] + ETA, power)
                    scale[chosen] = _raised(1 / totals[chosen], power)
        if sums.size:
            sums[document] += inside
