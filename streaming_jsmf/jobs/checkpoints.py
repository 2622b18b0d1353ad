"""Checkpoints: the results of the parts and folds of one stage, each committed by a small record.

Parts and folds are identified by keys that are hashes of their contents, so a store can gain and lose parts without
renaming any. A commit first writes the arrays to a new, uniquely named group under ``partials/``. Then a record, a Zarr
group of attributes only, appears under ``records/`` by fsync and rename, or in an object store by a single write.
Readers trust records only. A second writer of the same part (a worker that was given up for lost) writes its arrays
elsewhere and repeats the same record.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from numpy.typing import NDArray

from streaming_jsmf.config import fingerprint
from streaming_jsmf.errors import StoreError
from streaming_jsmf.storage.arrays import ArrayDigest, create_group, read_arrays, write_array
from streaming_jsmf.storage.paths import (
    StorePath,
    child_names,
    group_names,
    in_threads,
    inside,
    make_directory,
    node_exists,
    read_text,
    remove_file,
    remove_tree,
    remove_trees,
    sha256_of,
    write_json,
)

logger = logging.getLogger(__name__)

#: What a task reports of the files that it wrote: JSON values.
Record: TypeAlias = dict[str, Any]

#: Groups of a store: results that are not reduced yet, and the records that commit them.
PARTIALS, RECORDS = "partials", "records"

#: Key under which a task records the sha256 of the files that it wrote, by their path below the store.
FILES = "files"

#: Hex digits of a hash in a key.
KEY_DIGITS = 32

#: Default axes of the arrays of partial results.
AXES = ("word", "rank")


def write_record(store: StorePath, name: str, attributes: Mapping[str, Any]) -> None:
    """Commit a record, with its own sha256: a flipped bit in a sum would look like another sum."""
    record = {**attributes, "sha256": fingerprint(attributes)}
    directory = _record_path(store, name)
    make_directory(directory)
    write_json(directory / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": record})


def read_record(store: StorePath, name: str, hint: str) -> dict[str, Any] | None:
    """Return the attributes of a record, or None if it was never committed.

    Raises
    ------
    StoreError
        If the record is damaged; the message ends with ``hint``.
    """
    path = _record_path(store, name) / "zarr.json"
    try:
        attributes = dict(json.loads(read_text(path))["attributes"])
        if not {"arrays", "scalars"} <= attributes.keys():
            raise KeyError("arrays, scalars")
        if attributes.pop("sha256") != fingerprint(attributes):
            raise ValueError("its contents differ from its sha256")
        return attributes
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: record is damaged ({error}); {hint}") from error


def forget_record(store: StorePath, name: str) -> None:
    """Remove a record, if it is there."""
    remove_file(_record_path(store, name) / "zarr.json")


def _record_path(store: StorePath, name: str) -> StorePath:
    return inside(store / RECORDS, name)  # a record may contain the name of another one


@dataclass(frozen=True)
class PartialResult:
    """The contribution of a part, or of several folded parts: arrays, mostly of ``n_words`` rows, and exact scalars."""

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, float] = field(default_factory=dict)


def added(folded: PartialResult | None, partial: PartialResult) -> PartialResult:
    """Return the sum of both (``folded`` is None at first): the fold of a stage whose results are sums."""
    if folded is None:
        return partial
    arrays = {name: folded.arrays[name] + values for name, values in partial.arrays.items()}
    return PartialResult(arrays, add_scalars(folded, partial))


def add_scalars(folded: PartialResult, partial: PartialResult) -> dict[str, float]:
    """Return the sums of the scalars of both."""
    return {name: folded.scalars[name] + value for name, value in partial.scalars.items()}


def key_of(*texts: str) -> str:
    """Return the key of several texts together."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:KEY_DIGITS]


def fold_keys(keys: Sequence[str], salt: str) -> tuple[str, ...]:
    """Return the keys of the folds of the first part, of the first two, and so on; they depend on ``salt``."""
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
        Root of the store, which has the groups ``partials`` and ``records``.
    stage
        Name of the stage, such as ``range``.
    hint
        End of a message about damage.
    keep
        Whether results of parts stay after they are folded. They take the space of a factor each, but only then can
        parts be removed again.
    axes
        Names of the axes of arrays that differ from ``AXES``.
    protected
        A fold that stays when it is folded further: the previous state of the store depends on it.
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

    def folds(self) -> frozenset[str]:
        """Keys of the folds that have a record."""
        return self._keys("fold")

    def is_committed(self, key: str) -> bool:
        """Whether a part has a record."""
        return node_exists(_record_path(self.store, self._name("part", key)))

    def has_fold(self, key: str) -> bool:
        """Whether a fold has a record."""
        return node_exists(_record_path(self.store, self._name("fold", key)))

    def read_part(self, key: str) -> PartialResult:
        """Read the result of a committed part; ``StoreError`` if it is damaged."""
        return self._read("part", key)

    def read_fold(self, key: str) -> PartialResult:
        """Read a fold; ``StoreError`` if it is damaged."""
        return self._read("fold", key)

    def commit_part(self, key: str, partial: PartialResult, metadata: Mapping[str, Any]) -> None:
        """Commit the result of one part; ``metadata`` enters the history of the store."""
        self._commit("part", key, partial, metadata)

    def commit_metadata(self, key: str, metadata: Mapping[str, Any]) -> None:
        """Commit a part without a result of its own: it wrote files, or is in a committed fold already."""
        record = {"attempt": "", "arrays": {}, "scalars": {}, "note": dict(metadata)}
        write_record(self.store, self._name("part", key), record)

    def commit_fold(
        self,
        key: str,
        partial: PartialResult,
        folds: Sequence[str] = (),
        part: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Commit a fold, then remove the ``folds`` and the ``part`` that it was made from, to bound the disk space.

        ``metadata`` is that of a part whose result was never written. The record of the fold has it as well, since
        a kill may come before the record of the part.
        """
        noted = {} if metadata is None else {"part": part, "note": dict(metadata)}
        self._commit("fold", key, partial, noted)
        if part is not None and metadata is not None:
            self.commit_metadata(part, metadata)
        elif part is not None and not self.keep:
            # Its record stays: it says that the part is done, and how long it took.
            record = self._record("part", part)
            if record is not None and record["attempt"]:
                remove_tree(self._arrays(record), ignore_errors=True)
        for fold in folds:
            for folded, known in self._metadata_in_fold(fold).items():
                if not self.is_committed(folded):
                    self.commit_metadata(folded, known)
            if fold != self.protected:
                self._remove_fold(fold)

    def was_folded(self, key: str) -> bool:
        """Whether the result of a committed part was never written, or was removed after it was folded."""
        record = self._record("part", key)
        return record is not None and not (record["attempt"] and node_exists(self._arrays(record)))

    def damage(self, kind: str, key: str, *, arrays: bool = True) -> StoreError | None:
        """What is wrong with the record of a ``part`` or ``fold`` or, unless excluded, with its arrays."""
        try:
            if arrays:
                self._read(kind, key)
            else:
                self._record(kind, key)
        except StoreError as error:
            return error
        return None

    def drop(self, kind: str, key: str) -> None:
        """Remove a ``part`` or ``fold`` whatever its state; the record goes first."""
        name = self._name(kind, key)
        remove_tree(self.store / RECORDS / name, ignore_errors=True)
        for attempt in child_names(self.store / PARTIALS, f"{name}-"):
            remove_tree(self.store / PARTIALS / attempt, ignore_errors=True)

    def drop_damaged_files(self) -> None:
        """Remove parts whose record or ``FILES`` are damaged. Reads all these files once."""
        damaged = [key for key in sorted(self.parts()) if not self._has_intact_files(key)]
        for key in damaged:
            self.drop("part", key)
        if damaged:
            logger.warning(
                "%s: damaged or incomplete parts of %s are computed again: %s",
                self.store,
                self.stage,
                ", ".join(damaged),
            )

    def metadata(self, key: str) -> dict[str, Any] | None:
        """The metadata of a committed part, from its record or that of the fold it is in; None if there is neither."""
        record = self._record("part", key)
        if record is not None:
            return dict(record["note"])
        found = (self._metadata_in_fold(fold).get(key) for fold in self.folds())
        return next((metadata for metadata in found if metadata is not None), None)

    def read_metadata(self, key: str) -> dict[str, Any]:
        """As ``metadata``; ``StoreError`` if the part is not committed."""
        found = self.metadata(key)
        if found is None:
            raise self._missing("part", key)
        return found

    def history(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """The metadata of the committed parts, in the order of ``keys``."""
        committed = self.parts()
        recorded = [key for key in keys if key in committed]
        known = dict(zip(recorded, in_threads(self.metadata, recorded), strict=True))
        for fold in self.folds():
            known = {**self._metadata_in_fold(fold), **known}
        found = ((index, known.get(key)) for index, key in enumerate(keys))
        return [{"partition": index, **metadata} for index, metadata in found if metadata is not None]

    def clear(self) -> None:
        """Remove all results of the stage and their records."""
        prefixes = (self._name("part", ""), self._name("fold", ""))
        for group in (self.store / RECORDS, self.store / PARTIALS):
            names = child_names(group, f"{self.stage}-")
            remove_trees([group / name for name in names if name.startswith(prefixes)])

    def kept(self, fold: str, parts: Iterable[str]) -> dict[str, str]:
        """Names of the records that stay when a stage is complete, and of their results: those of the last fold and, if
        results are kept, of the parts."""
        wanted = [("fold", fold), *(("part", key) for key in parts if self.keep)]
        records = {self._name(*each): self._record(*each) for each in wanted}
        return {name: str(record["attempt"]) for name, record in records.items() if record is not None}

    def _name(self, kind: str, key: str) -> str:
        return f"{self.stage}-{kind}-{key}"

    def _keys(self, kind: str) -> frozenset[str]:
        prefix = self._name(kind, "")
        return frozenset(name.removeprefix(prefix) for name in group_names(self.store / RECORDS, prefix))

    def _record(self, kind: str, key: str) -> dict[str, Any] | None:
        return read_record(self.store, self._name(kind, key), self.hint)

    def _arrays(self, record: Mapping[str, Any]) -> StorePath:
        return inside(self.store / PARTIALS, str(record["attempt"]))

    def _metadata_in_fold(self, key: str) -> dict[str, dict[str, Any]]:
        """The metadata that a fold commits for a part, by the key of the part; empty if there are none."""
        record = self._record("fold", key)
        part = None if record is None else record["note"].get("part")
        return {} if record is None or part is None else {str(part): dict(record["note"]["note"])}

    def _has_intact_files(self, key: str) -> bool:
        try:
            files = (self.metadata(key) or {}).get(FILES, {})
            return all(sha256_of(self.store / name) == sha256 for name, sha256 in files.items())
        except (StoreError, FileNotFoundError):
            return False

    def _commit(self, kind: str, key: str, partial: PartialResult, metadata: Mapping[str, Any]) -> None:
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
        scalars = dict(partial.scalars)
        record = {"attempt": attempt.name, "arrays": digests, "scalars": scalars, "note": dict(metadata)}
        write_record(self.store, name, record)

    def _read(self, kind: str, key: str) -> PartialResult:
        name, record = self._name(kind, key), self._record(kind, key)
        if record is None:
            raise self._missing(kind, key)
        if not record["attempt"]:
            raise StoreError(f"{self.store}: {name} was folded and not kept; {self.hint}")
        digests = {array: ArrayDigest.from_fields(fields) for array, fields in record["arrays"].items()}
        return PartialResult(read_arrays(self._arrays(record), digests, hint=self.hint), record["scalars"])

    def _missing(self, kind: str, key: str) -> StoreError:
        return StoreError(f"{self.store}: record {self._name(kind, key)} is missing; {self.hint}")

    def _remove_fold(self, key: str) -> None:
        """The record goes first: what it names must be there as long as it is."""
        record = self._record("fold", key)
        if record is not None:
            remove_tree(self.store / RECORDS / self._name("fold", key), ignore_errors=True)
            remove_tree(self._arrays(record), ignore_errors=True)
