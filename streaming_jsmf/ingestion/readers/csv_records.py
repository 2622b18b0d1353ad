"""Delimited text as a format of records."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from streaming_jsmf.errors import first_line, pass_on_machine
from streaming_jsmf.ingestion.columns import from_python
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Format,
    Records,
    Unit,
    UnreadableError,
    distinct_names,
    limits,
)
from streaming_jsmf.ingestion.readers.files import STREAM_ERRORS, bare_suffix, describe, size_of
from streaming_jsmf.ingestion.readers.lines import EMPTY, csv_records, open_text, too_long
from streaming_jsmf.ingestion.readers.values import encoding_name, name_encoding
from streaming_jsmf.validation import is_utf8

CSV_SUFFIXES = {".csv": ",", ".tsv": "\t"}


class DelimitedFormat(Format):
    """Records of delimited text. A record is at its last line."""

    def names(self, path: str, options: Any) -> list[str]:
        with _open_csv(path, _delimiter_of(path, options), options.encoding) as (header, _):
            return distinct_names(header)

    def units(self, path: str, options: Any) -> list[Unit]:  # noqa: ARG002
        return [Unit(path, size=size_of(path))]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        delimiter = _delimiter_of(unit.path, options)
        held: list[tuple[int, Sequence[str]]] = []
        line = size = 0
        with _open_csv(unit.path, delimiter, options.encoding) as (header, rows):
            names = distinct_names(header)
            while True:
                fields: Sequence[str] = ()
                try:
                    fields = next(rows)
                    line = rows.line_num - 1
                    if not fields:
                        continue
                    if len(fields) != len(header):
                        raise BadValue(f"the record has {len(fields)} fields, the header {len(header)}")
                except StopIteration:
                    break
                except (csv.Error, BadValue) as error:
                    line = rows.line_num - 1
                    bad.refuse(line, str(error), delimiter.join(fields))
                    continue
                except UnreadableError as error:
                    bad.refuse(line + 1, str(error))
                    break
                except STREAM_ERRORS as error:
                    pass_on_machine(error)
                    bad.refuse(line + 1, describe(error))
                    break
                held.append((line, fields))
                size += sum(map(len, fields)) + 64
                if size >= limits.BATCH_BYTES:
                    yield _records(held, names, wanted, delimiter)
                    held, size = [], 0
        if held:
            yield _records(held, names, wanted, delimiter)

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, line {row + 1}"


DELIMITED = DelimitedFormat()


def _records(
    held: Sequence[tuple[int, Sequence[str]]],
    names: Sequence[str],
    wanted: Collection[str] | None,
    delimiter: str,
) -> Records:
    rows = np.array([row for row, _ in held], np.int64)
    columns = {
        name: from_python(values)
        for name, values in zip(names, zip(*(fields for _, fields in held), strict=True), strict=True)
        if wanted is None or name in wanted
    }
    return Records(
        rows, columns, [delimiter.join(fields).encode("utf-8", "surrogateescape") for _, fields in held]
    )


def _delimiter_of(path: str, options: Any) -> str:
    return options.delimiter or CSV_SUFFIXES.get(bare_suffix(path), ",")


@contextmanager
def _open_csv(path: str, delimiter: str, encoding: str) -> Iterator[tuple[list[str], Any]]:
    """Yield the header and ``csv.reader`` of a CSV file; undecodable bytes are kept for the quarantine."""
    with open_text(path, encoding) as text:
        rows = csv_records(_bounded_lines(text), delimiter)
        try:
            header: list[str] | None = next(rows, None)
        except csv.Error as error:
            raise UnreadableError(f"its header is not CSV ({first_line(error)})") from error
        if not header:
            raise UnreadableError(EMPTY)
        if not all(map(is_utf8, header)):
            raise UnreadableError(f"its header is not {encoding_name(encoding)}; {name_encoding()}")
        header[0] = header[0] or ("" if "index" in header else "index")  # of pandas, which writes no name
        yield header, rows


def _bounded_lines(text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(limits.LONGEST_LINE + 1):
        if len(line) > limits.LONGEST_LINE and line[-1] not in "\r\n":
            raise UnreadableError(f"{too_long()}; give a file of records")
        yield line
