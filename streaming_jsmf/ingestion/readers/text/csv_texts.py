"""Texts in CSV files with a header: a record may span lines, so that a file is read from its start."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, Unit
from streaming_jsmf.ingestion.readers.delimited import open_text, records_of
from streaming_jsmf.ingestion.readers.lines import EMPTY, too_long
from streaming_jsmf.ingestion.readers.records import NAME_ENCODING, BadValue, is_utf8, require, said
from streaming_jsmf.ingestion.readers.streams import DamagedError, UnreadableError
from streaming_jsmf.ingestion.readers.text.batches import (
    RecordBuffer,
    TextColumns,
    TextRecords,
    chosen_columns,
)
from streaming_jsmf.ingestion.readers.text.json_texts import sound
from streaming_jsmf.ingestion.readers.text.options import TextOptions


def csv_columns(path: str, delimiter: str, options: TextOptions) -> TextColumns:
    """The columns of a CSV source, by the header of its first file. CSV has no types: all are strings.

    Raises
    ------
    UnreadableError
        If the file is empty or a column is missing.
    """
    with _open_records(path, delimiter, options.encoding) as rows:
        header = _header(rows, options.encoding)
    name, kept = chosen_columns(header, options)
    return TextColumns(options.text, name, pa.string() if name else None, dict.fromkeys(kept, pa.string()))


def read_csv_texts(
    unit: Unit, columns: TextColumns, bad: BadRecords, delimiter: str, encoding: str
) -> Iterator[TextRecords]:
    """Stream the records of a file; each is named by its last line."""
    buffer = RecordBuffer(columns)
    line = 0
    try:
        with _open_records(unit.path, delimiter, encoding) as rows:
            header = _header(rows, encoding)
            require(columns.names, header)
            places = [header.index(name) for name in columns.names]
            while True:
                fields: Sequence[str] = ()
                try:
                    fields = next(rows)
                    line = rows.line_num - 1
                    if fields:
                        buffer.add(line, *_values(fields, len(header), places, columns))
                except StopIteration:
                    break
                except (csv.Error, BadValue) as error:
                    line = rows.line_num - 1
                    bad.refuse(line, str(error), delimiter.join(fields))
                if buffer.full:
                    yield from buffer.flush()
    except DamagedError as error:
        bad.refuse(line + 1, str(error))
    except UnreadableError as error:
        bad.refuse(None, str(error))
    yield from buffer.flush()


@contextmanager
def _open_records(path: str, delimiter: str, encoding: str) -> Iterator[Any]:
    # Undecodable bytes stay, so that the record can be named and kept aside as it was.
    with open_text(path, encoding) as text:
        yield records_of(_bounded(text), delimiter)


def _bounded(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines, as long as they are no longer than they may be."""
    while line := text.readline(limits.LONGEST_LINE + 1):
        if len(line) > limits.LONGEST_LINE and line[-1] not in "\r\n":
            raise UnreadableError(f"{too_long()}; give a file of records")
        yield line


def _header(rows: Any, encoding: str) -> list[str]:
    try:
        header: list[str] | None = next(rows, None)
    except csv.Error as error:
        raise UnreadableError(f"its header is no CSV ({first_line(error)})") from error
    if not header:
        raise UnreadableError(EMPTY)
    if not all(map(is_utf8, header)):
        raise UnreadableError(f"its header is not {said(encoding)}; {NAME_ENCODING}")
    return header


def _values(
    fields: Sequence[str], width: int, places: Sequence[int], columns: TextColumns
) -> tuple[str, str | None, list[str]]:
    if len(fields) != width:
        raise BadValue(f"the record has {len(fields)} fields, the header {width}")
    try:
        values = [sound(name, fields[place]) for name, place in zip(columns.names, places, strict=True)]
    except BadValue as error:
        raise BadValue(f"{error} ({NAME_ENCODING})") from error
    if not columns.id:
        return values[0], None, values[1:]
    if not values[1]:
        raise BadValue(f"{columns.id} is empty")
    return values[0], values[1], values[2:]
