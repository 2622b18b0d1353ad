"""The files of a source, recorded with a corpus that follows it.

``files.arrow`` has a row for each run of documents of the same file, in the order of the documents, and one for each
file without documents: ``source`` and ``path`` of the file without secrets, ``state`` and ``sha256`` ("" if unknown),
and the number of ``documents``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.display import location
from streaming_jsmf.storage.results import FileContents

FILES_NAME = "files.arrow"

#: Key of the metadata of the table: whether the documents were numbered, because they have no ids.
NUMBERED = b"numbered"

#: Key of the kind of the values of each column of metadata, such as dates with the day first.
KINDS = b"kinds"

_COLUMNS = {name: pa.string() for name in ("source", "path", "state", "sha256")}
SCHEMA = pa.schema({**_COLUMNS, "documents": pa.int64()})


@dataclass(frozen=True)
class Grown:
    """The corpus that documents are added to: documents read so far, whether they are numbered, kinds of columns."""

    documents_read: int
    numbered: bool
    kinds: Mapping[str, str]

    @classmethod
    def of(cls, table: Any, documents_read: int) -> Grown:
        noted = table.schema.metadata or {}
        return cls(documents_read, noted.get(NUMBERED) == b"True", json.loads(noted.get(KINDS, b"{}")))


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

    def table(self, runs: Iterable[tuple[str, int]], *, numbered: bool, kinds: Mapping[str, str]) -> Any:
        """The table of a corpus from its ``runs`` of documents by path."""
        rows: list[tuple[str, int]] = []
        for path, documents in runs:
            if rows and rows[-1][0] == path:
                path, documents = path, rows.pop()[1] + documents
            rows.append((path, documents))
        used = {path for path, _ in rows}
        rows += [(path, 0) for path in self.states if path not in used]
        fields = [(self.source, path, *self.states[path], documents) for path, documents in rows]
        columns = [
            pa.array(values, kind)
            for values, kind in zip(zip(*fields, strict=True), SCHEMA.types, strict=True)
        ]
        return pa.table(columns, SCHEMA).replace_schema_metadata(
            {NUMBERED: str(numbered), KINDS: json.dumps(kinds)}
        )

    def followed(self, table: Any) -> Any:
        """The table of a corpus with files that were moved or touched where, and as, they are now."""
        rows = table.to_pylist()
        free = self.states.keys() - {row["path"] for row in rows}
        # A file that was moved has its contents, or its name, size and time.
        moved = {key: path for path in sorted(free) for key in _keys(path, *self.states[path])}
        for row in rows:
            if row["path"] not in self.states:
                found = [
                    moved[key] for key in _keys(row["path"], row["state"], row["sha256"]) if key in moved
                ]
                row["path"] = found[0] if found else row["path"]
            if self._is_same(row):
                row |= {"source": self.source, "state": self.states[row["path"]][0]}
        return pa.Table.from_pylist(rows, table.schema)

    def changed_since(self, table: Any) -> frozenset[str]:
        """The paths of files that are not in a table, or have other contents there (another state, if unknown)."""
        return frozenset(self.states) - {row["path"] for row in table.to_pylist() if self._is_same(row)}

    def vanished_since(self, table: Any) -> frozenset[str]:
        """The paths in a table that this source had, or that are in its folder, and that it has no longer."""
        return frozenset(
            row["path"]
            for row in table.to_pylist()
            if self.source and row["path"] not in self.states
            if row["source"] == self.source or row["path"].startswith(f"{self.source}/")
        )

    def _is_same(self, row: Mapping[str, Any]) -> bool:
        state, sha256 = self.states.get(row["path"], ("", ""))
        known = bool(sha256 and row["sha256"])
        return bool(sha256 == row["sha256"]) if known else bool(state) and state == row["state"]


def of_paths(table: Any, paths: Collection[str], *, without: bool = False) -> Any:
    """The rows of files with these paths, or with others."""
    found = pc.is_in(table.column("path"), value_set=pa.array(sorted(paths), pa.string()))
    return table.filter(pc.invert(found) if without else found)


def _keys(path: str, state: str, sha256: str) -> list[str]:
    return [key for key in (sha256, state and f"{path.rpartition('/')[2]} {state}") if key]
