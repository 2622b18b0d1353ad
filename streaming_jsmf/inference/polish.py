"""Polish: deterministic CVB0 steps over documents that improve topics found from moments.

A step keeps only additive sums, no document shares and no random state, so a corpus can be read in any parts; only the
last digits depend on their order. Early steps use samples of single documents (a corpus is often sorted), the last ones
use all documents. With many documents, early steps draw the topics of words. Otherwise every other step is
over-relaxed: it goes beyond the topics that CVB0 gives, which halves the number of steps. What a step does within a
document is in ``cvb0``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.config import PolishSettings
from streaming_jsmf.inference.cvb0 import (
    add_documents,
    aligned_zeros,
    csr_buffers,
    memory_of_shares,
    padded,
)
from streaming_jsmf.inference.draws import Keys, draw_documents
from streaming_jsmf.linalg.panels import each, panel_threads, ratio
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
#: The tokens of a document are scaled down to those of ``LONGEST`` typical documents or, if that is more, to
#: ``LARGEST_PART`` of an average topic. Otherwise a document of 90,000 tokens among 2,000 of 60 tokens would get its
#: own topic. In corpora of many documents, long ones may hold a third of the tokens: the first limit alone raises the
#: perplexity of 20 newsgroups.
LONGEST, LARGEST_PART = 10.0, 0.1
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


@dataclass(frozen=True)
class Schedule:
    """The steps of a polish, numbered from 0; the prior alpha, (K,), and ``longest`` of ``step_sums``."""

    steps: tuple[Step, ...]
    prior: Floats
    longest: float = math.inf

    def in_memory(
        self,
        n_steps: int,
        topics: Floats,
        sample: csr_array[Any],
        draws: Floats,
        *,
        threads: int | None = None,
        told: Callable[[int, StepSums], None] = lambda *_: None,
    ) -> tuple[Floats, StepSums]:
        """Take the first ``n_steps`` steps, at least one, on documents in memory; return the topics, and the last sums.

        ``draws`` (documents,) of the ``sample`` tell which documents a step uses (``in_sample``). ``told`` is called
        with the number and the sums of each step.
        """
        sums = None
        for number in range(n_steps):
            used = np.flatnonzero(in_sample(draws, number, self.steps[number].share))
            documents = sample if used.size == draws.size else sample[used]
            sums = self.sums(number, documents, topics, draws[used], threads=threads)
            topics = self.next_topics(number, topics, sums)
            told(number, sums)
        assert sums is not None, "there is a step"
        return topics, sums

    def sums(
        self,
        number: int,
        documents: csr_array[Any],
        topics: Floats,
        draws: Floats | None = None,
        *,
        threads: int | None = None,
    ) -> StepSums:
        """The sums of a step over documents for its ``topics``, with the ``draws`` of the documents if it draws."""
        step = self.steps[number]
        return step_sums(
            documents,
            topics,
            self.prior,
            rounds=step.rounds,
            longest=self.longest,
            with_pairs=self._is_last(number),
            keys=document_keys(draws, number) if step.drawn and draws is not None else None,
            threads=threads,
        )

    def next_topics(self, number: int, topics: Floats, sums: StepSums) -> Floats:
        """The topics after a step, from those before it and the sums over its documents."""
        found = next_topics(sums.tokens, last=self._is_last(number))
        return over_relaxed(found, topics) if self.steps[number].relaxed else found

    def _is_last(self, number: int) -> bool:
        return number + 1 == len(self.steps)


@dataclass(frozen=True)
class StepSums:
    """Sums over documents for given topics and prior, which are additive.

    tokens, log_likelihood : Expected tokens of each word in each topic, N x K, and the log-likelihood of
        ``cvb0.add_documents`` or ``draws.draw_documents``.
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

    @property
    def mean_log_likelihood(self) -> float:
        """Log-likelihood of a token; 0 without tokens."""
        return self.log_likelihood / max(self.n_tokens, 1.0)


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
) -> StepSums:
    """Sums over documents in one pass; the result does not depend on ``threads``.

    Memory: 8 N K bytes for the sums, 4 N K for each thread and one more, and the float32 topics.

    Parameters
    ----------
    counts : Documents x N, positive, not necessarily integers.
    word_topic, prior : B, N x K, non-negative, and alpha, (K,), positive.
    rounds : Rounds per document, at least 2. 10 lower perplexity by another .5 %, 20 no further.
    longest : Maximum number of tokens that a document adds to ``tokens`` (``longest_document``).
    with_pairs : Whether to compute ``shares`` and ``pairs``, without ``keys``.
    keys : Keys of the documents' random numbers, (documents,): draw topics instead of CVB0.
    threads : Blocks of documents processed in parallel; None: one per core.
    """
    n_words, n_topics = word_topic.shape
    topics, alpha = padded(word_topic), padded(prior[None])[0]
    starts, ids, values = csr_buffers(counts)
    given, width = (ids, values, topics, alpha, rounds, longest), alpha.size

    def of_block(documents: slice) -> tuple[Single, Floats, Floats, float]:
        tokens, likelihood = aligned_zeros(n_words, n_topics), 0.0
        shares, pairs = np.zeros(width), np.zeros((width, width))
        if keys is not None:
            indptr = starts[documents.start : documents.stop + 1]
            memory = memory_of_shares(indptr, width)
            return tokens, shares, pairs, draw_documents(indptr, *given, memory, tokens, keys[documents])
        for first in range(documents.start, documents.stop, SHARE_DOCUMENTS):
            indptr = starts[first : min(first + SHARE_DOCUMENTS, documents.stop) + 1]
            weights = np.empty((indptr.size - 1, width), np.float32)
            likelihood += add_documents(indptr, *given, memory_of_shares(indptr, width), tokens, weights)
            if with_pairs:
                _add_shares(weights[np.diff(indptr) > 0], shares, pairs)
        return tokens, shares, pairs, likelihood

    tokens, shares, pairs = np.zeros((n_words, n_topics)), np.zeros(n_topics), np.zeros((n_topics, n_topics))
    likelihood = 0.0
    with panel_threads(threads):
        for block in each(of_block, blocks(starts, n_words)):
            tokens += block[0][:, :n_topics]
            shares += block[1][:n_topics]
            pairs += block[2][:n_topics, :n_topics]
            likelihood += block[3]
    n_documents = int(np.count_nonzero(np.diff(counts.indptr)))
    return StepSums(tokens, likelihood, float(counts.data.sum(dtype=np.float64)), n_documents, shares, pairs)


def _add_shares(weights: Single, shares: Floats, pairs: Floats) -> None:
    """Add the first two moments of Dirichlet distributions with the given parameters, documents x width."""
    given = weights.astype(np.float64)
    mass = given.sum(axis=1)
    shares += (1 / mass) @ given
    per_pair = 1 / (mass * (mass + 1))
    pairs += given.T @ (per_pair[:, None] * given)
    pairs[np.diag_indices_from(pairs)] += per_pair @ given


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


def log_lengths(counts: csr_array[Any]) -> tuple[float, int]:
    """Sum of log n over non-empty documents, and their number; additive."""
    lengths = counts.sum(axis=1)
    known = lengths[lengths > 0]
    return float(np.log(known).sum()), known.size


def longest_document(log_length: float, n_documents: int, n_topics: int) -> float:
    """Maximum number of tokens that a document counts for, from ``log_lengths``.

    With g, the geometric mean of document lengths (robust to outliers): max(10 g, .1 M g / K).
    """
    if not n_documents:
        return math.inf
    return math.exp(log_length / n_documents) * max(LONGEST, LARGEST_PART * n_documents / n_topics)


def blocks(indptr: Integers, n_words: int) -> list[slice]:
    """Consecutive documents with about equal nonzeros, by their row pointers.

    The number of blocks is a power of two up to ``MOST_BLOCKS``, which keeps all threads busy.
    """
    nonzeros = int(indptr[-1] - indptr[0])
    count = 1
    while 2 * count <= min(MOST_BLOCKS, nonzeros // (NONZEROS_PER_WORD * n_words)):
        count *= 2
    cuts = np.searchsorted(indptr, indptr[0] + nonzeros * np.arange(1, count) // count)
    ends = [0, *np.unique(cuts).tolist(), indptr.size - 1]
    return [slice(start, stop) for start, stop in pairwise(ends) if start < stop]


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
