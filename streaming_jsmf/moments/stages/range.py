"""Scan 1: exact sums, and a factor of H'H for each partition; factors are merged in the order of the manifest."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.ledger import Partial, add_scalars
from streaming_jsmf.linalg.factor import apply_gram, merge_factors, partition_factor
from streaming_jsmf.linalg.probes import drawn_rows, gaussian_probes, uniform_probes
from streaming_jsmf.moments.partition import load_partition
from streaming_jsmf.moments.stages.base import Scan, Stage, Store, Variable
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

#: Additive arrays and scalars of a partition.
SUM_ARRAYS = ("row_sum", "diagonal", "term_count", "document_frequency")
SUM_SCALARS = ("n_documents", "n_dropped", "n_tokens", "total_weight")

#: Label of the probes that all partitions share in the linear sketch.
SHARED_PROBES = "halko"


@dataclass(frozen=True)
class RangeReduction:
    """Sums and a factor of each partition.

    With ``range_finder="halko"`` the factor is the linear sketch H'(H Omega) of common probes instead, and
    folding is addition.

    Parameters
    ----------
    n_words
        N.
    settings
        Of the scan.
    sample_share
        Of the documents that the factor is made of, drawn one by one. The factor is scaled as if it were that of all.
    """

    n_words: int
    settings: ScanSettings
    sample_share: float = 1.0
    name: str = "range"

    @property
    def width(self) -> int:
        """Columns of a factor: as the settings say, no more than N."""
        return min(self.settings.factor_width, self.n_words)

    def compute(self, partition: Partition) -> Partial:
        """One pass over the partition's data; all power steps run on the copy in memory."""
        with span("read"):
            loaded = load_partition(
                partition, self.n_words, self.settings.document_weights, self._sample(partition)
            )
        if self.settings.range_finder == "halko":
            probes = gaussian_probes(self.n_words, self.width, self.settings.seed, SHARED_PROBES)
            range_arrays = {"sketch": apply_gram(loaded.block, probes)}
        else:
            range_arrays = {"factor": self._factor(loaded.block, partition.content)}
        sums: dict[str, NDArray[Any]] = {name: getattr(loaded.sums, name) for name in SUM_ARRAYS}
        return Partial({**sums, **range_arrays}, {name: getattr(loaded.sums, name) for name in SUM_SCALARS})

    def _sample(self, partition: Partition) -> NDArray[np.bool_] | None:
        """The documents to multiply; None: all. Single ones: row groups of neighbours, often alike, tell far less."""
        if self.sample_share == 1:
            return None
        return drawn_rows(
            partition.rows, self.sample_share, self.settings.seed, f"sample {partition.content}"
        )

    def _factor(self, block: csr_array[Any], content: str) -> NDArray[np.float32]:
        with span("orthonormalise"):
            # Probes are held by the callee alone, which lets go of them after the first step.
            factor = partition_factor(block, self._probes(content), self.settings.power_steps)
        if self.sample_share < 1:
            factor *= np.float32(1 / np.sqrt(self.sample_share))
        return factor

    def _probes(self, content: str) -> NDArray[np.float32]:
        if self.width == self.n_words:
            # Unit vectors span everything; as many random ones nearly miss a direction now and then.
            return np.eye(self.n_words, dtype=np.float32)
        with span("probes"):
            return uniform_probes(self.n_words, self.width, self.settings.seed, content)

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        """Add the sums; merge the factors, or add the sketches in float64."""
        arrays = dict(partial.arrays)
        if "sketch" in arrays:
            arrays["sketch"] = arrays["sketch"].astype(np.float64)
        if folded is None:
            return Partial(arrays, partial.scalars)
        for name in arrays.keys() - {"factor"}:
            arrays[name] = folded.arrays[name] + arrays[name]
        if "factor" in arrays:
            with span("merge"):
                arrays["factor"] = merge_factors(folded.arrays["factor"], arrays["factor"], self.width)
        return Partial(arrays, add_scalars(folded, partial))


class RangeStage(Stage):
    """Scan 1. Its parts may be kept, and its last fold is what a store grows from."""

    name = "range"
    variables: ClassVar = {
        "row_sum": Variable(("word",), "row sums of C, exact; mean of h / n over weighted documents", "u"),
        "diagonal": Variable(("word",), "diagonal correction of Eq. 1, exact", "D"),
        "term_count": Variable(("word",), "tokens of the word in the documents kept"),
        "document_frequency": Variable(("word",), "documents kept that hold the word"),
        "factor": Variable(("word", "rank"), "F F' ~ C + diag(D)", "F"),
        "sketch": Variable(("word", "probe"), "(C + diag(D)) Omega", "Y"),
    }
    remedy = "is made again from the merged factor"
    keeps_fold = True

    def scans(self, store: Store) -> tuple[Scan, ...]:
        """One, of the parts that the manifest names."""
        counts = tuple(count for _, count in store.manifest.parts)
        share = store.manifest.sample_share
        reduction = RangeReduction(store.n_words, store.settings, 1.0 if share is None else share)
        return (Scan(reduction, store.manifest.part_keys, store.folds, counts),)

    def final(self, store: Store, folded: Iterator[Partial]) -> Partial:
        """Sums and factor divided by the total weight."""
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
        return Partial(normalised(total), total.scalars)

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """When folding both factors and the merged one; when multiplying X and its product."""
        return 3 * 4 * n_words * min(settings.factor_width, n_words)


def normalised(folded: Partial) -> dict[str, NDArray[Any]]:
    """The final arrays of the stage: sums and factor of a fold, divided by the total weight."""
    total = folded.scalars["total_weight"]
    arrays: dict[str, NDArray[Any]] = {name: folded.arrays[name] for name in SUM_ARRAYS}
    arrays["row_sum"] = arrays["row_sum"] / total
    arrays["diagonal"] = arrays["diagonal"] / total
    if "factor" in folded.arrays:
        # In float32 throughout: a scalar of float64 would make a copy of twice the size.
        arrays["factor"] = folded.arrays["factor"] * np.float32(1 / np.sqrt(total))
    else:
        arrays["sketch"] = folded.arrays["sketch"] / total
    return arrays
