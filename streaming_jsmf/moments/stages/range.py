"""Pass 1: exact sums, the documents that the store holds, or the sketch of ``halko``; and the basis Q from them.

Sums are added; the documents, all of a small corpus or a sample of a large one, stay in the parts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.checkpoints import Checkpoints, Held, PartialResult, SumReduction
from streaming_jsmf.linalg.csr import apply_gram, row_arrays, rows_of
from streaming_jsmf.linalg.eigen import (
    GUARD_VECTORS,
    Eigenpairs,
    block_width,
    single_view_eigenpairs,
    symmetric_eigenpairs,
)
from streaming_jsmf.linalg.probes import drawn_rows, gaussian_probes, uniform_probes
from streaming_jsmf.linalg.sampled import SampleParts, sample_eigenpairs
from streaming_jsmf.linalg.typing import Integers, Mask, Single
from streaming_jsmf.moments.partition import PartitionSums, iter_scaled, load_partition
from streaming_jsmf.moments.stages.base import Scan, Stage
from streaming_jsmf.storage.arrays import Variable
from streaming_jsmf.timing import span

if TYPE_CHECKING:
    from streaming_jsmf.moments.store import Moments

logger = logging.getLogger(__name__)

#: Arrays of the documents of a part (``row_arrays``), whose values are counts times sqrt(w / (n (n - 1))).
DOCUMENTS = ("sample_lengths", "sample_words", "sample_values")
_, WORDS, VALUES = DOCUMENTS
#: Prefix of these arrays, and name in ``Moments.recent`` of the documents; with the key of a part, of those that were
#: verified before.
SAMPLE = "sample"
#: Arrays of N numbers in the sums of a part.
SUMS = 4
#: Label of the probes that all partitions share in the linear sketch.
SHARED_PROBES = "halko"
#: Eigenvalues of C below this share of the first are rounding errors, since documents are scaled in float32.
EXACT_FLOOR = 1e-7


@dataclass(frozen=True)
class RangeReduction(SumReduction):
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
        with span("read"):
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


class RangeStage(Stage):
    """Pass 1. Its last fold is kept, and its parts unless they are sketches."""

    name = "range"
    variables: ClassVar = {
        "row_sum": Variable(("word",), "row sums of C, exact; mean of h / n over weighted documents", "u"),
        "diagonal": Variable(("word",), "diagonal correction of Eq. 1, exact", "D"),
        "term_count": Variable(("word",), "tokens of the word in the documents kept"),
        "document_frequency": Variable(("word",), "documents kept that hold the word"),
        "sketch": Variable(("word", "probe"), "(C + diag(D)) Omega", "Y"),
    }
    unfolded = frozenset(DOCUMENTS)

    def scans(self, store: Moments) -> Sequence[Scan]:
        """One scan over the partitions of the manifest."""
        share = store.manifest.sample_share
        return (
            (RangeReduction(store.n_words, store.settings, 1.0 if share is None else share), store.order),
        )

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
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
        return PartialResult(normalized(total), total.scalars)

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Sums, and with ``halko`` the probes and sums of their products."""
        sketch = 20 * min(settings.sketch_width, n_words) if settings.range_finder == "halko" else 0
        return n_words * (3 * 8 * SUMS + sketch)


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
        if name == VALUES:
            arrays[name] = values * np.float32(np.sqrt(times))
        elif name not in DOCUMENTS:
            arrays[name] = values * times
    return PartialResult(arrays, {name: value * times for name, value in part.scalars.items()})


def reindex(part: PartialResult, rows: Integers, n_words: int) -> PartialResult:
    """A result over more words: row i becomes row ``rows[i]``, the others are zero."""
    arrays = dict(part.arrays)
    for name, values in part.arrays.items():
        if name == WORDS:
            arrays[name] = rows[values].astype(values.dtype)
        elif name not in DOCUMENTS:
            arrays[name] = np.zeros((n_words, *values.shape[1:]), values.dtype)
            arrays[name][rows] = values
    return PartialResult(arrays, part.scalars)


def read_sample(store: Moments) -> csr_array[Any]:
    """H_s (documents x words, CSR, float32), H_s'H_s ~ C + diag(D), equal if the store holds all documents."""
    return store.once(SAMPLE, lambda: scaled(store, joined(_parts(store))))


def read_fitted(store: Moments) -> SampleParts:
    """The documents that determine C_s, and those held out; joined with the others only if stages need all of them."""
    share = store.sample_share
    few = share == 1 and store.manifest.base is not None
    pieces = (scaled(store, part.arrays) for part in _parts(store)) if few else [read_sample(store)]
    return SampleParts.of(pieces, (int(store.scalars("range")["n_held"]), store.n_words), share)


def _parts(store: Moments) -> Iterator[PartialResult]:
    checkpoints, recent = store.checkpoints("range"), store.recent or Held()
    for key in store.manifest.part_keys:
        yield recent.pop(f"{SAMPLE} {key}", None) or checkpoints.read_part(key)


def joined(parts: Iterable[PartialResult]) -> dict[str, NDArray[Any]]:
    """The documents of several parts, in order."""
    found = [{name: part.arrays[name] for name in DOCUMENTS} for part in parts]
    return {name: np.concatenate([arrays.pop(name) for arrays in found]) for name in DOCUMENTS}


def scaled(store: Moments, arrays: Mapping[str, NDArray[Any]]) -> csr_array[Any]:
    """H_s from the arrays of its documents, whose values are overwritten."""
    values = arrays[VALUES]
    values *= np.float32(1 / np.sqrt(store.sample_share * store.scalars("range")["total_weight"]))
    return rows_of(SAMPLE, arrays, store.n_words)


def held_bytes(share: float | None, nonzeros: int) -> int:
    """Bytes of the documents that a store holds, which are read, joined and scaled in two copies of 8 bytes each."""
    return int(2 * 8 * (share or 0.0) * nonzeros)


@dataclass(frozen=True)
class HeldPart:
    """The documents of a partition in a store that holds all, as tasks read them."""

    checkpoints: Checkpoints
    key: str

    def read(self, n_words: int) -> csr_array[Any]:
        """The scaled counts, as of ``load_block``. Raises ``StoreError`` if they are damaged."""
        return rows_of(SAMPLE, self.checkpoints.read_part(self.key).arrays, n_words)


class BasisStage(Stage):
    """The basis Q: eigenpairs of the documents that the store holds, of the sketch, or of C itself. No scan."""

    name = "basis"
    variables: ClassVar = {
        "basis": Variable(("word", "component"), "leading algebraic eigenvectors after scan 1", "Q"),
        "basis_eigenvalues": Variable(("component",), "their eigenvalues"),
    }
    reads: ClassVar = (SAMPLE,)
    of_base = True

    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        del folded
        with span("basis"):
            pairs = _first_eigenpairs(store)
        return PartialResult({"basis": pairs.vectors, "basis_eigenvalues": pairs.values})

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Two blocks, and while they are multiplied, probes, two copies and two products; or the sketch and its SVD."""
        if settings.range_finder == "halko":
            return 8 * n_words * 6 * min(settings.sketch_width, n_words)
        return 4 * n_words * 9 * min(block_width(settings.basis_width + GUARD_VECTORS), n_words)


def _first_eigenpairs(store: Moments) -> Eigenpairs:
    settings, width = store.settings, min(store.settings.basis_width, store.n_words)
    if settings.exact:
        pairs = symmetric_eigenpairs(store.read("cooccurrence"), width)
        # The sign of eigenvalues at rounding level is random.
        noise = np.abs(pairs.values) < EXACT_FLOOR * pairs.values[0]
        return Eigenpairs(np.where(noise, 0.0, pairs.values), pairs.vectors)
    diagonal = store.read("diagonal")
    if settings.range_finder == "halko":
        sketch = store.read("sketch")
        shared = gaussian_probes(store.n_words, sketch.shape[1], settings.seed, SHARED_PROBES)
        return single_view_eigenpairs(
            sketch - diagonal[:, None] * shared, shared, min(width, sketch.shape[1])
        )
    return sample_eigenpairs(
        read_fitted(store).fitted, diagonal, sample_probes(store.n_words, settings), width
    )


def sample_probes(n_words: int, settings: ScanSettings) -> Single:
    """Omega (words x block width, float32) for the basis; unit vectors if it has as many columns as there are words."""
    width = min(block_width(settings.basis_width + GUARD_VECTORS), n_words)
    if width == n_words:
        # Unit vectors span the whole space; N random vectors are occasionally nearly dependent.
        return np.eye(n_words, dtype=np.float32)
    with span("probes"):
        return uniform_probes(n_words, width, settings.seed, "sample")
