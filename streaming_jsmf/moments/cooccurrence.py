"""Scan 2 of an exact store: the whole C, counted partition by partition in panels of rows.

A panel bounds what a worker holds. Each panel has parts and folds of its own in one ledger, and is one pass over the
partitions; vocabularies of up to 5,700 words have a single panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.fold import FoldJob
from streaming_jsmf.jobs.ledger import Partial, fold_keys, key_of
from streaming_jsmf.jobs.memory import PROCESS_BYTES, machine_memory
from streaming_jsmf.jobs.run import run_job
from streaming_jsmf.linalg.dense import PAIRS_AT_ONCE, gram_rows
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.moments.manifest import distinct
from streaming_jsmf.moments.partition import load_block
from streaming_jsmf.moments.parts import partition_parts
from streaming_jsmf.moments.store import MomentsStore
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.timing import span

#: Bytes of a panel of C in float64. Not part of the bits.
PANEL_BYTES = 256 * 2**20

#: Bytes that a pair of words takes while a chunk of documents is multiplied: product, places and sorted copies.
BYTES_PER_PAIR = 40


@dataclass(frozen=True)
class CooccurrenceStage:
    """Rows ``first`` to ``last - 1`` of H'H for each partition, additive; the diagonal is taken off at the end.

    Parameters
    ----------
    n_words
        N.
    settings
        Of the scan.
    first, last
        Rows of the panel.
    """

    n_words: int
    settings: ScanSettings
    first: int
    last: int
    name: str = "cooccurrence"

    def compute(self, partition: Partition) -> Partial:
        """One pass over the partition's data."""
        with span("read"):
            block = load_block(partition, self.n_words, self.settings.document_weights)
        with span("products"):
            return Partial({"cooccurrence": gram_rows(block, slice(self.first, self.last))})

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        """Add."""
        if folded is None:
            return partial
        total = folded.arrays["cooccurrence"]
        total += partial.arrays["cooccurrence"]
        return Partial({"cooccurrence": total})


def row_panels(n_words: int) -> Iterator[slice]:
    """Rows of the panels of a vocabulary, in order."""
    return panels(n_words, max(1, PANEL_BYTES // (8 * n_words)))


def panel_keys(store: MomentsStore, rows: slice) -> tuple[str, ...]:
    """Keys of the parts of a panel: its rows, the words, and what the partitions hold."""
    names = distinct([partition["content"] for partition in store.manifest["partitions"]])
    panel = f"{store.manifest['vocabulary']} rows {rows.start} to {rows.stop}"
    return tuple(key_of(name, panel) for name in names)


def count_cooccurrences(
    store: MomentsStore, partitions: Sequence[Partition], executor: Executor
) -> tuple[NDArray[np.float64], list[dict[str, Any]]]:
    """C of a store, N x N, and the history of its parts. One pass over the data for each panel that is not committed.

    Symmetric to the bit and not negative. Entries carry the float32 rounding of the documents' scales, 1e-7.
    """
    ledger, last_folds, history = store.ledger("cooccurrence"), [], []
    for rows in row_panels(store.n_words):
        keys = panel_keys(store, rows)
        parts = partition_parts(keys, partitions)
        folds = fold_keys(keys, store.folds[-1])
        stage = CooccurrenceStage(store.n_words, store.settings, rows.start, rows.stop)
        run_job(FoldJob(ledger, stage, parts, folds), executor)
        last_folds.append(folds[-1])
        history += ledger.history(keys)
    matrix = np.empty((store.n_words, store.n_words))
    for rows, fold in zip(row_panels(store.n_words), last_folds, strict=True):
        matrix[rows] = ledger.read_fold(fold).arrays["cooccurrence"]
    record = store.outcome("range")
    assert record is not None, "stages run in order"
    matrix /= record["scalars"]["total_weight"]
    # Of a word that occurs once in each of its documents the two terms cancel, up to rounding.
    np.fill_diagonal(matrix, np.maximum(np.diagonal(matrix) - store.read("diagonal"), 0.0))
    return matrix, history


def matrix_bytes(n_words: int) -> int:
    """Bytes of C."""
    return 8 * n_words**2


def counting_bytes(n_words: int) -> int:
    """What a worker holds besides its partition while it counts: two panels, and a chunk of documents multiplied."""
    pairs = min(PAIRS_AT_ONCE, n_words**2)
    return 2 * min(PANEL_BYTES, matrix_bytes(n_words)) + BYTES_PER_PAIR * pairs


def require_exact_memory(n_words: int, path: StorePath, execution: Execution) -> None:
    """Refuse to count C where it does not fit the budget, or without one the machine.

    Raises
    ------
    InputError
        With both numbers and what to use instead.
    """
    needed = PROCESS_BYTES + matrix_bytes(n_words) + execution.concurrency * counting_bytes(n_words)
    budget, who = execution.memory, "--memory allows"
    if budget is None:
        budget, who = machine_memory(), "this machine has"
    if budget is not None and needed > budget:
        raise InputError(
            f"{path}: --exact needs about {format_bytes(needed)} for {n_words:,} x {n_words:,} co-occurrences and "
            f"{who} {format_bytes(budget)}; scan without --exact, which is enough for --rectify enn and palm"
        )
