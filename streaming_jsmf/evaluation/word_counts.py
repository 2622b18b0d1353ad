"""Sums for metrics from one pass over a corpus: frequencies of words and pairs, rows and a sketch of C, and completion.

Document completion tells how well topics predict the words of documents: topic shares estimated from one half of the
tokens predict the other half, which is drawn from the contents of the document alone. All sums are additive. The pass
commits each partition in a working directory of its own; it is not a stage of a moments store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import DocumentWeights, ScanSettings
from streaming_jsmf.corpus.csr import iter_blocks
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, distinct, fold_partitions, list_units, plan_partitions
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.evaluation.inputs import SKETCH_LABEL, SKETCH_PROBES, sketch_probes
from streaming_jsmf.inference.perplexity import Completer, Completion
from streaming_jsmf.ingestion.repeats import hash_values
from streaming_jsmf.jobs.checkpoints import PartialResult, added, key_of
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.linalg.csr import apply_gram, diagonal_excess, document_weights, pair_scales, pair_totals
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.storage.arrays import ArrayDigest, digest, read_arrays
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.parameters import BYTES_PER_NONZERO_READ, BYTES_PER_SHARE, TopicParameters

#: Increase when the same request gives different bits.
ALGORITHM_VERSION = 4

#: Seed of the observed halves, fixed so that models are compared on the same halves.
HALVES_SEED = 0

#: N x K float64 arrays per worker: topics as given, smoothed, and in the kernel's layout.
TALL_ARRAYS = 3


@dataclass(frozen=True)
class WordSelection:
    """The words to count, by their ids in a model.

    Attributes
    ----------
    words : (P,) int64, sorted, distinct.
    row_words : (R,) int64, sorted, distinct: words whose exact rows of C are computed.
    columns : (words of the corpus,) int64: id in the model, or -1 for a word that is not in the model.
    n_words : Number of words of the model, N.
    """

    words: NDArray[np.int64]
    row_words: NDArray[np.int64]
    columns: NDArray[np.int64]
    n_words: int

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {"words": self.words, "row_words": self.row_words, "columns": self.columns}


class CooccurrenceAccumulator:
    """Accumulates document counts of selected words, rows of C, its row sums and C G over blocks of documents.

    Documents with fewer than two tokens do not count, as in a scan with the model's vocabulary. ``scheme`` gives the
    document weights of C; ``probes`` is G, (N, s), float32.
    """

    def __init__(
        self, selection: WordSelection, scheme: DocumentWeights, probes: NDArray[np.float32]
    ) -> None:
        self.selection, self.scheme, self.probes = selection, scheme, probes
        self._positions = _positions(selection.words, selection.n_words)
        self.pairs = np.zeros((selection.words.size, selection.words.size), dtype=np.int64)
        self._row_positions = _positions(selection.row_words, selection.n_words)
        self.rows = np.zeros((selection.row_words.size, selection.n_words))
        self.products = np.zeros(probes.shape)
        # Columns: C e, the diagonal correction.
        self.sums = np.zeros((selection.n_words, 2))
        self.n_documents, self.total_weight = 0, 0.0

    def append(self, known: csr_array[Any]) -> None:
        """Count the documents of a block (documents x words of the model, CSR), which is not modified."""
        counts = _with_values(known, known.data.astype(np.float64))
        lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
        weights = document_weights(lengths, self.scheme)
        kept = weights > 0
        self.n_documents += int(np.count_nonzero(kept))
        self.total_weight += float(weights.sum())
        self._append_pairs(counts, kept)
        mean, scale = pair_scales(lengths, pair_totals(counts.indptr, counts.data), weights)
        back = diagonal_excess(counts.data)
        # Counts that Eq. 1 subtracts from the diagonal: h, or its square for a count below 1.
        once = _with_values(counts, counts.data - back)
        self._append_rows(counts, once, scale)
        self._append_products(counts, scale)
        self.sums += np.stack([counts.T @ mean, once.T @ scale], axis=1)
        if back.any():
            self.sums[:, 0] += _with_values(counts, back).T @ scale

    def partial(self) -> PartialResult:
        """The sums, before the division by ``total_weight``."""
        scalars = {"n_documents": self.n_documents, "total_weight": self.total_weight}
        sketch = self.products - self.sums[:, 1:] * self.probes
        row_sum = np.ascontiguousarray(self.sums[:, 0])
        arrays = {"pairs": self.pairs, "rows": self.rows, "sketch": sketch, "row_sum": row_sum}
        return PartialResult(arrays, scalars)

    def _append_pairs(self, counts: csr_array[Any], kept: NDArray[np.bool_]) -> None:
        chosen = over_vocabulary(counts, self._positions, self.selection.words.size)[np.flatnonzero(kept)]
        present = _with_values(chosen, np.ones(chosen.nnz, dtype=np.int32))
        self.pairs += (present.T @ present).toarray()

    def _append_rows(self, counts: csr_array[Any], once: csr_array[Any], scale: NDArray[np.float64]) -> None:
        """Add rows of sum s (h h' - diag once): LR-JSMF Eq. 1 before the division by the weights."""
        held, single = (
            over_vocabulary(values, self._row_positions, self.rows.shape[0]) for values in (counts, once)
        )
        scales = np.repeat(scale, np.diff(held.indptr))
        product = csr_array(_with_values(held, held.data * scales).T @ counts)
        for row, (start, end) in enumerate(pairwise(product.indptr.tolist())):
            self.rows[row, product.indices[start:end]] += product.data[start:end]
        diagonal = np.asarray(_with_values(single, single.data * scales).sum(axis=0)).ravel()
        self.rows[np.arange(self.rows.shape[0]), self.selection.row_words] -= diagonal

    def _append_products(self, counts: csr_array[Any], scale: NDArray[np.float64]) -> None:
        """Add H'(H G); ``partial`` subtracts the diagonal of Eq. 1."""
        values = counts.data * np.repeat(np.sqrt(scale), np.diff(counts.indptr))
        self.products += apply_gram(_with_values(counts, values.astype(np.float32)), self.probes)


def _positions(ids: NDArray[np.int64], n_words: int) -> NDArray[np.int64]:
    positions = np.full(n_words, -1, dtype=np.int64)
    positions[ids] = np.arange(ids.size)
    return positions


def _with_values(counts: csr_array[Any], values: NDArray[Any]) -> csr_array[Any]:
    """A CSR matrix with the same entries and other values."""
    return csr_array((values, counts.indices, counts.indptr), shape=counts.shape, copy=False)


@dataclass(frozen=True)
class CountRequest:
    """A request for counts: corpus and words, and the topics with which documents are completed, if any.

    Only the document weights and the partition size of ``settings`` are used.
    """

    corpus: Corpus
    selection: WordSelection
    settings: ScanSettings
    topics: TopicParameters | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that identify the sums of this request."""
        return {
            "algorithm": ALGORITHM_VERSION,
            "corpus": self.corpus.fingerprint,
            "n_words": self.selection.n_words,
            "document_weights": self.settings.document_weights,
            "partition_budget": self.budget,
            "probes": {"width": SKETCH_PROBES, "seed": 0, "label": SKETCH_LABEL},
            "halves": HALVES_SEED,
            "arrays": {name: digest(values).sha256 for name, values in self.arrays().items()},
        }

    @property
    def budget(self) -> int:
        return self.settings.partition_budget(self.corpus.nonzeros, self.corpus.n_words)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that tasks read."""
        topics = self.topics
        if topics is None:
            return self.selection.arrays()
        return {
            **self.selection.arrays(),
            "word_topic": topics.word_topic,
            "prior": topics.prior,
            "term_count": topics.term_count,
            # Hash the words so that the halves of documents do not depend on word ids.
            "keys": hash_values(pa.array(topics.words))[:, 0].copy(),
        }

    def memory(self, partitions: Sequence[Partition], workers: int) -> int:
        """Projected peak memory in bytes: for each worker, a few row groups, two copies of its sums, and topics."""
        selection, units = self.selection, [unit for partition in partitions for unit in partition.units]
        # Two copies of rows and sketch, plus the probes and a product of the sketch in float32.
        tall = (2 * 8 * (selection.row_words.size + SKETCH_PROBES) + 8 * SKETCH_PROBES) * selection.n_words
        # Three times the row group: as read, and the entries chosen for pairs and for rows.
        each = 3 * max(unit.nonzeros for unit in units) * BYTES_PER_NONZERO_READ
        each += 3 * 8 * selection.words.size**2 + tall
        if self.topics is not None:
            each += TALL_ARRAYS * self.topics.word_topic.nbytes
            each += max(unit.rows for unit in units) * self.topics.prior.size * BYTES_PER_SHARE
        return PROCESS_BYTES + each * min(workers, len(partitions))


@dataclass(frozen=True)
class CountReduction:
    """The reduction of ``count_documents``: the sums of each partition, added in manifest order.

    Workers read the arrays of the request from ``store`` and verify ``digests``; ``hint`` ends messages about damage.
    """

    store: StorePath
    digests: Mapping[str, ArrayDigest]
    n_words: int
    scheme: DocumentWeights
    hint: str
    threads: int = 1

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data, with one row group in memory at a time."""
        arrays = read_arrays(self.store, self.digests, hint=self.hint)
        selection = WordSelection(arrays["words"], arrays["row_words"], arrays["columns"], self.n_words)
        accumulator = CooccurrenceAccumulator(selection, self.scheme, sketch_probes(self.n_words))
        completer, completed = None, Completion()
        if "keys" in arrays:
            completer = Completer.of(
                arrays["word_topic"], arrays["prior"], arrays["term_count"], arrays["keys"]
            )
        for block in iter_blocks(partition.units, selection.columns.size):
            known = over_vocabulary(block, selection.columns, self.n_words)
            accumulator.append(known)
            if completer is not None:
                completed = completed.merge(complete_whole(completer, known, self.threads))
        sums = accumulator.partial()
        return PartialResult(sums.arrays, {**sums.scalars, **asdict(completed)})

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add integers exactly, and other numbers in float64."""
        return added(folded, partial)


def complete_whole(completer: Completer, block: csr_array[Any], threads: int | None = None) -> Completion:
    """Complete the documents with integer counts in a block (documents x N), and count the others."""
    before = np.concatenate([[0], np.cumsum(block.data != np.rint(block.data))])
    fractional = before[block.indptr[1:]] > before[block.indptr[:-1]]
    whole = block[np.flatnonzero(~fractional)] if fractional.any() else block
    sums = completer.complete(whole, seed=HALVES_SEED, threads=threads)
    return replace(sums, fractional=int(np.count_nonzero(fractional)))


def count_documents(
    request: CountRequest,
    work: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> tuple[PartialResult, Completion | None]:
    """Count the selected words of a corpus, and predict half of the tokens of each document from the other half.

    Makes one pass over the partitions not yet committed in ``work``. The same request gives the same bits on every
    scheduler and number of workers. The caller removes ``work`` once the sums are stored. Words that the model lacks
    are ignored. Raises ``InputError`` if the corpus has a bad record (``work`` is then removed) or the memory budget is
    too small, and ``StoreError`` if a shard or ``work`` is damaged.

    Returns ``pairs`` (P, P) int64, documents with both words, or with the word on the diagonal; float64 ``rows`` (R, N)
    of C, ``sketch`` C G (N, s) and ``row_sum`` (N,), each times ``total_weight``; ``n_documents``, ``total_weight``;
    and the completion, None without topics.
    """
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    keys = [key_of(name) for name in distinct([partition.content for partition in partitions])]
    store = Workspace(work, "count of documents", request.arguments)
    with store.executor(partial(request.memory, partitions), execution, listener) as executor:
        # Results of another request in this directory are replaced; they cannot be used here.
        digests = store.start(request.arrays(), replace=True)
        n_words, weights = request.selection.n_words, request.settings.document_weights
        threads = max(1, executor.tasks_at_once // len(partitions))
        reduction = CountReduction(work, digests, n_words, weights, store.hint, threads)
        checkpoints = store.checkpoints("counts")
        sums = fold_partitions(checkpoints, reduction, keys, partitions, store.request, executor)
    completed = {field.name: sums.scalars[field.name] for field in fields(Completion)}
    return sums, None if request.topics is None else Completion(**completed)  # type: ignore[arg-type]
