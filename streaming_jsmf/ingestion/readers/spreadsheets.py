"""Sheets of Excel and OpenDocument files, which are held in memory."""

from __future__ import annotations

import datetime
import io
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import BadRecords, Format, Records, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.csv_layout import (
    TITLES,
    header_below,
    named,
    numbered,
    skipping,
)
from streaming_jsmf.ingestion.readers.delimited import chosen
from streaming_jsmf.ingestion.readers.files import open_stream, read_as, size_of
from streaming_jsmf.ingestion.readers.formats import RENAME, other_kind
from streaming_jsmf.ingestion.readers.values import from_python, is_binary, listed

_MEMORY = 2 << 30  # bytes for a sheet
_BATCH = 10_000  # rows

#: Loads a sheet in a process of its own: a cell far below the others takes the memory of all cells between them, and
#: the library ends the process if it gets none. Other errors are left to the real read.
_TRIAL = """
import io, resource, sys
from python_calamine import CalamineWorkbook
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    book = CalamineWorkbook.from_filelike(io.BytesIO(sys.stdin.buffer.read()))
    book.get_sheet_by_name(sys.argv[2] or book.sheet_names[0])
except MemoryError:
    sys.exit(3)
except Exception:
    pass
except BaseException:
    sys.exit(3)
"""
_TOO_LARGE = 3


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
        return [Unit(path, size=size_of(path), notes=tuple(notes))]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        sheet = _open(unit.path, options)
        columns = chosen(sheet.names, wanted)
        while some := list(islice(sheet.rows, _BATCH)):
            numbers, cells = zip(*some, strict=True)
            values = list(zip(*cells, strict=True))
            yield Records(
                np.array(numbers, np.int64), {name: _array(values[i]) for name, i in columns.items()}
            )


SPREADSHEET = SpreadsheetFormat()


class _Sheet(NamedTuple):
    """Names of the columns, rows with cells by number, names of all sheets, and the row of the header, from 0."""

    names: Sequence[str]
    rows: Iterator[tuple[int, list[Any]]]
    sheets: Sequence[str]
    header: int


def _open(path: str, options: Any) -> _Sheet:
    """Open a sheet. Raises UnreadableError."""
    try:
        calamine = import_module("python_calamine")
    except ImportError as error:
        raise InputError(
            "reading spreadsheets needs python-calamine; pip install 'streaming-jsmf[excel]'"
        ) from error
    with open_stream(path) as stream:
        data = stream.read(limits.LARGEST_FILE + 1)
    if len(data) > limits.LARGEST_FILE:
        raise UnreadableError(f"it is larger than {limits.LARGEST_FILE >> 20} MB; save its sheet as CSV")
    if data and not data.startswith((b"PK", b"\xd0\xcf\x11\xe0")):
        kind = other_kind(data) or ("no spreadsheet" if is_binary(data) else "plain text, such as CSV or TSV")
        raise UnreadableError(f"it is {kind}, whatever its name says; {RENAME}")
    sheet, ways_out = (
        options.sheet or "",
        f"choose one with {option.read({'sheet': 'NAME'})}",
    )
    with read_as("a spreadsheet"):
        trial = [sys.executable, "-c", _TRIAL, str(_MEMORY), sheet]
        ended = subprocess.run(trial, input=data, capture_output=True, check=False).returncode
        if ended == _TOO_LARGE or ended < 0:
            limit = f"{_MEMORY >> 30} GB of memory"
            raise UnreadableError(f"its sheet needs more than {limit}, or is damaged; save it as CSV")
        book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
        if sheet and sheet not in book.sheet_names:
            raise UnreadableError(f"it has no sheet {sheet!r} but {listed(book.sheet_names)}; {ways_out}")
        found = book.get_sheet_by_name(sheet or book.sheet_names[0])
        rows = (row for row in enumerate(found.iter_rows()) if any(cell != "" for cell in row[1]))
        head = list(islice(rows, max(TITLES, 1 + (options.skip_lines or 0))))
    if not head:
        raise UnreadableError(f"its sheet is empty; {ways_out} of {listed(book.sheet_names)}")
    names, skipped = _names(head, options)
    header = head[skipped - 1][0] if skipped > 1 and options.header != "none" else 0
    return _Sheet(names, chain(head[skipped:], rows), book.sheet_names, header)


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
