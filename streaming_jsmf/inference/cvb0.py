"""Compiled CVB0 (Asuncion, Welling, Smyth and Teh 2009) within documents, topics and prior given.

For the distinct words w of a document with counts c_w, and the expected tokens n_k of its topics,

    g_wk ~ B_wk max(n_k + alpha_k - g_wk of the round before, FLOOR),    sum_k g_wk = 1,    n_k = sum_w c_w g_wk

is repeated from n_k = n alpha_k / sum(alpha) on. A token does not vote for itself: that is what is subtracted, and in
the first round there is nothing to subtract.

Rows have one layout: float32, topics filled up with zeros to whole cache lines (``LANE``), so that every loop over
topics is a whole number of vectors. A share g is stored before it is divided by the sum over topics: the reciprocal is
in ``scales``, and is applied where the share is read. The helpers work on a whole document; smaller ones would cost
more to call than they do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.lanes import add, fill, load, maximum, multiply, multiply_add, store, total
from streaming_jsmf.linalg.typing import Floats, Integers, Single

#: Topics of a row come in multiples of this: 64 bytes.
LANE = 16

#: Least weight of a topic in a document, before that of the word.
FLOOR = np.float32(1e-6)

_ZERO, _ONE = np.float32(0), np.float32(1)

inlined = compiled(nogil=True, forceinline=True)


@inlined
def first_shares(ids: NDArray[Any], topics: Single, weights: Single, shares: Single, scales: Single) -> None:
    """Shares of the words' tokens before any is known, and one over their sums."""
    for j in range(ids.size):
        row, share, sums = topics[ids[j]], shares[j], fill(_ZERO)
        for k in range(0, weights.size, LANE):
            values = multiply(load(row, k), load(weights, k))
            store(share, k, values)
            sums = add(sums, values)
        scales[j] = total(sums)
    invert(scales[: ids.size])


@inlined
def next_shares(
    ids: NDArray[Any], counts: Single, topics: Single, weights: Single, shares: Single, scales: Single
) -> None:
    """Shares of the words' tokens from those of the round before, and one over their sums."""
    least = fill(FLOOR)
    for j in range(ids.size):
        row, share, sums = topics[ids[j]], shares[j], fill(_ZERO)
        own = fill(-scales[j] * min(counts[j], _ONE))
        for k in range(0, weights.size, LANE):
            others = multiply_add(own, load(share, k), load(weights, k))
            values = multiply(load(row, k), maximum(others, least))
            store(share, k, values)
            sums = add(sums, values)
        scales[j] = total(sums)
    invert(scales[: ids.size])


@inlined
def invert(scales: Single) -> None:
    """Apart from the sums, so that none waits for a division."""
    for j in range(scales.size):
        scales[j] = _ONE / scales[j] if scales[j] > _ZERO else _ZERO


@inlined
def weigh_topics(
    counts: NDArray[Any], shares: Single, scales: Single, prior: Single, weights: Single
) -> None:
    """``weights`` becomes n_k + alpha_k. Four words at once: it is stored a quarter as often."""
    for k in range(prior.size):
        weights[k] = prior[k]
    fours = counts.size // 4 * 4
    for j in range(0, fours, 4):
        a, b = fill(counts[j] * scales[j]), fill(counts[j + 1] * scales[j + 1])
        c, d = fill(counts[j + 2] * scales[j + 2]), fill(counts[j + 3] * scales[j + 3])
        p, q, r, s = shares[j], shares[j + 1], shares[j + 2], shares[j + 3]
        for k in range(0, prior.size, LANE):
            sums = multiply_add(b, load(q, k), multiply_add(a, load(p, k), load(weights, k)))
            store(weights, k, multiply_add(d, load(s, k), multiply_add(c, load(r, k), sums)))
    for j in range(fours, counts.size):
        a, p = fill(counts[j] * scales[j]), shares[j]
        for k in range(0, prior.size, LANE):
            store(weights, k, multiply_add(a, load(p, k), load(weights, k)))


@inlined
def _add_tokens(
    ids: NDArray[Any], counts: Single, weight: np.float32, shares: Single, scales: Single, tokens: Single
) -> None:
    """Add the document's expected tokens, times its weight, to the rows of its words."""
    for j in range(ids.size):
        sums, share, part = tokens[ids[j]], shares[j], fill(weight * (counts[j] * scales[j]))
        for k in range(0, sums.size, LANE):
            store(sums, k, multiply_add(part, load(share, k), load(sums, k)))


@compiled(nogil=True)
def _log_likelihood(counts: Single, scales: Single, mass: float) -> float:
    """sum_w c_w log(1 / (scale_w (mass - own_w))) over words that a topic has."""
    likelihood = 0.0
    for j in range(counts.size):
        if scales[j] > _ZERO:
            count = np.float64(counts[j])
            likelihood -= count * math.log(scales[j] * (mass - min(count, 1.0)))
    return likelihood


@compiled(nogil=True)
def add_documents(
    indptr: Integers,
    words: NDArray[Any],
    counts: Single,
    topics: Single,
    prior: Single,
    rounds: int,
    longest: float,
    tokens: Single,
    weights: Single,
) -> float:
    """Add the expected tokens of documents to their words and topics; the log-likelihood of the documents.

    Bits depend on the arguments and the machine's vectors alone. For the log-likelihood each token is predicted from
    the others of its document, as the last round sees them:
    sum_w c_w log(sum_k B_wk (n_k + alpha_k - g_wk) / (n + sum(alpha) - 1)). Words that no topic has say nothing.

    Parameters
    ----------
    indptr, words, counts
        Documents x words (CSR); counts above 0. ``indptr`` need not start at 0.
    topics, prior
        B, words x width, and alpha, (width,), both zero in the columns that fill up.
    rounds
        2 or more.
    longest
        Tokens of a document that count in ``tokens``: those of a longer one are scaled down to as many.
    tokens
        words x width, added to; without rows: not wanted.
    weights
        documents x width: becomes n_k + alpha_k; without rows: not wanted.
    """
    most = 0
    for document in range(indptr.size - 1):
        most = max(most, indptr[document + 1] - indptr[document])
    shares, scales = np.empty((most, prior.size), np.float32), np.empty(most, np.float32)
    current, prior_sum, likelihood = np.empty(prior.size, np.float32), prior.sum(), 0.0
    for document in range(indptr.size - 1):
        here = slice(indptr[document], indptr[document + 1])
        ids, numbers = words[here], counts[here]
        length = numbers.sum()
        for k in range(prior.size):
            current[k] = max(prior[k] * (_ONE + length / prior_sum), FLOOR)
        first_shares(ids, topics, current, shares, scales)
        for _ in range(rounds - 1):
            weigh_topics(numbers, shares, scales, prior, current)
            next_shares(ids, numbers, topics, current, shares, scales)
        likelihood += _log_likelihood(numbers, scales, length + prior_sum)
        if tokens.shape[0]:
            weight = _ONE if length <= longest else np.float32(longest / length)
            _add_tokens(ids, numbers, weight, shares, scales, tokens)
        if weights.shape[0]:
            weigh_topics(numbers, shares, scales, prior, weights[document])
    return likelihood


#: Parts of a word's largest probability below this are 0: products with ``FLOOR`` would leave the normal numbers of
#: single precision, which slows a processor down many times over.
NOTHING = 1e-30


def padded_topics(word_topic: Floats, prior: Floats) -> tuple[Single, Single]:
    """B and alpha as the kernel wants them; each word's probabilities are over their largest, which nothing feels."""
    n_words, n_topics = word_topic.shape
    width = -(-n_topics // LANE) * LANE
    topics, alpha = np.zeros((n_words, width), np.float32), np.zeros(width, np.float32)
    largest = word_topic.max(axis=1, keepdims=True)
    scaled = np.divide(word_topic, largest, out=np.zeros_like(word_topic), where=largest > 0)
    topics[:, :n_topics] = np.where(scaled > NOTHING, scaled, 0.0)
    alpha[:n_topics] = prior
    return topics, alpha


@compiled(nogil=True)
def iterate_shares(
    starts: Integers,
    words: Integers,
    numbers: Single,
    topics: Single,
    prior: Single,
    tolerance: float,
    most: int,
    shares: Floats,
    rounds: Integers,
    changes: Floats,
) -> None:
    """Shares of each document of a block, rounds taken and the change of the last, into the last three arguments."""
    longest = 0
    for document in range(starts.size - 1):
        longest = max(longest, starts[document + 1] - starts[document])
    owned, scales = np.empty((longest, prior.size), np.float32), np.empty(longest, np.float32)
    weights, before, prior_sum = np.empty_like(prior), np.empty_like(prior), prior.sum()
    for document in range(starts.size - 1):
        here = slice(starts[document], starts[document + 1])
        ids, counts = words[here], numbers[here]
        length = counts.sum()
        for k in range(prior.size):
            before[k] = max(prior[k] * (np.float32(1) + length / prior_sum), FLOOR)
        first_shares(ids, topics, before, owned, scales)
        for number in range(most):
            weigh_topics(counts, owned, scales, prior, weights)
            total, moved = 0.0, 0.0
            for k in range(prior.size):
                total += weights[k]
                moved += abs(weights[k] - before[k])
                before[k] = weights[k]
            rounds[document], changes[document] = number + 1, moved / total
            if moved <= tolerance * total:
                break
            next_shares(ids, counts, topics, weights, owned, scales)
        for k in range(shares.shape[1]):
            shares[document, k] = weights[k] / total
