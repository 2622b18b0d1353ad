"""Pass 1: exact sums, the documents that the store holds, or the sketch of ``halko``; and the basis Q from them.

Sums are added; the documents, all of a small corpus or a sample of a large one, stay in the parts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.checkpoints import PartialResult, SumReduction
from streaming_jsmf.linalg.csr import apply_gram, row_arrays
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, Eigenpairs, block_width, single_view_eigenpairs
from streaming_jsmf.linalg.probes import drawn_rows, gaussian_probes, uniform_probes
from streaming_jsmf.linalg.sampled import SampleParts, sample_eigenpairs
from streaming_jsmf.linalg.typing import Mask, Single
from streaming_jsmf.moments.partition import PartitionSums, iter_scaled, load_partition
from streaming_jsmf.moments.records import DOCUMENTS, SAMPLE, SUMS, Records
from streaming_jsmf.moments.stages.base import Scan, Stage
from streaming_jsmf.storage.arrays import Variable

logger = logging.getLogger(__name__)

#: Arrays of N numbers in the sums of a part.
SUMS_OF_WORDS = 4
#: Label of the probes that all partitions share in the linear sketch.
SHARED_PROBES = "halko"
#: The basis, from pass 1 or from the counted C.
BASIS = {
    "basis": Variable(("word", "component"), "leading algebraic eigenvectors after scan 1", "Q"),
    "basis_eigenvalues": Variable(("component",), "their eigenvalues"),
}


@dataclass(frozen=True)
class SumsReduction(SumReduction):
    """Sums of each partition, and its documents, or a sample of them if ``sample_share`` is below 1.

    With ``range_finder="halko"`` the documents are replaced by the linear sketch H'(H Omega) with common probes.
    """

    n_words: int
    settings: ScanSettings
    sample_share: float = 1.0

    def compute(self, partition: Partition) -> PartialResult:
        """One pass over the partition's data."""
        if self.settings.range_finder == "halko":
            return self._sketched(partition, PartitionSums(self.n_words))
        block, sums = load_partition(
            partition, self.n_words, self.settings.document_weights, self._drawn(partition)
        )
        documents = row_arrays(SAMPLE, block.indptr, block.indices, block.data)
        return PartialResult({**sums.arrays, **documents}, {**sums.scalars, "n_held": block.shape[0]})

    def _sketched(self, partition: Partition, sums: PartitionSums) -> PartialResult:
        width, sketch = min(self.settings.sketch_width, self.n_words), None
        probes = gaussian_probes(self.n_words, width, self.settings.seed, SHARED_PROBES)
        for block in iter_scaled(partition, self.n_words, self.settings.document_weights, sums):
            sketch = apply_gram(block, probes, sketch)
        assert sketch is not None, "a partition has units"
        found = sums.finish()
        return PartialResult({**found.arrays, "sketch": sketch}, found.scalars)

    def _drawn(self, partition: Partition) -> Mask | None:
        """Mask of the documents to keep, or None for all."""
        # Documents are drawn individually: neighbors are often similar, so blocks would carry less information.
        if self.sample_share == 1:
            return None
        return drawn_rows(
            partition.rows, self.sample_share, self.settings.seed, f"sample {partition.content}"
        )

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add the sums and sketches; the documents stay in the parts."""
        arrays = {name: values for name, values in partial.arrays.items() if name not in DOCUMENTS}
        return super().fold(folded, PartialResult(arrays, partial.scalars))


class SumsStage(Stage):
    """Pass 1. Its parts are kept unless they are sketches."""

    name = SUMS
    variables: ClassVar = {
        "row_sum": Variable(("word",), "row sums of C, exact; mean of h / n over weighted documents", "u"),
        "diagonal": Variable(("word",), "diagonal correction of Eq. 1, exact", "D"),
        "term_count": Variable(("word",), "tokens of the word in the documents kept"),
        "document_frequency": Variable(("word",), "documents kept that hold the word"),
        "sketch": Variable(("word", "probe"), "(C + diag(D)) Omega", "Y"),
        **BASIS,
    }

    def scans(self, store: Records) -> Sequence[Scan]:
        """One scan over the partitions of the manifest."""
        share = store.manifest.sample_share
        return ((SumsReduction(store.n_words, store.settings, 1.0 if share is None else share), store.order),)

    def final(self, store: Records, folded: Iterator[PartialResult]) -> PartialResult:
        """Sums divided by the total weight, and the basis unless the counted C gives it."""
        (total,) = folded
        if not total.scalars["total_weight"] > 0:
            raise InputError(
                f"{store.manifest.corpus.path}: no document has two tokens or more, so there are no "
                "co-occurrences; ingest longer documents"
            )
        if not np.array_equal(total.arrays["term_count"], np.rint(total.arrays["term_count"])):
            logger.warning(
                "the counts are not whole numbers, so co-occurrences are those of weights, not of tokens (%s documents "
                "whose counts sum to less than 2 are left out); scan counts of tokens if there are any",
                f"{int(total.scalars['n_dropped']):,}",
            )
        arrays = normalized(total)
        if not store.settings.exact:
            arrays |= basis_arrays(_first_eigenpairs(store, arrays, total.scalars))
        return PartialResult(arrays, total.scalars)


def basis_arrays(pairs: Eigenpairs) -> dict[str, NDArray[Any]]:
    """The arrays of ``BASIS``."""
    return {"basis": pairs.vectors, "basis_eigenvalues": pairs.values}


def _first_eigenpairs(
    store: Records, sums: Mapping[str, NDArray[Any]], scalars: Mapping[str, float]
) -> Eigenpairs:
    """Eigenpairs of the documents that the store holds, or of the sketch."""
    settings, diagonal = store.settings, sums["diagonal"]
    width = min(settings.basis_width, store.n_words)
    if settings.range_finder == "halko":
        sketch = sums["sketch"]
        shared = gaussian_probes(store.n_words, sketch.shape[1], settings.seed, SHARED_PROBES)
        return single_view_eigenpairs(
            sketch - diagonal[:, None] * shared, shared, min(width, sketch.shape[1])
        )
    fitted = SampleParts.of(store.sample(scalars), store.sample_share).fitted
    return sample_eigenpairs(fitted, diagonal, sample_probes(store.n_words, settings), width)


def normalized(folded: PartialResult) -> dict[str, NDArray[Any]]:
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
        if name == DOCUMENTS[-1]:
            arrays[name] = values * np.float32(np.sqrt(times))
        elif name not in DOCUMENTS:
            arrays[name] = values * times
    return PartialResult(arrays, {name: value * times for name, value in part.scalars.items()})


def sample_probes(n_words: int, settings: ScanSettings) -> Single:
    """Omega (words x block width, float32) for the basis; unit vectors if it has as many columns as there are words."""
    width = min(block_width(settings.basis_width + GUARD_VECTORS), n_words)
    if width == n_words:
        # Unit vectors span the whole space; N random vectors are occasionally nearly dependent.
        return np.eye(n_words, dtype=np.float32)
    return uniform_probes(n_words, width, settings.seed, "sample")
