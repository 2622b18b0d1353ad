"""What stages share: sums over the partitions, stages of a sample, and reductions that multiply with the basis."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import Held
from streaming_jsmf.jobs.run import Reduction
from streaming_jsmf.moments.stages import sample
from streaming_jsmf.moments.store import Scan, Stage, Store, repair_hint
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.timing import span


class SumStage(Stage):
    """A stage of one scan with one part per partition, whose results are additive for a given basis."""

    def keeps_fold(self, settings: ScanSettings) -> bool:
        """True if the basis is kept when documents are added."""
        return settings.has_projection

    @abstractmethod
    def reduction(self, store: Store) -> Reduction:
        """The reduction of the scan."""

    def scans(self, store: Store) -> tuple[Scan, ...]:
        """One scan; the keys of its parts include the digests of ``inputs``."""
        salts = (store.array_digest(name).sha256 for name in self.inputs)
        return (Scan.of_partitions(self.reduction(store), store, *salts),)


class SampledStage(Stage):
    """A stage of stores that hold documents, and C Q for the basis."""

    reads: ClassVar = (sample.SAMPLE,)

    def wanted(self, settings: ScanSettings) -> bool:
        """True unless the whole C is counted, or the range finder is ``halko``."""
        return settings.has_projection

    def reads_corpora(self, store: Store) -> bool:
        """True if the store holds a sample."""
        return sample.share_of(store) < 1

    def sources(self, store: Store, load: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """The documents in the store, if it holds all."""
        return sample.held_parts(store) if sample.share_of(store) == 1 else load()


@dataclass(frozen=True)
class BasisReduction:
    """Base class of reductions that multiply with the basis of a store.

    Workers in other processes read the array ``basis_name`` from ``store`` and verify its digest ``basis``. In this one
    all tasks share what is ``held``.
    """

    n_words: int
    settings: ScanSettings
    store: StorePath
    basis: ArrayDigest
    basis_name: str = "basis"
    held: Held = field(default_factory=Held, compare=False, repr=False)

    @classmethod
    def of(cls, store: Store, basis: str = "basis", **fields: Any) -> Self:
        """The reduction for a store and one of its bases; ``fields`` are the fields of the subclass."""
        recent = Held() if store.recent is None else store.recent
        held = Held({name: recent[name] for name in recent.keys() & {basis}})
        return cls(
            store.n_words, store.settings, store.path, store.array_digest(basis), basis, held, **fields
        )

    def read_basis(self) -> NDArray[np.float32]:
        """The basis in float32. Raises ``StoreError`` if it is damaged."""
        with span("commit"):
            return self.held.once("single", self._single)

    def _single(self) -> NDArray[np.float32]:
        basis = self.held.get(self.basis_name)
        if basis is None:
            basis = read_array(self.store, self.basis_name, self.basis, hint=repair_hint(self.store))
        return np.asarray(basis, np.float32)
