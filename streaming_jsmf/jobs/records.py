"""Commits: small JSON records that are there at once or not at all. Whoever goes on trusts them and no other file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from streaming_jsmf.config import fingerprint
from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.storage.paths import (
    StorePath,
    inside,
    make_directory,
    node_exists,
    read_text,
    remove_file,
    sha256_of,
    write_json,
)

logger = logging.getLogger(__name__)

#: What a task says of what it made: JSON values.
Record: TypeAlias = dict[str, Any]

#: Groups of a store that a checkpoints writes: results on their way into a fold, and the records that make them count.
PARTIALS, RECORDS = "partials", "records"

#: Key under which a record has the sha256 of the files that its task wrote, by their path in the working directory.
FILES = "files"

#: Keys under which a numbered record also keeps what its task took, and the sha256 of itself.
_COST, _SHA256 = "cost", "sha256"


def read_json(path: Path, kind: type[Any], remove: Path) -> Any:
    """A JSON object (``dict``) or array (``list``) that an earlier step has written.

    Raises
    ------
    StoreError
        If it is missing or damaged, as only a crash of the machine or a person leaves it; names what to ``remove``.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(value, kind):
            return value
    except (OSError, ValueError) as error:
        pass_on_machine(error)
    raise StoreError(f"{path} is missing or damaged; remove {remove} and run again")


@dataclass(frozen=True)
class NumberedRecords:
    """Records of the tasks 0, 1, ... of a step: ``00000.json``, ... in a directory of their own below ``root``."""

    root: Path
    step: str = ""

    @property
    def directory(self) -> Path:
        """Where they are."""
        return self.root / RECORDS / self.step

    def path(self, index: int) -> Path:
        """Where the record of task ``index`` is, or will be."""
        return self.directory / f"{index:05d}.json"

    def committed(self) -> frozenset[int]:
        """Numbers of the tasks that are done."""
        return frozenset(int(path.stem) for path in self.directory.glob("[0-9]*.json"))

    def read(self, index: int) -> Record:
        """What task ``index`` committed.

        Raises
        ------
        StoreError
            If the record is missing or damaged.
        """
        record = self._load(index)
        record.pop(_COST, None)
        return record

    def cost(self, index: int) -> Cost | None:
        """What task ``index`` took, if its record tells; errors as ``read``."""
        return Cost.from_fields(self._load(index).get(_COST))

    def commit(self, index: int, record: Record, cost: Cost) -> None:
        """Say that task ``index`` is done; the directory is there."""
        told = {**record, _COST: cost.fields()}
        write_json(self.path(index), {**told, _SHA256: fingerprint(told)})

    def forget_damaged(self) -> None:
        """Take back records that are damaged, or whose files are; one pass over these files."""
        damaged = [index for index in sorted(self.committed()) if not self._is_sound(index)]
        for index in damaged:
            self.forget(index)
        if damaged:
            parts = ", ".join(map(str, damaged))
            logger.warning(
                "%s: parts that are damaged or incomplete are made again: %s", self.directory, parts
            )

    def _is_sound(self, index: int) -> bool:
        try:
            files = self._load(index).get(FILES, {})
            return all(sha256_of(self.root / name) == sha256 for name, sha256 in files.items())
        except (StoreError, FileNotFoundError):
            return False

    def forget(self, index: int) -> None:
        """Take the record of task ``index`` back, if it is there."""
        self.path(index).unlink(missing_ok=True)

    def _load(self, index: int) -> Record:
        path = self.path(index)
        record: Record = read_json(path, dict, path.parent)
        if record.pop(_SHA256, None) != fingerprint(record):
            raise StoreError(f"{path} differs from its sha256; remove {path.parent} and run again")
        return record


def write_record(store: StorePath, name: str, attributes: Mapping[str, Any]) -> None:
    """Commit a record of a Zarr store: a group without arrays under ``records/``, there at once or not at all.

    It carries the sha256 of itself: a flipped bit in a sum would look like another sum.
    """
    record = {**attributes, "sha256": fingerprint(attributes)}
    directory = _place(store, name)
    make_directory(directory)
    write_json(directory / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": record})


def read_record(store: StorePath, name: str, hint: str) -> dict[str, Any] | None:
    """Return the attributes of a record of a Zarr store, or None if it was never committed.

    ``hint`` ends the message about damage.

    Raises
    ------
    StoreError
        If the record is damaged.
    """
    path = _place(store, name) / "zarr.json"
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


def has_record(store: StorePath, name: str) -> bool:
    """Whether a record of a Zarr store is committed."""
    return node_exists(_place(store, name))


def forget_record(store: StorePath, name: str) -> None:
    """Take a record of a Zarr store back, if it is there."""
    remove_file(_place(store, name) / "zarr.json")


def _place(store: StorePath, name: str) -> StorePath:
    return inside(store / RECORDS, name)  # a record may hold the name of another one
