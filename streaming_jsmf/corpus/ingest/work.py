"""The directory beside a corpus where an ingest works, and finds what an interrupted one has done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.sources.base import Unit
from streaming_jsmf.errors import SettingsMismatchError, StoreError
from streaming_jsmf.runtime.files import write_json

KIND = "unfinished ingest"
RECORD_NAME = "ingest.json"


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

    def start(self, arguments: Mapping[str, Any]) -> None:
        """Make the directory, or take over that of an interrupted ingest of the same arguments (JSON values).

        Raises
        ------
        SettingsMismatchError
            If it was begun with other arguments; names those that differ.
        StoreError
            If its record is damaged.
        """
        path = self.root / RECORD_NAME
        if not path.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            write_json(path, {"kind": KIND, "arguments": arguments})
            return
        begun = _load(path)["arguments"]
        differing = sorted(key for key in {*begun, *arguments} if begun.get(key) != arguments.get(key))
        if differing:
            raise SettingsMismatchError(
                f"{self.root} holds an unfinished ingest that differs in {', '.join(differing)}; "
                "finish it with its own command, or remove that directory"
            )


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is missing or damaged; remove {path.parent} and run again") from error
