"""Texts with their ids and metadata: which columns they have, and records gathered into batches. No words yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.records import is_utf8, require
from streaming_jsmf.ingestion.readers.streams import UnreadableError
from streaming_jsmf.ingestion.readers.text.options import TextOptions

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
        return self.size >= limits.BATCH_BYTES

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


def chosen_columns(names: Sequence[str], options: TextOptions) -> tuple[str | None, list[str]]:
    """The id column, as asked for or by its usual names, and the metadata columns in the order of the file.

    Raises
    ------
    UnreadableError
        If a column is missing, a name stands for two, is not UTF-8, or is one that a corpus needs for itself.
    """
    asked = () if options.metadata == "all" else options.metadata
    require([options.text, *([options.id] if options.id else []), *asked], names)
    name = options.id or next((name for name in ID_NAMES if name in names), None)
    used = [options.text, *([name] if name else [])]
    kept = [each for each in names if (options.metadata == "all" or each in asked) and each not in used]
    for reserved in RESERVED_NAMES:
        if reserved in kept:
            raise UnreadableError(
                f"column {reserved!r} has a name that a corpus needs for itself; choose the columns to keep "
                "with metadata=A,B or rename it"
            )
    for each in dict.fromkeys([*used, *kept]):
        what = f"the name {each!a} is not UTF-8; rename it"
        if names.count(each) > 1:
            what = f"it has {names.count(each)} columns {each!r}; rename all but one"
        elif is_utf8(each):
            continue
        raise UnreadableError(f"{what}, or choose others with metadata=A,B")
    return name, kept
