"""Playlists, market baskets, click paths: one line of items a document, or one list of items in Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.lines import read_lines, text_of
from streaming_jsmf.ingestion.readers.parquet import is_parquet, parquet_batches
from streaming_jsmf.ingestion.readers.record_files import RecordFiles
from streaming_jsmf.ingestion.readers.records import is_sound, list_as_json, listed, require
from streaming_jsmf.ingestion.readers.streams import UnreadableError, open_parquet_source
from streaming_jsmf.ingestion.tokens.lists import TokenLists, count_codes
from streaming_jsmf.validation import Strict

_NAME_IT = "name the column with --read items=NAME"


class BasketOptions(Strict):
    """``separator`` between the items of a line (white space when not given); ``items``: list column of Parquet."""

    separator: Annotated[str, Field(min_length=1)] | None = None
    items: str = "items"


@dataclass(frozen=True)
class BasketSource(RecordFiles):
    """Documents of items: an item that is there twice counts 2. Items are taken as they stand.

    Attributes
    ----------
    files
        Local paths or URLs: Parquet by its suffix, any other is lines of UTF-8.
    options
        How items are told apart.
    """

    files: tuple[str, ...]
    options: BasketOptions
    reader: str = "baskets"
    vocabulary: None = None

    def splittable(self, path: str) -> bool:  # noqa: ARG002
        """Each line is a basket."""
        return True

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """One pass over the unit in batches of about 8 MB."""
        if is_parquet(unit.path):
            return _read_parquet(unit, self.options.items, bad)
        return _read_lines(unit, self.options.separator, bad)


def _read_lines(unit: Unit, separator: str | None, bad: BadRecords) -> Iterator[SourceBatch]:
    lines: list[str] = []
    rows: list[int] = []
    size = 0
    for row, (text, n_bytes) in read_lines(unit, lambda line: (text_of(line), len(line)), bad):
        lines.append(text.rstrip("\r\n"))
        rows.append(row)
        size += n_bytes + 64
        if size >= limits.BATCH_BYTES:
            yield _of_lines(lines, rows, separator)
            lines, rows, size = [], [], 0
    if rows:
        yield _of_lines(lines, rows, separator)


def _of_lines(lines: list[str], rows: list[int], separator: str | None) -> SourceBatch:
    texts = pa.array(lines, pa.string())
    lists = pc.utf8_split_whitespace(texts) if separator is None else pc.split_pattern(texts, separator)
    items = pc.utf8_trim_whitespace(lists.flatten())
    return _bags(np.asarray(lists.offsets).astype(np.int64), items, np.array(rows, np.int64), {})


def _read_parquet(unit: Unit, column: str, bad: BadRecords) -> Iterator[SourceBatch]:
    try:
        with open_parquet_source(unit.path) as file:
            _check_items(file.schema_arrow, column)
            row = 0
            for batch in parquet_batches(file, unit, [column]):
                yield from _of_lists(batch.column(column), row, bad)
                row += batch.num_rows
    except UnreadableError as error:
        bad.refuse(None, str(error))


def _check_items(schema: Any, column: str) -> None:
    if column not in schema.names:
        raise UnreadableError(f"there is no column {column!r}; it has {listed(schema.names)}; {_NAME_IT}")
    require([column], schema.names)
    kind = schema.field(column).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise UnreadableError(f"column {column!r} is {kind}; it must hold lists of items; {_NAME_IT}")
    held = kind.value_type
    if not (pa.types.is_string(held) or pa.types.is_large_string(held) or pa.types.is_integer(held)):
        raise UnreadableError(f"column {column!r} holds {held}; items are strings or integers; {_NAME_IT}")


def _of_lists(column: Any, first: int, bad: BadRecords) -> Iterator[SourceBatch]:
    good = np.ones(len(column), bool)
    for i, why in _faults(column):
        good[i] = False
        bad.refuse(first + i, why, list_as_json(column.slice(i, 1)))
    if good.any():
        kept = column.filter(pa.array(good))
        offsets = np.asarray(kept.offsets).astype(np.int64)
        items = kept.flatten().cast(pa.string())
        yield _bags(offsets - offsets[0], items, first + np.flatnonzero(good), {})


def _faults(column: Any) -> list[tuple[int, str]]:
    """Rows that are null, hold a null or bytes that are not UTF-8; looked at one by one only if there are any."""
    items = column.flatten()
    if not column.null_count and not items.null_count and is_sound(items):
        return []
    found = []
    for i in range(len(column)):
        held = column.slice(i, 1)
        if held.null_count:
            found.append((i, "the list is null"))
        elif held.flatten().null_count:
            found.append((i, "the list holds a null"))
        elif not is_sound(held.flatten()):
            found.append((i, "the list holds bytes that are not UTF-8"))
    return found


def _bags(offsets: Any, items: Any, rows: Any, metadata: dict[str, Any]) -> SourceBatch:
    """Count the items; empty ones, as between two separators, are none."""
    encoded = items.dictionary_encode()
    real = np.asarray(pc.binary_length(encoded.dictionary)) > 0
    codes = np.asarray(encoded.indices)
    kept = real[codes]
    before = np.concatenate([[0], np.cumsum(kept)])
    tokens = TokenLists(before[offsets], codes[kept], encoded.dictionary)
    bags = count_codes(tokens)
    return SourceBatch(bags.indptr, bags.codes, bags.counts, rows, None, metadata, encoded.dictionary)
