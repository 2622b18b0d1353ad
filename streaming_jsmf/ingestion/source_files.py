"""The files of a source, recorded with a corpus that follows it.

``files.arrow`` has a row for each file: ``source`` and ``path`` of the file without secrets, ``state`` and ``sha256``
("" if unknown), the number of the source in the order of ``arrival``, and the numbers of ``documents`` in the corpus,
which may be 0, and of those ``wanted``: others replaced them and are gone, but the file cannot be read with its source.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.display import location
from streaming_jsmf.ingestion.sources.listing import names_in_folders
from streaming_jsmf.storage.results import FileContents

FILES_NAME = "files.arrow"

#: Keys of the metadata of the table: whether the documents were numbered, because they have no ids; the kind of the
#: values of each column of metadata, such as dates with the day first; and the column that was guessed to hold the ids.
NUMBERED, KINDS, GUESSED_ID = b"numbered", b"kinds", b"guessed_id"

SCHEMA = pa.schema(
    {
        **{name: pa.string() for name in ("source", "path", "state", "sha256")},
        **{name: pa.int64() for name in ("arrival", "documents", "wanted")},
    }
)


@dataclass(frozen=True)
class Followed:
    """The files of a corpus compared with those of a source.

    Attributes
    ----------
    table : The files of the corpus; those that were moved or touched are where, and as, they are now.
    held : (rows,) Whether the source has the file with the same contents.
    changed, vanished : (rows,) Whether the path has other contents, or the source had the file and has it no longer.
    new : Paths of the files that the corpus does not have with these contents.
    """

    table: Any
    held: NDArray[np.bool_]
    changed: NDArray[np.bool_]
    vanished: NDArray[np.bool_]
    new: frozenset[str]


@dataclass(frozen=True)
class SourceFiles:
    """The files of a source, with their state and sha256 as found before they are read.

    If documents cannot be traced to files (``whole``: they are scattered over files, or share a list of words), all
    files count as one with the path of the source; data in memory are a file without path.
    """

    source: str
    states: Mapping[str, tuple[str, str]]
    whole: bool = False

    @classmethod
    def of(
        cls,
        root: str,
        files: Mapping[str, Sequence[str]],
        contents: FileContents,
        *,
        whole: bool,
        sha256: str | None,
    ) -> SourceFiles:
        """The files by path, each with the files on disk that hold it; ``sha256`` is that of data in memory."""
        if sha256 is not None:
            return cls("", {f"data {sha256[:16]}": (sha256, sha256)}, whole=True)
        on_disk = sorted({each for held in files.values() for each in held})
        states = {path: json.dumps(contents.state(path)) for path in on_disk}
        hashes = contents.hashes(on_disk)

        def joined(held: Sequence[str]) -> tuple[str, str]:
            known = ["" if states[path] == "null" else states[path] for path in held]
            found = [hashes.get(path, "") for path in held]
            return (" ".join(known) if all(known) else ""), (" ".join(found) if all(found) else "")

        if whole:
            return cls(location(root), {location(root): joined(on_disk)}, whole=True)
        return cls(location(root), {location(path): joined(held) for path, held in files.items()})

    def path(self, unit: str) -> str:
        """The path that the documents of a unit are recorded with."""
        return next(iter(self.states)) if self.whole else location(unit)

    def table(
        self,
        documents: Sequence[int] | NDArray[np.int64],
        *,
        numbered: bool,
        kinds: Mapping[str, str],
        guessed_id: str | None = None,
    ) -> Any:
        """The table of a corpus with so many documents of each file."""
        rows = [
            (self.source, path, *state, 0, number, 0)
            for (path, state), number in zip(self.states.items(), np.asarray(documents).tolist(), strict=True)
        ]
        found = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
        noted = {NUMBERED: str(numbered), KINDS: json.dumps(kinds), GUESSED_ID: guessed_id or ""}
        return found.replace_schema_metadata(noted)

    def followed(self, table: Any) -> Followed:
        """Compare the files of a corpus with those of this source, each of which is the place of at most one."""
        rows = table.to_pylist()
        held = {row["path"]: number for number, row in enumerate(rows) if self._is_same(row)}
        # A file that was moved has its contents, or its name, size and time.
        free = defaultdict(list)
        for path in sorted(self.states.keys() - held.keys(), key=order_of, reverse=True):
            for key in _keys(self.source, path, *self.states[path]):
                free[key].append(path)
        others = {*range(len(rows))} - {*held.values()}
        for number in sorted(others, key=lambda number: order_of(rows[number]["path"])):
            row = rows[number]
            for key in _keys(row["source"], row["path"], row["state"], row["sha256"]):
                while free[key] and free[key][-1] in held:
                    free[key].pop()
                if free[key]:
                    row["path"] = free[key].pop()
                    held[row["path"]] = number
                    break
        for path, number in held.items():
            rows[number] |= {"source": self.source, "state": self.states[path][0]}
        is_held = np.isin(np.arange(len(rows)), [*held.values()])
        listed = np.array([row["path"] in self.states for row in rows], bool)
        own = np.array([self._has_been(row) for row in rows], bool)
        new = frozenset(self.states.keys() - held.keys())
        followed = pa.Table.from_pylist(rows, table.schema)
        return Followed(followed, is_held, listed & ~is_held, own & ~listed, new)

    def arrival(self, table: Any) -> int:
        """The number of this source: that of its files in a table, or the next one."""
        rows = table.to_pylist()
        own = [row["arrival"] for row in rows if row["path"] in self.states or self._has_been(row)]
        return min(own, default=1 + max((row["arrival"] for row in rows), default=-1))

    def _has_been(self, row: Mapping[str, Any]) -> bool:
        """Whether a file is, or was, of this source."""
        inside = row["source"] == self.source or row["path"].startswith(f"{self.source}/")
        return bool(self.source) and inside

    def _is_same(self, row: Mapping[str, Any]) -> bool:
        state, sha256 = self.states.get(row["path"], ("", ""))
        known = bool(sha256 and row["sha256"])
        return bool(sha256 == row["sha256"]) if known else bool(state) and state == row["state"]


NO_FILES = SourceFiles("", {})


def ranks(table: Any) -> NDArray[np.int64]:
    """The place of each file in the order in which later ones replace documents: of the sources, then of the paths."""
    rows = table.to_pylist()
    order = sorted(range(len(rows)), key=lambda i: (rows[i]["arrival"], order_of(rows[i]["path"])))
    found = np.empty(len(rows), np.int64)
    found[order] = np.arange(len(rows))
    return found


def order_of(path: str) -> tuple[str, str]:
    """Key that sorts files as they are listed: those of an archive are where it is."""
    member, _, archive = path.rpartition("::")
    return archive, member


def _keys(source: str, path: str, state: str, sha256: str) -> list[str]:
    """What a moved file keeps: its contents or name, size and time, and the names of folders that are metadata."""
    names = json.dumps(names_in_folders(source, path))
    return [f"{key} {names}" for key in (sha256, state and f"{path.rpartition('/')[2]} {state}") if key]
