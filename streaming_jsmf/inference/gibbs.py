"""Compiled rounds that draw topics within documents, for given topics and prior.

CVB0 (``cvb0``) treats the weights of topics in a document as known, but few words leave them uncertain. Here a round
draws one topic for each distinct word w, with all its c_w tokens, from

    p_wk ~ B_wk (n_k + alpha_k),    sum_k p_wk = 1,

where n_k are the tokens of the other words whose topic was k in the round before; at first, n alpha_k / sum(alpha). As
all words are drawn at once, unlike in Gibbs sampling, a word need not wait for the one before it. The last round does
not draw: its c_w p_wk are the expected tokens, which vary less than drawn ones.

The random numbers of a document are a function of its key and do not depend on other documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.cvb0 import (
    LANE,
    add_tokens,
    added_up,
    document_weight,
    first_shares,
    internal,
    invert,
    log_likelihood,
)
from streaming_jsmf.linalg.compiled import add, at_most, compiled, fill, load, running, store, total
from streaming_jsmf.linalg.typing import Integers, Single

Keys = NDArray[np.uint64]

#: Increment and multipliers of the generator SplitMix64 (Steele, Lea and Flood 2014).
INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
#: The upper 24 bits of a random number, as a float32 in [0, 1).
_UPPER, _UNIT = np.uint64(40), np.float32(2**-24)

_ZERO, _ONE = np.float32(0), np.float32(1)


@internal
def mixed(state: np.uint64) -> np.uint64:
    """The random number of a state of SplitMix64."""
    state = (state ^ (state >> _SHIFTS[0])) * _FIRST
    state = (state ^ (state >> _SHIFTS[1])) * _SECOND
    return state ^ (state >> _SHIFTS[2])


@internal
def _exclude_own(
    ids: NDArray[Any],
    counts: Single,
    topics: Single,
    weights: Single,
    prior: Single,
    chosen: Integers,
    shares: Single,
) -> None:
    """Exclude the tokens of each word from the weight of the topic that was drawn for them."""
    for j in range(ids.size):
        own = chosen[j]
        # Rounding must not leave less than the prior.
        shares[j, own] = topics[ids[j], own] * max(weights[own] - counts[j], prior[own])


@internal
def _draw(shares: Single, ends: Single, state: np.uint64, chosen: Integers) -> np.uint64:
    """Draw a topic for each word in proportion to its shares; return the state of the generator."""
    # The cumulative sum goes through topics k, k + LANE, k + 2 LANE, ... (a column), then through those of k + 1. Loops
    # that end at a random place are slow, so all columns, and all topics of a column, are compared.
    for j in range(chosen.size):
        share, sums = shares[j], fill(_ZERO)
        for k in range(0, share.size, LANE):
            sums = add(sums, load(share, k))
        ends_of_columns = running(sums)
        store(ends, 0, ends_of_columns)
        state += INCREMENT
        limit = np.float32(np.int64(mixed(state) >> _UPPER)) * _UNIT * ends[LANE - 1]
        column = min(at_most(ends_of_columns, limit), LANE - 1)
        reached, place = ends[max(column, 1) - 1] * np.float32(column > 0), column
        for k in range(column, share.size, LANE):
            reached += share[k]
            place += LANE * (reached <= limit)
        # Rounding may leave no topic beyond the limit, once in millions of draws.
        chosen[j] = place if place < share.size else column
    return state


@internal
def _add_up(shares: Single, scales: Single) -> None:
    """Set ``scales`` to the reciprocals of the sums of the shares of each word."""
    for j in range(scales.size):
        share, sums = shares[j], fill(_ZERO)
        for k in range(0, share.size, LANE):
            sums = add(sums, load(share, k))
        scales[j] = total(sums)
    invert(scales)


@compiled(nogil=True)
def draw_documents(
    indptr: Integers,
    words: NDArray[Any],
    counts: Single,
    topics: Single,
    prior: Single,
    rounds: int,
    longest: float,
    shares: Single,
    keys: Keys,
    tokens: Single,
) -> float:
    """Add the expected tokens of documents to their words and topics; return the log-likelihood of the documents.

    Each word's tokens are predicted from the topics of the other words: sum_w c_w log(sum_k B_wk (n_k + alpha_k) / (n +
    sum(alpha) - c_w)). Arguments are those of ``cvb0.add_documents``; ``keys`` (documents) determine random numbers.
    """
    topic, scales = np.empty(len(shares), np.int64), np.empty(len(shares), np.float32)
    ends, current = np.empty(LANE, np.float32), np.empty_like(prior)
    prior_sum, likelihood = added_up(prior), 0.0
    for document in range(indptr.size - 1):
        here = slice(indptr[document], indptr[document + 1])
        ids, numbers, state = words[here], counts[here], mixed(keys[document])
        length, chosen = added_up(numbers), topic[: ids.size]
        for k in range(prior.size):
            current[k] = prior[k] * (_ONE + length / prior_sum)
        first_shares(ids, topics, current, shares, scales)
        for _ in range(rounds - 1):
            state = _draw(shares, ends, state, chosen)
            current[:] = prior
            for j in range(ids.size):
                if scales[j] > _ZERO:
                    current[chosen[j]] += numbers[j]
            first_shares(ids, topics, current, shares, scales)
            _exclude_own(ids, numbers, topics, current, prior, chosen, shares)
        _add_up(shares, scales[: ids.size])
        likelihood += log_likelihood(numbers, scales, length + prior_sum, np.inf)
        add_tokens(ids, numbers, document_weight(length, longest), shares, scales, tokens)
    return likelihood
