"""Rows of named columns from Parquet and delimited text, in blocks of lines, and the codes of their values."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.config import Delimited, RatingsOptions
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import open_parquet_source, open_raw, open_stream, read_pieces
from streaming_jsmf.ingestion.readers.formats import BYTE_ORDER_MARK, EMPTY, too_long
from streaming_jsmf.ingestion.readers.listing import is_parquet
from streaming_jsmf.ingestion.readers.values import (
    as_bytes,
    as_json,
    decode,
    invalid_rows,
    is_text,
    require_columns,
    value_type,
)

_SEPARATOR = b"\x1f"  # replaces a delimiter of several bytes, because Arrow accepts only one
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long

Fields = TypeVar("Fields")
#: From distinct values, an Arrow array, to the values that stand for them, and why some cannot be used, by index.
Convert = Callable[[Any], tuple[Any, dict[int, str]]]


def line_blocks(stream: Any, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines of about ``BATCH_BYTES`` with the number of their first line, from ``first``.

    Raises UnreadableError after the lines before the damage, with the part of the line at which the stream breaks off.
    """
    rest, damage, ended = b"", "", False
    while not ended:
        read, damage = read_pieces(stream, limits.BATCH_BYTES)
        data = rest + read
        if len(data) > limits.LONGEST_LINE and b"\n" not in data:
            damage = too_long()
        ended = bool(damage) or len(read) < limits.BATCH_BYTES
        cut = len(data) if ended and not damage else data.rfind(b"\n") + 1
        block, rest = data[:cut], data[cut:]
        if block:
            yield first, block
            first += _n_lines(block)
    if damage:
        raise UnreadableError(
            damage, first, rest[: _KEPT if len(rest) > limits.LONGEST_LINE else None] or None
        )


def header_line(stream: Any) -> bytes | None:
    """Read a line without its line end; None at the end of the stream. Raises UnreadableError if it is too long."""
    line: bytes = stream.readline(limits.LONGEST_LINE + 1)
    if len(line) > limits.LONGEST_LINE and not line.endswith(b"\n"):
        raise UnreadableError(too_long())
    return line.removesuffix(b"\n").removesuffix(b"\r") if line else None


def parse_lines(
    block: bytes, types: Mapping[str, Any], delimiter: str, quote: str, **convert: Any
) -> Any | None:
    """Return the table that Arrow reads from a block; None unless each line is one row of these columns."""
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=list(types)),
            pa_csv.ParseOptions(delimiter=delimiter, quote_char=quote or False),
            pa_csv.ConvertOptions(column_types=types, **convert),
        )
    except pa.ArrowInvalid:
        return None
    # Arrow skips empty lines, and joins lines if a quote is open at a line end.
    return table if table.num_rows == _n_lines(block) else None


def parse_each_line(
    block: bytes, parse: Callable[[bytes], Sequence[Fields]]
) -> tuple[NDArray[np.int64], list[Sequence[Fields]], dict[int, str]]:
    """Parse the lines of a block one by one, which is slow but locates the bad ones; no fields mean a blank line.

    Returns the numbers of the good lines in the block, their fields, and why ``parse`` raised BadValue for the others.
    """
    rows, values, faults = [], [], {}
    for row, line in enumerate(block.split(b"\n")):
        try:
            if fields := parse(line.removesuffix(b"\r")):
                rows.append(row)
                values.append(fields)
        except BadValue as error:
            faults[row] = str(error)
    return np.array(rows, np.int64), values, faults


def _n_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def split_line(layout: Delimited, line: bytes, encoding: str = "utf-8") -> list[str]:
    """Return the fields of a line that is a whole record. Raises BadValue if it cannot be split.

    A quote opens a field only at its start, is doubled inside, and closes the field; only a delimiter may follow.
    """
    text, delimiter = decode(line, encoding), layout.delimiter or ","
    if not layout.quotes and layout.escapechar is None:
        return text.split(delimiter)
    csv.field_size_limit(limits.LONGEST_LINE)
    reader = csv.reader(
        [text],
        delimiter=delimiter,
        quotechar=layout.quotes or None,
        escapechar=layout.escapechar,
        strict=True,
        quoting=csv.QUOTE_MINIMAL if layout.quotes else csv.QUOTE_NONE,
    )
    try:
        return next(reader, [""])
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise BadValue("a quote is not closed on its line") from error
        raise BadValue(f"the line cannot be split into fields ({first_line(error)})") from error


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
        schema = footer.schema_arrow
        require_columns(names, schema.names)
        for name in names:
            if pa.types.is_nested(kind := schema.field(name).type):
                raise UnreadableError(f"column {name!r} is {kind}; it must hold strings or numbers")
        # Keep strings as dictionary codes, as most writers store them, which halves the time.
        file = pq.ParquetFile(stream, metadata=footer.metadata, read_dictionary=list(names))
        groups = list(range(unit.start, unit.stop or file.metadata.num_row_groups))
        size = max(1, limits.BATCH_VALUES // 4)  # while they are checked, rows take several times their size
        for batch in file.iter_batches(size, row_groups=groups, columns=list(names), use_threads=False):
            columns = {name: batch.column(name) for name in names}
            yield TableBatch(columns, np.arange(row, row + batch.num_rows), partial(as_json, batch))
            row += batch.num_rows


def _read_text(unit: Unit, names: Sequence[str], layout: Delimited, bad: BadRecords) -> Iterator[TableBatch]:
    found, empty = layout.columns, True
    with open_stream(unit.path) as stream:
        if not found and (header := header_line(stream)) is not None:
            empty = False
            try:
                found = tuple(split_line(layout, header.removeprefix(BYTE_ORDER_MARK)))
            except BadValue as error:
                raise UnreadableError(f"line 1: {error}") from error
        if found:
            require_columns(names, found)
        parse = BlockParser(layout, found, tuple(names))
        for first, block in line_blocks(stream):
            # A file without a header may start with a mark.
            yield parse.batch(block.removeprefix(BYTE_ORDER_MARK) if empty else block, first, bad)
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
        lines = cache(lambda: block.split(b"\n"))
        columns = self.parse(block)
        rows = np.arange(_n_lines(block))
        if columns is None:
            rows, columns, faults = self.parse_by_line(block)
            for row, reason in faults.items():
                bad.refuse(first + row, reason, lines()[row].removesuffix(b"\r"))
        return TableBatch(columns, first + rows, lambda i: lines()[int(rows[i])].removesuffix(b"\r"))

    def parse(self, block: bytes) -> dict[str, Any] | None:
        """Return the wanted columns as ``parse_by_line`` would, but faster; None if a line may be bad."""
        delimiter, quote = (self.layout.delimiter or ",").encode(), self.layout.quotes.encode()
        if self.layout.escapechar is not None:
            return None
        if b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
            return None
        if (
            quote and quote in block and not _well_quoted(delimiter, quote).fullmatch(block)
        ):  # Arrow accepts more
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
            quote.decode(),
            include_columns=list(dict.fromkeys(positions.values())),
            strings_can_be_null=False,
        )
        return table and {name: table.column(at).combine_chunks() for name, at in positions.items()}

    def parse_by_line(self, block: bytes) -> tuple[NDArray[np.int64], dict[str, Any], dict[int, str]]:
        """Return the good lines of a block, their columns, and why the others are bad."""

        def split(line: bytes) -> list[str]:
            fields = split_line(self.layout, line) if line else []
            if line and len(fields) != len(self.found):
                raise _of_other_width(fields, len(self.found))
            return fields

        rows, values, faults = parse_each_line(block, split)
        at = {name: self.found.index(name) for name in self.wanted}
        return rows, {name: pa.array([v[i] for v in values], pa.string()) for name, i in at.items()}, faults


def _of_other_width(fields: Sequence[str], width: int) -> BadValue:
    return BadValue(f"the number of fields is {len(fields)}, not {width}")


@cache
def _well_quoted(delimiter: bytes, quote: bytes) -> re.Pattern[bytes]:
    """Return the pattern of a block in which each quoted field is closed, on its line, at its end."""
    d, q = re.escape(delimiter), re.escape(quote)
    quoted, other = rb"%b[^%b\n]*+(?:%b%b[^%b\n]*+)*+%b" % (q, q, q, q, q, q), rb"(?!%b)[^%b\n]*+" % (q, d)
    return re.compile(rb"(?:(?:%b|%b)(?:%b|\r?\n|\Z))*+" % (quoted, other, d))


def coded(
    column: Any, name: str, convert: Convert, *, numbers: bool = False
) -> tuple[NDArray[np.int32], Any, dict[int, str]]:
    """Encode a column of strings or integers, or of any ``numbers``, and convert its distinct values.

    Returns the index of each row's value, the converted values, and why rows cannot be used: nulls, strings that are
    empty or not UTF-8, and those that ``convert`` refuses. Raises UnreadableError for other types.
    """
    kind = value_type(column.type)
    if not (is_text(kind) or pa.types.is_integer(kind) or (numbers and pa.types.is_floating(kind))):
        wanted = "numbers" if numbers else "strings or integers"
        raise UnreadableError(f"column {name!r} is {kind}; it must hold {wanted}")
    if numbers and kind == column.type and not is_text(kind):
        codes = np.where(np.asarray(column.is_null()), -1, np.arange(len(column), dtype=np.int32))
        values = column.fill_null(0)
    else:
        if not pa.types.is_dictionary(column.type):
            column = (as_bytes(column) if is_text(kind) else column).dictionary_encode()
        codes = np.asarray(column.indices.fill_null(-1)).astype(np.int32, copy=False)
        values = column.dictionary
    if len(codes) and not (codes.min() >= -1 and codes.max() < len(values)):
        raise UnreadableError(
            f"column {name!r} has a code that is missing in its dictionary; it is damaged: fetch it again"
        )
    values, unusable = _checked_texts(values) if is_text(kind) else (values, {})
    values, refused = convert(values)
    faults = refused | unusable
    good = np.ones(len(values) + 1, bool)
    good[[-1, *faults]] = False  # the last element is for the code -1 of nulls
    bad = {i: f"{name} {faults.get(int(codes[i]), 'is null')}" for i in np.flatnonzero(~good[codes]).tolist()}
    return codes, values, bad


def _checked_texts(values: Any) -> tuple[Any, dict[int, str]]:
    """Return strings, and why some cannot be used."""
    values = as_bytes(values)
    empty = np.flatnonzero(np.asarray(pc.binary_length(values).fill_null(0)) == 0)
    faults = dict.fromkeys(empty.tolist(), "is empty")
    if invalid := invalid_rows(values):
        faults |= dict.fromkeys(invalid, "holds bytes that are not UTF-8")
        values = pa.array([(value or b"").decode("utf-8", "replace") for value in values.to_pylist()])
    return values.cast(pa.string()).fill_null(""), faults


def read_names(path: str, options: RatingsOptions) -> dict[str, str]:
    """Read distinct names by item, in one pass with the file in memory; shared names become "name (item)".

    Raises InputError if the file cannot be read or exceeds 64 MB, and for the first line that is malformed, empty, or
    gives an item a second name.
    """
    try:
        with open_stream(path) as stream:
            data = stream.read(limits.LARGEST_NAMES + 1)
        if len(data) > limits.LARGEST_NAMES:
            most = limits.LARGEST_NAMES >> 20
            raise UnreadableError(f"names take more than {most} MB; leave out items without ratings")
        names = _names_by_item(data.removeprefix(BYTE_ORDER_MARK).split(b"\n"), options)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from error
    while len(uses := Counter(names.values())) < len(names):
        names = {item: f"{name} ({item})" if uses[name] > 1 else name for item, name in names.items()}
    return names


def _names_by_item(lines: Sequence[bytes], options: RatingsOptions) -> dict[str, str]:
    item, name = options.names_item, options.names_name
    layout = replace(options, delimiter=options.names_delimiter)
    columns: Sequence[str] = options.names_columns
    width, found = 0, dict[str, str]()
    for number, line in enumerate(lines, 1):
        if not (line := line.removesuffix(b"\r")):
            continue
        try:
            fields = split_line(layout, line, options.names_encoding)
            # A name that contains the delimiter makes its line wider than the first one.
            width = width or max(len(fields), len(columns))
            if not columns:
                columns = fields
                continue
            if len(fields) != width:
                raise _of_other_width(fields, width)
            require_columns([item, name], columns)
            key, value = fields[columns.index(item)], fields[columns.index(name)].strip()
            if not key or not value:
                raise BadValue(f"{name if key else item} is empty")
            if found.setdefault(key, value) != value:
                raise BadValue(f"item {key!r} has another name above")
        except BadValue as error:
            raise UnreadableError(f"line {number}: {error}; correct the line") from error
    if not found:
        raise UnreadableError("it holds no names")
    return found
