"""Rounds that draw the topics of words within documents, for given topics B and prior alpha.

CVB0 treats the weights of topics in a document as known, but few words leave them uncertain. Here a round draws one
topic for each distinct word w, with all its c_w tokens, from

    p_wk ~ B_wk (n_k + alpha_k),    sum_k p_wk = 1,

where n_k are the tokens of the other words whose topic was k in the round before. As all words are drawn at once,
unlike in Gibbs sampling, a word need not wait for the one before it. The last round does not draw: its c_w p_wk are the
expected tokens, which vary less than drawn ones. The random numbers of a document are a function of its key and do not
depend on other documents.

Notation and memory are those of ``cvb0``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.cvb0 import (
    LANE,
    ZERO,
    add_tokens,
    added_up,
    document_weight,
    first_weights,
    internal,
    invert,
    log_likelihood,
)
from streaming_jsmf.linalg.compiled import (
    add,
    at_most,
    compiled,
    fill,
    load,
    multiply,
    replaced,
    running,
    store,
    total,
)
from streaming_jsmf.linalg.typing import Integers, Single

Keys = NDArray[np.uint64]

#: Increment and multipliers of the generator SplitMix64 (Steele, Lea and Flood 2014).
INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
#: The upper 24 bits of a random number, as a float32 in [0, 1).
_UPPER, _UNIT = np.uint64(40), np.float32(2**-24)


@internal
def mixed(state: np.uint64) -> np.uint64:
    """The random number of a state of SplitMix64."""
    state = (state ^ (state >> _SHIFTS[0])) * _FIRST
    state = (state ^ (state >> _SHIFTS[1])) * _SECOND
    return state ^ (state >> _SHIFTS[2])


@internal
def _shares_of_others(
    ids: NDArray[Any],
    counts: Single,
    topics: Single,
    weights: Single,
    prior: Single,
    chosen: Integers,
    shares: Single,
    columns: Single,
) -> None:
    """Compute the token shares of each word given the topics ``chosen`` for the others (-1: none), and ``columns``.

    Column c of a word is the sum of its shares of topics c, c + LANE, c + 2 LANE, ...
    """
    for j in range(ids.size):
        row, share, own, sums = topics[ids[j]], shares[j], chosen[j], fill(ZERO)
        # Rounding must not leave less than the prior.
        others = row[own] * max(weights[own] - counts[j], prior[own])
        for k in range(0, weights.size, LANE):
            values = replaced(multiply(load(row, k), load(weights, k)), own - k, others)
            store(share, k, values)
            sums = add(sums, values)
        store(columns[j], 0, sums)


@internal
def _draw(shares: Single, columns: Single, ends: Single, state: np.uint64, chosen: Integers) -> np.uint64:
    """Draw a topic for each word in proportion to its shares; return the state of the generator.

    ``ends`` (2 ``LANE``, a 0 before the middle) is memory.
    """
    # The cumulative sum goes through topics k, k + LANE, k + 2 LANE, ... (a column), then through those of k + 1. Loops
    # that end at a random place are slow, so all columns, and all topics of a column, are compared.
    for j in range(chosen.size):
        share, ends_of_columns = shares[j], running(load(columns[j], 0))
        store(ends, LANE, ends_of_columns)
        state += INCREMENT
        mass = ends[2 * LANE - 1]
        limit = np.float32(np.int64(mixed(state) >> _UPPER)) * _UNIT * mass
        column = min(at_most(ends_of_columns, limit), LANE - 1)
        reached, passed = ends[LANE - 1 + column], 0
        for k in range(column, share.size, LANE):
            reached += share[k]
            passed += reached <= limit
        place = column + LANE * passed
        # Rounding may leave no topic beyond the limit, once in millions of draws.
        place = place if place < share.size else column
        chosen[j] = place if mass > ZERO else -1
    return state


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
    tokens: Single,
    keys: Keys,
) -> float:
    """Rounds of draws for documents; add their expected tokens to ``tokens``, and return their log-likelihood.

    Each word's tokens are predicted from the topics of the other words: sum_w c_w log(sum_k B_wk (n_k + alpha_k) / (n +
    sum(alpha) - c_w)). Arguments are those of ``add_documents``; ``keys`` (documents) determine random numbers.
    """
    topic, scales = np.empty(len(shares), np.int64), np.empty(len(shares), np.float32)
    columns, ends = np.empty((len(shares), LANE), np.float32), np.zeros(2 * LANE, np.float32)
    current = np.empty_like(prior)
    prior_sum, likelihood = added_up(prior), 0.0
    for document in range(indptr.size - 1):
        here = slice(indptr[document], indptr[document + 1])
        ids, numbers, state = words[here], counts[here], mixed(keys[document])
        length, chosen = added_up(numbers), topic[: ids.size]
        first_weights(length, prior, prior_sum, current)
        chosen[:] = -1
        _shares_of_others(ids, numbers, topics, current, prior, chosen, shares, columns)
        for _ in range(rounds - 1):
            state = _draw(shares, columns, ends, state, chosen)
            current[:] = prior
            # In a loop of its own, which waits for the draws.
            for j in range(ids.size):
                if chosen[j] >= 0:
                    current[chosen[j]] += numbers[j]
            _shares_of_others(ids, numbers, topics, current, prior, chosen, shares, columns)
        for j in range(ids.size):
            scales[j] = total(load(columns[j], 0))
        invert(scales[: ids.size])
        likelihood += log_likelihood(numbers, scales, length + prior_sum, np.inf)
        add_tokens(ids, numbers, document_weight(length, longest), shares, scales, tokens)
    return likelihood
