"""Polish: deterministic CVB0 steps over documents that improve topics found from moments.

A step keeps only additive sums, no document shares and no random state, so a corpus can be read in any parts; only the
last digits depend on their order. Early steps use samples of single documents (a corpus is often sorted), the last ones
use all documents. With many documents, early steps draw the topics of words (``gibbs``). Otherwise every other step is
over-relaxed: it goes beyond the topics that CVB0 gives, which halves the number of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import PolishSettings
from streaming_jsmf.inference.cvb0 import add_documents, aligned_zeros, csr_buffers, memory_of_shares, padded
from streaming_jsmf.inference.gibbs import Keys, draw_documents
from streaming_jsmf.linalg.panels import each, panel_threads, panels, ratio
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.linalg.typing import Floats, Integers, Mask, Single

#: Default numbers of steps, and of rounds of CVB0 per document.
STEPS, ROUNDS = PolishSettings.steps, PolishSettings.rounds
#: Prior of the topics, in tokens per word, in all but the last step. Held-out perplexity on KOS, news and NIPS papers
#: is .1 to .3 % lower with .05 and as much higher with .01; on simulated corpora that are small relative to their
#: vocabulary, smaller values are more accurate.
WORD_PRIOR = 0.02
#: The same in the last step, where the prior biases the result. Perplexity changes by less than .1 %.
LAST_WORD_PRIOR = 0.001
#: Weight of the word frequencies in the initial topics, so that every word has a topic.
START_SMOOTHING = 0.01
#: Multiple of the typical length above which a document's tokens are scaled down. Otherwise a document of 90,000 tokens
#: among 2,000 of 60 tokens would get its own topic.
LONGEST = 10.0
#: Minimum nonzeros of a block per word: with fewer, adding the blocks costs more than processing the documents.
NONZEROS_PER_WORD = 16
#: Maximum number of blocks of a call; a power of two.
MOST_BLOCKS = 16
#: Documents whose shares are in memory at a time when their correlations are computed.
SHARE_DOCUMENTS = 4096
#: Purposes of random draws: held-out documents, and samples.
HELD_OUT_DRAW, SAMPLE_DRAW = -1, 0
#: How many of the last steps use all documents.
FULL_STEPS = 2
#: From this number of documents on, all steps but the last ``FULL_STEPS`` draw topics. In smaller corpora draws lower
#: neither perplexity nor the share of distinct words.
DRAWN_DOCUMENTS = 10_000
#: Over-relaxation: every other step from B to B' continues to B' (B'/B)^RELAXATION. If a plain step reduces an error to
#: the fraction x, two steps reduce it to x (1 - (1 + RELAXATION) (1 - x)), at most a third in size for x up to .8. A
#: relaxation above 1 in every step would amplify errors that a plain step removes (x near 0).
RELAXATION = 2.0
#: Limit of B'/B, and of its inverse, in the over-relaxation: words that a sample lacks change by more.
MOST_CHANGE = math.exp(2)
#: Approximate number of nonzeros that a sampled step uses, and maximum number of samples that are drawn. Later steps
#: use the same samples again. The same sample for all steps gives topics of lower coherence and higher perplexity.
SAMPLE_NONZEROS, SAMPLES = 2_000_000, 8


@dataclass(frozen=True)
class StepSums:
    """Sums over documents for given topics and prior, which are additive.

    tokens, log_likelihood : Expected tokens of each word in each topic, N x K, and the log-likelihood of
        ``cvb0.add_documents``.
    n_tokens, n_documents : Size of the data; documents without words do not count.
    shares, pairs : Sums of the documents' mean topic shares (K,) and mean products of two shares (K x K) under
        Dirichlet(n + alpha); zeros if not requested.
    """

    tokens: Floats
    log_likelihood: float
    n_tokens: float
    n_documents: int
    shares: Floats
    pairs: Floats


def step_sums(
    counts: csr_array[Any],
    word_topic: Floats,
    prior: Floats,
    *,
    rounds: int = ROUNDS,
    longest: float = math.inf,
    with_pairs: bool = False,
    keys: Keys | None = None,
    threads: int | None = None,
    whole: bool = False,
) -> StepSums:
    """Sums over documents in one pass; the result does not depend on ``threads``.

    Memory: 8 N K bytes for the sums, 4 N K for each thread and one more, and the float32 topics.

    Parameters
    ----------
    counts : Documents x N, positive, not necessarily integers.
    word_topic, prior : B, N x K, non-negative, and alpha, (K,), positive.
    rounds : CVB0 rounds per document, at least 2. 10 lower perplexity by another .5 %, 20 no further.
    longest : Maximum number of tokens that a document adds to ``tokens`` (``longest_document``).
    with_pairs : Whether to compute ``shares`` and ``pairs``, without ``keys``.
    keys : Keys of the documents' random numbers, (documents,): draw topics (``gibbs``) instead of CVB0.
    threads : Blocks of documents processed in parallel; None: one per core.
    whole : Whether ``counts`` are one of the ``blocks`` of a larger matrix; the sums of those, added in order, have the
        bits of the sums of the matrix.
    """
    topics, alpha = padded(word_topic), padded(prior[None])[0]
    starts, ids, values = csr_buffers(counts)

    def block_sums(block: tuple[Integers, Keys]) -> tuple[Single, Floats, Floats, float]:
        indptr, drawn = block
        if keys is None:
            return _block_sums(indptr, ids, values, topics, alpha, rounds, longest, with_pairs)
        tokens = aligned_zeros(*topics.shape)
        memory = memory_of_shares(indptr, alpha.size)
        likelihood = draw_documents(
            indptr, ids, values, topics, alpha, rounds, longest, memory, drawn, tokens
        )
        return tokens, np.zeros(alpha.size), np.zeros((alpha.size, alpha.size)), likelihood

    n_words, n_topics = word_topic.shape
    tokens, shares, pairs = np.zeros((n_words, n_topics)), np.zeros(n_topics), np.zeros((n_topics, n_topics))
    likelihood = 0.0
    with panel_threads(threads):
        for block in each(block_sums, _with_keys([starts] if whole else blocks(starts, n_words), keys)):
            tokens += block[0][:, :n_topics]
            shares += block[1][:n_topics]
            pairs += block[2][:n_topics, :n_topics]
            likelihood += block[3]
    n_documents = int(np.count_nonzero(np.diff(counts.indptr)))
    return StepSums(tokens, likelihood, float(counts.data.sum(dtype=np.float64)), n_documents, shares, pairs)


def next_topics(tokens: Floats, *, last: bool = False) -> Floats:
    """B, N x K: expected tokens plus a word prior, normalized so that columns sum to 1.

    The prior is ``WORD_PRIOR``, or ``LAST_WORD_PRIOR`` in the last step.
    """
    topics = tokens + (LAST_WORD_PRIOR if last else WORD_PRIOR)
    topics /= topics.sum(axis=0)
    return topics


def over_relaxed(topics: Floats, before: Floats, exponent: float = RELAXATION) -> Floats:
    """B, N x K, beyond ``topics`` on the way from ``before``, which gave them; columns sum to 1."""
    further = topics * np.clip(ratio(topics, before, MOST_CHANGE), 1 / MOST_CHANGE, MOST_CHANGE) ** exponent
    further /= further.sum(axis=0)
    return further


def first_topics(word_topic: Floats, word_probability: Floats) -> Floats:
    """Initial topics, N x K: the given ones mixed with a small part of the word frequencies (N,), which sum to 1.

    Without this, words without a topic (a threshold leaves thousands) would not affect the shares of their documents.
    """
    return np.asarray((1 - START_SMOOTHING) * word_topic + START_SMOOTHING * word_probability[:, None])


def log_lengths(counts: csr_array[Any]) -> tuple[float, int]:
    """Sum of log n over non-empty documents, and their number; additive."""
    lengths = counts.sum(axis=1)
    known = lengths[lengths > 0]
    return float(np.log(known).sum()), known.size


def longest_document(log_length: float, n_documents: int) -> float:
    """``LONGEST`` times the geometric mean of document lengths (robust to outliers), from ``log_lengths``."""
    return LONGEST * math.exp(log_length / n_documents) if n_documents else math.inf


def blocks(indptr: NDArray[Any], n_words: int) -> list[NDArray[Any]]:
    """Row pointers of consecutive blocks of documents with about equal nonzeros.

    The number of blocks is a power of two up to ``MOST_BLOCKS``, which keeps all threads busy.
    """
    nonzeros = int(indptr[-1] - indptr[0])
    count = 1
    while 2 * count <= min(MOST_BLOCKS, nonzeros // (NONZEROS_PER_WORD * n_words)):
        count *= 2
    cuts = np.searchsorted(indptr, indptr[0] + nonzeros * np.arange(1, count) // count)
    ends = [0, *np.unique(cuts).tolist(), indptr.size - 1]
    return [indptr[start : stop + 1] for start, stop in pairwise(ends) if start < stop]


def _with_keys(blocks: list[Integers], keys: Keys | None) -> list[tuple[Integers, Keys]]:
    """Blocks with the keys of their documents."""
    if keys is None:
        return [(block, np.zeros(0, np.uint64)) for block in blocks]
    starts = np.cumsum([block.size - 1 for block in blocks])[:-1]
    return list(zip(blocks, np.split(keys, starts), strict=True))


def _block_sums(
    indptr: Integers,
    ids: NDArray[Any],
    values: Single,
    topics: Single,
    prior: Single,
    rounds: int,
    longest: float,
    with_pairs: bool,
) -> tuple[Single, Floats, Floats, float]:
    """``tokens``, ``shares``, ``pairs`` and ``log_likelihood`` of a block, of padded width."""
    width, no_changes = prior.size, np.empty((0, 2))
    tokens, likelihood = aligned_zeros(*topics.shape), 0.0
    shares, pairs = np.zeros(width), np.zeros((width, width))
    for rows in panels(indptr.size - 1, SHARE_DOCUMENTS):
        part = indptr[rows.start : rows.stop + 1]
        weights = np.empty((rows.stop - rows.start if with_pairs else 0, width), np.float32)
        memory = memory_of_shares(part, width)
        likelihood += add_documents(
            part, ids, values, topics, prior, rounds, 0.0, longest, memory, tokens, weights, no_changes
        )
        if with_pairs:
            _add_shares(weights[np.diff(part) > 0], shares, pairs)
    return tokens, shares, pairs, likelihood


def _add_shares(weights: Single, shares: Floats, pairs: Floats) -> None:
    """Add the first two moments of Dirichlet distributions with the given parameters, documents x width."""
    given = weights.astype(np.float64)
    mass = given.sum(axis=1)
    shares += (1 / mass) @ given
    per_pair = 1 / (mass * (mass + 1))
    pairs += given.T @ (per_pair[:, None] * given)
    pairs[np.diag_indices_from(pairs)] += per_pair @ given


@dataclass(frozen=True)
class Step:
    """A step: its share of the documents (1 for all), its rounds, and whether it is over-relaxed or draws topics."""

    share: float
    rounds: int
    relaxed: bool
    drawn: bool = False


def plan_steps(nonzeros: int, n_documents: int, steps: int = STEPS, rounds: int = ROUNDS) -> tuple[Step, ...]:
    """Plan the steps for a corpus: the last ``FULL_STEPS`` use all documents, earlier ones a sample.

    Earlier steps draw topics if there are many documents. Every other one of the rest is over-relaxed, but not the
    last one.

    >>> [(step.share, step.drawn, step.relaxed) for step in plan_steps(40_000_000, 1_000_000, steps=3)]
    [(0.05, True, False), (1.0, False, True), (1.0, False, False)]
    """
    share = min(1.0, SAMPLE_NONZEROS / max(nonzeros, 1))
    planned = []
    for left in range(steps, 0, -1):
        early = left > FULL_STEPS
        drawn = early and n_documents >= DRAWN_DOCUMENTS
        planned.append(Step(share if early else 1.0, rounds, not drawn and left % 2 == 0, drawn))
    return tuple(planned)


def document_draws(label: str, n_documents: int, purpose: int, seed: int) -> Floats:
    """Uniform random numbers of the documents of a unit, (n_documents,), for ``HELD_OUT_DRAW`` or ``SAMPLE_DRAW``.

    A pure function. ``label`` identifies the unit by the digest of its shard and the number of its row group, because
    its position in the corpus depends on other shards.
    """
    return keyed_generator(seed, f"{purpose}:{label}").random(n_documents)


def document_keys(draws: Floats, step: int) -> Keys:
    """Keys of the random numbers of a step, (n_documents,), from the documents' draws."""
    bits: Keys = draws.view(np.uint64)
    return bits + np.uint64(step)


def sampled_range(share: float) -> float:
    """Share of the documents that are in the sample of some step, each of which has ``share`` of all."""
    return min(1.0, SAMPLES * share)


def in_sample(draws: Floats, step: int, share: float) -> Mask:
    """Mask of the documents that a sampled step uses, numbered from 0, among those drawn below ``sampled_range``.

    Samples of consecutive steps are disjoint until all documents were used.

    >>> [in_sample(np.array([0.1, 0.3, 0.6, 0.9]), step, 0.5).tolist() for step in range(3)]
    [[True, True, False, False], [False, False, True, True], [True, True, False, False]]
    """
    return np.asarray((draws - step * share) % sampled_range(share) < share)
