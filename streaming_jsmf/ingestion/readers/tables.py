"""Rows of named columns, streamed from Parquet and delimited text, with their locations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.config import Delimited
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import open_parquet_source, open_raw, open_stream
from streaming_jsmf.ingestion.readers.lines import (
    BYTE_ORDER_MARK,
    EMPTY,
    header_line,
    line_blocks,
    n_lines,
    parse_each_line,
    parse_lines,
    split_fields,
)
from streaming_jsmf.ingestion.readers.listing import is_parquet
from streaming_jsmf.ingestion.readers.values import as_json, require_columns

_SEPARATOR = b"\x1f"  # replaces a delimiter of several bytes, because Arrow accepts only one


def split_line(layout: Delimited, line: bytes, encoding: str = "utf-8") -> list[str]:
    """Return the fields of a line. Raises BadValue if it cannot be split."""
    return split_fields(line, _delimiter(layout), layout.quotes, encoding)


def _delimiter(layout: Delimited) -> str:
    return layout.delimiter or ","


@dataclass(frozen=True, eq=False)
class TableBatch:
    """n rows: Arrow arrays by column, ``rows`` (n,) int64 within the unit, and the bytes ``record(i)`` of row i."""

    columns: Mapping[str, Any]
    rows: NDArray[np.int64]
    record: Callable[[int], bytes]


def read_table(unit: Unit, names: Sequence[str], layout: Delimited, bad: BadRecords) -> Iterator[TableBatch]:
    """Stream the named columns of a unit in one pass and bounded memory; empty lines are skipped.

    Bad lines go to ``bad``. Raises UnreadableError if a file cannot be read to its end, after the rows before that.
    """
    return _read_parquet(unit, names) if is_parquet(unit.path) else _read_text(unit, names, layout, bad)


def _read_parquet(unit: Unit, names: Sequence[str]) -> Iterator[TableBatch]:
    row = 0
    with open_raw(unit.path) as stream, open_parquet_source(unit.path) as footer:
        require_columns(names, footer.schema_arrow.names)
        # Keep strings as dictionary codes, as most writers store them, which halves the time.
        file = pq.ParquetFile(stream, metadata=footer.metadata, read_dictionary=list(names))
        groups = list(range(unit.start, unit.stop or file.metadata.num_row_groups))
        size = max(1, limits.BATCH_VALUES // 4)  # while they are checked, rows take several times their size
        for batch in file.iter_batches(size, row_groups=groups, columns=list(names), use_threads=False):
            columns = {name: batch.column(name) for name in names}
            yield TableBatch(columns, np.arange(row, row + batch.num_rows), partial(as_json, batch))
            row += batch.num_rows


def _read_text(unit: Unit, names: Sequence[str], layout: Delimited, bad: BadRecords) -> Iterator[TableBatch]:
    with open_stream(unit.path) as stream:
        found: Sequence[str] = layout.columns
        if layout.header != "none":
            header = header_line(stream)
            if header is None:
                raise UnreadableError(EMPTY)
            try:
                found = split_line(layout, header.removeprefix(BYTE_ORDER_MARK))
            except BadValue as error:
                raise UnreadableError(f"line 1: {error}") from error
        empty = layout.header == "none"
        require_columns(names, found)
        parser = BlockParser(layout, tuple(found), tuple(names))
        for first, block in line_blocks(stream):
            marked = empty  # a file without a header may start with a mark
            yield parser.batch(block.removeprefix(BYTE_ORDER_MARK) if marked else block, first, bad)
            empty = False
    if empty:
        raise UnreadableError(EMPTY)


@dataclass(frozen=True)
class BlockParser:
    """Parser of blocks of lines; ``found`` are all columns of the file in order, ``wanted`` those to return."""

    layout: Delimited
    found: tuple[str, ...]
    wanted: tuple[str, ...]

    def batch(self, block: bytes, first: int, bad: BadRecords) -> TableBatch:
        """Return the rows of a block whose first line has the number ``first``; bad lines go to ``bad``."""
        columns = self.parse(block)
        if columns is None:
            return self.parse_by_line(block, first, bad)
        within = np.arange(n_lines(block))
        return TableBatch(columns, first + within, _line_of(block, within))

    def parse(self, block: bytes) -> dict[str, Any] | None:
        """Return the wanted columns as ``parse_by_line`` would, but faster; None if a line may be bad."""
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            return None
        delimiter, quote = _delimiter(self.layout).encode(), self.layout.quotes.encode()
        if quote and quote in block and not self._quotes_in_place(block):
            return None
        if len(delimiter) > 1:
            if _SEPARATOR in block:
                return None
            block, delimiter = block.replace(delimiter, _SEPARATOR), _SEPARATOR
        positions = {name: str(self.found.index(name)) for name in self.wanted}
        strings = pa.dictionary(pa.int32(), pa.string())
        table = parse_lines(
            block,
            {str(i): strings for i in range(len(self.found))},
            delimiter.decode(),
            self.layout.quotes,
            include_columns=list(dict.fromkeys(positions.values())),
            strings_can_be_null=False,
        )
        return table and {name: table.column(at).combine_chunks() for name, at in positions.items()}

    def parse_by_line(self, block: bytes, first: int, bad: BadRecords) -> TableBatch:
        """Return the good lines of a block; the others go to ``bad``."""

        def split(line: bytes) -> list[str]:
            fields = split_line(self.layout, line) if line else []
            if line and len(fields) != len(self.found):
                raise BadValue(f"{len(fields)} fields, not {len(self.found)}")
            return fields

        within, values, faults = parse_each_line(block, split)
        line_at = _line_of(block, np.arange(n_lines(block)))
        for row, reason in faults.items():
            bad.refuse(first + row, reason, line_at(row))
        positions = {name: self.found.index(name) for name in self.wanted}
        columns = {name: pa.array([v[at] for v in values], pa.string()) for name, at in positions.items()}
        return TableBatch(columns, within + first, _line_of(block, within))

    def _quotes_in_place(self, block: bytes) -> bool:
        """Return whether ``split`` accepts all quotes of the block; Arrow accepts more."""
        delimiter, quote = ord(_delimiter(self.layout)), ord(self.layout.quotes)
        data = np.frombuffer(b"\n%b\n" % block, np.uint8)
        at = np.flatnonzero(data == quote)
        before_line_ends = np.searchsorted(at, np.flatnonzero(data == ord("\n")))
        # Adjacent quotes form a run.
        head = np.flatnonzero(np.diff(at, prepend=-1) != 1)
        length = np.diff(head, append=len(at))
        is_edge = np.isin(np.arange(256), [delimiter, ord("\n"), ord("\r")])
        starts, ends = is_edge[data[at[head] - 1]], is_edge[data[at[head] + length]]
        inside, odd = head % 2 == 1, length % 2 == 1
        good = np.where(inside, ~odd | ends, starts & (odd | ends))
        return bool(good.all() and not (before_line_ends % 2).any())


def _line_of(block: bytes, within: NDArray[np.int64]) -> Callable[[int], bytes]:
    """Return a function from i to line ``within[i]`` of a block, which is split on the first call."""
    lines = cache(lambda: block.split(b"\n"))
    return lambda i: lines()[int(within[i])].removesuffix(b"\r")
