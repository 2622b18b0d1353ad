"""CVB0 within documents, for given topics B and prior alpha.

A document has counts c_w of its distinct words w, n tokens in all; n_k are the expected tokens of topic k. Both begin
with n_k = n alpha_k / sum(alpha).

**CVB0** (Asuncion, Welling, Smyth and Teh 2009) iterates

    g_wk ~ B_wk max(n_k + alpha_k - previous g_wk, FLOOR),    sum_k g_wk = 1,    n_k = sum_w c_w g_wk

Subtracting the previous g_wk excludes a token from its own prediction; the first round subtracts nothing. Steps of
``polish`` (``add_documents``) extrapolate n_k between a few rounds (``extrapolate``), which changes the path but not
the fixed point; topic shares (``share_documents``, ``document_topics``) take rounds until they change little. Shares by
CVB0 approximate the mean of the posterior. They are closer to the true shares of simulated documents, and predict their
words better, than the maximum of the posterior.

Rows are float32, with topics padded with zeros to full cache lines (``LANE``), so that loops over topics have no
remainder. Shares g are stored unnormalized; the reciprocals of their sums are in ``scales``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.inference.completion import SMOOTHING
from streaming_jsmf.linalg.compiled import (
    add,
    compiled,
    fill,
    load,
    maximum,
    multiply,
    multiply_add,
    store,
    total,
)
from streaming_jsmf.linalg.panels import on_each, panel_threads, panels, ratio
from streaming_jsmf.linalg.typing import Floats, Integers, Single

#: The row width is padded to a multiple of this: 64 bytes.
LANE = 16
#: Minimum weight of a topic in a document, before multiplication by the word's probability.
FLOOR = np.float32(1e-6)
#: Part of the last change of n_k that ``extrapolate`` adds. Four rounds with .4 give topics of the coherence and
#: perplexity of five without.
EXTRAPOLATION = np.float32(0.4)
#: Probabilities below this fraction of a word's largest are set to 0: their products with ``FLOOR`` would be subnormal
#: in single precision, which is very slow.
NEGLIGIBLE = 1e-30
#: Documents per block.
BLOCK_DOCUMENTS = 256
#: Defaults of the stopping rule: change in a round, and maximum number of rounds.
TOLERANCE, MAX_ITERATIONS = 1e-3, 200
ZERO, _ONE = np.float32(0), np.float32(1)

internal = compiled(nogil=True, forceinline=True, internal=True)


@internal
def first_weights(length: np.float32, prior: Single, prior_sum: np.float32, weights: Single) -> None:
    """Set ``weights`` to n_k + alpha_k of the first round, for a document of n tokens."""
    for k in range(prior.size):
        weights[k] = max(prior[k] * (_ONE + length / prior_sum), FLOOR)


@internal
def first_shares(ids: NDArray[Any], topics: Single, weights: Single, shares: Single, scales: Single) -> None:
    """Compute the token shares of the first round and the reciprocals of their sums."""
    for j in range(ids.size):
        row, share, sums = topics[ids[j]], shares[j], fill(ZERO)
        for k in range(0, weights.size, LANE):
            values = multiply(load(row, k), load(weights, k))
            store(share, k, values)
            sums = add(sums, values)
        scales[j] = total(sums)
    invert(scales[: ids.size])


@internal
def next_shares(
    ids: NDArray[Any], counts: Single, topics: Single, weights: Single, shares: Single, scales: Single
) -> None:
    """Compute the token shares from those of the previous round, and the reciprocals of their sums."""
    least = fill(FLOOR)
    for j in range(ids.size):
        row, share, sums = topics[ids[j]], shares[j], fill(ZERO)
        own = fill(-scales[j] * min(counts[j], _ONE))
        for k in range(0, weights.size, LANE):
            others = multiply_add(own, load(share, k), load(weights, k))
            values = multiply(load(row, k), maximum(others, least))
            store(share, k, values)
            sums = add(sums, values)
        scales[j] = total(sums)
    invert(scales[: ids.size])


@internal
def invert(scales: Single) -> None:
    """Invert in a separate loop, so that sums do not wait for divisions."""
    for j in range(scales.size):
        scales[j] = _ONE / scales[j] if scales[j] > ZERO else ZERO


@internal
def weigh_topics(
    counts: NDArray[Any], shares: Single, scales: Single, prior: Single, weights: Single
) -> None:
    """Set ``weights`` to n_k + alpha_k, four words at a time to reduce stores."""
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


@internal
def extrapolate(prior: Single, before: Single, weights: Single) -> None:
    """Move ``weights`` on by ``EXTRAPOLATION`` of their change since ``before``, to alpha_k or more; keep the sum."""
    now, back, plain, moved = fill(_ONE + EXTRAPOLATION), fill(-EXTRAPOLATION), fill(ZERO), fill(ZERO)
    for k in range(0, prior.size, LANE):
        given = load(weights, k)
        values = maximum(multiply_add(back, load(before, k), multiply(now, given)), load(prior, k))
        store(weights, k, values)
        plain, moved = add(plain, given), add(moved, values)
    scale = fill(total(plain) / total(moved))
    for k in range(0, prior.size, LANE):
        store(weights, k, multiply(scale, load(weights, k)))


@internal
def add_tokens(
    ids: NDArray[Any], counts: Single, weight: np.float32, shares: Single, scales: Single, tokens: Single
) -> None:
    """Add the document's expected tokens, times its weight, to the rows of its words."""
    for j in range(ids.size):
        sums, share, part = tokens[ids[j]], shares[j], fill(weight * (counts[j] * scales[j]))
        for k in range(0, sums.size, LANE):
            store(sums, k, multiply_add(part, load(share, k), load(sums, k)))


@internal
def document_weight(length: np.float32, longest: float) -> np.float32:
    """Weight of a document's tokens, so that it counts for at most ``longest``."""
    return _ONE if length <= longest else np.float32(longest / length)


@internal
def changed(before: Single, current: Single) -> tuple[float, float]:
    """Sum of absolute changes of the entries, and sum of the current ones."""
    moved, mass = 0.0, 0.0
    for k in range(current.size):
        mass += current[k]
        moved += abs(current[k] - before[k])
    return moved, mass


@internal
def added_up(values: Single) -> np.float32:
    """Sum in ascending order; numpy's takes longer to compile."""
    found = ZERO
    for i in range(values.size):
        found += values[i]
    return found


@compiled(nogil=True, internal=True)
def log_likelihood(counts: Single, scales: Single, mass: float, excluded: float) -> float:
    """sum_w c_w log(1 / (scale_w (mass - own_w))) over words that have a topic.

    own_w are the tokens of w that do not predict it, at most ``excluded``.
    """
    likelihood = 0.0
    for j in range(counts.size):
        if scales[j] > ZERO:
            count = np.float64(counts[j])
            likelihood -= count * math.log(scales[j] * (mass - min(count, excluded)))
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
    shares: Single,
    tokens: Single,
    weights: Single,
) -> float:
    """Rounds of CVB0 for documents; add their expected tokens to ``tokens``, and return their log-likelihood.

    Each token is predicted from the other tokens of its document in the last round: sum_w c_w log(sum_k B_wk (n_k +
    alpha_k - g_wk) / (n + sum(alpha) - 1)). Words without a topic are ignored.

    Counts are CSR (``csr_buffers``; ``indptr`` may start at any offset) and positive; B and alpha are padded.
    ``shares`` are ``memory_of_shares``. A document adds at most ``longest`` tokens to ``tokens`` (words x width).
    ``weights`` (documents x width) are set to n_k + alpha_k.
    """
    scales, current, before = np.empty(len(shares), np.float32), np.empty_like(prior), np.empty_like(prior)
    prior_sum, likelihood = added_up(prior), 0.0
    for document in range(indptr.size - 1):
        here = slice(indptr[document], indptr[document + 1])
        ids, numbers = words[here], counts[here]
        length = added_up(numbers)
        first_weights(length, prior, prior_sum, current)
        first_shares(ids, topics, current, shares, scales)
        for _ in range(rounds - 1):
            before, current = current, before
            weigh_topics(numbers, shares, scales, prior, current)
            extrapolate(prior, before, current)
            next_shares(ids, numbers, topics, current, shares, scales)
        likelihood += log_likelihood(numbers, scales, length + prior_sum, 1.0)
        add_tokens(ids, numbers, document_weight(length, longest), shares, scales, tokens)
        weigh_topics(numbers, shares, scales, prior, weights[document])
    return likelihood


@compiled(nogil=True)
def share_documents(
    indptr: Integers,
    words: NDArray[Any],
    counts: Single,
    topics: Single,
    prior: Single,
    rounds: int,
    tolerance: float,
    shares: Single,
    weights: Single,
    changes: Floats,
) -> None:
    """Rounds of CVB0 for documents until their topic shares change by at most ``tolerance``, without extrapolation.

    Arguments are those of ``add_documents``; ``changes`` (documents x 2) are set to the number of rounds and the sum of
    absolute changes of the topic shares in the last one. No objective is known to increase.
    """
    scales, current, before = np.empty(len(shares), np.float32), np.empty_like(prior), np.empty_like(prior)
    prior_sum = added_up(prior)
    for document in range(indptr.size - 1):
        here = slice(indptr[document], indptr[document + 1])
        ids, numbers = words[here], counts[here]
        first_weights(added_up(numbers), prior, prior_sum, current)
        first_shares(ids, topics, current, shares, scales)
        for number in range(1, rounds + 1):
            before, current = current, before
            weigh_topics(numbers, shares, scales, prior, current)
            moved, mass = changed(before, current)
            changes[document, 0], changes[document, 1] = number, moved / mass
            if moved <= tolerance * mass or number == rounds:
                break
            next_shares(ids, numbers, topics, current, shares, scales)
        for k in range(prior.size):
            weights[document, k] = current[k]


def smoothed(word_topic: Floats, word_count: Floats) -> Floats:
    """B, N x K, mixed with a small part of the frequencies of the words in the training corpus (their counts, (N,)).

    Words without a topic (a threshold leaves thousands) get one, and affect the shares of their documents.
    """
    unigram = word_count / word_count.sum()
    return np.asarray((1 - SMOOTHING) * word_topic + SMOOTHING * unigram[:, None])


def padded_topics(word_topic: Floats, prior: Floats) -> tuple[Single, Single]:
    """Pad B and alpha for ``add_documents``; the probabilities of each word are divided by their maximum."""
    scaled = ratio(word_topic, word_topic.max(axis=1, keepdims=True))
    return padded(np.where(scaled > NEGLIGIBLE, scaled, 0.0)), padded(prior[None])[0]


def padded(rows: Floats) -> Single:
    """Copy rows to float32, padded with zeros to a multiple of ``LANE`` columns and aligned to cache lines."""
    filled = aligned_zeros(*rows.shape)
    filled[:, : rows.shape[1]] = rows
    return filled


def aligned_zeros(n_rows: int, n_topics: int) -> Single:
    """Zeros of the padded shape of an n_rows x n_topics matrix, aligned to cache lines."""
    width = -(-n_topics // LANE) * LANE
    memory = np.zeros(n_rows * width + LANE, np.float32)
    start = -(memory.ctypes.data // memory.itemsize) % LANE
    return memory[start : start + n_rows * width].reshape(n_rows, width)


def csr_buffers(counts: csr_array[Any]) -> tuple[Integers, NDArray[np.int32], Single]:
    """Row pointers, words and counts of a CSR matrix, with the same types wherever they come from.

    Each type is compiled, and read-only arrays (as read from a file) have another one.
    """
    words, values = (np.asarray(counts.indices, np.int32).view(), np.asarray(counts.data, np.float32).view())
    words.flags.writeable = values.flags.writeable = False
    return counts.indptr.astype(np.int64), words, values


def memory_of_shares(indptr: Integers, width: int) -> Single:
    """Memory for the token shares of the longest of some documents, distinct words x width."""
    return aligned_zeros(int(np.diff(indptr).max(initial=0)), width)


@dataclass(frozen=True)
class DocumentTopics:
    """Topic shares of documents.

    ``shares`` are M x K, positive, rows sum to 1; ``iterations`` (M,) are rounds. ``remaining`` (M,) is the sum of
    absolute changes in the last round, and ``tolerance`` its requested maximum.
    """

    shares: Floats
    iterations: Integers
    remaining: Floats
    tolerance: float

    @property
    def unconverged(self) -> int:
        """Number of documents whose ``remaining`` exceeds the tolerance."""
        return int((~(self.remaining <= self.tolerance)).sum())


def document_topics(
    counts: csr_array[Any],
    word_topic: Floats,
    prior: Floats,
    *,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    threads: int | None = None,
) -> DocumentTopics:
    """Compute the topic shares of each document. The result depends neither on ``threads`` nor on other documents.

    Words without a topic are ignored; a document with no other words gets the mean of the prior.

    Parameters
    ----------
    counts : Documents x N, non-negative; not necessarily integers.
    word_topic, prior : p(word | topic), N x K, and alpha, (K,), positive.
    tolerance, max_iterations : Stop at this value of ``DocumentTopics.remaining``, or after this many rounds (see
        ``unconverged``).
    threads : Blocks of documents processed in parallel; None: one per core.
    """
    topics, alpha = np.ascontiguousarray(word_topic, np.float64), np.array(prior, np.float64)
    n_documents = int(counts.shape[0])
    shares, rounds = np.empty((n_documents, alpha.size)), np.empty((n_documents, 2))
    starts, words, numbers = csr_buffers(counts)
    model = padded_topics(topics, alpha)

    def solve_block(part: slice) -> None:
        here = starts[part.start : part.stop + 1]
        weights = np.empty((here.size - 1, model[1].size), np.float32)
        owned = memory_of_shares(here, model[1].size)
        share_documents(here, words, numbers, *model, max_iterations, tolerance, owned, weights, rounds[part])
        # Added in ascending order, as in the kernel.
        mass = np.cumsum(weights, axis=1, dtype=np.float64)[:, -1:]
        np.divide(weights[:, : alpha.size], mass, out=shares[part])

    with panel_threads(threads):
        on_each(solve_block, panels(n_documents, BLOCK_DOCUMENTS))
    return DocumentTopics(shares, rounds[:, 0].astype(np.int64), rounds[:, 1].copy(), tolerance)
