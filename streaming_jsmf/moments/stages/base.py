"""What a stage is: all that a store, its scan, its checks and its repair ask of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import PartialResult, key_of
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.tasks import Reduction
from streaming_jsmf.moments.manifest import Manifest
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.timing import span


def repair_hint(store: StorePath) -> str:
    """The end of a message about damage that can be repaired."""
    return f"mend it with streaming-jsmf scan CORPUS {store} --repair"


@dataclass(frozen=True)
class Variable:
    """A final array, as the store describes it: its axes, its meaning, its symbol in the papers."""

    dimensions: tuple[str, ...]
    meaning: str
    symbol: str = ""


class Store(Protocol):
    """What a stage sees of the store that it belongs to (``moments.store.MomentsStore``)."""

    @property
    def path(self) -> StorePath:
        """Root of the store."""

    @property
    def manifest(self) -> Manifest:
        """What the store is made of."""

    @property
    def settings(self) -> ScanSettings:
        """Settings of the scan."""

    @property
    def n_words(self) -> int:
        """N."""

    @property
    def base(self) -> str:
        """Key of the fold of scan 1 that the basis is made of: of all, or of a store that has grown an earlier one."""

    def array_digest(self, name: str) -> ArrayDigest:
        """Digest of a final array of an earlier stage."""

    def read(self, name: str) -> NDArray[Any]:
        """A final array of an earlier stage, verified."""

    def scalars(self, stage: str) -> Mapping[str, float]:
        """Scalars of an earlier stage."""


@dataclass(frozen=True)
class Scan:
    """One scan over the partitions.

    Attributes
    ----------
    reduction
        What its tasks do.
    order
        Keys of its parts and folds in the checkpoints: hashes of all that their bits depend on.
    counts
        How many partitions each part stands for: 1, or all of a store that was merged as one part.
    """

    reduction: Reduction
    order: FoldOrder
    counts: tuple[int, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of its parts, in order."""
        return self.order.keys

    @classmethod
    def of_partitions(cls, reduction: Reduction, store: Store, *salts: str) -> Scan:
        """A part for each partition; ``salts`` are what its result depends on besides what the partition holds."""
        keys = tuple(key_of(name, *salts) for name in store.manifest.contents)
        counts = (1,) * len(keys)
        return cls(reduction, store.manifest.order_of(keys, counts, store.base), counts)


class Stage(ABC):
    """A stage from its scans to its final arrays, and how it is mended. Stateless; registered in ``registry.STAGES``.

    Attributes
    ----------
    name
        In records and messages.
    variables
        Its final arrays.
    hint
        What a repair says that it does if they are damaged.
    inputs
        Final arrays of earlier stages that its own depend on besides the partitions: others make its results stale.
    part_axes
        Axes of arrays of its parts, where they are not (word, rank).
    reads_corpora
        Whether it scans the partitions at all.
    keeps_parts
        Whether results of its parts stay in a store that keeps its partitions.
    of_base
        Whether it depends on what the basis is made of alone, so that it stays when documents are added.
    """

    name: ClassVar[str]
    variables: ClassVar[Mapping[str, Variable]]
    hint: ClassVar[str]
    inputs: ClassVar[tuple[str, ...]] = ()
    part_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    reads_corpora: ClassVar[bool] = True
    keeps_parts: ClassVar[bool] = False
    of_base: ClassVar[bool] = False

    def wanted(self, settings: ScanSettings) -> bool:
        """Whether a store of these settings has the stage; every one unless a stage says otherwise."""
        del settings
        return True

    def keeps_fold(self, settings: ScanSettings) -> bool:
        """Whether the last fold stays, for changes to go on from; final arrays are then mended from it."""
        del settings
        return False

    @abstractmethod
    def scans(self, store: Store) -> tuple[Scan, ...]:
        """Its scans over the partitions, in order; none if it is made of earlier stages alone."""

    @abstractmethod
    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
        """The final arrays by name, and scalars for the record, from the last fold of each scan.

        A fold is read when it is taken. One BLAS thread.
        """

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Most bytes that a task holds besides its partition."""
        del n_words, settings
        return 0

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Most bytes that ``final`` holds, if that can be more than the tasks do."""
        del n_words, settings
        return 0

    def require_memory(
        self, n_words: int, settings: ScanSettings, path: StorePath, execution: Execution
    ) -> None:
        """Refuse what fits neither the budget nor the machine, with ``InputError``."""
        del n_words, settings, path, execution


class SumStage(Stage):
    """A stage that is one scan, in which each partition is a part, and whose results add up on the same basis."""

    def keeps_fold(self, settings: ScanSettings) -> bool:
        """Where the basis stays: with a sample."""
        return settings.range_finder == "sample"

    @abstractmethod
    def reduction(self, store: Store) -> Reduction:
        """What the tasks of the scan do."""

    def scans(self, store: Store) -> tuple[Scan, ...]:
        """One; the keys of its parts hold the digests of ``inputs``."""
        salts = (store.array_digest(name).sha256 for name in self.inputs)
        return (Scan.of_partitions(self.reduction(store), store, *salts),)


@dataclass(frozen=True)
class BasisReduction:
    """What tasks know that multiply with the basis of a store.

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
    basis_name
        The final array that it is.
    """

    n_words: int
    settings: ScanSettings
    store: StorePath
    basis: ArrayDigest
    basis_name: str = "basis"

    @classmethod
    def of(cls, store: Store, basis: str = "basis", **fields: Any) -> Self:
        """For the tasks of a store that has this basis; ``fields`` are those of the class itself."""
        return cls(store.n_words, store.settings, store.path, store.array_digest(basis), basis, **fields)

    def read_basis(self) -> NDArray[np.float32]:
        """The basis as tasks multiply with it; ``StoreError`` if it is damaged."""
        with span("commit"):
            basis = read_array(self.store, self.basis_name, self.basis, hint=repair_hint(self.store))
            return basis.astype(np.float32)
