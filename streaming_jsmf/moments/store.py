"""A moments store: its manifest, its records and verified arrays, and what a stage of its scan has to provide.

Layout::

    MOMENTS/            attributes: kind, manifest
      word              vocabulary
      row_sum ... basis, basis_eigenvalues, projection             final arrays, each named by a record
      records/          one attributes-only group for each commit
      partials/         results of partitions, with their documents, and folds
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.checkpoints import (
    FOLD,
    PARTIALS,
    RECORDS,
    Checkpoints,
    Held,
    PartialResult,
    forget_record,
    key_of,
    read_record,
    write_record,
)
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Reduction
from streaming_jsmf.moments.manifest import WORD_IDS, CorpusEntry, Manifest, root_attributes
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    Variable,
    create_group,
    read_array,
    replace_attributes,
    write_arrays,
)
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import StorePath, child_names, remove_trees
from streaming_jsmf.storage.results import package_versions, utc_now

Value = TypeVar("Value")

#: Name of the vocabulary's record; the vocabulary is written when the store is created.
WORDS = "words"


def repair_hint(store: StorePath) -> str:
    """The end of a message about damage that can be repaired."""
    return f"run its scan again to repair it: streaming-jsmf scan CORPUS {store}"


@dataclass(frozen=True)
class Scan:
    """One scan over the partitions; ``order`` has the keys of its parts and folds, hashes of what determines them."""

    reduction: Reduction
    order: FoldOrder

    @property
    def keys(self) -> tuple[str, ...]:
        return self.order.keys

    @classmethod
    def of_partitions(cls, reduction: Reduction, store: Store, *salts: str) -> Scan:
        """A scan with the basis; ``salts`` are its dependencies besides the partition content."""
        keys = tuple(key_of(name, *salts) for name in store.manifest.contents)
        return cls(reduction, store.manifest.order_of(keys, store.base))


class Stage(ABC):
    """A stage from its scans to its final arrays, including its repair. Stateless; listed in ``stages.STAGES``.

    Attributes
    ----------
    variables : Its final arrays.
    inputs : Final arrays of earlier stages that its own depend on; if they change, its results are stale.
    reads : Further arrays that it reads and that are worth keeping in memory during a scan.
    part_axes : Axes of part arrays that are not (word, rank).
    unfolded : Arrays of its parts that are not folded.
    of_base : Whether it depends only on the fold that determines the basis, so that it stays valid when documents are
        added.
    """

    name: ClassVar[str]
    variables: ClassVar[Mapping[str, Variable]]
    inputs: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]] = ()
    part_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    unfolded: ClassVar[frozenset[str]] = frozenset()
    of_base: ClassVar[bool] = False

    def wanted(self, settings: ScanSettings) -> bool:
        """Whether a store with these settings has the stage; True by default."""
        del settings
        return True

    def keeps_parts(self, settings: ScanSettings) -> bool:
        """Whether the parts are kept, so that partitions can be removed and selected; False by default."""
        del settings
        return False

    def keeps_fold(self, settings: ScanSettings) -> bool:
        """Whether the last fold is kept, so that changes and repairs can start from it; False by default."""
        del settings
        return False

    def scans(self, store: Store) -> tuple[Scan, ...]:
        """Its scans over the partitions, in order; none by default, for a stage of earlier results only."""
        del store
        return ()

    def reads_corpora(self, store: Store) -> bool:
        """Whether its scans read the corpora; True by default."""
        del store
        return True

    def sources(self, store: Store, load: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """What its tasks read of each partition: by default the partitions, which ``load`` locates."""
        del store
        return load()

    @abstractmethod
    def final(self, store: Store, folded: Iterator[PartialResult]) -> PartialResult:
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


VOCABULARY = {"word": Variable(("word",), "vocabulary")}


@dataclass(frozen=True)
class Store(ABC):
    """A store as its scan and its stages see it, complete or not. Arrays are verified when they are read."""

    path: StorePath
    manifest: Manifest
    #: What stages have read, committed or computed, by name, see ``forget``; None outside ``run_stages``.
    recent: Held | None = field(default=None, compare=False, repr=False, kw_only=True)

    @cached_property
    def settings(self) -> ScanSettings:
        return self.manifest.scan_settings

    @property
    def n_words(self) -> int:
        return self.manifest.n_words

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a complete store, in order."""

    @property
    def reads_twice(self) -> bool:
        """Whether any stage after scan 1 reads the corpora."""
        return sum(stage.reads_corpora(self) for stage in self.stages) > 1

    @cached_property
    def order(self) -> FoldOrder:
        """Folding order of scan 1."""
        return self.manifest.order

    @property
    def total(self) -> str:
        """Key of the last fold of scan 1, which covers all parts of the store."""
        return self.order.total

    @property
    def base(self) -> str:
        """Key of the fold of scan 1 that the basis is computed from."""
        return self.manifest.base or self.total

    @property
    def missing_stages(self) -> tuple[str, ...]:
        """Names of the stages that are not committed yet."""
        return tuple(stage.name for stage in self.stages if self.outcome(stage.name) is None)

    def checkpoints(self, stage: str) -> Checkpoints:
        made = self._named(stage)
        keep, hint = made.keeps_parts(self.settings), repair_hint(self.path)
        return Checkpoints(
            self.path, stage, hint, keep, made.part_axes, unfolded=made.unfolded, held=self.recent
        )

    def outcome(self, stage: str) -> dict[str, Any] | None:
        """The committed record of a stage (digests, scalars, history), or None.

        A record that covers other partitions or words than the manifest belongs to an earlier state and is ignored.
        """
        record = read_record(self.path, stage, repair_hint(self.path))
        return record if record is not None and record.get("covers") == self.covers(stage) else None

    def has_outcome(self, stage: str) -> bool:
        """Whether a stage is committed and its record intact."""
        try:
            return self.outcome(stage) is not None
        except StoreError:
            return False

    def is_complete(self) -> bool:
        """Whether all stages are committed and their records intact."""
        return all(self.has_outcome(stage.name) for stage in self.stages)

    def scalars(self, stage: str) -> Mapping[str, float]:
        record = self.outcome(stage)
        assert record is not None, "stages run in order"
        scalars: Mapping[str, float] = record["scalars"]
        return scalars

    def covers(self, stage: str) -> str:
        """Key of everything that the outcome of a stage is computed from."""
        if stage == WORDS:
            return self.manifest.vocabulary
        made = self._named(stage)
        fold = self.base if made.of_base else self.total
        if not made.inputs:
            return fold
        # A different basis, for example one recomputed on another processor during a repair, makes old results stale.
        found = (self._fields_of(name) for name in made.inputs)
        return key_of(fold, *("" if fields is None else fields["sha256"] for fields in found))

    @property
    def covered_fold(self) -> str | None:
        """Key of the fold that the committed outcome of scan 1 covers, in this manifest or an earlier one."""
        record = read_record(self.path, "range", repair_hint(self.path))
        return None if record is None else str(record.get("covers"))

    @property
    def record_names(self) -> tuple[str, ...]:
        return (WORDS, *(stage.name for stage in self.stages))

    def _named(self, stage: str) -> Stage:
        return next(each for each in self.stages if each.name == stage)

    def _variables(self, stage: str) -> Mapping[str, Variable]:
        return VOCABULARY if stage == WORDS else self._named(stage).variables

    def _fields_of(self, name: str) -> dict[str, Any] | None:
        """The committed digest of a final array as stored in its record, or None."""
        maker = next((stage for stage in self.record_names if name in self._variables(stage)), None)
        record = None if maker is None else self.outcome(maker)
        fields: dict[str, Any] | None = None if record is None else record["arrays"].get(name)
        return fields

    def array_digest(self, name: str) -> ArrayDigest:
        """The committed digest of a final array. Raises ``StoreError`` if its stage is not complete."""
        fields = self._fields_of(name)
        if fields is None:
            raise StoreError(f"{self.path}: {name} is not committed; run the same scan again to finish it")
        return ArrayDigest.from_fields(fields)

    def read(self, name: str) -> NDArray[Any]:
        """Read a final array and verify its digest. Raises ``StoreError`` if it is damaged."""
        hint = repair_hint(self.path)
        return self.once(name, lambda: read_array(self.path, name, self.array_digest(name), hint=hint))

    def once(self, name: str, compute: Callable[[], Value]) -> Value:
        """The value of ``compute``, or the one that is ``recent`` under this name."""
        return compute() if self.recent is None else self.recent.once(name, compute)

    def forget(self, stages: Sequence[Stage], *, fold: bool = False) -> None:
        """Keep of what is ``recent`` only arrays that these stages read again and, on request, the fold."""
        wanted = {FOLD} if fold else set()
        wanted.update(*(stage.inputs + stage.reads for stage in stages))
        if self.recent is not None:
            for name in self.recent.keys() - wanted:
                del self.recent[name]

    def word_ids(self, entry: CorpusEntry) -> NDArray[np.int64] | None:
        """The id in the store of each word of a corpus, or None if unchanged. Raises ``StoreError`` if damaged."""
        known = entry.word_ids
        if known is None:
            return None
        expected = ArrayDigest(known.sha256, (known.n_words,), "int64")
        ids: NDArray[np.int64] = read_array(self.path, known.name, expected, hint=repair_hint(self.path))
        return ids

    def replace_manifest(self, manifest: Manifest) -> Self:
        """Replace the manifest of the store atomically. Stages that cover another state become missing."""
        replace_attributes(self.path, root_attributes(manifest))
        return replace(self, manifest=manifest)

    def commit(
        self,
        stage: str,
        arrays: Mapping[str, NDArray[Any]],
        scalars: Mapping[str, float],
        history: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Write the final arrays of a stage, then the record that commits them.

        The record of an earlier state is deleted first, since its arrays are overwritten. The record of the current
        state, whose arrays are damaged, stays until it is replaced. Its history is kept if it is longer: the records
        of the parts may be gone.
        """
        if self.has_outcome(stage):
            known = self.outcome(stage)
            assert known is not None
            history = max(history, known["history"], key=len)
        else:
            forget_record(self.path, stage)
        _commit(self.path, stage, self.covers(stage), self._variables(stage), arrays, scalars, history)
        if self.recent is not None:
            self.recent.update(arrays)

    def leftovers(self) -> list[StorePath]:
        """Paths in a complete store that are not part of it: partial results and results of earlier states.

        The parts of scan 1 and the last folds are kept; see ``Stage``. Lists three directories.
        """
        kept: dict[str, str] = {}
        for stage in self.stages:
            for scan in stage.scans(self) if stage.keeps_fold(self.settings) else ():
                kept |= self.checkpoints(stage.name).kept(scan.order.total, scan.keys)
        ids = {entry.word_ids.name for entry in self.manifest.corpora if entry.word_ids is not None}
        made = tuple(f"{stage.name}-{kind}-" for stage in self.stages for kind in ("part", "fold"))
        staying: tuple[tuple[StorePath, tuple[str, ...], Collection[str]], ...] = (
            (self.path / RECORDS, made, kept.keys()),
            (self.path / PARTIALS, made, kept.values()),
            (self.path, (WORD_IDS,), ids),
        )
        return [
            group / name
            for group, prefixes, names in staying
            for name in child_names(group)
            if name.startswith(prefixes) and name not in names
        ]

    def is_cleared(self) -> bool:
        """Whether the store is complete, without leftovers, and not locked by a running or killed process."""
        try:
            return self.is_complete() and not (is_left(self.path) or self.leftovers())
        except StoreError:
            return False

    def remove_leftovers(self) -> None:
        """Remove the ``leftovers``. This is the last step of every change; a run after a kill repeats it."""
        remove_trees(*self.leftovers())


def write_empty_store(path: StorePath, manifest: Manifest, words: Sequence[str]) -> None:
    """Write vocabulary and manifest into an empty directory. The root group is written last and completes the store."""
    for part in (PARTIALS, RECORDS):
        create_group(path / part, {})
    arrays = {"word": np.array(words, dtype=object)}
    _commit(path, WORDS, manifest.vocabulary, VOCABULARY, arrays, {}, ())
    create_group(path, root_attributes(manifest))


def _commit(
    path: StorePath,
    name: str,
    covers: str,
    variables: Mapping[str, Variable],
    arrays: Mapping[str, NDArray[Any]],
    scalars: Mapping[str, float],
    history: Sequence[Mapping[str, Any]],
) -> None:
    record = {
        "covers": covers,
        "arrays": write_arrays(path, arrays, variables),
        "scalars": dict(scalars),
        "history": list(history),
        # Differs between runs, so it must not enter any digest or fingerprint.
        "made": {"committed": utc_now(), "versions": package_versions()},
    }
    write_record(path, name, record)
