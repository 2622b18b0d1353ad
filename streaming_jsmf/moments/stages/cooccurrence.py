"""Scan 2 of an exact store: the whole C, computed in panels of rows.

Panels bound the memory of a worker. Each panel has its own parts and folds, and takes one pass over the partitions;
vocabularies of up to 5,700 words need a single panel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.jobs.checkpoints import PartialResult, SumReduction
from streaming_jsmf.linalg.csr import gram_rows
from streaming_jsmf.linalg.eigen import Eigenpairs, symmetric_eigenpairs
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.moments.partition import load_block
from streaming_jsmf.moments.records import SUMS, Records
from streaming_jsmf.moments.stages.base import Scan, Stage
from streaming_jsmf.moments.stages.sums import BASIS, basis_arrays
from streaming_jsmf.storage.arrays import Variable

#: Bytes of a panel of C in float64. Does not affect the bits of the result.
PANEL_BYTES = 256 * 2**20
#: Eigenvalues of C below this share of the first are rounding errors, since documents are scaled in float32.
EXACT_FLOOR = 1e-7


@dataclass(frozen=True)
class PanelReduction(SumReduction):
    """Rows ``first`` to ``last - 1`` of H'H for each partition, additive; the diagonal is subtracted at the end."""

    n_words: int
    settings: ScanSettings
    first: int
    last: int

    def compute(self, partition: Partition) -> PartialResult:
        block = load_block(partition, self.n_words, self.settings.document_weights)
        return PartialResult({"cooccurrence": gram_rows(block, slice(self.first, self.last))})


def row_panels(n_words: int) -> Iterator[slice]:
    return panels(n_words, max(1, PANEL_BYTES // (8 * n_words)))


class CooccurrenceStage(Stage):
    """Scan 2 of an exact store: one scan per panel."""

    name = "cooccurrence"
    variables: ClassVar = {
        "cooccurrence": Variable(
            ("word", "word_"), "the whole matrix of Eq. 1, which scan 2 counts if it is asked for", "C"
        ),
        **BASIS,
    }

    def scans(self, store: Records) -> Sequence[Scan]:
        """One scan per panel; the keys of its parts include its rows and the vocabulary."""
        words = store.manifest.vocabulary
        return [
            (
                PanelReduction(store.n_words, store.settings, rows.start, rows.stop),
                store.order_with(f"{words} rows {rows.start} to {rows.stop}"),
            )
            for rows in row_panels(store.n_words)
        ]

    def final(self, store: Records, folded: Iterator[PartialResult]) -> PartialResult:
        """C, N x N, from its panels: exactly symmetric and nonnegative; and the basis.

        Entries have the float32 rounding error of the document scales, 1e-7.
        """
        matrix = np.empty((store.n_words, store.n_words))
        for rows, panel in zip(row_panels(store.n_words), folded, strict=True):
            matrix[rows] = panel.arrays["cooccurrence"]
        matrix /= store.scalars(SUMS)["total_weight"]
        # For a word that occurs once in each of its documents the two terms cancel, up to rounding.
        np.fill_diagonal(matrix, np.maximum(np.diagonal(matrix) - store.read("diagonal"), 0.0))
        basis = basis_arrays(_counted_eigenpairs(matrix, store.settings))
        return PartialResult({"cooccurrence": matrix, **basis})


def _counted_eigenpairs(matrix: Floats, settings: ScanSettings) -> Eigenpairs:
    """The eigenpairs of C itself."""
    pairs = symmetric_eigenpairs(matrix, min(settings.basis_width, len(matrix)))
    # The sign of eigenvalues at rounding level is random.
    noise = np.abs(pairs.values) < EXACT_FLOOR * pairs.values[0]
    return Eigenpairs(np.where(noise, 0.0, pairs.values), pairs.vectors)
