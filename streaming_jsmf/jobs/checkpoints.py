"""Checkpoints: results of the parts and folds of one stage, each committed by a small record.

Keys are hashes of contents, so a store can gain and lose parts without renaming others. A commit writes the arrays to
a uniquely named group under ``partials/``, then atomically creates a record under ``records/``, a Zarr group with
attributes only. Readers trust only records, so a second writer of the same part does no harm.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import StoreError
from streaming_jsmf.fingerprint import sealed, unsealed
from streaming_jsmf.storage.arrays import ArrayDigest, create_group, read_arrays, write_array
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.paths import (
    StorePath,
    child_names,
    group_names,
    inside,
    make_directory,
    node_exists,
    read_bytes,
    remove_file,
    remove_trees,
    sha256_of,
    write_json,
)

logger = logging.getLogger(__name__)

#: What a record commits: the result of a part, or a fold of parts.
Kind: TypeAlias = Literal["part", "fold"]

#: Metadata that a task returns about the files it wrote: JSON values.
Record: TypeAlias = dict[str, Any]

#: Groups of a store: partial results, and the records that commit them.
PARTIALS, RECORDS = "partials", "records"

#: Record key of the sha256 of each file that a task wrote, by path relative to the store.
FILES = "files"

#: Number of hex digits of a key.
KEY_DIGITS = 32

#: Default axes of the arrays of partial results.
AXES = ("word", "rank")


def write_record(store: StorePath, name: str, attributes: Mapping[str, Any]) -> None:
    """Commit a record together with its sha256, which detects flipped bits in sums."""
    record = sealed(attributes)
    directory = _record_path(store, name)
    make_directory(directory)
    write_json(directory / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": record})


def read_record(store: StorePath, name: str, hint: str) -> dict[str, Any] | None:
    """Return the attributes of a record, or None if it is missing.

    Raises ``StoreError`` if the record is damaged; the message ends with ``hint``.
    """
    path = _record_path(store, name) / "zarr.json"
    try:
        attributes = dict(json.loads(read_bytes(path))["attributes"])
        if not {"arrays", "scalars"} <= attributes.keys():
            raise KeyError("arrays, scalars")
        return unsealed(attributes)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: record is damaged ({error}); {hint}") from error


def forget_record(store: StorePath, name: str) -> None:
    """Remove a record if it exists."""
    remove_file(_record_path(store, name) / "zarr.json")


def _record_path(store: StorePath, name: str) -> StorePath:
    return inside(store / RECORDS, name)  # a record may contain the name of another one


@dataclass(frozen=True)
class PartialResult:
    """Contribution of one or several parts: arrays, mostly with ``n_words`` rows, and exact scalars.

    ``note`` has JSON values about files that the task of a part wrote.
    """

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, float] = field(default_factory=dict)
    note: Record = field(default_factory=dict)


def added(folded: PartialResult | None, partial: PartialResult) -> PartialResult:
    """Return the sum of two results (``folded`` is None at first): the fold of stages whose results are sums."""
    if folded is None:
        return partial
    arrays = {name: folded.arrays[name] + values for name, values in partial.arrays.items()}
    return PartialResult(arrays, add_scalars(folded, partial))


def added_in_place(folded: PartialResult | None, partial: PartialResult) -> PartialResult:
    """As ``added``, in float64 and the memory of ``folded``, for arrays that are large."""
    if folded is None:
        arrays = {name: values.astype(np.float64, copy=False) for name, values in partial.arrays.items()}
        return PartialResult(arrays, partial.scalars)
    for name, values in partial.arrays.items():
        total = folded.arrays[name]
        total += values
    return PartialResult(folded.arrays, add_scalars(folded, partial))


def add_scalars(folded: PartialResult, partial: PartialResult) -> dict[str, float]:
    """Return the sums of the scalars of two results."""
    return {name: folded.scalars[name] + value for name, value in partial.scalars.items()}


def key_of(*texts: str) -> str:
    """Return the joint key of several texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:KEY_DIGITS]


def fold_keys(keys: Sequence[str], salt: str) -> tuple[str, ...]:
    """Return the keys of the folds of the first part, the first two parts, and so on, for a given ``salt``."""
    running, folds = hashlib.sha256(salt.encode()), []
    for key in keys:
        running.update(f"\n{key}".encode())
        folds.append(running.hexdigest()[:KEY_DIGITS])
    return tuple(folds)


@dataclass(frozen=True)
class Checkpoints:
    """Records and partial results of one stage in a Zarr store.

    Parameters
    ----------
    store : Root of the store, which has the groups ``partials`` and ``records``.
    hint : Advice appended to messages about damage.
    keep : Keep the results of parts after folding, so that a part can be removed later.
    unfolded : Arrays of parts that are not folded; they are read from the kept parts.
    axes : Axis names by array, where they differ from ``AXES``.
    protected : Key of a fold that is never removed, because the previous state of the store depends on it.
    """

    store: StorePath
    stage: str
    hint: str
    keep: bool = False
    axes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unfolded: frozenset[str] = frozenset()
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

    def read_part(self, key: str, *, folding: bool = False) -> PartialResult:
        """Read the result of a committed part, or what is folded of it; raise ``StoreError`` if it is damaged."""
        return self._read("part", key, self.unfolded if folding else frozenset())

    def read_fold(self, key: str) -> PartialResult:
        """Read a fold; raise ``StoreError`` if it is damaged."""
        return self._read("fold", key)

    def commit_part(self, key: str, partial: PartialResult, metadata: Mapping[str, Any]) -> None:
        """Commit the result of one part; ``metadata`` is added to the history of the store."""
        self._commit("part", key, partial, metadata)

    def commit_fold(
        self, key: str, partial: PartialResult, folds: Sequence[str] = (), part: str | None = None
    ) -> None:
        """Commit a fold, then remove the ``folds`` and the ``part`` that it combines, to bound disk usage."""
        self._commit("fold", key, partial, {})
        if part is not None and not self.keep:
            # Keep the record: it marks the part as done and has its cost.
            record = self._record("part", part)
            if record is not None and record["attempt"]:
                remove_trees(self._arrays(record))
        for fold in folds:
            if fold != self.protected:
                self._remove_fold(fold)

    def was_folded(self, key: str) -> bool:
        """Whether the result of a committed part was removed after folding."""
        record = self._record("part", key)
        return record is not None and not (record["attempt"] and node_exists(self._arrays(record)))

    def damage(self, kind: Kind, key: str, *, arrays: bool = True) -> StoreError | None:
        """Return the error if the record of a ``part`` or ``fold`` or, unless excluded, its arrays are damaged."""
        try:
            if arrays:
                self._read(kind, key)
            else:
                self._record(kind, key)
        except StoreError as error:
            return error
        return None

    def drop(self, kind: Kind, key: str) -> None:
        """Remove a ``part`` or ``fold`` in any state, its record first."""
        name = self._name(kind, key)
        remove_trees(self.store / RECORDS / name)
        for attempt in child_names(self.store / PARTIALS, f"{name}-"):
            remove_trees(self.store / PARTIALS / attempt)

    def drop_damaged_files(self) -> None:
        """Remove parts whose record or ``FILES`` are damaged. Reads each file once."""
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

    def read_metadata(self, key: str) -> dict[str, Any]:
        """Return the metadata of a committed part from its record."""
        record = self._record("part", key)
        if record is None:
            raise self._missing("part", key)
        return dict(record["note"])

    def history(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the metadata of the committed parts in the order of ``keys``."""
        committed = self.parts()
        recorded = [(index, key) for index, key in enumerate(keys) if key in committed]
        found = in_threads(self.read_metadata, [key for _, key in recorded])
        return [
            {"partition": index, **metadata} for (index, _), metadata in zip(recorded, found, strict=True)
        ]

    def clear(self) -> None:
        """Remove all results of the stage and their records."""
        prefixes = (self._name("part", ""), self._name("fold", ""))
        for group in (self.store / RECORDS, self.store / PARTIALS):
            names = child_names(group, f"{self.stage}-")
            remove_trees(*(group / name for name in names if name.startswith(prefixes)))

    def kept(self, fold: str, parts: Iterable[str]) -> dict[str, str]:
        """Return the records kept by a complete stage and their groups: the last fold and, with ``keep``, the parts."""
        wanted: list[tuple[Kind, str]] = [("fold", fold), *(("part", key) for key in parts if self.keep)]
        records = {self._name(*each): self._record(*each) for each in wanted}
        return {name: str(record["attempt"]) for name, record in records.items() if record is not None}

    def _name(self, kind: Kind, key: str) -> str:
        return f"{self.stage}-{kind}-{key}"

    def _keys(self, kind: Kind) -> frozenset[str]:
        prefix = self._name(kind, "")
        return frozenset(name.removeprefix(prefix) for name in group_names(self.store / RECORDS, prefix))

    def _record(self, kind: Kind, key: str) -> dict[str, Any] | None:
        return read_record(self.store, self._name(kind, key), self.hint)

    def _arrays(self, record: Mapping[str, Any]) -> StorePath:
        return inside(self.store / PARTIALS, str(record["attempt"]))

    def _has_intact_files(self, key: str) -> bool:
        try:
            files = self.read_metadata(key).get(FILES, {})
            return all(sha256_of(self.store / name) == sha256 for name, sha256 in files.items())
        except (StoreError, FileNotFoundError):
            return False

    def _commit(self, kind: Kind, key: str, partial: PartialResult, metadata: Mapping[str, Any]) -> None:
        # A worker that outlives its scan must not recreate a removed store.
        if not node_exists(self.store):
            raise StoreError(f"{self.store}: the store was removed while it was being written")
        name, attempt = self._name(kind, key), ""
        if partial.arrays or partial.scalars:
            attempt = f"{name}-{uuid.uuid4().hex}"
            create_group(self.store / PARTIALS / attempt, {})
        digests = {
            array: write_array(
                self.store / PARTIALS / attempt, array, values, self.axes.get(array, AXES[: values.ndim])
            ).fields()
            for array, values in partial.arrays.items()
        }
        scalars = dict(partial.scalars)
        record = {"attempt": attempt, "arrays": digests, "scalars": scalars, "note": dict(metadata)}
        write_record(self.store, name, record)

    def _read(self, kind: Kind, key: str, without: frozenset[str] = frozenset()) -> PartialResult:
        name, record = self._name(kind, key), self._record(kind, key)
        if record is None:
            raise self._missing(kind, key)
        if not record["attempt"]:
            raise StoreError(f"{self.store}: {name} was folded and not kept; {self.hint}")
        digests = {
            array: ArrayDigest.from_fields(fields)
            for array, fields in record["arrays"].items()
            if array not in without
        }
        return PartialResult(read_arrays(self._arrays(record), digests, hint=self.hint), record["scalars"])

    def _missing(self, kind: Kind, key: str) -> StoreError:
        return StoreError(f"{self.store}: record {self._name(kind, key)} is missing; {self.hint}")

    def _remove_fold(self, key: str) -> None:
        """Remove a fold, its record first: a record must never refer to missing arrays."""
        record = self._record("fold", key)
        if record is not None:
            remove_trees(self.store / RECORDS / self._name("fold", key))
            remove_trees(self._arrays(record))
