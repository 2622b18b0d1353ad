"""Results of an experiment, each computed once and stored under a key.

A result is one JSON file (a row of numbers) or one npz file (arrays, without pickle), renamed into place when it is
complete, so that an interrupted command can be run again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipelines.common import provenance
from streaming_jsmf.corpus import Corpus

#: A row of JSON values; numbers that are not finite are stored as null.
Row = dict[str, Any]
Arrays = dict[str, NDArray[Any]]

T = TypeVar("T")


class CellMissing(LookupError):
    """A result is missing and may not be computed."""


@dataclass(frozen=True)
class Results:
    """Stored results below ``folder``; with ``only_kept``, missing ones are not computed."""

    folder: Path
    only_kept: bool = False

    def row(self, key: Mapping[str, Any], make: Callable[[], Row]) -> Row:
        """Read or compute the row of a key, which contains everything that the row depends on.

        Raises ``CellMissing`` if it is missing and ``only_kept``.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results = Results(Path(folder))
        ...     first = results.row({"K": 5}, lambda: {"error": 0.25})
        ...     again = results.row({"K": 5}, lambda: {"error": 1.0})
        >>> first, again
        ({'error': 0.25}, {'error': 0.25})
        """
        path = self._path(key, ".json")
        if not path.exists():
            row = _finite(self._made(key, make))
            _beside(path, lambda part: part.write_text(json.dumps({"key": key, "row": row}, indent=1) + "\n"))
        kept = json.loads(path.read_text())
        if kept["key"] != json.loads(json.dumps(key)):
            raise ValueError(f"{path} contains the result of another key, {kept['key']}; delete it")
        return dict(kept["row"])

    def arrays(self, key: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
        """Read or compute the arrays of a key; raises ``CellMissing`` like ``row``."""
        path = self._path(key, ".npz")
        if not path.exists():
            made = self._made(key, make)
            _beside(path, lambda part: _save(part, made))
        with np.load(path, allow_pickle=False) as kept:
            return {name: kept[name] for name in kept.files}

    def has_row(self, key: Mapping[str, Any]) -> bool:
        return self._path(key, ".json").exists()

    def has_arrays(self, key: Mapping[str, Any]) -> bool:
        return self._path(key, ".npz").exists()

    def _made(self, key: Mapping[str, Any], make: Callable[[], T]) -> T:
        if self.only_kept:
            raise CellMissing(f"{self.folder} has no cell {dict(key)}")
        made = make()
        provenance.note_version(self.folder)
        return made

    def _path(self, key: Mapping[str, Any], suffix: str) -> Path:
        """File name from the short values of the key and a hash of the whole key."""
        text = json.dumps(key, sort_keys=True)
        shown = [re.sub(r"[^\w.+-]", "", str(value)) for value in key.values()]
        name = "_".join(value for value in shown if len(value) <= 24)
        return self.folder / f"{name[:120]}-{hashlib.sha256(text.encode()).hexdigest()[:10]}{suffix}"


def publish(
    folder: Path, name: str, rows: Sequence[Row], markdown: str, corpora: Mapping[str, Corpus] | None = None
) -> None:
    """Write ``NAME.parquet``, one row per result, ``NAME.md``, and the provenance of both as ``NAME.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = dict.fromkeys(column for row in rows for column in row)
    table = pa.Table.from_pylist([{column: _finite(row).get(column) for column in columns} for row in rows])
    record = provenance.record(folder, rows, corpora or {})
    _beside(folder / f"{name}.json", lambda part: part.write_text(json.dumps(record, indent=1) + "\n"))
    _beside(folder / f"{name}.parquet", lambda part: pq.write_table(table, part))
    _beside(folder / f"{name}.md", lambda part: part.write_text(markdown.rstrip("\n") + "\n"))


def _beside(path: Path, write: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    write(part)
    part.replace(path)


def _save(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)


def _finite(row: Mapping[str, Any]) -> Row:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
