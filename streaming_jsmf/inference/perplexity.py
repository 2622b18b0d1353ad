"""Perplexity of document completion: one half of each document's tokens is predicted from the other half.

Topics are smoothed with the unigram distribution p of the training corpus (``cvb0.smoothed``), B~ = (1 - s) B + s p, so
that all of its words have positive probability. The observed half determines the shares theta; the other half scores
sum log (B~ theta)_w. Perplexity is exp(- score / tokens). The perplexity of p alone is reported for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.inference.cvb0 import document_topics, smoothed
from streaming_jsmf.inference.draws import INCREMENT, Keys, mixed
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.typing import Floats, Integers, Mask

#: Seed of the observed halves, fixed so that models are compared on the same halves.
HALVES_SEED = 0


@dataclass(frozen=True)
class Completer:
    """A model for document completion.

    ``topics`` are B~, (N, K), columns sum to 1; ``prior`` is alpha, (K,); ``unigram`` is p, (N,), sum 1; ``has_mass``
    (N,) tells whether a word has a topic before smoothing. ``keys`` (N,) determine the random split of words; hashes of
    the words make it independent of their ids.
    """

    topics: Floats
    prior: Floats
    unigram: Floats
    has_mass: Mask
    keys: Keys

    @classmethod
    def of(
        cls,
        word_topic: Floats,
        prior: Floats,
        word_count: Floats,
        keys: Keys | None = None,
    ) -> Self:
        """Smooth B (N, K) with the frequencies of the words in the training corpus, by their counts (N,)."""
        unigram = word_count / word_count.sum()
        numbered = np.arange(len(word_topic), dtype=np.uint64) if keys is None else keys
        return cls(smoothed(word_topic, word_count), prior, unigram, word_topic.max(axis=1) > 0, numbered)

    def complete(
        self, counts: csr_array[Any], *, seed: int = HALVES_SEED, threads: int | None = None
    ) -> Completion:
        """Score one half of the tokens of each document, given the other half; one pass over ``counts``.

        ``counts`` is documents x N, not negative; documents with counts that are not integers are only counted.
        ``seed`` determines the split (``observed_half``); ``threads`` as in ``document_topics``.
        """
        before = np.concatenate([[0], np.cumsum(counts.data != np.rint(counts.data))])
        fractional = before[counts.indptr[1:]] > before[counts.indptr[:-1]]
        if fractional.any():
            counts = counts[np.flatnonzero(~fractional)]
        halves = observed_half(counts, self.keys, seed)
        starts, words = halves.indptr, halves.indices
        lengths = counts.sum(axis=1)
        found = document_topics(halves, self.topics, self.prior, threads=threads)
        usable = lengths >= 2
        wanted = np.where(np.repeat(usable, np.diff(starts)), counts.data - halves.data, 0.0)
        unseen = self.unigram[words] == 0
        scored = np.where(unseen, 0.0, wanted)
        ours, alone = _score(starts, words, scored, self.topics, found.shares, self.unigram)
        has_scored = csr_array((scored, words, starts), shape=counts.shape).sum(axis=1) > 0
        return Completion(
            documents=int(has_scored.sum()),
            too_short=int((~usable).sum()),
            tokens=int(scored.sum()),
            unseen=int(wanted[unseen].sum()),
            without_mass=int(scored[~self.has_mass[words]].sum()),
            log_likelihood=float(ours.sum()),
            unigram_log_likelihood=float(alone.sum()),
            unconverged=int((usable & ~(found.remaining <= found.tolerance)).sum()),
            fractional=int(np.count_nonzero(fractional)),
        )


def observed_half(counts: csr_array[Any], keys: Keys, seed: int) -> csr_array[np.float64]:
    """Counts of the observed tokens: a random half of each document, rounded down.

    The split depends only on the seed, the ``keys`` (N,) of the document's words and its counts, not on the order of
    documents or words. ``counts`` are integers, not negative; observed ones are hypergeometric. Zeros are stored, so
    that the sparsity pattern is that of ``counts``.
    """
    starts, words = np.array(counts.indptr, np.int64), np.array(counts.indices, np.int64)
    observed = np.zeros(words.size)
    _draw_half(starts, keys[words], counts.data.astype(np.int64), np.uint64(seed), observed)
    return csr_array((observed, words, starts), shape=counts.shape)


@compiled(nogil=True, internal=True)
def _hashed(bits: np.uint64) -> np.uint64:
    """A random number for 64 bits: the next one of SplitMix64 with this state."""
    number: np.uint64 = mixed(bits + INCREMENT)
    return number


@compiled(nogil=True, internal=True)
def _half(drawn: Keys) -> np.uint64:
    """Largest of the lower half of distinct numbers, bit by bit; a sort would take more than a second to compile."""
    last = np.uint64(0)
    for place in range(63, -1, -1):
        bit = np.uint64(1) << np.uint64(place)
        least = last | bit
        below = 0
        for i in range(drawn.size):
            below += drawn[i] < least
        if below < drawn.size // 2:
            last = least
    return last


@compiled(nogil=True)
def _draw_half(starts: Integers, keys: Keys, counts: Integers, seed: np.uint64, observed: Floats) -> None:
    """Draw a number per token from seed, document content, word and occurrence; the lower half is observed."""
    for document in range(starts.size - 1):
        content, length = np.uint64(0), 0
        for place in range(starts[document], starts[document + 1]):
            if counts[place] > 0:
                length += counts[place]
                content += _hashed(_hashed(keys[place]) ^ np.uint64(counts[place]))
        if length < 2:
            continue
        stream = _hashed(_hashed(content) ^ _hashed(seed))
        drawn, token = np.empty(length, np.uint64), 0
        for place in range(starts[document], starts[document + 1]):
            of_word = _hashed(stream ^ keys[place])
            for number in range(counts[place]):
                drawn[token] = _hashed(of_word + np.uint64(number))
                token += 1
        last, token = _half(drawn), 0
        for place in range(starts[document], starts[document + 1]):
            for _ in range(counts[place]):
                observed[place] += drawn[token] <= last
                token += 1


@compiled(nogil=True)
def _score(
    starts: Integers, words: Integers, scored: Floats, topics: Floats, shares: Floats, unigram: Floats
) -> tuple[Floats, Floats]:
    """Log-likelihood of each document's scored tokens, under the topics and under the unigram distribution."""
    ours, alone = np.zeros(starts.size - 1), np.zeros(starts.size - 1)
    for document in range(starts.size - 1):
        for place in range(starts[document], starts[document + 1]):
            if scored[place] > 0.0:
                word, expected = words[place], 0.0
                for k in range(shares.shape[1]):
                    expected += topics[word, k] * shares[document, k]
                ours[document] += scored[place] * np.log(expected)
                alone[document] += scored[place] * np.log(unigram[word])
    return ours, alone
