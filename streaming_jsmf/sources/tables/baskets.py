"""Playlists, market baskets, click paths: one line of items a document, or one list of items in Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from streaming_jsmf.sources.base import BATCH_BYTES, BadRecords, SourceBatch, Unit
from streaming_jsmf.sources.files import (
    STREAM_ERRORS,
    UnreadableError,
    bare_suffix,
    listed,
    open_parquet_source,
    open_stream,
)
from streaming_jsmf.sources.text.lines import (
    EMPTY,
    BadValue,
    cut_short,
    kept_of,
    line_first_row,
    line_units,
    lines_of,
    sound_line,
)
from streaming_jsmf.sources.text.parquet import (
    batch_rows,
    parquet_first_row,
    parquet_place,
    parquet_units,
)
from streaming_jsmf.tokens.lists import TokenLists, count_codes
from streaming_jsmf.validation import Strict

_NAME_IT = "name the column with --read items=NAME"


class BasketOptions(Strict):
    """``separator`` between the items of a line (white space when not given); ``items``: list column of Parquet."""

    separator: Annotated[str, Field(min_length=1)] | None = None
    items: str = "items"


@dataclass(frozen=True)
class BasketSource:
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

    def units(self) -> Sequence[Unit]:
        """Row groups of Parquet, byte ranges of lines, whole compressed files."""
        units: list[Unit] = []
        for path in self.files:
            parquet = bare_suffix(path) == ".parquet"
            units.extend(parquet_units(path) if parquet else line_units(path, splittable=True))
        return units

    def first_row(self, unit: Unit) -> int:
        """Row or line of the file where the unit starts."""
        return parquet_first_row(unit) if bare_suffix(unit.path) == ".parquet" else line_first_row(unit)

    def place(self, unit: Unit, row: int) -> str:
        """File and row, or file and line from 1."""
        if bare_suffix(unit.path) == ".parquet":
            return parquet_place(unit, row)
        return f"{unit.path}, line {line_first_row(unit) + row + 1}"

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """One pass over the unit in batches of about 8 MB."""
        if bare_suffix(unit.path) == ".parquet":
            return _read_parquet(unit, self.options.items, bad)
        return _read_lines(unit, self.options.separator, bad)


def _read_lines(unit: Unit, separator: str | None, bad: BadRecords) -> Iterator[SourceBatch]:
    lines: list[str] = []
    rows: list[int] = []
    row, size, seen = -1, 0, False
    try:
        with open_stream(unit.path) as stream:
            for row, line in enumerate(lines_of(stream, unit)):
                seen = True
                try:
                    lines.append(sound_line(line, "utf-8").rstrip("\r\n"))
                    rows.append(row)
                    size += len(line) + 64
                except BadValue as error:
                    bad.refuse(row, str(error), kept_of(line))
                if size >= BATCH_BYTES:
                    yield _of_lines(lines, rows, separator)
                    lines, rows, size = [], [], 0
    except STREAM_ERRORS as error:
        seen = True
        bad.refuse(row + 1, cut_short(error))
    if not seen and not unit.stop:
        bad.refuse(None, EMPTY)
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
            for g in range(unit.start, unit.stop):
                size = batch_rows(file.metadata.row_group(g))
                for batch in file.iter_batches(size, row_groups=[g], columns=[column], use_threads=False):
                    yield from _of_lists(batch.column(column), row, bad)
                    row += batch.num_rows
    except UnreadableError as error:
        bad.refuse(None, str(error))


def _check_items(schema: Any, column: str) -> None:
    if column not in schema.names:
        raise UnreadableError(f"there is no column {column!r}; it has {listed(schema.names)}; {_NAME_IT}")
    if schema.names.count(column) > 1:
        raise UnreadableError(f"it has {schema.names.count(column)} columns {column!r}; rename all but one")
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
        bad.refuse(first + i, why, _as_json(column.slice(i, 1)))
    if good.any():
        kept = column.filter(pa.array(good))
        offsets = np.asarray(kept.offsets).astype(np.int64)
        items = kept.flatten().cast(pa.string())
        yield _bags(offsets - offsets[0], items, first + np.flatnonzero(good), {})


def _faults(column: Any) -> list[tuple[int, str]]:
    """Rows that are null, hold a null or bytes that are not UTF-8; looked at one by one only if there are any."""
    items = column.flatten()
    try:
        items.validate(full=True)
        if not column.null_count and not items.null_count:
            return []
    except pa.ArrowInvalid:
        pass
    found = []
    for i in range(len(column)):
        held = column.slice(i, 1)
        if held.null_count:
            found.append((i, "the list is null"))
        elif held.flatten().null_count:
            found.append((i, "the list holds a null"))
        else:
            try:
                held.flatten().validate(full=True)
            except pa.ArrowInvalid:
                found.append((i, "the list holds bytes that are not UTF-8"))
    return found


def _as_json(held: Any) -> str | None:
    """One list for the quarantine; bytes that are not UTF-8 stay as they are."""
    if held.null_count:
        return None
    items = held.flatten()
    if pa.types.is_integer(items.type):
        return json.dumps(items.to_pylist())
    raw = items.cast(pa.large_binary()).to_pylist()
    texts = [None if item is None else item.decode("utf-8", "surrogateescape") for item in raw]
    return json.dumps(texts, ensure_ascii=False)


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
