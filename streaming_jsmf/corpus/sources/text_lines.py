"""Texts in JSON lines and CSV: records one by one, each checked alone, in batches of about 8 MB."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from streaming_jsmf.corpus.sources.base import UNIT_BYTES, BadRecords, Unit
from streaming_jsmf.corpus.sources.files import STREAM_ERRORS, UnreadableError, is_compressed, open_stream
from streaming_jsmf.corpus.sources.text_records import (
    RecordBuffer,
    TextColumns,
    TextRecords,
    chosen_id,
    chosen_metadata,
)
from streaming_jsmf.corpus.storage import file_size, first_line

#: Records of the first file that decide the types of JSON's metadata.
SAMPLE_RECORDS = 1000

EMPTY = "the file is empty"
_LONGEST_FIELD = 1 << 30  # of a CSV file; the library's own limit is 128 KB, less than a long speech
_LARGEST_INTEGER = 2**63
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class LineFormat:
    """How lines are read: delimiter (CSV only) and encoding, a superset of ASCII."""

    delimiter: str = ","
    encoding: str = "utf-8"


class BadValue(Exception):
    """A record that cannot be taken; the text is the reason."""


def line_units(path: str, *, splittable: bool) -> list[Unit]:
    """Ranges of ``UNIT_BYTES`` of a file whose records end with their lines; else, or compressed, the whole file."""
    try:
        size = file_size(path)
    except (OSError, TypeError):
        return [Unit(path)]
    if not splittable or is_compressed(path) or size <= UNIT_BYTES:
        return [Unit(path, 0, 0, size)]
    return [
        Unit(path, start, min(start + UNIT_BYTES, size), min(UNIT_BYTES, size - start))
        for start in range(0, size, UNIT_BYTES)
    ]


def line_first_row(unit: Unit) -> int:
    """Lines that start before the unit. Reads the file up to there."""
    if not unit.start:
        return 0
    lines, left = 1, unit.start - 1
    with open_stream(unit.path) as stream:
        while left and (block := stream.read(min(left, 1 << 20))):
            lines += block.count(b"\n")
            left -= len(block)
    return lines


def json_columns(
    path: str, text: str, identity: str | None, metadata: str | tuple[str, ...], layout: LineFormat
) -> TextColumns:
    """The columns of a JSON-lines source, by the first thousand records of its first file.

    Raises
    ------
    UnreadableError
        If none of them is a record.
    """
    records = []
    with _readable(), open_stream(path) as stream:
        for line in islice(stream, SAMPLE_RECORDS):
            try:
                records.append(_json_object(line, layout.encoding))
            except BadValue:
                continue
    names = list(dict.fromkeys(name for record in records for name in record))
    if not names:
        raise UnreadableError("it holds no JSON objects, one a line")
    if text not in names:
        raise UnreadableError(f"there is no key {text!r}; its records have {', '.join(names)}")
    name = chosen_id(names, identity)
    ids = [record[name] for record in records if record.get(name) is not None] if name else []
    id_type = None if name is None else (pa.int64() if all(type(i) is int for i in ids) else pa.string())
    kept = chosen_metadata(names, metadata, (text, name))
    kinds = {key: _json_type([record.get(key) for record in records]) for key in kept}
    return TextColumns(text, name, id_type, kinds)


def read_json_texts(
    unit: Unit, columns: TextColumns, bad: BadRecords, layout: LineFormat
) -> Iterator[TextRecords]:
    """Stream the records of the lines that start in a unit; blank lines are passed over."""
    buffer = RecordBuffer(columns)
    row, seen = -1, False
    try:
        with open_stream(unit.path) as stream:
            for row, line in enumerate(lines_of(stream, unit)):
                if not line.strip():
                    continue
                seen = True
                try:
                    record = _json_object(line, layout.encoding)
                    buffer.add(row, *_json_values(record, columns))
                except BadValue as error:
                    bad.refuse(row, str(error), line.rstrip(b"\r\n"))
                if buffer.full:
                    yield from buffer.flush()
    except STREAM_ERRORS as error:
        bad.refuse(row + 1, cut_short(error))
    if not seen and not unit.start:
        bad.refuse(None, EMPTY)
    yield from buffer.flush()


def csv_columns(
    path: str, text: str, identity: str | None, metadata: str | tuple[str, ...], layout: LineFormat
) -> TextColumns:
    """The columns of a CSV source, by the header of its first file. CSV has no types: all are strings.

    Raises
    ------
    UnreadableError
        If the file is empty or a column is missing.
    """
    with _readable(), _csv_rows(path, layout) as rows:
        header = next(rows, None)
    if not header:
        raise UnreadableError(EMPTY)
    _require(header, [text, *([identity] if identity else []), *(metadata if metadata != "all" else ())])
    name = chosen_id(header, identity)
    kept = chosen_metadata(header, metadata, (text, name))
    return TextColumns(text, name, pa.string() if name else None, dict.fromkeys(kept, pa.string()))


def read_csv_texts(
    unit: Unit, columns: TextColumns, bad: BadRecords, layout: LineFormat
) -> Iterator[TextRecords]:
    """Stream the records of a CSV file with a header; a record may span lines, and is named by its last."""
    buffer = RecordBuffer(columns)
    line = 0
    try:
        with _csv_rows(unit.path, layout) as rows:
            header = next(rows, None)
            if not header:
                raise UnreadableError(EMPTY)
            _require(header, columns.names)
            places = [header.index(name) for name in columns.names]
            while True:
                fields: Sequence[str] = ()
                try:
                    fields = next(rows)
                    line = rows.line_num - 1
                    if fields:
                        buffer.add(line, *_csv_values(fields, len(header), places, columns))
                except StopIteration:
                    break
                except (csv.Error, BadValue) as error:
                    line = rows.line_num - 1
                    bad.refuse(line, str(error), layout.delimiter.join(fields))
                if buffer.full:
                    yield from buffer.flush()
    except UnreadableError as error:
        bad.refuse(None, str(error))
    except STREAM_ERRORS as error:
        bad.refuse(line + 1, cut_short(error))
    yield from buffer.flush()


def lines_of(stream: Any, unit: Unit) -> Iterator[bytes]:
    """The lines that start within the unit: the last may end beyond it, where the next unit will not start it."""
    position = 0
    if unit.start:
        stream.seek(unit.start - 1)
        position = unit.start - 1 + len(stream.readline())
    while not unit.stop or position < unit.stop:
        line = stream.readline()
        if not line:
            return
        position += len(line)
        yield line


def _json_object(line: bytes, encoding: str) -> dict[str, Any]:
    try:
        value = json.loads(line.removeprefix(_BYTE_ORDER_MARK).decode(encoding))
    except UnicodeDecodeError as error:
        raise BadValue(f"byte {error.start} of the line is not {encoding.upper()}") from error
    except (ValueError, RecursionError) as error:
        raise BadValue(f"the line is no JSON ({first_line(error)})") from error
    if not isinstance(value, dict):
        raise BadValue("the line is no JSON object")
    return value


def _json_values(record: dict[str, Any], columns: TextColumns) -> tuple[str, Any, list[Any]]:
    """Text, id and metadata of a record, of the types of the columns."""
    text = record.get(columns.text)
    if text is None:
        raise BadValue(f"{columns.text} is null")
    if not isinstance(text, str):
        raise BadValue(f"{columns.text} is of type {type(text).__name__}, not a string")
    identity = None
    if columns.id:
        identity = _json_value(columns.id, record.get(columns.id), columns.id_type)
        if identity is None:
            raise BadValue(f"{columns.id} is null")
    metadata = [_json_value(name, record.get(name), kind) for name, kind in columns.metadata.items()]
    return _sound(columns.text, text), identity, metadata


def _json_value(name: str, value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return _sound(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if pa.types.is_floating(kind) and type(value) in (int, float):
        return float(value)
    if pa.types.is_boolean(kind) and type(value) is bool:
        return value
    if pa.types.is_integer(kind) and type(value) is int and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return value
    raise BadValue(f"{name} is {str(value)[:40]!r}, but {kind} in the first {SAMPLE_RECORDS} records")


def _json_type(values: Sequence[Any]) -> Any:
    """int64, float64 or bool if all values are; strings otherwise (other values as their JSON)."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    return pa.string()


def _sound(name: str, text: str) -> str:
    """JSON can spell halves of surrogate pairs, and undecodable CSV bytes come as such: no characters either way."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadValue(f"{name} holds bytes that are not UTF-8") from error
    return text


@contextmanager
def _csv_rows(path: str, layout: LineFormat) -> Iterator[Any]:
    csv.field_size_limit(_LONGEST_FIELD)
    with open_stream(path) as stream:
        # Undecodable bytes stay, so that the record can be named and kept aside as it was.
        encoding = "utf-8-sig" if layout.encoding == "utf-8" else layout.encoding
        text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")
        try:
            yield csv.reader(text, delimiter=layout.delimiter, strict=True)
        finally:
            text.detach()


def _csv_values(
    fields: Sequence[str], width: int, places: Sequence[int], columns: TextColumns
) -> tuple[str, str | None, list[str]]:
    if len(fields) != width:
        raise BadValue(f"the record has {len(fields)} fields, the header {width}")
    values = [_sound(name, fields[place]) for name, place in zip(columns.names, places, strict=True)]
    if not columns.id:
        return values[0], None, values[1:]
    if not values[1]:
        raise BadValue(f"{columns.id} is empty")
    return values[0], values[1], values[2:]


def _require(header: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in header:
            raise UnreadableError(f"there is no column {name!r}; it has {', '.join(header)}")


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (*STREAM_ERRORS, csv.Error) as error:
        raise UnreadableError(cut_short(error)) from error


def cut_short(error: BaseException) -> str:
    """What to say of a stream that breaks off."""
    return f"the file ends early or is damaged here ({first_line(error)}); fetch it again"
