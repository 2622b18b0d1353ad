"""Counts for metrics, by one pass over a corpus: documents with selected words, rows of C, and a sketch of C.

The pass commits partition by partition in a directory of its own; it is not a stage of a moments store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
from streaming_jsmf.jobs.checkpoints import PartialResult, added, key_of
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.linalg.csr import diagonal_excess, document_weights, pair_scales, pair_totals
from streaming_jsmf.linalg.factor import apply_gram
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.moments.memory import BYTES_PER_NONZERO_READ
from streaming_jsmf.storage.arrays import ArrayDigest, digest, read_arrays
from streaming_jsmf.storage.paths import StorePath

#: Changes when the same request would give other bits.
ALGORITHM_VERSION = 3


@dataclass(frozen=True)
class WordSelection:
    """Which words are counted, by their ids in a model.

    Attributes
    ----------
    words
        (P,) int64, sorted, distinct.
    row_words
        (R,) int64, sorted, distinct: words whose exact rows of C are gathered.
    columns
        (words of the corpus,) int64: id in the model, -1 for a word that it lacks.
    n_words
        N, words of the model.
    """

    words: NDArray[np.int64]
    row_words: NDArray[np.int64]
    columns: NDArray[np.int64]
    n_words: int

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that tasks read, by name."""
        return {"words": self.words, "row_words": self.row_words, "columns": self.columns}


@dataclass(frozen=True)
class SketchProbes:
    """Standard normal probes G of the sketch C G, drawn where they are needed (``linalg.probes.gaussian_probes``)."""

    width: int
    seed: int
    label: str

    def draw(self, n_words: int) -> NDArray[np.float32]:
        """G, (n_words, width)."""
        return gaussian_probes(n_words, self.width, self.seed, self.label)


class CooccurrenceAccumulator:
    """Adds up counts of selected words, rows of C, its row sums and C G over blocks of documents.

    Words that the model lacks are dropped first, then documents below two tokens: what is left is what the model's
    own scan would have taken of the corpus.

    Parameters
    ----------
    selection
        Words to count.
    scheme
        Document weights of C.
    probes
        G, (N, s), float32.
    """

    def __init__(
        self, selection: WordSelection, scheme: DocumentWeights, probes: NDArray[np.float32]
    ) -> None:
        self.selection, self.scheme, self.probes = selection, scheme, probes
        self._all_known = bool((selection.columns >= 0).all())
        self._positions = _positions(selection.words, selection.n_words)
        self.pairs = np.zeros((selection.words.size, selection.words.size), dtype=np.int64)
        self._row_positions = _positions(selection.row_words, selection.n_words)
        self.rows = np.zeros((selection.row_words.size, selection.n_words))
        self.products = np.zeros(probes.shape)
        # Columns: C e, the diagonal correction.
        self.sums = np.zeros((selection.n_words, 2))
        self.n_documents, self.total_weight = 0, 0.0

    def append(self, block: csr_array[Any]) -> None:
        """Count the documents of a block (documents x words of the corpus, CSR); the block stays as it is."""
        counts = self._known_words(block)
        lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
        weights = document_weights(lengths, self.scheme)
        kept = weights > 0
        self.n_documents += int(np.count_nonzero(kept))
        self.total_weight += float(weights.sum())
        self._append_pairs(counts, kept)
        mean, scale = pair_scales(lengths, pair_totals(counts.indptr, counts.data), weights)
        back = diagonal_excess(counts.data)
        # Of each document, what it has on its diagonal once: all, or of a count below 1 the square.
        once = csr_array((counts.data - back, counts.indices, counts.indptr), shape=counts.shape)
        self._append_rows(counts, once, scale)
        self._append_products(counts, scale)
        self.sums += np.stack([counts.T @ mean, once.T @ scale], axis=1)
        if back.any():
            self.sums[:, 0] += csr_array((back, counts.indices, counts.indptr), shape=counts.shape).T @ scale

    def partial(self) -> PartialResult:
        """The sums, without the division by ``total_weight``."""
        scalars = {"n_documents": self.n_documents, "total_weight": self.total_weight}
        sketch = self.products - self.sums[:, 1:] * self.probes
        row_sum = np.ascontiguousarray(self.sums[:, 0])
        arrays = {"pairs": self.pairs, "rows": self.rows, "sketch": sketch, "row_sum": row_sum}
        return PartialResult(arrays, scalars)

    def _known_words(self, block: csr_array[Any]) -> csr_array[Any]:
        """The block in float64 over the words of the model."""
        words = self.selection.columns[block.indices]
        shape = (block.shape[0], self.selection.n_words)
        whole = csr_array((block.data.astype(np.float64), words, block.indptr), shape=shape)
        return whole if self._all_known else _entries(whole, words >= 0, words, shape[1])

    def _append_pairs(self, counts: csr_array[Any], kept: NDArray[np.bool_]) -> None:
        positions = self._positions[counts.indices]
        chosen = (positions >= 0) & np.repeat(kept, np.diff(counts.indptr))
        present = _entries(counts, chosen, positions, self.selection.words.size)
        present.data = np.ones(present.nnz, dtype=np.int32)
        self.pairs += (present.T @ present).toarray()

    def _append_rows(self, counts: csr_array[Any], once: csr_array[Any], scale: NDArray[np.float64]) -> None:
        """Add rows of sum s (h h' - diag once): LR-JSMF Eq. 1 before the division by the weights."""
        positions = self._row_positions[counts.indices]
        held, single = (
            _entries(values, positions >= 0, positions, self.rows.shape[0]) for values in (counts, once)
        )
        for values in (held, single):
            values.data *= np.repeat(scale, np.diff(held.indptr))
        product = csr_array(held.T @ counts)
        for row, (start, end) in enumerate(pairwise(product.indptr.tolist())):
            self.rows[row, product.indices[start:end]] += product.data[start:end]
        diagonal = np.asarray(single.sum(axis=0)).ravel()
        self.rows[np.arange(self.rows.shape[0]), self.selection.row_words] -= diagonal

    def _append_products(self, counts: csr_array[Any], scale: NDArray[np.float64]) -> None:
        """Add H'(H G); the diagonal of Eq. 1 is taken off at the end."""
        values = counts.data * np.repeat(np.sqrt(scale), np.diff(counts.indptr))
        parts = (values.astype(np.float32), counts.indices, counts.indptr)
        self.products += apply_gram(csr_array(parts, shape=counts.shape, copy=False), self.probes)


def _positions(ids: NDArray[np.int64], n_words: int) -> NDArray[np.int64]:
    """Where each of the N words is among ``ids``; -1 where it is not."""
    positions = np.full(n_words, -1, dtype=np.int64)
    positions[ids] = np.arange(ids.size)
    return positions


def _entries(
    counts: csr_array[Any], chosen: NDArray[np.bool_], columns: NDArray[np.int64], width: int
) -> csr_array[Any]:
    """The chosen entries of a CSR matrix in new columns."""
    before = np.concatenate([[0], np.cumsum(chosen)])
    parts = (counts.data[chosen], columns[chosen], before[counts.indptr])
    return csr_array(parts, shape=(counts.shape[0], width))


@dataclass(frozen=True)
class CountReduction:
    """One pass: what ``CooccurrenceAccumulator`` gathers of each partition, added in manifest order.

    Parameters
    ----------
    store
        Where each worker reads the selection, see ``WordSelection.arrays``.
    digests
        That these arrays must have.
    n_words
        N, words of the model.
    scheme
        Document weights of C.
    probes
        Of the sketch.
    hint
        The end of a message about damage.
    """

    store: StorePath
    digests: Mapping[str, ArrayDigest]
    n_words: int
    scheme: DocumentWeights
    probes: SketchProbes
    hint: str
    name: str = "counts"

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data, a row group in memory at a time."""
        arrays = read_arrays(self.store, self.digests, hint=self.hint)
        selection = WordSelection(arrays["words"], arrays["row_words"], arrays["columns"], self.n_words)
        accumulator = CooccurrenceAccumulator(selection, self.scheme, self.probes.draw(self.n_words))
        for block in iter_blocks(partition.units, selection.columns.size):
            accumulator.append(block)
        return accumulator.partial()

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add: whole numbers exactly, the others in float64."""
        return added(folded, partial)


@dataclass(frozen=True)
class CountRequest:
    """A scan for counts: of which corpus, of which words, with which probes.

    ``settings`` are those of a scan, of which document weights and size of partitions are taken, and nothing else.
    """

    corpus: Corpus
    selection: WordSelection
    probes: SketchProbes
    settings: ScanSettings

    @property
    def arguments(self) -> dict[str, Any]:
        """What tells it from any request with other counts: JSON values."""
        arrays = self.selection.arrays()
        return {
            "algorithm": ALGORITHM_VERSION,
            "corpus": self.corpus.fingerprint,
            "n_words": self.selection.n_words,
            "document_weights": self.settings.document_weights,
            "partition_budget": self.budget,
            "probes": asdict(self.probes),
            "arrays": {name: digest(values).sha256 for name, values in arrays.items()},
        }

    @property
    def budget(self) -> int:
        """Nonzeros of a partition."""
        return self.settings.partition_budget(self.corpus.nonzeros, self.corpus.n_words)


def count_words(
    request: CountRequest,
    work: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> PartialResult:
    """Count the selected words of a corpus: one pass over what an interrupted run has not committed in ``work``.

    The same request gives the same bits on every scheduler and number of workers. ``work`` stays; it is the
    caller's to remove once the counts are kept elsewhere.

    Returns
    -------
    PartialResult
        ``pairs`` (P, P) int64, documents with both words, on the diagonal with the one; float64 ``rows`` (R, N) of C,
        ``sketch`` (N, s), C G, and ``row_sum`` (N,), each times ``total_weight``; scalars ``n_documents``,
        ``total_weight``.

    Raises
    ------
    InputError
        If the corpus holds a bad record, in which case ``work`` is removed, or the memory budget is too small.
    StoreError
        If a shard or ``work`` is damaged.
    """
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    keys = [key_of(name) for name in distinct([partition.content for partition in partitions])]
    store = Workspace(work, "count of words", request.arguments)
    with store.executor(partial(count_memory, request, partitions), execution, listener) as executor:
        # What another request has left here is of no use: the model's counts of a corpus are those of this one.
        digests = store.start(request.selection.arrays(), replace=True)
        n_words, weights = request.selection.n_words, request.settings.document_weights
        reduction = CountReduction(work, digests, n_words, weights, request.probes, store.hint)
        checkpoints = store.checkpoints(reduction.name)
        return fold_partitions(checkpoints, reduction, keys, partitions, store.request, executor)


def count_memory(request: CountRequest, partitions: tuple[Partition, ...], workers: int) -> int:
    """Projected peak memory in bytes: for each worker a row group and twice its sums, whatever the documents."""
    selection = request.selection
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    # Rows and sketch twice, and the probes and a product of the sketch in float32.
    tall = (
        2 * 8 * (selection.row_words.size + request.probes.width) + 8 * request.probes.width
    ) * selection.n_words
    sums = 3 * 8 * selection.words.size**2 + tall
    # Beside what a read takes: entries chosen for pairs and for rows.
    each = 3 * row_group * BYTES_PER_NONZERO_READ + sums
    return PROCESS_BYTES + each * min(workers, len(partitions))
