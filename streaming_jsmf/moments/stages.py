"""The two scans as stages: what a partition contributes, and how contributions fold together in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.ledger import Partial
from streaming_jsmf.linalg.factor import apply_gram, merge_factors, partition_factor
from streaming_jsmf.linalg.probes import gaussian_probes, uniform_probes
from streaming_jsmf.moments.partition import Sums, load_block, load_partition
from streaming_jsmf.moments.remedy import repair_remedy
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.timing import span

#: Additive arrays and scalars of a partition.
SUM_ARRAYS = ("row_sum", "diagonal", "term_count", "document_frequency")
SUM_SCALARS = ("n_documents", "n_dropped", "n_tokens", "total_weight")

#: Label of the probes that all partitions share in the linear sketch.
SHARED_PROBES = "halko"


class Stage(Protocol):
    """A pass over the data in partitions. Implementations are small, frozen and travel to the workers."""

    @property
    def name(self) -> str:
        """Of the stage in records and messages."""

    def compute(self, partition: Partition) -> Partial:
        """Read one partition and return its contribution. Runs in a worker, with one BLAS thread."""

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        """Return the contributions of partitions 0..i from those of 0..i-1 (None at first) and of i."""


@dataclass(frozen=True)
class RangeStage:
    """Scan 1: exact sums and a factor of H'H for each partition; factors are merged in manifest order.

    With ``range_finder="halko"`` the factor is the linear sketch H'(H Omega) of common probes instead, and
    folding is addition.

    Parameters
    ----------
    n_words
        N.
    settings
        Of the scan.
    """

    n_words: int
    settings: ScanSettings
    name: str = "range"

    @property
    def width(self) -> int:
        """Columns of a factor: as the settings say, no more than N."""
        return min(self.settings.factor_width, self.n_words)

    def compute(self, partition: Partition) -> Partial:
        """One pass over the partition's data; all power steps run on the copy in memory."""
        with span("read"):
            loaded = load_partition(partition, self.n_words, self.settings.document_weights)
        if self.settings.range_finder == "halko":
            probes = gaussian_probes(self.n_words, self.width, self.settings.seed, SHARED_PROBES)
            range_arrays = {"sketch": apply_gram(loaded.block, probes)}
        else:
            with span("orthonormalise"):
                # Held by the callee alone, which lets go of them after the first step.
                range_arrays = {
                    "factor": partition_factor(
                        loaded.block, self._probes(partition.content), self.settings.power_steps
                    )
                }
        arrays, scalars = _sums_to_partial(loaded.sums)
        return Partial({**arrays, **range_arrays}, scalars)

    def _probes(self, content: str) -> NDArray[np.float32]:
        if self.width == self.n_words:
            # Unit vectors span everything; as many random ones nearly miss a direction now and then.
            return np.eye(self.n_words, dtype=np.float32)
        with span("probes"):
            return uniform_probes(self.n_words, self.width, self.settings.seed, content)

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        """Add the sums; merge the factors, or add the sketches in float64."""
        arrays: dict[str, NDArray[Any]] = _add(folded, partial, SUM_ARRAYS)
        if "sketch" in partial.arrays:
            sketch = partial.arrays["sketch"].astype(np.float64)
            arrays["sketch"] = sketch if folded is None else folded.arrays["sketch"] + sketch
        elif folded is None:
            arrays["factor"] = partial.arrays["factor"]
        else:
            with span("merge"):
                arrays["factor"] = merge_factors(
                    folded.arrays["factor"], partial.arrays["factor"], self.width
                )
        return Partial(arrays, add_scalars(folded, partial))


@dataclass(frozen=True)
class ProjectionStage:
    """Scan 2: H'(H Q) for the basis Q of the store, additive given Q; the diagonal is taken off at the end.

    Parameters
    ----------
    n_words
        N.
    settings
        Of the scan.
    store
        Root of the moments store, where each worker reads the basis.
    basis
        Digest that the basis must have.
    """

    n_words: int
    settings: ScanSettings
    store: StorePath
    basis: ArrayDigest
    name: str = "projection"

    def compute(self, partition: Partition) -> Partial:
        """One pass over the partition's data."""
        basis = read_basis(self.store, self.basis)
        with span("read"):
            block = load_block(partition, self.n_words, self.settings.document_weights)
        return Partial({"projection": apply_gram(block, basis)})

    def fold(self, folded: Partial | None, partial: Partial) -> Partial:
        """Add in float64."""
        product = partial.arrays["projection"].astype(np.float64)
        if folded is not None:
            product += folded.arrays["projection"]
        return Partial({"projection": product})


def read_basis(store: StorePath, expected: ArrayDigest) -> NDArray[np.float32]:
    """The basis of a store as tasks multiply with it; ``StoreError`` if it is damaged."""
    with span("commit"):
        basis = read_array(store, "basis", expected, remedy=repair_remedy(store))
        return basis.astype(np.float32)


def _sums_to_partial(sums: Sums) -> tuple[dict[str, NDArray[Any]], dict[str, float]]:
    arrays = {name: getattr(sums, name) for name in SUM_ARRAYS}
    return arrays, {name: getattr(sums, name) for name in SUM_SCALARS}


def _add(folded: Partial | None, partial: Partial, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if folded is None:
        return {name: partial.arrays[name] for name in names}
    return {name: folded.arrays[name] + partial.arrays[name] for name in names}


def add_scalars(folded: Partial | None, partial: Partial) -> dict[str, float]:
    """The scalars of ``partial`` added to those of ``folded``."""
    if folded is None:
        return dict(partial.scalars)
    return {name: folded.scalars[name] + value for name, value in partial.scalars.items()}
