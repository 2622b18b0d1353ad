"""Records of text with their ids and metadata, out of Parquet, JSON-lines and CSV files. No words yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.sources.base import BATCH_BYTES
from streaming_jsmf.sources.files import UnreadableError, listed

RESERVED_NAMES = ("ids", "counts", "document_id")
ID_NAMES = ("document_id", "doc_id", "id")


@dataclass(frozen=True)
class TextColumns:
    """Which columns are what, the same in all files of a source.

    Attributes
    ----------
    text
        Name of the text.
    id, id_type
        Name and Arrow type (int64 or string) of the id, or None.
    metadata
        Arrow type by name of each column kept.
    """

    text: str
    id: str | None
    id_type: Any
    metadata: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        return [self.text, *([self.id] if self.id else []), *self.metadata]


@dataclass(frozen=True, eq=False)
class TextRecords:
    """m good records: Arrow arrays ``texts`` (strings, no nulls), ``ids`` (or None) and metadata; rows (m,) int64."""

    texts: Any
    ids: Any
    metadata: Mapping[str, Any]
    rows: NDArray[np.int64]


@dataclass
class RecordBuffer:
    """Records one by one until there are enough for a batch."""

    columns: TextColumns
    texts: list[str] = field(default_factory=list)
    ids: list[Any] = field(default_factory=list)
    metadata: dict[str, list[Any]] = field(default_factory=dict)
    rows: list[int] = field(default_factory=list)
    size: int = 0

    def __post_init__(self) -> None:
        self.metadata = {name: [] for name in self.columns.metadata}

    @property
    def full(self) -> bool:
        """Whether it holds a batch of text."""
        return self.size >= BATCH_BYTES

    def add(self, row: int, text: str, identity: Any, metadata: Sequence[Any]) -> None:
        """Take one record; ``metadata`` in the order of the columns."""
        self.texts.append(text)
        self.ids.append(identity)
        self.rows.append(row)
        for values, value in zip(self.metadata.values(), metadata, strict=True):
            values.append(value)
        kept = sum(len(value) for value in metadata if isinstance(value, str))
        self.size += len(text) + kept + 64  # short records have a price too

    def flush(self) -> Iterator[TextRecords]:
        """What has been gathered, if anything; the buffer is empty afterwards."""
        if self.rows:
            yield TextRecords(
                pa.array(self.texts, pa.string()),
                pa.array(self.ids, self.columns.id_type) if self.columns.id else None,
                {
                    name: pa.array(values, self.columns.metadata[name])
                    for name, values in self.metadata.items()
                },
                np.array(self.rows, np.int64),
            )
        self.__init__(self.columns)  # type: ignore[misc]


def chosen_metadata(
    names: Sequence[str], wanted: str | Sequence[str], used: Sequence[str | None]
) -> list[str]:
    """Metadata columns in the order of the file: those wanted, or all others for "all".

    Raises
    ------
    UnreadableError
        If a name stands for two columns, is not UTF-8, or is one that a corpus needs for itself.
    """
    chosen = [name for name in names if (wanted == "all" or name in wanted) and name not in used]
    for name in RESERVED_NAMES:
        if name in chosen:
            raise UnreadableError(
                f"column {name!r} has a name that a corpus needs for itself; choose the columns to keep "
                "with metadata=A,B or rename it"
            )
    for name in dict.fromkeys([*filter(None, used), *chosen]):
        if names.count(name) > 1:
            raise UnreadableError(
                f"it has {names.count(name)} columns {name!r}; rename all but one, or choose others with metadata=A,B"
            )
        if not is_utf8(name):
            raise UnreadableError(
                f"the name {name!a} is not UTF-8; rename it, or choose others with metadata=A,B"
            )
    return chosen


def is_utf8(text: str) -> bool:
    """Whether a string is free of halves of surrogate pairs, which stand for what could not be decoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def require(names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise UnreadableError if a column that is wanted is not among the names."""
    for name in wanted:
        if name not in names:
            raise UnreadableError(f"there is no column {name!r}; it has {listed(names)}")


def chosen_id(names: Sequence[str], wanted: str | None) -> str | None:
    """The id column: as wanted, else the first of the usual names that is there, else none."""
    return wanted or next((name for name in ID_NAMES if name in names), None)
