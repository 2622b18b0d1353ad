"""Counts selected words in one pass over a corpus, committed partition by partition in a directory of its own."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, distinct, fold_partitions, list_units, plan_partitions
from streaming_jsmf.jobs.checkpoints import PartialResult, key_of
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.moments.memory import BYTES_PER_NONZERO_READ
from streaming_jsmf.moments.stages.word_counts import CountReduction, SketchProbes, WordSelection
from streaming_jsmf.storage.arrays import digest
from streaming_jsmf.storage.paths import StorePath

#: Changes when the same request would give other bits.
ALGORITHM_VERSION = 3


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
