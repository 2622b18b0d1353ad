"""Documents drawn from a law, batch by batch; every batch can be made alone, in any process.

A batch has its own counter-based generator, keyed by the seed and the number of the batch, so the documents do
not depend on how many there are, on the shards they go to, or on who makes them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import Documents
from streaming_jsmf.ingestion.simulation.law import BATCHES, Law, generator, topic_rows

BATCH_TOKENS = 1_000_000

#: Most cells of a guide table: 1 MiB a topic, so that it stays in a cache near the core.
MOST_CELLS = 2**18


@dataclass(frozen=True, eq=False)
class Sampler:
    """What batches are drawn with: made once in a process, read by all its threads. 8 N K bytes and a guide.

    Attributes
    ----------
    law
        The parameters.
    cumulative
        (K, N) float64; distribution functions of the topics, each ending with exactly 1.
    guide
        (K, G + 1) int32, G a power of two; a uniform in [g / G, (g + 1) / G) belongs to one of the words
        guide[k, g] to guide[k, g + 1]. Mostly these are the same word, which spares the search.
    """

    law: Law
    cumulative: NDArray[np.float64]
    guide: NDArray[np.int32]

    def words(self, topic: int, uniforms: NDArray[np.float64]) -> NDArray[np.int32]:
        """Word ids of a topic for uniforms in [0, 1), by the inverse of its distribution function."""
        guide = self.guide[topic]
        # Exact for a power of two, so that no uniform lands in its neighbour's cell.
        cell = (uniforms * (len(guide) - 1)).astype(np.int32)
        words: NDArray[np.int32] = guide[cell]
        several = np.flatnonzero(words != guide[1:][cell])
        words[several] = np.searchsorted(self.cumulative[topic], uniforms[several], side="right")
        return words


def make_sampler(law: Law) -> Sampler:
    """Draw the topics and tabulate them. Memory: 8 N K bytes, and ``guide_cells`` times 4 K."""
    cumulative = topic_rows(law)
    np.cumsum(cumulative, axis=1, out=cumulative)
    cumulative /= cumulative[:, -1:].copy()
    cells = guide_cells(law.n_words)
    edges = np.arange(cells) / cells
    guide = np.empty((law.n_topics, cells + 1), np.int32)
    for k, function in enumerate(cumulative):
        guide[k, :-1] = np.searchsorted(function, edges, side="right")
        # A uniform is below 1, so the last word with a probability is the last that can be drawn.
        guide[k, -1] = np.searchsorted(function, 1.0, side="left")
    return Sampler(law, cumulative, guide)


def guide_cells(n_words: int) -> int:
    """Cells of the guide of one topic, a power of two."""
    return int(min(max(1024, 2 ** (n_words - 1).bit_length()), MOST_CELLS))


def batch_documents(law: Law) -> int:
    """Documents of a batch: about a million tokens, or fewer with more topics than tokens in a document."""
    # Shares take K numbers a document: with many topics they, not the tokens, fill the memory.
    return max(1, int(BATCH_TOKENS // max(law.mean_length, law.n_topics)))


def n_batches(law: Law, n_documents: int) -> int:
    """Number of batches of a corpus of ``n_documents``."""
    return -(-n_documents // batch_documents(law))


def simulate_batch(sampler: Sampler, n_documents: int, number: int) -> Documents:
    """Batch ``number`` of a corpus, alone: the documents depend on the law and the number only.

    Lengths are Poisson, shares Dirichlet, tokens per topic multinomial, words by the inverse of the topics'
    distribution functions. ``document_id`` counts from 0 over the corpus.
    """
    law = sampler.law
    size = batch_documents(law)
    first = number * size
    random = generator(law.seed, BATCHES + number)
    # All documents of a full batch are drawn, so that those of the last one do not depend on n_documents.
    lengths = np.maximum(random.poisson(law.mean_length, size), 1)
    per_topic = random.multinomial(lengths, random.dirichlet(law.alpha, size))
    bits = (law.n_words - 1).bit_length()
    # One number for document and word, in the fewest bits: sorting is what counting costs.
    kind: Any = np.uint32 if bits + size.bit_length() <= 32 else np.uint64
    keys = np.empty(int(lengths.sum()), kind)
    document, start = np.arange(size, dtype=kind) << kind(bits), 0
    for k, tokens in enumerate(per_topic.T):
        stop = start + int(tokens.sum())
        words = sampler.words(k, random.random(stop - start))
        np.bitwise_or(np.repeat(document, tokens), words.astype(kind), out=keys[start:stop])
        start = stop
    count = min(size, n_documents - first)
    identity = pa.array(np.arange(first, first + size, dtype=np.int64))
    return _bags(keys, bits, size, identity).take(0, count)


def _bags(
    keys: NDArray[np.uint32] | NDArray[np.uint64], bits: int, size: int, identity: pa.Array
) -> Documents:
    """Count tokens, each an unsigned (document << bits) + word, into ``size`` bags. Sorts ``keys`` in place."""
    keys.sort()
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(begins, append=len(keys)).astype(np.int32)
    pairs = keys[begins]
    kind = keys.dtype.type
    ids = (pairs & kind(2**bits - 1)).astype(np.int32)
    lengths = np.bincount((pairs >> kind(bits)).astype(np.int64), minlength=size)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(indptr, ids, counts, identity, {})


#: The sampler that this process used last: tasks carry only the law, and its tables are made once.
_last: list[Sampler] = []
_lock = threading.Lock()


def process_sampler(law: Law) -> Sampler:
    """The sampler of a law, made once in this process and shared by its threads; one law is kept at a time."""
    with _lock:  # the other tasks wait for the tables rather than make them, too
        if not _last or _last[0].law != law:
            _last.clear()
            _last.append(make_sampler(law))
        return _last[0]


def forget_sampler() -> None:
    """Free the tables that ``process_sampler`` keeps in this process."""
    with _lock:
        _last.clear()
