"""The checkpoints of a stage: which parts are committed, how far they are folded, and nothing half done.

Parts and folds are known by keys that are hashes of what they hold, so a store may gain and lose parts without any
being renamed or mistaken for another. Commit protocol: the arrays go into a new, uniquely named group under
``partials/``; then one small record, a Zarr group of attributes only, appears under ``records/`` by fsync and rename,
or in an object store by a single write. Readers trust records only. A second writer of the same part (a lost worker
that comes back) writes elsewhere and repeats the same record, so it harms nothing.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.records import PARTIALS, RECORDS, has_record, read_record, write_record
from streaming_jsmf.storage.arrays import ArrayDigest, create_group, read_array, write_array
from streaming_jsmf.storage.paths import (
    StorePath,
    child_names,
    group_names,
    in_threads,
    inside,
    node_exists,
    remove_tree,
    remove_trees,
)

#: Hex digits of a hash that a key keeps.
KEY_DIGITS = 32

#: Axes of arrays of partial results that no other axes are given for.
AXES = ("word", "rank")


@dataclass(frozen=True)
class PartialResult:
    """What a part, or a fold of several, contributes: arrays, mostly of ``n_words`` rows, and exact scalars."""

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, float] = field(default_factory=dict)


def added(folded: PartialResult | None, partial: PartialResult) -> PartialResult:
    """``partial`` added to what is folded (None at first): the fold of a stage whose results are sums."""
    if folded is None:
        return partial
    arrays = {name: folded.arrays[name] + values for name, values in partial.arrays.items()}
    return PartialResult(arrays, add_scalars(folded, partial))


def add_scalars(folded: PartialResult, partial: PartialResult) -> dict[str, float]:
    """The scalars of both, added."""
    return {name: folded.scalars[name] + value for name, value in partial.scalars.items()}


def key_of(*texts: str) -> str:
    """A key for what the texts say together."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:KEY_DIGITS]


def fold_keys(keys: Sequence[str], salt: str) -> tuple[str, ...]:
    """Key of the fold of the first part, of the first two, and so on; another ``salt`` gives other keys."""
    running, folds = hashlib.sha256(salt.encode()), []
    for key in keys:
        running.update(f"\n{key}".encode())
        folds.append(running.hexdigest()[:KEY_DIGITS])
    return tuple(folds)


@dataclass(frozen=True)
class Checkpoints:
    """Records and partial results of one stage of one Zarr store.

    Parameters
    ----------
    store
        Root of the store, which holds the groups ``partials`` and ``records``.
    stage
        Name of the stage, such as ``range``.
    hint
        The end of a message about damage.
    keep
        Whether results of parts stay when they are folded; the weight of a factor for each, but then parts can be
        taken out again.
    axes
        Names of the axes of arrays, where they are not ``AXES``.
    protected
        A fold that is not dropped when it is folded further: the store as it was before hangs on it.
    """

    store: StorePath
    stage: str
    hint: str
    keep: bool = False
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    protected: str | None = None

    def parts(self) -> frozenset[str]:
        """Keys of the parts that have a record."""
        return self._keys("part")

    def folded(self, folds: Sequence[str]) -> int:
        """How many leading parts are folded together, by the keys of all folds: 0 at first."""
        known = self._keys("fold")
        return max((i + 1 for i, key in enumerate(folds) if key in known), default=0)

    def is_committed(self, key: str) -> bool:
        """Whether a part has a record."""
        return has_record(self.store, self._name("part", key))

    def has_fold(self, key: str) -> bool:
        """Whether a fold has a record."""
        return has_record(self.store, self._name("fold", key))

    def commit_part(self, key: str, partial: PartialResult, note: Mapping[str, Any]) -> None:
        """Commit the result of one part; ``note`` is kept for the history of the store."""
        self._commit("part", key, partial, note)

    def commit_fold(
        self,
        key: str,
        partial: PartialResult,
        folds: Sequence[str] = (),
        part: str | None = None,
        note: Mapping[str, Any] | None = None,
    ) -> None:
        """Commit a fold, then drop the ``folds`` and the ``part`` that it was made from.

        A factor weighs more than the Parquet it comes from, so this is what bounds the disk of a scan. ``note`` is that
        of a part which was never written: the fold commits it as well, since a kill may come before its own record.
        """
        self._commit("fold", key, partial, {} if note is None else {"part": part, "note": dict(note)})
        if part is not None and note is not None:
            self._note_folded(part, note)
        elif part is not None and not self.keep:
            self._drop_arrays("part", part)
        for fold in folds:
            for folded, told in self._notes_of_fold(fold).items():
                if not self.is_committed(folded):
                    self._note_folded(folded, told)
            if fold != self.protected:
                self._forget("fold", fold)

    def _note_folded(self, key: str, note: Mapping[str, Any]) -> None:
        """Record a part that is in a committed fold already; its own result was never written."""
        record = {"attempt": "", "arrays": {}, "scalars": {}, "note": dict(note)}
        write_record(self.store, self._name("part", key), record)

    def was_folded(self, key: str) -> bool:
        """Whether a part went into a committed fold: without being written, or its arrays were dropped since then."""
        record = self._record(self._name("part", key))
        if record is None:
            return False
        return not record["attempt"] or not node_exists(self._arrays(record))

    def read_part(self, key: str) -> PartialResult:
        """Read back the result of a committed part."""
        return self._read("part", key)

    def read_fold(self, key: str) -> PartialResult:
        """Read back a fold."""
        return self._read("fold", key)

    def damage(self, kind: str, key: str, *, arrays: bool = True) -> StoreError | None:
        """What is wrong with a ``part`` or ``fold``: with its record or, if asked, its arrays, which are read."""
        try:
            if arrays:
                self._read(kind, key)
            else:
                self._record(self._name(kind, key))
        except StoreError as error:
            return error
        return None

    def drop(self, kind: str, key: str) -> None:
        """Take back a ``part`` or ``fold`` whatever its state; the record goes first."""
        name = self._name(kind, key)
        remove_tree(self.store / RECORDS / name, ignore_errors=True)
        for attempt in child_names(self.store / PARTIALS, f"{name}-"):
            remove_tree(self.store / PARTIALS / attempt, ignore_errors=True)

    def folds(self) -> frozenset[str]:
        """Keys of the folds that have a record."""
        return self._keys("fold")

    def history(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The notes of the committed parts, in the order of ``keys``."""
        there = self.parts()
        recorded = [key for key in keys if key in there]
        notes = dict(zip(recorded, in_threads(self.note, recorded), strict=True))
        for fold in self.folds():
            notes = {**self._notes_of_fold(fold), **notes}
        found = ((index, notes.get(key)) for index, key in enumerate(keys))
        return [{"partition": index, **note} for index, note in found if note is not None]

    def note(self, key: str) -> dict[str, Any] | None:
        """The note of a committed part, from its record or that of the fold it went into; None if neither is there."""
        record = self._record(self._name("part", key))
        if record is not None:
            return dict(record["note"])
        for fold in self.folds():
            told = self._notes_of_fold(fold)
            if key in told:
                return told[key]
        return None

    def _notes_of_fold(self, key: str) -> dict[str, dict[str, Any]]:
        """The note that a fold commits for a part, by the part's key; none if it is gone or has none."""
        record = self._record(self._name("fold", key))
        noted = None if record is None else record["note"].get("part")
        return {} if record is None or noted is None else {str(noted): dict(record["note"]["note"])}

    def clear(self) -> None:
        """Remove all results of the stage and their records."""
        prefixes = (self._name("part", ""), self._name("fold", ""))
        for group in (self.store / RECORDS, self.store / PARTIALS):
            names = child_names(group, f"{self.stage}-")
            remove_trees([group / name for name in names if name.startswith(prefixes)])

    def kept(self, fold: str, parts: Iterable[str]) -> dict[str, str]:
        """Names of the records that stay when a stage is complete, and of their results: of the fold and, if results
        are kept, of the parts."""
        names = [self._name("fold", fold), *(self._name("part", key) for key in parts if self.keep)]
        records = {name: self._record(name) for name in names}
        return {name: str(record["attempt"]) for name, record in records.items() if record is not None}

    def _record(self, name: str) -> dict[str, Any] | None:
        return read_record(self.store, name, self.hint)

    def _keys(self, kind: str) -> frozenset[str]:
        prefix = f"{self.stage}-{kind}-"
        found = group_names(self.store / RECORDS, prefix)
        return frozenset(name.removeprefix(prefix) for name in found)

    def _arrays(self, record: Mapping[str, Any]) -> StorePath:
        return inside(self.store / PARTIALS, str(record["attempt"]))

    def _name(self, kind: str, key: str) -> str:
        return f"{self.stage}-{kind}-{key}"

    def _commit(self, kind: str, key: str, partial: PartialResult, note: Mapping[str, Any]) -> None:
        # A worker that outlives its scan must not bring a store back that was removed.
        if not node_exists(self.store):
            raise StoreError(f"{self.store}: the store was removed while it was being written")
        name = self._name(kind, key)
        attempt = self.store / PARTIALS / f"{name}-{uuid.uuid4().hex}"
        create_group(attempt, {})
        digests = {
            array: write_array(attempt, array, values, self.axes.get(array, AXES[: values.ndim])).fields()
            for array, values in partial.arrays.items()
        }
        record = {
            "attempt": attempt.name,
            "arrays": digests,
            "scalars": dict(partial.scalars),
            "note": dict(note),
        }
        write_record(self.store, name, record)

    def _read(self, kind: str, key: str) -> PartialResult:
        name = self._name(kind, key)
        record = self._record(name)
        if record is None:
            raise StoreError(f"{self.store}: record {name} is missing; {self.hint}")
        if not record["attempt"]:
            raise StoreError(f"{self.store}: {name} was folded and not kept; {self.hint}")
        group = self._arrays(record)
        arrays = {
            array: read_array(group, array, ArrayDigest.from_fields(fields), hint=self.hint)
            for array, fields in record["arrays"].items()
        }
        return PartialResult(arrays, record["scalars"])

    def _drop_arrays(self, kind: str, key: str) -> None:
        """The record stays: it says that the part is done, and how long it took."""
        record = self._record(self._name(kind, key))
        if record is not None and record["attempt"]:
            remove_tree(self._arrays(record), ignore_errors=True)

    def _forget(self, kind: str, key: str) -> None:
        """The record goes first: what it names must be there as long as it is."""
        record = self._record(self._name(kind, key))
        if record is not None:
            remove_tree(self.store / RECORDS / self._name(kind, key), ignore_errors=True)
            remove_tree(self._arrays(record), ignore_errors=True)
