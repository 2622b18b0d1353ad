"""The interface of a stage, as used by a store, its scan and its checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import PartialResult, key_of
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.tasks import Reduction
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.timing import span

if TYPE_CHECKING:
    from streaming_jsmf.moments.reader import Moments


def repair_hint(store: StorePath) -> str:
    """The end of a message about damage that can be repaired."""
    return f"run its scan again to repair it: streaming-jsmf scan CORPUS {store}"


@dataclass(frozen=True)
class Variable:
    """Description of a final array: its dimensions, its meaning, its symbol in the papers."""

    dimensions: tuple[str, ...]
    meaning: str
    symbol: str = ""


@dataclass(frozen=True)
class Scan:
    """One scan over the partitions.

    ``order`` holds the keys of its parts and folds in the checkpoints, which hash everything that determines their
    bits. ``counts`` are the partitions of each part: 1, or all of a store that was merged as one part.
    """

    reduction: Reduction
    order: FoldOrder
    counts: tuple[int, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.order.keys

    @classmethod
    def of_partitions(cls, reduction: Reduction, store: Moments, *salts: str) -> Scan:
        """A scan with one part per partition; ``salts`` are its dependencies besides the partition content."""
        keys = tuple(key_of(name, *salts) for name in store.manifest.contents)
        counts = (1,) * len(keys)
        return cls(reduction, store.manifest.order_of(keys, counts, store.base), counts)


class Stage(ABC):
    """A stage from its scans to its final arrays, including its repair. Stateless; listed in ``stages.STAGES``.

    Attributes
    ----------
    variables
        Its final arrays.
    inputs
        Final arrays of earlier stages that its own depend on; if they change, its results are stale.
    part_axes
        Axes of part arrays that are not (word, rank).
    keeps_parts
        Whether a store that keeps its partitions keeps the parts of this stage.
    of_base
        Whether it depends only on the fold that determines the basis, so that it stays valid when documents are
        added.
    """

    name: ClassVar[str]
    variables: ClassVar[Mapping[str, Variable]]
    inputs: ClassVar[tuple[str, ...]] = ()
    part_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    reads_corpora: ClassVar[bool] = True
    keeps_parts: ClassVar[bool] = False
    of_base: ClassVar[bool] = False

    def wanted(self, settings: ScanSettings) -> bool:
        """Whether a store with these settings has the stage; True by default."""
        del settings
        return True

    def keeps_fold(self, settings: ScanSettings) -> bool:
        """Whether the last fold is kept, so that changes and repairs can start from it; False by default."""
        del settings
        return False

    @abstractmethod
    def scans(self, store: Moments) -> tuple[Scan, ...]:
        """Its scans over the partitions, in order; empty if it depends only on earlier stages."""

    @abstractmethod
    def final(self, store: Moments, folded: Iterator[PartialResult]) -> PartialResult:
        """The final arrays by name, and scalars for the record, from the last fold of each scan.

        The folds are read lazily. Runs with one BLAS thread.
        """

    def task_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Peak bytes of a task besides its partition."""
        del n_words, settings
        return 0

    def final_memory(self, n_words: int, settings: ScanSettings) -> int:
        """Peak bytes of ``final``, if they can exceed those of the tasks."""
        del n_words, settings
        return 0

    def require_memory(
        self, n_words: int, settings: ScanSettings, path: StorePath, execution: Execution
    ) -> None:
        """Raise ``InputError`` if the stage exceeds the memory budget or the machine."""
        del n_words, settings, path, execution


class SumStage(Stage):
    """A stage of one scan with one part per partition, whose results are additive for a given basis."""

    def keeps_fold(self, settings: ScanSettings) -> bool:
        """True with a sample, since the basis is then kept."""
        return settings.range_finder == "sample"

    @abstractmethod
    def reduction(self, store: Moments) -> Reduction:
        """The reduction of the scan."""

    def scans(self, store: Moments) -> tuple[Scan, ...]:
        """One scan; the keys of its parts include the digests of ``inputs``."""
        salts = (store.array_digest(name).sha256 for name in self.inputs)
        return (Scan.of_partitions(self.reduction(store), store, *salts),)


@dataclass(frozen=True)
class BasisReduction:
    """Base class of reductions that multiply with the basis of a store.

    Workers read the array ``basis_name`` from ``store`` and verify its digest ``basis``.
    """

    n_words: int
    settings: ScanSettings
    store: StorePath
    basis: ArrayDigest
    basis_name: str = "basis"

    @classmethod
    def of(cls, store: Moments, basis: str = "basis", **fields: Any) -> Self:
        """The reduction for a store and one of its bases; ``fields`` are the fields of the subclass."""
        return cls(store.n_words, store.settings, store.path, store.array_digest(basis), basis, **fields)

    def read_basis(self) -> NDArray[np.float32]:
        """The basis in float32. Raises ``StoreError`` if it is damaged."""
        with span("commit"):
            basis = read_array(self.store, self.basis_name, self.basis, hint=repair_hint(self.store))
            return basis.astype(np.float32)
