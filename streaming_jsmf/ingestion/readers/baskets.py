"""Baskets, playlists or click paths: each document is a line of items, or a list of items in Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from streaming_jsmf.corpus.footer import is_list, is_string
from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Source, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import TABLE_PATTERNS, compressed, is_parquet, open_parquet_source
from streaming_jsmf.ingestion.readers.lines import text_of
from streaming_jsmf.ingestion.readers.record_files import RecordFiles, drop_bad_rows, parquet_batches
from streaming_jsmf.ingestion.readers.text_records import bag_lines, bag_tokens
from streaming_jsmf.ingestion.readers.values import is_valid, list_as_json, listed, require_columns
from streaming_jsmf.ingestion.tokens.split import TokenLists
from streaming_jsmf.validation import Strict


def _hint() -> str:
    return f"name the column with {option.read({'items': 'NAME'})}"


class BasketOptions(Strict):
    """``separator`` of the items of a line (default: white space); ``items``: list column of Parquet."""

    separator: Annotated[str, Field(min_length=1)] | None = None
    items: str = "items"


class BasketSource(RecordFiles, Source):
    """Reader "baskets": documents of items, which are counted as written. Lines are UTF-8."""

    reader = "baskets"
    options_type = BasketOptions
    patterns = (*TABLE_PATTERNS, *compressed("*.baskets"))

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        if is_parquet(unit.path):
            return _read_parquet(unit, self.options.items, bad)
        return bag_lines(unit, text_of, bad, self._split)

    def _split(self, lines: Any) -> TokenLists:
        separator = self.options.separator
        lists = pc.utf8_split_whitespace(lines) if separator is None else pc.split_pattern(lines, separator)
        return _tokens(lists.offsets, pc.utf8_trim_whitespace(lists.flatten()))


def _read_parquet(unit: Unit, column: str, bad: BadRecords) -> Iterator[Batch]:
    with bad.unreadable_file(), open_parquet_source(unit.path) as file:
        _check_items(file.schema_arrow, column)
        for first, batch in parquet_batches(file, unit, [column]):
            good, rows = drop_bad_rows(batch, _bad_rows(batch.column(column)), first, bad, list_as_json)
            if len(rows):
                lists = good.column(column)
                tokens = _tokens(lists.offsets, lists.flatten().cast(pa.string()))
                yield bag_tokens(tokens, rows)


def _check_items(schema: Any, column: str) -> None:
    if column not in schema.names:
        raise UnreadableError(f"there is no column {column!r}; it has {listed(schema.names)}; {_hint()}")
    require_columns([column], schema.names)
    kind = schema.field(column).type
    if not is_list(kind):
        raise UnreadableError(f"column {column!r} is {kind}; it must hold lists of items; {_hint()}")
    item = kind.value_type
    if not (is_string(item) or pa.types.is_integer(item)):
        raise UnreadableError(f"column {column!r} holds {item}; items are strings or integers; {_hint()}")


def _bad_rows(lists: Any) -> dict[int, str]:
    """Return the reason to refuse each bad list; lists are checked one by one only if there are bad ones."""
    items = lists.flatten()
    if not lists.null_count and not items.null_count and is_valid(items):
        return {}
    reasons = {i: _fault(lists.slice(i, 1)) for i in range(len(lists))}
    return {i: reason for i, reason in reasons.items() if reason}


def _fault(row: Any) -> str:
    """Return why an array of one list cannot be used; empty if it can."""
    if row.null_count:
        return "the list is null"
    if row.flatten().null_count:
        return "the list holds a null"
    return "" if is_valid(row.flatten()) else "the list holds bytes that are not UTF-8"


def _tokens(offsets: Any, items: Any) -> TokenLists:
    """Return lists of items without empty ones, such as those between two separators."""
    encoded = items.dictionary_encode()
    codes = np.asarray(encoded.indices)
    kept = (np.asarray(pc.binary_length(encoded.dictionary)) > 0)[codes]
    before = np.concatenate([[0], np.cumsum(kept)])
    starts = np.asarray(offsets).astype(np.int64)
    return TokenLists(before[starts - starts[0]], codes[kept], encoded.dictionary)
