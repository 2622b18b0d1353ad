"""Sheets of Excel and OpenDocument files as a format of records."""

from __future__ import annotations

import datetime
import io
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.formats.csv_layout import (
    OF_QUALTRICS,
    TITLES,
    header_below,
    n_header,
    named,
    numbered,
    skipping,
)
from streaming_jsmf.ingestion.formats.delimited import chosen
from streaming_jsmf.ingestion.formats.lines import RENAME, other_kind
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import (
    open_stream,
    read_as,
    size_of,
    trial,
)
from streaming_jsmf.ingestion.sources.values import from_python, is_binary, listed
from streaming_jsmf.storage.paths import state_of

_MEMORY = 2 << 30  # bytes for a sheet, of which threads load one at a time
_LOADING = threading.Lock()

_BATCH = 10_000  # rows

#: Loads a sheet: a cell far below the others takes the memory of all cells between them, and the library ends the
#: process if it gets none. Other errors are left to the real read.
_TRIAL = """
import io
import threading
from python_calamine import CalamineWorkbook
try:
    book = CalamineWorkbook.from_filelike(io.BytesIO(sys.stdin.buffer.read()))
    book.get_sheet_by_name(given[0] or book.sheet_names[0])
except BaseException as error:
    sys.exit(0 if isinstance(error, Exception) and not isinstance(error, MemoryError) else 3)
"""


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
                way_out = f"{option.sheet('NAME')} names another"
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
        columns = chosen(sheet.names, wanted)
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
    advice = f"choose one with {option.sheet('NAME')}"
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
    with _LOADING, read_as("a spreadsheet"):
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
        raise UnreadableError(
            f"its sheet has {width} columns; {option.columns(','.join(given))} must name each of them"
        )
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
