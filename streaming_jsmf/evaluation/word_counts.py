"""Counts for metrics from one pass over a corpus: document frequencies of words and pairs, rows of C, a sketch of C.

The pass commits each partition in a working directory of its own; it is not a stage of a moments store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import DocumentWeights, ScanSettings
from streaming_jsmf.corpus.csr import iter_blocks
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, distinct, fold_partitions, list_units, plan_partitions
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.evaluation.inputs import SKETCH_LABEL, SKETCH_PROBES, sketch_probes
from streaming_jsmf.jobs.checkpoints import PartialResult, added, key_of
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.linalg.csr import apply_gram, diagonal_excess, document_weights, pair_scales, pair_totals
from streaming_jsmf.moments.memory import BYTES_PER_NONZERO_READ
from streaming_jsmf.storage.arrays import ArrayDigest, digest, read_arrays
from streaming_jsmf.storage.paths import StorePath

#: Increase when the same request gives different bits.
ALGORITHM_VERSION = 3


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

    Words that are not in the model are dropped first, then documents with fewer than two tokens, as in a scan with
    the model's vocabulary. ``scheme`` gives the document weights of C; ``probes`` is G, (N, s), float32.
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

    def append(self, block: csr_array[Any]) -> None:
        """Count the documents of a block (documents x words of the corpus, CSR), which is not modified."""
        known = over_vocabulary(block, self.selection.columns, self.selection.n_words)
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
class CountReduction:
    """The reduction of ``count_words``: sums of ``CooccurrenceAccumulator`` per partition, added in manifest order.

    Workers read the arrays of the ``WordSelection`` from ``store`` and verify ``digests``; ``hint`` ends messages
    about damage.
    """

    store: StorePath
    digests: Mapping[str, ArrayDigest]
    n_words: int
    scheme: DocumentWeights
    hint: str

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data, with one row group in memory at a time."""
        arrays = read_arrays(self.store, self.digests, hint=self.hint)
        selection = WordSelection(arrays["words"], arrays["row_words"], arrays["columns"], self.n_words)
        accumulator = CooccurrenceAccumulator(selection, self.scheme, sketch_probes(self.n_words))
        for block in iter_blocks(partition.units, selection.columns.size):
            accumulator.append(block)
        return accumulator.partial()

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add integers exactly, and the other arrays in float64."""
        return added(folded, partial)


@dataclass(frozen=True)
class CountRequest:
    """A request for counts: corpus and words.

    Only the document weights and the partition size of ``settings`` are used.
    """

    corpus: Corpus
    selection: WordSelection
    settings: ScanSettings

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that identify the counts of this request."""
        arrays = self.selection.arrays()
        return {
            "algorithm": ALGORITHM_VERSION,
            "corpus": self.corpus.fingerprint,
            "n_words": self.selection.n_words,
            "document_weights": self.settings.document_weights,
            "partition_budget": self.budget,
            "probes": {"width": SKETCH_PROBES, "seed": 0, "label": SKETCH_LABEL},
            "arrays": {name: digest(values).sha256 for name, values in arrays.items()},
        }

    @property
    def budget(self) -> int:
        return self.settings.partition_budget(self.corpus.nonzeros, self.corpus.n_words)


def count_words(
    request: CountRequest,
    work: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> PartialResult:
    """Count the selected words of a corpus, in one pass over the partitions not yet committed in ``work``.

    The same request gives the same bits on every scheduler and number of workers. The caller removes ``work`` once
    the counts are stored. Raises ``InputError`` if the corpus has a bad record (``work`` is then removed) or the
    memory budget is too small, and ``StoreError`` if a shard or ``work`` is damaged.

    Returns ``pairs`` (P, P) int64, documents with both words, or with the word on the diagonal; float64 ``rows`` (R, N)
    of C, ``sketch`` C G (N, s) and ``row_sum`` (N,), each times ``total_weight``; ``n_documents``, ``total_weight``.
    """
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    keys = [key_of(name) for name in distinct([partition.content for partition in partitions])]
    store = Workspace(work, "count of words", request.arguments)
    with store.executor(partial(count_memory, request, partitions), execution, listener) as executor:
        # Results of another request in this directory are replaced; they cannot be used here.
        digests = store.start(request.selection.arrays(), replace=True)
        n_words, weights = request.selection.n_words, request.settings.document_weights
        reduction = CountReduction(work, digests, n_words, weights, store.hint)
        checkpoints = store.checkpoints("counts")
        return fold_partitions(checkpoints, reduction, keys, partitions, store.request, executor)


def count_memory(request: CountRequest, partitions: tuple[Partition, ...], workers: int) -> int:
    """Projected peak memory in bytes: for each worker, a few row groups and two copies of its sums."""
    selection = request.selection
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    # Two copies of rows and sketch, plus the probes and a product of the sketch in float32.
    tall = (2 * 8 * (selection.row_words.size + SKETCH_PROBES) + 8 * SKETCH_PROBES) * selection.n_words
    sums = 3 * 8 * selection.words.size**2 + tall
    # Three times the row group: as read, and the entries chosen for pairs and for rows.
    each = 3 * row_group * BYTES_PER_NONZERO_READ + sums
    return PROCESS_BYTES + each * min(workers, len(partitions))
