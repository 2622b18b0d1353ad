"""The directory beside a corpus where an ingest works, and finds what an interrupted one has done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.sources.base import Unit
from streaming_jsmf.storage.paths import write_json

KIND = "unfinished ingest"
RECORD_NAME = "ingest.json"
#: An unfinished ingest of earlier versions has it; it tells nothing.
_LOCK_NAME = "lock"

#: Bytes of the units that one task reads, and about how many tasks there are between these bounds.
GROUP_BYTES = (16 << 20, 128 << 20)
GROUPS = 64


@dataclass(frozen=True)
class Group:
    """Consecutive units that one task reads: ``start`` to ``stop - 1``; ``size`` in bytes."""

    start: int
    stop: int
    size: int


@dataclass(frozen=True)
class Piece:
    """Documents of a group that become shards together: ``number`` counts within the group."""

    group: int
    number: int
    documents: int
    nonzeros: int


def group_units(units: Sequence[Unit]) -> list[Group]:
    """Put small units together, in order, so that a thousand small files are not a thousand tasks and shards."""
    least, most = GROUP_BYTES
    target = min(max(sum(unit.size for unit in units) // GROUPS, least), most)
    groups, start, size = [], 0, 0
    for i, unit in enumerate(units):
        size += unit.size
        if size >= target or i == len(units) - 1:
            groups.append(Group(start, i + 1, size))
            start, size = i + 1, 0
    return groups


@dataclass(frozen=True)
class Work:
    """Names of what lies in the directory."""

    root: Path

    @classmethod
    def beside(cls, target: Path) -> Work:
        """The directory of an ingest into ``target``."""
        return cls(target.with_name(f"{target.name}.partial"))

    @property
    def scattered(self) -> Path:
        """Shuffled sources: rows by bucket, a file for each unit."""
        return self.root / "scattered"

    @property
    def read(self) -> Path:
        """Bags and counts of the groups of units."""
        return self.root / "read"

    @property
    def written(self) -> Path:
        """Shards of the pieces."""
        return self.root / "written"

    @property
    def renumbered(self) -> Path:
        """Shards written again without words that turned out to be unused."""
        return self.root / "renumbered"

    @property
    def vocabulary(self) -> Path:
        """Chosen words (Arrow), or new ids by old (NumPy)."""
        return self.root / "vocabulary"

    @property
    def corpus(self) -> Path:
        """The corpus as it will be renamed onto the target."""
        return self.root / "corpus"

    def records(self, step: str) -> Path:
        """Where the tasks of a step commit."""
        return self.root / "records" / step

    def load_record(self, step: str, index: int) -> Any:
        """What task ``index`` of a step committed."""
        return _load(self.records(step) / f"{index:05d}.json")

    def piece(self, group: int, number: int) -> Path:
        """Stem of the files of a piece."""
        return self.read / f"{group:05d}" / f"{number:04d}"

    def save_list(self, name: str, items: Sequence[Any]) -> None:
        """Save units, groups or pieces for the tasks to look up."""
        write_json(self.root / f"{name}.json", [asdict(item) for item in items])

    def load_unit(self, name: str, index: int) -> Unit:
        """Unit ``index`` of the list ``name``."""
        return Unit(**_load(self.root / f"{name}.json")[index])

    def load_units(self, group: int) -> dict[int, Unit]:
        """The units of a group, by number."""
        held = Group(**_load(self.root / "groups.json")[group])
        units = _load(self.root / "units.json")
        return {number: Unit(**units[number]) for number in range(held.start, held.stop)}

    def load_piece(self, index: int) -> Piece:
        """Piece ``index`` of all."""
        return Piece(**_load(self.root / "pieces.json")[index])

    def save_repeats(self, index: int, ordinals: Mapping[str, Any]) -> None:
        """Save which documents of a piece are left out, by step."""
        directory = self.root / "repeats"
        directory.mkdir(exist_ok=True)
        np.savez(directory / f"{index:05d}.npz", **ordinals)

    def load_repeats(self, index: int) -> dict[str, NDArray[np.int64]]:
        """What ``save_repeats`` saved; nothing for most pieces."""
        path = self.root / "repeats" / f"{index:05d}.npz"
        if not path.exists():
            return {}
        with np.load(path) as saved:
            return dict(saved.items())

    @property
    def steps_done(self) -> dict[str, int]:
        """Tasks that are committed, by step."""
        folders = sorted(path for path in (self.root / "records").glob("*") if path.is_dir())
        counts = {folder.name: len(list(folder.glob("[0-9]*.json"))) for folder in folders}
        return {name: count for name, count in counts.items() if count}

    def make(self) -> None:
        """Make the directory if it is not there.

        Raises
        ------
        InputError
            If something else is in its place: it would be removed in the end.
        """
        if self.root.is_dir():
            names = {path.name for path in self.root.iterdir()}
            begun = f".{RECORD_NAME}."  # what a kill leaves of a record being written
            foreign = {name for name in names if name != _LOCK_NAME and not name.startswith(begun)}
            ours = RECORD_NAME in names or not foreign
        else:
            ours = not self.root.exists() and not self.root.is_symlink()
        if not ours:
            raise InputError(
                f"{self.root} is needed to work in and holds something else; move it away or choose another target"
            )
        self.root.mkdir(parents=True, exist_ok=True)

    def start(self, arguments: Mapping[str, Any]) -> None:
        """Begin an ingest, or take over an interrupted one of the same arguments (JSON values). Needs the lock.

        Raises
        ------
        SettingsMismatchError
            If steps of other arguments are done; names those that differ.
        StoreError
            If the record is damaged.
        """
        path = self.root / RECORD_NAME
        if not path.exists() or not self.steps_done:
            write_json(path, {"kind": KIND, "arguments": arguments})
            return
        record = _load(path)
        begun = record.get("arguments") if isinstance(record, dict) else None
        if not isinstance(begun, dict):
            raise StoreError(f"{path} is damaged; remove {self.root} and run again")
        differing = sorted(key for key in {*begun, *arguments} if begun.get(key) != arguments.get(key))
        if differing:
            raise SettingsMismatchError(
                f"{self.root} holds an unfinished ingest that differs in {', '.join(differing)}; "
                "finish it with its own command, or remove that directory"
            )

    def remove(self) -> None:
        """Remove the directory, its record last: until then it can be told whose it is."""
        for path in self.root.iterdir() if self.root.is_dir() else ():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != RECORD_NAME:
                path.unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)

    def remove_unused(self) -> None:
        """Remove the directory if no step has got anywhere."""
        if not self.steps_done:
            self.remove()


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is missing or damaged; remove {path.parent} and run again") from error
