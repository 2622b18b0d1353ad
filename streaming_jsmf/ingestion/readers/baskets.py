"""Baskets, playlists, click paths: a document is a line of items, or a list of items in Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import open_parquet_source
from streaming_jsmf.ingestion.readers.lines import read_lines, text_of
from streaming_jsmf.ingestion.readers.units import RecordFiles, is_parquet, parquet_batches
from streaming_jsmf.ingestion.readers.values import is_valid, list_as_json, listed, require_columns
from streaming_jsmf.ingestion.tokens.lists import TokenLists, count_codes
from streaming_jsmf.validation import Strict

_NAME_IT = "name the column with --read items=NAME"


class BasketOptions(Strict):
    """``separator`` of the items of a line (white space when not given); ``items``: list column of Parquet."""

    separator: Annotated[str, Field(min_length=1)] | None = None
    items: str = "items"


@dataclass(frozen=True)
class BasketSource(RecordFiles):
    """Reader "baskets": documents of items, counted as they are written.

    Attributes
    ----------
    files
        Local paths or URLs: Parquet by its suffix, any other is lines of UTF-8.
    options
        How items are separated.
    """

    files: tuple[str, ...]
    options: BasketOptions

    reader: ClassVar[str] = "baskets"
    vocabulary: ClassVar[None] = None

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
    return _bags(np.asarray(lists.offsets).astype(np.int64), items, np.array(rows, np.int64))


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
    require_columns([column], schema.names)
    kind = schema.field(column).type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise UnreadableError(f"column {column!r} is {kind}; it must hold lists of items; {_NAME_IT}")
    item = kind.value_type
    if not (pa.types.is_string(item) or pa.types.is_large_string(item) or pa.types.is_integer(item)):
        raise UnreadableError(f"column {column!r} holds {item}; items are strings or integers; {_NAME_IT}")


def _of_lists(column: Any, first: int, bad: BadRecords) -> Iterator[SourceBatch]:
    good = np.ones(len(column), bool)
    items = column.flatten()
    if column.null_count or items.null_count or not is_valid(items):
        for i in range(len(column)):
            row = column.slice(i, 1)
            reason = _fault(row)
            if reason:
                good[i] = False
                bad.refuse(first + i, reason, list_as_json(row))
    if good.any():
        kept = column.filter(pa.array(good))
        offsets = np.asarray(kept.offsets).astype(np.int64)
        yield _bags(offsets - offsets[0], kept.flatten().cast(pa.string()), first + np.flatnonzero(good))


def _fault(row: Any) -> str:
    """Why an array of one list cannot be used; empty if it can."""
    if row.null_count:
        return "the list is null"
    if row.flatten().null_count:
        return "the list holds a null"
    return "" if is_valid(row.flatten()) else "the list holds bytes that are not UTF-8"


def _bags(offsets: Any, items: Any, rows: Any) -> SourceBatch:
    """Count the items, without empty ones, as between two separators."""
    encoded = items.dictionary_encode()
    codes = np.asarray(encoded.indices)
    kept = (np.asarray(pc.binary_length(encoded.dictionary)) > 0)[codes]
    before = np.concatenate([[0], np.cumsum(kept)])
    bags = count_codes(TokenLists(before[offsets], codes[kept], encoded.dictionary))
    return SourceBatch(bags.indptr, bags.codes, bags.counts, rows, dictionary=encoded.dictionary)
