"""Formats of tables: Parquet, Arrow, delimited text, and sheets of Excel and OpenDocument files."""

from __future__ import annotations

import datetime
import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.records import registers_pandas
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    Format,
    Records,
    Unit,
    UnreadableError,
    distinct_names,
    group_units,
    limits,
)
from streaming_jsmf.ingestion.readers.csv_layout import (
    OF_QUALTRICS,
    TITLES,
    CsvLayout,
    fault,
    header_below,
    layout_of,
    n_header,
    named,
    numbered,
    opened,
    skipping,
)
from streaming_jsmf.ingestion.readers.csv_scan import BAD, ENDLESS, Block, blocks
from streaming_jsmf.ingestion.readers.files import (
    is_compressed,
    is_divisible,
    open_parquet_source,
    open_raw,
    open_stream,
    read_as,
    read_pieces,
    size_of,
    trial,
)
from streaming_jsmf.ingestion.readers.formats import RENAME, other_kind
from streaming_jsmf.ingestion.readers.values import decoded, from_python, is_binary, listed
from streaming_jsmf.storage.paths import state_of

_ARROW_FILE, _ARROW_ENDS = b"ARROW1\0\0", (b"ARROW1", b"\xff" * 4 + bytes(4))
_CUT_BYTES = 1 << 20  # that are scanned for cuts at once, which stay in caches
_MOST_ROWS = 100_000  # of Parquet at once
_MEMORY = 2 << 30  # bytes for a sheet
_BATCH = 10_000  # rows

#: Loads a sheet: a cell far below the others takes the memory of all cells between them, and the library ends the
#: process if it gets none. Other errors are left to the real read.
_TRIAL = """
import io
from python_calamine import CalamineWorkbook
try:
    book = CalamineWorkbook.from_filelike(io.BytesIO(sys.stdin.buffer.read()))
    book.get_sheet_by_name(given[0] or book.sheet_names[0])
except BaseException as error:
    sys.exit(0 if isinstance(error, Exception) and not isinstance(error, MemoryError) else 3)
"""


class ParquetFormat(Format):
    """Rows of Parquet. A unit is a range of row groups; columns have no dictionaries and views."""

    def names(self, path: str, options: Any = None) -> list[str]:  # noqa: ARG002
        with open_parquet_source(path) as file:
            return list(file.schema_arrow.names)

    def units(self, path: str, options: Any = None) -> list[Unit]:  # noqa: ARG002
        with open_parquet_source(path) as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            return group_units(path, [group.total_byte_size for group in groups], limits.UNIT_BYTES)

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        with open_parquet_source(unit.path) as file:
            names = file.schema_arrow.names
            places = enumerate(distinct_names(names))
            kept = {name: place for place, name in places if wanted is None or name in wanted}
            # A name cannot select one of several columns that have it.
            unique = [*kept] if len({*names}) == len(names) else None
            for first, batch in parquet_batches(file, unit, unique):
                columns = {name: batch.column(name if unique else place) for name, place in kept.items()}
                rows = np.arange(first, first + batch.num_rows)
                yield Records(rows, {name: decoded(values) for name, values in columns.items()})

    def place(self, unit: Unit, row: int) -> str:
        with open_parquet_source(unit.path) as file:
            for g in range(unit.start, unit.stop):
                rows = file.metadata.row_group(g).num_rows
                if row < rows:
                    return f"{unit.path}, row group {g}, row {row} from 0"
                row -= rows
        return unit.path

    def first_row(self, unit: Unit) -> int:
        with open_parquet_source(unit.path) as file:
            return sum(file.metadata.row_group(g).num_rows for g in range(unit.start))


PARQUET = ParquetFormat()


class ArrowFormat(Format):
    """Record batches of Arrow, in streams as ``save_to_disk`` of Hugging Face writes, or Feather. A unit is a file."""

    def names(self, path: str, options: Any = None) -> list[str]:  # noqa: ARG002
        with _open_arrow(path) as reader:
            return list(reader.schema.names)

    def units(self, path: str, options: Any = None) -> list[Unit]:  # noqa: ARG002
        return [Unit(path, size=size_of(path))]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        row = 0
        with _open_arrow(unit.path) as reader:
            names = distinct_names(reader.schema.names)
            for batch in reader:
                batch.validate(full=True)  # offsets are as they are in the file
                step = max(1, limits.BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1))
                for start in range(0, batch.num_rows, step):
                    columns = zip(names, batch.slice(start, step).columns, strict=True)
                    kept = {name: decoded(each) for name, each in columns if wanted is None or name in wanted}
                    yield Records(row + np.arange(start, min(start + step, batch.num_rows)), kept)
                row += batch.num_rows


ARROW = ArrowFormat()


@contextmanager
def _open_arrow(path: str) -> Iterator[Any]:
    with open_stream(path) as stream:
        in_file = stream.read(len(_ARROW_FILE)) == _ARROW_FILE  # a stream follows, and a table of its batches
        whole = is_compressed(path)
        if not whole:
            stream.seek(max(0, size_of(path) - 8))
            whole = stream.read().endswith(_ARROW_ENDS)
    with open_stream(path) as stream, read_as("Arrow"):
        if not whole:  # cut between two batches, perhaps
            raise EOFError("its end mark is missing")
        stream.read(len(_ARROW_FILE) * in_file)
        reader = pa.ipc.open_stream(stream)
        if not registers_pandas(reader):
            yield reader
            return
    with _open_arrow(path) as reader:
        yield reader


def parquet_batches(file: Any, unit: Unit, columns: Sequence[str] | None) -> Iterator[tuple[int, Any]]:
    """Yield non-empty record batches of about ``BATCH_BYTES`` of a unit, with the number of their first row."""
    row = 0
    for g in range(unit.start, unit.stop):
        group = file.metadata.row_group(g)
        # The footer counts encoded bytes, in which repeated values are stored once; hence the upper bound on rows.
        share = limits.BATCH_BYTES * group.num_rows / max(group.total_byte_size, 1)
        size = max(1, min(_MOST_ROWS, int(share)))
        for batch in file.iter_batches(size, row_groups=[g], columns=columns, use_threads=False):
            if batch.num_rows:
                yield row, batch
                row += batch.num_rows


class DelimitedFormat(Format):
    """The format of delimited text. The row of a record is its first line."""

    counted = "line"

    def names(self, path: str, options: Any) -> list[str]:
        return [name for name in layout_of(path, options).names if name]

    def units(self, path: str, options: Any) -> list[Unit]:
        """Return the file, or if it is large parts of about ``UNIT_BYTES``, for which it is read once."""
        layout, size = layout_of(path, options), size_of(path)
        cuts = [(layout.start, layout.line)]
        if size > limits.UNIT_BYTES and not layout.recoded and is_divisible(path):
            with open_raw(path) as stream:
                cuts += [cut for cut in _cuts(stream, layout) if cut[0] < size] if stream.seekable() else []
        stops = [*(start for start, _ in cuts[1:]), size if len(cuts) > 1 else 0]
        parts = [
            Unit(path, start, stop, stop - start if stop else size, layout=layout, first=line)
            for (start, line), stop in zip(cuts, stops, strict=True)
        ]
        return [replace(parts[0], notes=layout.notes), *parts[1:]]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        layout, first = unit.layout, 0
        if layout is None:  # a whole file, in which lines are counted from its start
            layout = layout_of(unit.path, options)
            unit, first = replace(unit, start=layout.start), layout.line
        columns = _chosen(layout.names, wanted)
        try:
            with opened(unit.path, layout.encoding) as stream:
                _skip(stream, unit.start)
                left = unit.stop - unit.start if unit.stop else ENDLESS
                for block in blocks(stream, layout.dialect, len(layout.names), left):
                    for record in np.flatnonzero(block.kinds == BAD).tolist():
                        original = _in_encoding(block.original(record), layout)
                        bad.refuse(first + int(block.lines[record]), fault(block, record, layout), original)
                    if block.good.size:
                        strings = dict(zip(columns, block.columns([*columns.values()]), strict=True))
                        rows = first + block.lines[block.good]
                        yield Records(rows, strings, partial(_original, block, layout))
        except UnreadableError as error:
            if error.line is None:
                raise
            bad.refuse(first + error.line, str(error), error.record)

    def first_row(self, unit: Unit) -> int:
        return unit.first


def _cuts(stream: Any, layout: CsvLayout) -> Iterator[tuple[int, int]]:
    """Yield byte and line of each first record that is ``UNIT_BYTES`` after the one before, or after the start."""
    _skip(stream, layout.start)
    cut = 0
    for block in blocks(stream, layout.dialect, len(layout.names), size=_CUT_BYTES):
        places = block.place + block.starts[:-1]
        places[np.diff(block.starts) > limits.LONGEST_LINE] = -1
        while (further := np.flatnonzero(places >= cut + limits.UNIT_BYTES)).size:
            cut = int(places[further[0]])
            yield layout.start + cut, layout.line + int(block.lines[further[0]])


def _skip(stream: Any, size: int) -> None:
    if stream.seekable():
        stream.seek(size)
    else:
        read_pieces(stream, size)


def _original(block: Block, layout: CsvLayout, i: int) -> bytes:
    """Return a good record of a block as it is in the file."""
    return _in_encoding(block.original(int(block.good[i])), layout)


def _in_encoding(data: bytes, layout: CsvLayout) -> bytes:
    if not layout.recoded:
        return data
    return data.decode("utf-8", "surrogateescape").encode(layout.encoding, "surrogateescape")


def _chosen(names: Sequence[str], wanted: Collection[str] | None) -> dict[str, int]:
    """Return the numbers of the columns to read, by name."""
    return {name: i for i, name in enumerate(names) if name and (wanted is None or name in wanted)}


DELIMITED = DelimitedFormat()


class SpreadsheetFormat(Format):
    """The format of the first sheet of a file, or of ``options.sheet``. A row is that of the sheet.

    The first row with several cells among the first twenty is the header, or else the first row. Rows without cells
    are skipped. Formulas have their last values, and errors are missing.
    """

    def names(self, path: str, options: Any) -> list[str]:
        return [name for name in _open(path, options).names if name]

    def units(self, path: str, options: Any) -> list[Unit]:
        notes = []
        with suppress(UnreadableError):
            sheet = _open(path, options)
            first, *others = sheet.sheets
            if others and not options.sheet:
                way_out = f"{option.read({'sheet': 'NAME'})} names another"
                notes.append(
                    f"only its first sheet, {first!r}, is read, not {listed(map(repr, others))}; {way_out}"
                )
            if sheet.header and options.skip_lines is None:
                notes.append(header_below("row", sheet.header))
            notes += filter(None, [sheet.note])
        return [Unit(path, size=size_of(path), notes=tuple(notes))]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        sheet = _open(unit.path, options)
        columns = _chosen(sheet.names, wanted)
        while some := list(islice(sheet.rows, _BATCH)):
            numbers, cells = zip(*some, strict=True)
            values = list(zip(*cells, strict=True))
            arrays = {name: _array(values[i]) for name, i in columns.items()}
            yield Records(np.array(numbers, np.int64), arrays)
        _loaded.cache_clear()


SPREADSHEET = SpreadsheetFormat()


class _Sheet(NamedTuple):
    """Names of the columns, rows with cells by number, of all sheets, the row of the header, from 0, and a note."""

    names: Sequence[str]
    rows: Iterator[tuple[int, list[Any]]]
    sheets: Sequence[str]
    header: int
    note: str


def _open(path: str, options: Any) -> _Sheet:
    """Open a sheet. Raises UnreadableError."""
    advice = f"choose one with {option.read({'sheet': 'NAME'})}"
    # A file without a state is loaded each time.
    book, found = _loaded(path, options.sheet or "", state_of(path) or object())
    if found is None:
        raise UnreadableError(f"it has no sheet {options.sheet!r} but {listed(book.sheet_names)}; {advice}")
    with read_as("a spreadsheet"):
        rows = (row for row in enumerate(found.iter_rows()) if any(cell != "" for cell in row[1]))
        head = list(islice(rows, max(TITLES, 1 + (options.skip_lines or 0))))
    if not head:
        raise UnreadableError(f"its sheet is empty; {advice} of {listed(book.sheet_names)}")
    names, skipped = _names(head, options)
    header = head[skipped - 1][0] if skipped > 1 and options.header != "none" else 0
    more = 0 if options.header == "none" else n_header([row for _, row in head[skipped - 1 :]]) - 1
    return _Sheet(
        names, chain(head[skipped + more :], rows), book.sheet_names, header, OF_QUALTRICS * (more > 0)
    )


@lru_cache(1)
def _loaded(path: str, name: str, _: Any) -> tuple[Any, Any]:
    """A workbook, and its first sheet or the one with a name, or None. All steps of an ingest share them."""
    try:
        calamine = import_module("python_calamine")
    except ImportError as error:
        raise InputError("reading spreadsheets needs a package; pip install python-calamine") from error
    with open_stream(path) as stream:
        data = stream.read(limits.LARGEST_FILE + 1)
    if len(data) > limits.LARGEST_FILE:
        raise UnreadableError(f"it is larger than {limits.LARGEST_FILE >> 20} MB; save its sheet as CSV")
    if data and not data.startswith((b"PK", b"\xd0\xcf\x11\xe0")):
        kind = other_kind(data) or ("no spreadsheet" if is_binary(data) else "plain text, such as CSV or TSV")
        raise UnreadableError(f"it is {kind}, whatever its name says; {RENAME}")
    with read_as("a spreadsheet"):
        if trial(_TRIAL, [name], _MEMORY, data=data):
            limit = f"{_MEMORY >> 30} GB of memory"
            raise UnreadableError(f"its sheet needs more than {limit}, or is damaged; save it as CSV")
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        is_there = not name or name in book.sheet_names
        return book, book.get_sheet_by_name(name or book.sheet_names[0]) if is_there else None


def _names(head: Sequence[tuple[int, list[Any]]], options: Any) -> tuple[Sequence[str], int]:
    """Return the names, and the number of rows before the first record; ``head`` are the first rows."""
    given, width, skipped = options.columns, len(head[0][1]), options.skip_lines or 0
    if given and len(given) != width:
        raise UnreadableError(f"its sheet has {width} columns, and {option.columns} gives {len(given)} names")
    before = sum(number < skipped for number, _ in head)
    if options.header == "none":
        return given or numbered(width), before
    wide = (i for i, (_, row) in enumerate(head) if i >= before and sum(cell != "" for cell in row) > 1)
    at = before if options.skip_lines is not None else next(wide, 0)
    if at == len(head):
        raise UnreadableError(f"it has no header after {skipped} rows; lower {skipping(skipped)}")
    return named([str("" if cell is None else cell).strip() for cell in map(_value, head[at][1])])[0], at + 1


def _array(cells: Sequence[Any]) -> Any:
    values = [*map(_value, cells)]
    if {*map(type, values)} >= {datetime.date, datetime.datetime}:
        return pa.array(values, pa.timestamp("us"))
    return from_python(values)


def _value(cell: Any) -> Any:
    """Return the value of a cell; all numbers are floating-point in a sheet."""
    whole = isinstance(cell, float) and cell.is_integer()
    return int(cell) if whole else None if cell == "" else cell
