"""The ledger of a stage: which partitions are committed, how far they are folded, and nothing half done.

Commit protocol: the arrays go into a new, uniquely named group under ``partials/``; then one small record,
a Zarr group of attributes only, appears under ``records/`` by fsync and rename. Readers trust records only.
A second writer of the same partition (a lost worker that comes back) writes elsewhere and repeats the same
record, so it harms nothing.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from streaming_jsmf.errors import StoreError
from streaming_jsmf.runtime.files import fsync_directory, write_json
from streaming_jsmf.runtime.zarr_arrays import ArrayDigest, create_group, read_array, write_array

PARTIALS, RECORDS = "partials", "records"


@dataclass(frozen=True)
class Partial:
    """What a partition, or a fold of several, contributes: arrays of ``n_words`` rows, and exact scalars."""

    arrays: Mapping[str, NDArray[Any]]
    scalars: Mapping[str, float] = field(default_factory=dict)


def write_record(store: Path, name: str, attributes: Mapping[str, Any]) -> None:
    """Commit a record: an attributes-only Zarr group under ``records/``, there at once or not at all."""
    directory = store / RECORDS / name
    directory.mkdir(parents=True, exist_ok=True)
    fsync_directory(directory.parent)
    write_json(
        directory / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    )


def read_record(store: Path, name: str) -> dict[str, Any] | None:
    """Return the attributes of a record, or None if it was never committed; ``StoreError`` if it is damaged."""
    path = store / RECORDS / name / "zarr.json"
    try:
        attributes = dict(json.loads(path.read_text(encoding="utf-8"))["attributes"])
        if not {"arrays", "scalars"} <= attributes.keys():
            raise KeyError("arrays, scalars")
        return attributes
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: record is damaged ({error}); delete the store and scan again") from error


@dataclass(frozen=True)
class Ledger:
    """Records and partial results of one stage of one moments store.

    Parameters
    ----------
    store
        Root of the moments store.
    stage
        Name of the stage, such as ``range``.
    """

    store: Path
    stage: str

    def _indices(self, kind: str) -> frozenset[int]:
        prefix = f"{self.stage}-{kind}-"
        found = (self.store / RECORDS).glob(f"{prefix}*/zarr.json")
        return frozenset(int(path.parent.name.removeprefix(prefix)) for path in found)

    def folded(self) -> int:
        """Number of leading partitions that are folded together: 0 at first."""
        return max(self._indices("fold"), default=-1) + 1

    def committed(self) -> frozenset[int]:
        """Indices of the partitions that need not be done again: committed, or folded already."""
        return self._indices("partition") | frozenset(range(self.folded()))

    def commit_partition(self, index: int, partial: Partial, note: Mapping[str, Any]) -> None:
        """Commit the result of one partition; ``note`` is kept for the history of the store."""
        self._commit("partition", index, partial, note)

    def commit_fold(self, index: int, partial: Partial) -> None:
        """Commit the fold of partitions 0 to ``index``, then drop what it was made from.

        A factor weighs more than the Parquet it comes from, so this is what bounds the disk of a scan.
        """
        self._commit("fold", index, partial, {})
        self._drop("partition", index)
        if index:
            self._drop("fold", index - 1)

    def read_partition(self, index: int) -> Partial:
        """Read back the result of a committed partition."""
        return self._read("partition", index)

    def read_fold(self, index: int) -> Partial:
        """Read back the fold of partitions 0 to ``index``."""
        return self._read("fold", index)

    def history(self) -> list[dict[str, Any]]:
        """The notes of all committed partitions, in order."""
        return [{"partition": index, **self.note(index)} for index in sorted(self._indices("partition"))]

    def note(self, index: int) -> dict[str, Any]:
        """The note of a committed partition; ``StoreError`` if its record is missing or damaged."""
        return dict(self._record("partition", index)["note"])

    def clear(self) -> None:
        """Remove the stage's partial results and their records, once its outcome is committed elsewhere."""
        for kind in ("partition", "fold"):
            for index in self._indices(kind):
                shutil.rmtree(self.store / RECORDS / self._name(kind, index), ignore_errors=True)
        for leftover in (self.store / PARTIALS).glob(f"{self.stage}-*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def _name(self, kind: str, index: int) -> str:
        return f"{self.stage}-{kind}-{index:05d}"

    def _commit(self, kind: str, index: int, partial: Partial, note: Mapping[str, Any]) -> None:
        # A worker that outlives its scan must not bring a store back that was removed.
        if not (self.store / "zarr.json").exists():
            raise StoreError(f"{self.store}: the store was removed while it was being written")
        name = self._name(kind, index)
        attempt = self.store / PARTIALS / f"{name}-{uuid.uuid4().hex}"
        create_group(attempt, {})
        digests = {
            key: write_array(attempt, key, values, _dimensions(values)).fields()
            for key, values in partial.arrays.items()
        }
        record = {
            "attempt": attempt.name,
            "arrays": digests,
            "scalars": dict(partial.scalars),
            "note": dict(note),
        }
        write_record(self.store, name, record)

    def _record(self, kind: str, index: int) -> dict[str, Any]:
        record = read_record(self.store, self._name(kind, index))
        if record is None:
            raise StoreError(f"{self.store}: record {self._name(kind, index)} is missing; run the scan again")
        return record

    def _read(self, kind: str, index: int) -> Partial:
        record = self._record(kind, index)
        group = self.store / PARTIALS / str(record["attempt"])
        arrays = {
            key: read_array(group, key, ArrayDigest.from_fields(fields))
            for key, fields in record["arrays"].items()
        }
        return Partial(arrays, record["scalars"])

    def _drop(self, kind: str, index: int) -> None:
        record = read_record(self.store, self._name(kind, index))
        if record is not None:
            shutil.rmtree(self.store / PARTIALS / str(record["attempt"]), ignore_errors=True)


def _dimensions(values: NDArray[Any]) -> list[str]:
    return ["word", "rank"][: values.ndim]
