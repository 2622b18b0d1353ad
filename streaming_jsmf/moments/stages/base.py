"""What a stage of a scan provides, and what stages share: reductions with a basis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.jobs.checkpoints import Held, PartialResult, SumReduction
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Reduction
from streaming_jsmf.linalg.typing import Single
from streaming_jsmf.moments.records import Records
from streaming_jsmf.storage.arrays import ArrayDigest, Variable, read_panels
from streaming_jsmf.storage.paths import StorePath

#: One scan over the partitions: what it computes, and the keys of its parts and folds.
Scan: TypeAlias = tuple[Reduction, FoldOrder]


class Stage(ABC):
    """A pass over the documents, from its scans to its final arrays. Stateless; listed in ``stages.STAGES``.

    name : One of ``records.STAGES``.
    variables : Its final arrays.
    inputs : Final arrays of earlier stages that its own depend on; if they change, its results are stale.
    reads : What else it reads and is worth keeping in memory during its scan.
    """

    name: ClassVar[str]
    variables: ClassVar[Mapping[str, Variable]]
    inputs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def scans(self, store: Records) -> Sequence[Scan]:
        """Its scans over the partitions, in order."""

    def sources(self, store: Records, load: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """What its tasks read of each partition: by default the partitions, which ``load`` locates."""
        del store
        return load()

    @abstractmethod
    def final(self, store: Records, folded: Iterator[PartialResult]) -> PartialResult:
        """The final arrays by name, and scalars for the record, from the last fold of each scan.

        The folds are read lazily. Runs with one BLAS thread.
        """


@dataclass(frozen=True)
class BasisReduction(SumReduction):
    """Base class of sums of products with the basis of a store.

    Workers in other processes read the ``columns`` (from, to) of the array ``basis_name`` from ``store`` and verify its
    digest ``basis``. In this one all tasks share what is ``held``.
    """

    n_words: int
    settings: ScanSettings
    store: StorePath
    basis: ArrayDigest
    basis_name: str
    hint: str
    columns: tuple[int, int]
    held: Held = field(default_factory=Held, compare=False, repr=False)

    @classmethod
    def of(cls, store: Records, basis: str = "basis", columns: slice | None = None) -> Self:
        """The reduction for a store and one of its bases, or some columns of it."""
        recent = store.recent or Held()
        held = Held({name: recent[name] for name in recent.keys() & {basis}})
        digest = store.array_digest(basis)
        first, last, _ = (columns or slice(None)).indices(digest.shape[1])
        return cls(store.n_words, store.settings, store.path, digest, basis, store.hint, (first, last), held)

    def read_basis(self) -> Single:
        """The columns of the basis in float32. Raises ``StoreError`` if it is damaged."""

        def single() -> Single:
            columns, basis = slice(*self.columns), self.held.get(self.basis_name)
            if basis is not None:
                return np.ascontiguousarray(basis[:, columns], np.float32)
            found = np.empty((self.basis.shape[0], columns.stop - columns.start), np.float32)
            for rows, panel in read_panels(self.store, self.basis_name, self.basis, hint=self.hint):
                found[rows] = panel[:, columns]
            return found

        return self.held.once("single", single)
