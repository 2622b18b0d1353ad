"""Sums for metrics from one pass over a corpus: frequencies of words and pairs, rows of C, and completion.

Document completion tells how well topics predict the words of documents: topic shares estimated from one half of the
tokens predict the other half, which is drawn from the contents of the document alone. All sums are additive. The pass
commits each partition in a working directory of its own; it is not a stage of a moments store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import DocumentWeights, ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.hashes import hash_values
from streaming_jsmf.corpus.units import Partition, list_units
from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.jobs.checkpoints import PartialResult, SumReduction
from streaming_jsmf.linalg.csr import pair_scales, word_rows
from streaming_jsmf.linalg.typing import Integers
from streaming_jsmf.moments.partition import PartitionSums
from streaming_jsmf.storage.arrays import digest
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.document_job import (
    BYTES_PER_MATCHED_NONZERO,
    BYTES_PER_SHARE,
    DocumentJob,
    TaskInputs,
)
from streaming_jsmf.topics.parameters import TopicParameters

#: Increase when the same request gives different bits.
ALGORITHM_VERSION = 5
#: N x K float64 arrays per worker: topics as given, smoothed, and in the kernel's layout.
TALL_ARRAYS = 3


class CooccurrenceAccumulator:
    """Accumulates document counts of selected words, rows of C and its row sums over blocks of documents.

    Documents with fewer than two tokens do not count, as in a scan with the model's vocabulary. ``words`` (P,) and
    ``row_words`` (R,), whose rows of C are computed, are distinct ids in ascending order. ``scheme`` gives the document
    weights of C.
    """

    def __init__(self, words: Integers, row_words: Integers, scheme: DocumentWeights, n_words: int) -> None:
        self.words, self.row_words, self.scheme = words, row_words, scheme
        self.pairs = np.zeros((words.size, words.size), dtype=np.int64)
        self.rows = np.zeros((row_words.size, n_words))
        self.sums = PartitionSums(n_words)

    def append(self, counts: csr_array[Any]) -> None:
        """Count the documents of a block (documents x words of the model, CSR), which is not modified."""
        weights, scales = pair_scales(counts.indptr, counts.data, self.scheme)
        self.sums.append(counts, weights, scales)
        chosen = counts[np.flatnonzero(weights > 0)][:, self.words]
        present = _with_values(chosen, np.ones(chosen.nnz, dtype=np.int32))
        self.pairs += (present.T @ present).toarray()
        values = counts.data * np.repeat(np.sqrt(scales[1]), np.diff(counts.indptr))
        self.rows += word_rows(_with_values(counts, values), self.row_words)

    def finish(self) -> PartialResult:
        """The sums, before the division by ``total_weight``."""
        sums, own = self.sums.finish(), (np.arange(self.row_words.size), self.row_words)
        self.rows[own] -= sums.arrays["diagonal"][self.row_words]
        arrays = {"pairs": self.pairs, "rows": self.rows, "row_sum": sums.arrays["row_sum"]}
        return PartialResult(arrays, {name: sums.scalars[name] for name in ("n_documents", "total_weight")})


def _with_values(counts: csr_array[Any], values: NDArray[Any]) -> csr_array[Any]:
    """A CSR matrix with the same entries and other values."""
    return csr_array((values, counts.indices, counts.indptr), shape=counts.shape, copy=False)


@dataclass(frozen=True)
class CountReduction(SumReduction):
    """The sums of each partition; ``scheme`` gives the document weights.

    These are ``pairs`` (P, P) int64, documents with both words, or with the word on the diagonal; float64 ``rows``
    (R, N) of C and ``row_sum`` (N,), each times ``total_weight``; ``n_documents``, ``total_weight``; and the numbers
    of ``Completion``, which are 0 without topics.
    """

    inputs: TaskInputs
    scheme: DocumentWeights

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data, with one row group in memory at a time."""
        inputs, n_words = self.inputs, self.inputs.n_words
        words, row_words = inputs.read("words"), inputs.read("row_words")
        accumulator = CooccurrenceAccumulator(words, row_words, self.scheme, n_words)
        completer, completed = None, Completion()
        if "keys" in inputs.digests:
            word_topic, prior, term_count, keys = map(
                inputs.read, ("word_topic", "prior", "term_count", "keys")
            )
            completer = Completer.of(word_topic, prior, term_count, keys)
        for _, known, _ in inputs.blocks(partition):
            accumulator.append(known)
            if completer is not None:
                completed = completed.merge(completer.complete(known, threads=inputs.threads))
        sums = accumulator.finish()
        return PartialResult(sums.arrays, {**sums.scalars, **asdict(completed)})


def count_job(
    corpus: Corpus,
    words: Mapping[str, Integers],
    n_words: int,
    settings: ScanSettings,
    topics: TopicParameters | None,
    root: StorePath,
) -> DocumentJob:
    """The job that counts selected words of a corpus, and predicts half of the tokens of documents from the others.

    ``words`` has the ids in the model of the ``words`` to count (P,), of the ``row_words`` whose rows of C are computed
    (R,), and of the words of the corpus (``ids``). Only document weights and partition size of ``settings`` are used.
    """
    arrays: dict[str, NDArray[Any]] = {**words}
    # The rows, and those of a row group or of the result of another partition.
    tall = 2 * 8 * words["row_words"].size * n_words
    units = list_units(corpus)
    # Besides the row group as read: the entries chosen for pairs, and for rows.
    chosen = 2 * max(unit.nonzeros for unit in units) * BYTES_PER_MATCHED_NONZERO
    needed = chosen + 3 * 8 * words["words"].size ** 2 + tall
    if topics is not None:
        arrays |= {
            "word_topic": topics.word_topic,
            "prior": topics.prior,
            "term_count": topics.term_count,
            # Hash the words so that the halves of documents do not depend on word ids.
            "keys": hash_values(pa.array(topics.words))[:, 0].copy(),
        }
        needed += TALL_ARRAYS * topics.word_topic.nbytes
        needed += max(unit.rows for unit in units) * topics.prior.size * BYTES_PER_SHARE
    fields = {
        "algorithm": ALGORITHM_VERSION,
        "n_words": n_words,
        "document_weights": settings.document_weights,
        "arrays": {name: digest(values).sha256 for name, values in arrays.items()},
    }
    return DocumentJob(
        "count of documents",
        root,
        corpus,
        budget=settings.partition_budget(corpus.nonzeros, corpus.n_words),
        n_words=n_words,
        arrays=arrays,
        fields=fields,
        task_bytes=needed,
    )
