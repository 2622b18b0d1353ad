"""Checkpoints: results of the parts and folds of one stage, each committed by a small record.

Keys are hashes of contents, so a store can gain and lose parts without renaming others. A commit writes the arrays to
a file in a uniquely named directory under ``partials/``, then atomically creates a record under ``records/``, a Zarr
group with attributes only. Readers trust only records, so a second writer of the same part does no harm.
"""

from __future__ import annotations

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import StoreError
from streaming_jsmf.fingerprint import sealed, unsealed
from streaming_jsmf.storage.arrays import ArrayDigest, replace_attributes
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.packed import read_packed, write_packed
from streaming_jsmf.storage.paths import (
    ROOT,
    StorePath,
    child_names,
    file_exists,
    group_names,
    inside,
    make_directory,
    node_exists,
    read_bytes,
    remove_file,
    remove_single,
    sha256_of,
)

logger = logging.getLogger(__name__)

#: What a record commits: the result of a part, or a fold of parts.
Kind: TypeAlias = Literal["part", "fold"]

Value = TypeVar("Value")

#: Metadata that a task returns about the files it wrote: JSON values.
Record: TypeAlias = dict[str, Any]


class Committed(NamedTuple):
    """Keys of the parts and of the folds that have a record; none by default."""

    parts: frozenset[str] = frozenset()
    folds: frozenset[str] = frozenset()


#: Groups of a store: partial results, and the records that commit them.
PARTIALS, RECORDS = "partials", "records"

#: Record key of the sha256 of each file that a task wrote, by path relative to the store.
FILES = "files"

#: Number of hex digits of a key.
KEY_DIGITS = 32

#: File with the arrays of a partial result.
PACKED = "arrays.bin"


def write_record(store: StorePath, name: str, attributes: Mapping[str, Any]) -> None:
    """Commit a record together with its sha256, which detects flipped bits in sums."""
    record = sealed(attributes)
    directory = _record_path(store, name)
    make_directory(directory)
    replace_attributes(directory, record)


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


class Held(dict[str, Any]):
    """Values kept in the memory of this process, by name; empty when it is sent to another process."""

    def once(self, name: str, compute: Callable[[], Value]) -> Value:
        """The value under this name, by default that of ``compute``, which is then kept."""
        if name not in self:
            self[name] = compute()
        value: Value = self[name]
        return value

    def __reduce__(self) -> tuple[type[Held], tuple[()]]:
        return Held, ()


@dataclass(frozen=True)
class PartialResult:
    """Contribution of one or several parts: arrays, mostly with ``n_words`` rows, and exact scalars.

    ``note`` has JSON values about files that the task of a part wrote, and ``attempt`` is where a result that was read
    is stored.
    """

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, float] = field(default_factory=dict)
    note: Record = field(default_factory=dict)
    attempt: str = ""


def joined_arrays(parts: list[PartialResult], names: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Arrays of several parts, by default all, each in the order of the parts; takes the parts from the list."""
    found = [{name: part.arrays[name] for name in names or part.arrays} for part in parts]
    parts.clear()
    if len(found) == 1:
        return found[0]
    return {name: np.concatenate([arrays.pop(name) for arrays in found]) for name in [*found[0]]}


class SumReduction:
    """Base class of reductions whose results are sums; float32 arrays are added in float64."""

    def fold(self, folded: PartialResult | None, partial: PartialResult) -> PartialResult:
        """Add a result to ``folded``, in its memory."""
        if folded is None:
            arrays = {
                name: values.astype(np.float64) if values.dtype == np.float32 else values
                for name, values in partial.arrays.items()
            }
            return PartialResult(arrays, partial.scalars)
        for name, values in partial.arrays.items():
            total = folded.arrays[name]
            total += values
        scalars = {name: folded.scalars[name] + value for name, value in partial.scalars.items()}
        return PartialResult(folded.arrays, scalars)


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
    keep : Keep the results of parts after folding.
    unfolded : Arrays of parts that are not folded; they are compressed, and read from the kept parts.
    verb : Command that the stage belongs to, for the names of tasks.
    """

    store: StorePath
    stage: str
    hint: str
    keep: bool = False
    unfolded: frozenset[str] = frozenset()
    verb: str = ""
    #: Metadata of parts that this process has read, by key.
    notes: Held = field(default_factory=Held, compare=False, repr=False)

    def committed(self) -> Committed:
        """What has a record, from one listing."""
        names = group_names(self.store / RECORDS, f"{self.stage}-")
        parts, folds = self._name("part", ""), self._name("fold", "")
        return Committed(
            frozenset(name.removeprefix(parts) for name in names if name.startswith(parts)),
            frozenset(name.removeprefix(folds) for name in names if name.startswith(folds)),
        )

    def has(self, kind: Kind, key: str) -> bool:
        """Whether a ``part`` or a ``fold`` has a record."""
        return node_exists(_record_path(self.store, self._name(kind, key)))

    def read_part(self, key: str, *, folding: bool = False) -> PartialResult:
        """Read the result of a committed part, or what is folded of it; raise ``StoreError`` if it is damaged."""
        return self._read("part", key, self.unfolded if folding else frozenset())

    def read_fold(self, key: str) -> PartialResult:
        """Read a fold; raise ``StoreError`` if it is damaged."""
        return self._read("fold", key)

    def commit_part(self, key: str, partial: PartialResult, metadata: Mapping[str, Any]) -> None:
        """Commit the result of one part; ``metadata`` is added to the history of the store."""
        self._commit("part", key, partial, metadata)
        self.notes.pop(key, None)

    def commit_fold(
        self,
        key: str,
        result: PartialResult,
        folds: Sequence[str] = (),
        parts: Sequence[str] = (),
        read: Mapping[str, str] | None = None,
    ) -> None:
        """Commit a fold, then remove the ``folds`` and ``parts`` that it combines, to bound disk usage.

        ``read`` are the attempts of those that were read; the records of the others are read.
        """
        self._commit("fold", key, result, {})
        known = read or {}
        removed = [known.get(fold) or self._attempt("fold", fold) for fold in folds]
        if not self.keep:
            # The record of a part stays: it marks the part as done and has its cost.
            removed += [known.get(part) or self._attempt("part", part) for part in parts]
        # First: a record must never refer to missing arrays.
        remove_single(ROOT, *(self.store / RECORDS / self._name("fold", fold) for fold in folds))
        remove_single(PACKED, *(inside(self.store / PARTIALS, attempt) for attempt in removed if attempt))

    def was_folded(self, key: str) -> bool:
        """Whether the result of a committed part was removed after folding."""
        record = self._record("part", key)
        return record is not None and not (record["attempt"] and file_exists(self._arrays(record) / PACKED))

    def verify(self, kind: Kind, key: str, *, arrays: bool = True) -> None:
        """Raise ``StoreError`` if the record of a ``part`` or ``fold`` or, unless excluded, its arrays are damaged."""
        if arrays:
            self._read(kind, key)
        else:
            self._record(kind, key)

    def drop(self, kind: Kind, key: str) -> None:
        """Remove a ``part`` or ``fold`` in any state, its record first."""
        self.notes.pop(key, None)
        name = self._name(kind, key)
        remove_single(ROOT, self.store / RECORDS / name)
        attempts = child_names(self.store / PARTIALS, f"{name}-")
        remove_single(PACKED, *(self.store / PARTIALS / attempt for attempt in attempts))

    def intact(self) -> Committed:
        """As ``committed``, but removes parts whose record or ``FILES`` are damaged. Reads each file once."""
        parts, folds = self.committed()
        keys = sorted(parts)
        whole = {
            key for key, found in zip(keys, in_threads(self._has_intact_files, keys), strict=True) if found
        }
        damaged = [key for key in keys if key not in whole]
        for key in damaged:
            self.drop("part", key)
        if damaged:
            logger.warning(
                "%s: damaged or incomplete parts of %s are computed again: %s",
                self.store,
                self.stage,
                ", ".join(damaged),
            )
        return Committed(frozenset(whole), folds)

    def read_metadata(self, key: str) -> dict[str, Any]:
        """Return the metadata of a committed part from its record."""

        def read() -> dict[str, Any]:
            record = self._record("part", key)
            if record is None:
                raise self._missing("part", key)
            return dict(record["note"])

        return dict(self.notes.once(key, read))

    def history(self, keys: Sequence[str], committed: Collection[str]) -> list[dict[str, Any]]:
        """Return the metadata of the parts among ``keys`` that are ``committed``, in order."""
        recorded = [(index, key) for index, key in enumerate(keys) if key in committed]
        found = in_threads(self.read_metadata, [key for _, key in recorded])
        return [
            {"partition": index, **metadata} for (index, _), metadata in zip(recorded, found, strict=True)
        ]

    def place_of_inputs(self) -> StorePath:
        """A new directory for a file that the tasks of the stage read; a later run removes it if this one does not."""
        return self.store / PARTIALS / f"{self.stage}-inputs-{uuid.uuid4().hex}"

    def clear(self) -> None:
        """Remove all results of the stage and their records, those of parts first: without its fold, one misleads."""
        for group, file in ((self.store / RECORDS, ROOT), (self.store / PARTIALS, PACKED)):
            for prefix in (self._name("part", ""), self._name("fold", "")):
                remove_single(file, *(group / name for name in child_names(group, prefix)))

    def attempts(self, parts: Iterable[str]) -> dict[str, str]:
        """The name of the record of each of these parts, and of the group with its result.

        Groups are listed once; the record of a part with a single group is not read.
        """
        made: dict[str, list[str]] = {}
        for attempt in child_names(self.store / PARTIALS):
            made.setdefault(attempt.rpartition("-")[0], []).append(attempt)
        names = {self._name("part", key): key for key in parts}
        own = ((name, key, made.get(name, [])) for name, key in names.items())
        return {name: known[0] if len(known) == 1 else self._attempt("part", key) for name, key, known in own}

    def _name(self, kind: Kind, key: str) -> str:
        return f"{self.stage}-{kind}-{key}"

    def _record(self, kind: Kind, key: str) -> dict[str, Any] | None:
        return read_record(self.store, self._name(kind, key), self.hint)

    def _attempt(self, kind: Kind, key: str) -> str:
        record = self._record(kind, key)
        return "" if record is None else str(record["attempt"])

    def _arrays(self, record: Mapping[str, Any]) -> StorePath:
        return inside(self.store / PARTIALS, str(record["attempt"]))

    def _has_intact_files(self, key: str) -> bool:
        try:
            files = self.read_metadata(key).get(FILES, {})
            return all(sha256_of(self.store / name) == sha256 for name, sha256 in files.items())
        except (StoreError, FileNotFoundError):
            return False

    def _commit(self, kind: Kind, key: str, partial: PartialResult, metadata: Mapping[str, Any]) -> None:
        # A worker that outlives its scan must not recreate a removed store. What is folded was just read from it.
        if kind == "part" and not node_exists(self.store):
            raise StoreError(f"{self.store}: the store was removed while it was being written")
        name, attempt, digests = self._name(kind, key), "", dict[str, Any]()
        if partial.arrays or partial.scalars:
            attempt = f"{name}-{uuid.uuid4().hex}"
            arrays = {array: partial.arrays[array] for array in self._packed(partial.arrays)}
            written = write_packed(self.store / PARTIALS / attempt / PACKED, arrays, self.unfolded)
            digests = {array: known.fields() for array, known in written.items()}
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
            array: ArrayDigest.from_fields(record["arrays"][array])
            for array in self._packed(record["arrays"])
        }
        path = self._arrays(record) / PACKED
        arrays = read_packed(path, digests, without=without, hint=self.hint)
        return PartialResult(arrays, record["scalars"], attempt=record["attempt"])

    def _packed(self, arrays: Iterable[str]) -> list[str]:
        """Names of arrays in the order of the file: those that are folded are next to each other."""
        return sorted(arrays, key=lambda array: (array in self.unfolded, array))

    def _missing(self, kind: Kind, key: str) -> StoreError:
        return StoreError(f"{self.store}: record {self._name(kind, key)} is missing; {self.hint}")
