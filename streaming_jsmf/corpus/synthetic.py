"""Corpora drawn from latent Dirichlet allocation, with topics that are known.

Every batch of documents has its own counter-based generator, keyed by the seed and the number of the batch,
so any batch can be made alone and the corpus does not depend on how it is cut into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.documents import Documents
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.corpus.storage import AnyPath
from streaming_jsmf.corpus.write import CorpusWriter
from streaming_jsmf.errors import InputError

BATCH_TOKENS = 1_000_000
DIRICHLET_MASS = 200.0  # sum of the topics' Dirichlet parameters where beta is not given
ANCHOR_PROBABILITY = 0.01

# Streams of random numbers under one seed: topics and batches never share one.
_TOPICS, _ANCHORS, _BATCHES = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Truth:
    """What a simulated corpus was drawn from.

    Attributes
    ----------
    word_topic
        (N, K) float64; p(word given topic), columns sum to 1.
    alpha
        (K,) float64; Dirichlet prior of the topic shares of a document.
    anchors
        (K,) int64; of a separable truth, the word that only topic k uses; else None.
    seed
        As given.
    mean_length
        Mean of the Poisson law of document lengths (a length of 0 is made 1).
    """

    word_topic: NDArray[np.float64]
    alpha: NDArray[np.float64]
    anchors: NDArray[np.int64] | None
    seed: int
    mean_length: float

    @property
    def topic_topic(self) -> NDArray[np.float64]:
        """K x K; E[theta theta'] of the Dirichlet prior, entries sum to 1."""
        total = self.alpha.sum()
        moment: NDArray[np.float64] = np.outer(self.alpha, self.alpha) + np.diag(self.alpha)
        moment /= total * (total + 1)
        return moment


def simulate_truth(
    *,
    n_words: int,
    n_topics: int,
    mean_length: float = 100,
    alpha: float | Sequence[float] | None = None,
    beta: float | None = None,
    separable: bool = False,
    zipf: float | None = None,
    seed: int,
) -> Truth:
    """The topics that ``simulate_lda`` draws from, for the same arguments.

    Memory: 8 N K bytes, twice for a moment.

    Parameters
    ----------
    n_words, n_topics
        N and K.
    mean_length
        Mean of the Poisson law of document lengths.
    alpha
        Dirichlet prior of the topic shares: one number for all topics, or K of them; default 1/K.
    beta
        Mean parameter of the Dirichlet law that the topics are drawn from; default 200/N.
    separable
        Sets K drawn words to probability 0 but for 0.01 in one topic each.
    zipf
        With ``zipf`` = s the parameters fall as 1 / rank^s with the same sum, so that word frequencies have
        the tail of real text at large N (id = rank).
    seed
        Of all draws.

    Raises
    ------
    InputError
        For sizes and parameters out of range.
    """
    prior = _prior(n_topics, alpha)
    _check_sizes(n_words, n_topics, mean_length, beta, zipf, seed, separable)
    weight = np.ones(n_words) if zipf is None else np.arange(1, n_words + 1, dtype=np.float64) ** -zipf
    mass = DIRICHLET_MASS if beta is None else beta * n_words
    parameter = weight * (mass / weight.sum())
    by_topic = _generator(seed, _TOPICS).standard_gamma(parameter, size=(n_topics, n_words))
    # With a tiny beta all gammas of a topic can round to 0; the smallest float keeps it a distribution.
    by_topic += np.finfo(np.float64).tiny
    anchors = None
    if separable:
        anchors = np.sort(_generator(seed, _ANCHORS).choice(n_words, size=n_topics, replace=False))
        by_topic[:, anchors] = 0
    by_topic /= by_topic.sum(axis=1, keepdims=True)
    if anchors is not None:
        by_topic *= 1 - ANCHOR_PROBABILITY
        by_topic[np.arange(n_topics), anchors] = ANCHOR_PROBABILITY
    return Truth(np.ascontiguousarray(by_topic.T), prior, anchors, seed, float(mean_length))


def simulate_lda(
    target: AnyPath,
    *,
    n_documents: int,
    n_words: int,
    n_topics: int,
    mean_length: float = 100,
    alpha: float | Sequence[float] | None = None,
    beta: float | None = None,
    separable: bool = False,
    zipf: float | None = None,
    seed: int,
    documents_per_shard: int | None = None,
) -> Corpus:
    """Draw a corpus and write it at ``target`` (local, must not exist); the same bytes for the same arguments.

    Words are named w0, w1, ... with leading zeros; words that no document uses stay in the vocabulary, so
    that word ids are rows of the truth. ``document_id`` counts from 0. The arguments are those of
    ``simulate_truth``.

    Memory: 16 N K bytes for the topics and one batch of about a million tokens.

    Raises
    ------
    InputError
        For sizes and parameters out of range and for a target that exists.
    """
    if n_documents < 1 or (documents_per_shard is not None and documents_per_shard < 1):
        raise InputError("n_documents and documents_per_shard must be at least 1")
    truth = simulate_truth(
        n_words=n_words,
        n_topics=n_topics,
        mean_length=mean_length,
        alpha=alpha,
        beta=beta,
        separable=separable,
        zipf=zipf,
        seed=seed,
    )
    width = len(str(n_words - 1))
    words = [f"w{i:0{width}d}" for i in range(n_words)]
    cumulative = cumulative_words(truth)
    with CorpusWriter(
        target, words, documents_per_shard=documents_per_shard, tokens_per_shard=TOKENS_PER_SHARD
    ) as writer:
        for number in range(n_batches(truth, n_documents)):
            writer.write(simulate_batch(truth, cumulative, n_documents, number))
        return writer.commit(settings=_settings(truth, beta, separable, zipf))


def n_batches(truth: Truth, n_documents: int) -> int:
    """Number of batches of a corpus of ``n_documents``."""
    return -(-n_documents // _batch_documents(truth))


def cumulative_words(truth: Truth) -> NDArray[np.float64]:
    """Distribution functions of the topics, K x N, each ending with exactly 1."""
    cumulative = np.cumsum(truth.word_topic.T, axis=1)
    cumulative /= cumulative[:, -1:]
    return cumulative


def simulate_batch(truth: Truth, cumulative: NDArray[np.float64], n_documents: int, number: int) -> Documents:
    """Batch ``number`` of a corpus, alone: the documents depend on truth, seed and number only.

    Lengths are Poisson, shares Dirichlet, tokens per topic multinomial, words by the inverse of ``cumulative``.
    """
    size = _batch_documents(truth)
    first = number * size
    count = min(size, n_documents - first)
    random = _generator(truth.seed, _BATCHES + number)
    # All documents of a full batch are drawn, so that those of the last one do not depend on n_documents.
    lengths = np.maximum(random.poisson(truth.mean_length, size), 1)
    shares = random.dirichlet(truth.alpha, size)
    per_topic = random.multinomial(lengths, shares)
    n_words = truth.word_topic.shape[0]
    keys = []
    for k, tokens in enumerate(per_topic.T):
        words = np.searchsorted(cumulative[k], random.random(int(tokens.sum())), side="right")
        keys.append(np.repeat(np.arange(size), tokens) * n_words + words)
    pairs, counts = np.unique(np.concatenate(keys), return_counts=True)
    rows = pairs // n_words
    indptr = np.searchsorted(rows, np.arange(size + 1))
    ids = (pairs - rows * n_words).astype(np.int32)
    identity = pa.array(np.arange(first, first + size, dtype=np.int64))
    return Documents(indptr, ids, counts.astype(np.int32), identity, {}).take(0, count)


def _settings(truth: Truth, beta: float | None, separable: bool, zipf: float | None) -> dict[str, Json]:
    """The arguments that make the truth again, for the manifest."""
    return {
        "simulated": "lda",
        "n_topics": len(truth.alpha),
        "mean_length": truth.mean_length,
        "alpha": " ".join(repr(float(value)) for value in truth.alpha),
        "beta": beta,
        "separable": separable,
        "zipf": zipf,
        "seed": truth.seed,
    }


def _batch_documents(truth: Truth) -> int:
    # Shares take K numbers a document: with many topics they, not the tokens, fill the memory.
    return max(1, int(BATCH_TOKENS // max(truth.mean_length, len(truth.alpha))))


def _generator(seed: int, stream: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=np.array([seed, stream], np.uint64)))


def _prior(n_topics: int, alpha: float | Sequence[float] | None) -> NDArray[np.float64]:
    if n_topics < 1:
        raise InputError(f"n_topics is {n_topics}; it must be at least 1")
    given = np.asarray(1.0 / n_topics if alpha is None else alpha, dtype=np.float64)
    if given.ndim > 1 or given.size not in (1, n_topics):
        raise InputError(
            f"alpha has {given.size} values; give one number or one for each of {n_topics} topics"
        )
    prior = np.broadcast_to(given, (n_topics,)).copy()
    if not (np.isfinite(prior) & (prior > 0)).all():
        raise InputError("alpha must be positive and finite")
    return prior


def _check_sizes(
    n_words: int,
    n_topics: int,
    mean_length: float,
    beta: float | None,
    zipf: float | None,
    seed: int,
    separable: bool,
) -> None:
    checks = {
        f"n_words is {n_words}; it must be at least 1, and above n_topics when separable": n_words
        > (n_topics if separable else 0),
        f"mean_length is {mean_length}; it must be positive and at most a million": 0
        < mean_length
        <= BATCH_TOKENS,
        f"beta is {beta}; it must be positive": beta is None or beta > 0,
        f"zipf is {zipf}; it must not be negative": zipf is None or zipf >= 0,
        f"seed is {seed}; it must be in 0..2^64-1": 0 <= seed < 2**64,
    }
    for message, holds in checks.items():
        if not holds:
            raise InputError(message)
