"""Scan 2 of an exact store: the whole C, computed in panels of rows.

Panels bound the memory of a worker. Each panel has its own parts and folds, and takes one pass over the partitions;
vocabularies of up to 5,700 words need a single panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from dask.utils import format_bytes

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.jobs.checkpoints import PartialResult, SumReduction
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.csr import PAIRS_AT_ONCE, gram_rows
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.moments.partition import load_block
from streaming_jsmf.moments.stages.base import Scan, Stage
from streaming_jsmf.process_limits import PROCESS_BYTES, machine_memory
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.timing import span

if TYPE_CHECKING:
    from streaming_jsmf.moments.store import Moments

#: Bytes of a panel of C in float64. Does not affect the bits of the result.
PANEL_BYTES = 256 * 2**20
#: Bytes per pair of words while a chunk of documents is multiplied: product, positions and sorted copies.
BYTES_PER_PAIR = 40


@dataclass(frozen=True)
class PanelReduction(SumReduction):
    """Rows ``first`` to ``last - 1`` of H'H for each partition, additive; the diagonal is subtracted at the end."""

    n_words: int
    settings: ScanSettings
    first: int
    last: int

    def compute(self, partition: Partition) -> PartialResult:
        with span("read"):
            block = load_block(partition, self.n_words, self.settings.document_weights)
        with span("products"):
            return PartialResult({"cooccurrence": gram_rows(block, slice(self.first, self.last))})


def row_panels(n_words: int) -> Iterator[slice]:
    return panels(n_words, max(1, PANEL_BYTES // (8 * n_words)))


class CooccurrenceStage(Stage):
    """Scan 2 of an exact store: one scan per panel."""

    name = "cooccurrence"
    variables: ClassVar = {
        "cooccurrence": Variable(
            ("word", "word_"), "the whole matrix of Eq. 1, which scan 2 counts if it is asked for", "C"
        )
    }

    needs = "exact"

    def scans(self, store: Moments) -> Sequence[Scan]:
        """One scan per panel; the keys of its parts include its rows and the vocabulary."""
        words = store.manifest.vocabulary
        return [
            (
                PanelReduction(store.n_words, store.settings, rows.start, rows.stop),
                store.order_with(f"{words} rows {rows.start} to {rows.stop}"),
            )
            for rows in row_panels(store.n_words)
        ]

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        """C, N x N, from its panels: exactly symmetric and nonnegative.

        Entries have the float32 rounding error of the document scales, 1e-7.
        """
        matrix = np.empty((store.n_words, store.n_words))
        for rows, panel in zip(row_panels(store.n_words), folded, strict=True):
            matrix[rows] = panel.arrays["cooccurrence"]
        matrix /= store.scalars("range")["total_weight"]
        # For a word that occurs once in each of its documents the two terms cancel, up to rounding.
        np.fill_diagonal(matrix, np.maximum(np.diagonal(matrix) - store.read("diagonal"), 0.0))
        return PartialResult({"cooccurrence": matrix})

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        del settings
        return _panel_memory(n_words)


def matrix_bytes(n_words: int) -> int:
    return 8 * n_words**2


def _panel_memory(n_words: int) -> int:
    """Two panels and the product of a chunk of documents."""
    return 2 * min(PANEL_BYTES, matrix_bytes(n_words)) + BYTES_PER_PAIR * min(PAIRS_AT_ONCE, n_words**2)


def require_matrix_memory(n_words: int, path: StorePath, execution: Execution) -> None:
    """Raise ``InputError`` if C does not fit the budget or, without one, the machine."""
    needed = PROCESS_BYTES + matrix_bytes(n_words) + execution.concurrency * _panel_memory(n_words)
    budget, who = execution.memory, f"{option.memory} allows"
    if budget is None:
        budget, who = machine_memory(), "this machine has"
    if budget is not None and needed > budget:
        raise InputError(
            f"{path}: {option.exact(True)} needs about {format_bytes(needed)} for {n_words:,} x {n_words:,} "
            f"co-occurrences and {who} {format_bytes(budget)}; scan without {option.exact(True).alone}, "
            "which is enough "
            f"for {option.rectify('enn')} and palm"
        )
