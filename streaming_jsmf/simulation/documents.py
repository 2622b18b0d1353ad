"""Draw documents in batches, each of which any process can draw independently.

Each batch has its own counter-based generator, keyed by the seed and the batch number, so the documents do not depend
on the size of the corpus, on the shards, or on the process.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.config import SimulationSettings
from streaming_jsmf.corpus.records import Documents
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.simulation.truth import BATCHES, topic_rows

BATCH_TOKENS = 1_000_000

#: Maximum guide cells: 1 MiB per topic, which fits into the cache of a core.
MOST_CELLS = 2**18


@dataclass(frozen=True, eq=False)
class Sampler:
    """Tables for drawing batches, shared by the threads of a process. Memory: 8 N K bytes, and the guide.

    Attributes
    ----------
    cumulative : (K, N) float64; cumulative distribution of each topic, ending with exactly 1.
    guide : (K, G + 1) int32, G a power of two; a uniform in [g / G, (g + 1) / G) selects a word from guide[k, g] to
        guide[k, g + 1]. These are usually the same word, which avoids the search.
    """

    settings: SimulationSettings
    cumulative: NDArray[np.float64]
    guide: NDArray[np.int32]

    def words(self, topic: int, uniforms: NDArray[np.float64]) -> NDArray[np.int32]:
        """Return the word ids of a topic for uniforms in [0, 1), by inverting its cumulative distribution."""
        guide = self.guide[topic]
        # Exact because G is a power of two, so no uniform falls into an adjacent cell.
        cell = (uniforms * (len(guide) - 1)).astype(np.int32)
        words: NDArray[np.int32] = guide[cell]
        several = np.flatnonzero(words != guide[1:][cell])
        words[several] = np.searchsorted(self.cumulative[topic], uniforms[several], side="right")
        return words


def make_sampler(settings: SimulationSettings) -> Sampler:
    """Draw the topics and build the tables. Memory: 8 N K bytes, and 4 K ``guide_cells`` bytes."""
    cumulative = topic_rows(settings)
    np.cumsum(cumulative, axis=1, out=cumulative)
    cumulative /= cumulative[:, -1:].copy()
    cells = guide_cells(settings.n_words)
    edges = np.arange(cells) / cells
    guide = np.empty((settings.n_topics, cells + 1), np.int32)
    for k, function in enumerate(cumulative):
        guide[k, :-1] = np.searchsorted(function, edges, side="right")
        # Uniforms are below 1, so the last word with positive probability is the last that can be drawn.
        guide[k, -1] = np.searchsorted(function, 1.0, side="left")
    return Sampler(settings, cumulative, guide)


def guide_cells(n_words: int) -> int:
    """Number of guide cells per topic, a power of two."""
    return int(min(max(1024, 2 ** (n_words - 1).bit_length()), MOST_CELLS))


def batch_documents(settings: SimulationSettings) -> int:
    """Documents per batch: about a million tokens, or fewer if there are more topics than tokens in a document."""
    # Topic shares take K numbers per document and dominate the memory if there are many topics.
    return max(1, int(BATCH_TOKENS // max(settings.mean_length, settings.n_topics)))


def simulate_batch(sampler: Sampler, n_documents: int, number: int) -> Documents:
    """Draw one batch of a corpus; its documents depend only on the settings and the batch number.

    Lengths are Poisson, topic shares Dirichlet, and tokens per topic multinomial; words are drawn by inverting the
    cumulative distributions of the topics. ``document_id`` counts from 0 over the corpus.
    """
    settings = sampler.settings
    size = batch_documents(settings)
    first = number * size
    random = keyed_generator(settings.seed, BATCHES + number)
    # Always draw a full batch, so that the documents of the last batch do not depend on n_documents.
    lengths = np.maximum(random.poisson(settings.mean_length, size), 1)
    per_topic = random.multinomial(lengths, random.dirichlet(settings.prior, size))
    bits = (settings.n_words - 1).bit_length()
    # Pack document and word into one small integer: sorting dominates the cost of counting.
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
    """Count tokens, encoded as unsigned (document << bits) + word, into ``size`` bags. Sorts ``keys`` in place."""
    keys.sort()
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    counts = np.diff(begins, append=len(keys)).astype(np.int32)
    pairs = keys[begins]
    kind = keys.dtype.type
    ids = (pairs & kind(2**bits - 1)).astype(np.int32)
    lengths = np.bincount((pairs >> kind(bits)).astype(np.int64), minlength=size)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(indptr, ids, counts, identity, {})


#: The sampler last used in this process: tasks carry only the settings, and the tables are built once.
_last: list[Sampler] = []
_lock = threading.Lock()


def process_sampler(settings: SimulationSettings) -> Sampler:
    """Return the sampler, cached per process and shared by its threads; keeps one at a time."""
    with _lock:  # other tasks wait for the tables instead of building them again
        if not _last or _last[0].settings != settings:
            _last.clear()
            _last.append(make_sampler(settings))
        return _last[0]


def forget_sampler() -> None:
    """Free the tables cached by ``process_sampler``."""
    with _lock:
        _last.clear()
