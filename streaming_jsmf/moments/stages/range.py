"""Scan 1: exact sums, and from each partition the documents that the store holds, or the sketch of ``halko``.

Sums are added; the documents stay in the parts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.checkpoints import PartialResult, add_scalars
from streaming_jsmf.linalg.csr import apply_gram
from streaming_jsmf.linalg.probes import drawn_rows, gaussian_probes
from streaming_jsmf.moments.partition import load_partition
from streaming_jsmf.moments.stages import sample
from streaming_jsmf.moments.store import Scan, Stage, Store
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

#: Additive arrays of a partition.
SUM_ARRAYS = ("row_sum", "diagonal", "term_count", "document_frequency")

#: Label of the probes that all partitions share in the linear sketch.
SHARED_PROBES = "halko"


@dataclass(frozen=True)
class RangeReduction:
    """Sums of each partition, and its documents, or a sample of them if ``sample_share`` is below 1.

    With ``range_finder="halko"`` the documents are replaced by the linear sketch H'(H Omega) with common probes.
    """

    n_words: int
    settings: ScanSettings
    sample_share: float = 1.0

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data."""
        with span("read"):
            block, sums = load_partition(
                partition, self.n_words, self.settings.document_weights, self._sample(partition)
            )
        if self.settings.range_finder == "sample":
            held = {**sums.scalars, "n_held": block.shape[0]}
            return PartialResult({**sums.arrays, **sample.sample_arrays(block)}, held)
        width = min(self.settings.sketch_width, self.n_words)
        probes = gaussian_probes(self.n_words, width, self.settings.seed, SHARED_PROBES)
        return PartialResult({**sums.arrays, "sketch": apply_gram(block, probes)}, sums.scalars)

    def _sample(self, partition: Partition) -> NDArray[np.bool_] | None:
        """Mask of the documents to keep, or None for all.

        Documents are drawn individually: neighbours are often similar, so blocks would carry less information.
        """
        if self.sample_share == 1:
            return None
        return drawn_rows(
            partition.rows, self.sample_share, self.settings.seed, f"sample {partition.content}"
        )

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add the sums, and the sketches in float64; the documents stay in the parts."""
        arrays = {name: values for name, values in partial.arrays.items() if name not in sample.VARIABLES}
        if "sketch" in arrays:
            arrays["sketch"] = arrays["sketch"].astype(np.float64)
        if folded is None:
            return PartialResult(arrays, partial.scalars)
        arrays = {name: folded.arrays[name] + own for name, own in arrays.items()}
        return PartialResult(arrays, add_scalars(folded, partial))


class RangeStage(Stage):
    """Scan 1. Its parts, which hold the documents, and its last fold are kept."""

    name = "range"
    variables: ClassVar = {
        "row_sum": Variable(("word",), "row sums of C, exact; mean of h / n over weighted documents", "u"),
        "diagonal": Variable(("word",), "diagonal correction of Eq. 1, exact", "D"),
        "term_count": Variable(("word",), "tokens of the word in the documents kept"),
        "document_frequency": Variable(("word",), "documents kept that hold the word"),
        "sketch": Variable(("word", "probe"), "(C + diag(D)) Omega", "Y"),
    }
    part_axes: ClassVar = sample.VARIABLES
    unfolded = frozenset(sample.VARIABLES)

    def keeps_parts(self, settings: ScanSettings) -> bool:
        """True unless they are sketches, which are as large as the sketch of the whole store."""
        return settings.range_finder == "sample"

    def keeps_fold(self, settings: ScanSettings) -> bool:
        del settings
        return True

    def scans(self, store: Store) -> tuple[Scan, ...]:
        """One scan over the partitions of the manifest."""
        share = store.manifest.sample_share
        reduction = RangeReduction(store.n_words, store.settings, 1.0 if share is None else share)
        return (Scan(reduction, store.order),)

    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        """Sums divided by the total weight."""
        (total,) = folded
        if not total.scalars["total_weight"] > 0:
            raise InputError(
                f"{', '.join(store.manifest.paths)}: no document has two tokens or more, so there are no "
                "co-occurrences; ingest longer documents"
            )
        if not np.array_equal(total.arrays["term_count"], np.rint(total.arrays["term_count"])):
            logger.warning(
                "the counts are no whole numbers, so co-occurrences are those of weights, not of tokens (%s documents "
                "whose counts sum to less than 2 are left out); scan counts of tokens if there are any",
                f"{int(total.scalars['n_dropped']):,}",
            )
        return PartialResult(normalised(total), total.scalars)

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Sums, and with ``halko`` the probes and sums of their products."""
        sketch = 20 * min(settings.sketch_width, n_words) if settings.range_finder == "halko" else 0
        return n_words * (3 * 8 * len(SUM_ARRAYS) + sketch)


def normalised(folded: PartialResult) -> dict[str, NDArray[Any]]:
    """The final arrays of a fold: its sums divided by the total weight."""
    total, arrays = folded.scalars["total_weight"], dict(folded.arrays)
    for name in ("row_sum", "diagonal", "sketch"):
        if name in arrays:
            arrays[name] = arrays[name] / total
    return arrays


def repeated(part: PartialResult, times: int) -> PartialResult:
    """The part that ``times`` copies of its documents would give."""
    arrays: dict[str, NDArray[Any]] = dict(part.arrays)
    for name, values in part.arrays.items():
        if name == sample.VALUES:
            arrays[name] = values * np.float32(np.sqrt(times))
        elif name not in sample.VARIABLES:
            arrays[name] = values * times
    return PartialResult(arrays, {name: value * times for name, value in part.scalars.items()})


def reindex(partial: PartialResult, rows: NDArray[np.int64], n_words: int) -> PartialResult:
    """A result over more words: row i becomes row ``rows[i]``, the others are zero."""
    arrays = dict(partial.arrays)
    for name, values in partial.arrays.items():
        if name == sample.WORDS:
            arrays[name] = rows[values].astype(values.dtype)
        elif name not in sample.VARIABLES:
            arrays[name] = np.zeros((n_words, *values.shape[1:]), values.dtype)
            arrays[name][rows] = values
    return PartialResult(arrays, partial.scalars)
