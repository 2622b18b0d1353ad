"""Texts in JSON lines and CSV: records one by one, each checked alone, in batches of about 8 MB."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from streaming_jsmf.errors import first_line
from streaming_jsmf.sources.base import UNIT_BYTES, BadRecords, Unit
from streaming_jsmf.sources.files import (
    STREAM_ERRORS,
    UnreadableError,
    cannot_open,
    is_compressed,
    open_stream,
)
from streaming_jsmf.sources.text.records import (
    RecordBuffer,
    TextColumns,
    TextRecords,
    chosen_id,
    chosen_metadata,
    is_utf8,
    require,
)
from streaming_jsmf.storage.paths import file_size

#: Records of the first file that decide the types of JSON's metadata.
SAMPLE_RECORDS = 1000

EMPTY = "the file is empty"
#: Bytes of a line, and characters of a CSV field: more is no document but a file of another kind. The library's own
#: limit for CSV is 128 KB, less than a long speech.
LONGEST_LINE = 64 << 20
_TOO_LONG = f"the line is longer than {LONGEST_LINE >> 20} MB, no record"
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
        If none of them is a record, or a key is missing in all.
    """
    kinds = _sampled_kinds(path, layout.encoding)
    names = list(kinds)
    if not names:
        raise UnreadableError("it holds no JSON objects, one a line")
    require(names, [text, *([identity] if identity else []), *(metadata if metadata != "all" else ())])
    name = chosen_id(names, identity)
    id_type = None if name is None else (pa.int64() if kinds[name] <= {int} else pa.string())
    kept = chosen_metadata(names, metadata, (text, name))
    return TextColumns(text, name, id_type, {key: _json_type(kinds[key]) for key in kept})


def _sampled_kinds(path: str, encoding: str) -> dict[str, set[type]]:
    """Types of the values of each key in the first thousand records, null left out."""
    kinds: dict[str, set[type]] = {}
    with _readable(), open_stream(path) as stream:
        try:
            for line in islice(lines_of(stream, Unit(path)), SAMPLE_RECORDS):
                with suppress(BadValue):
                    for name, value in _json_object(line, encoding).items():
                        kinds.setdefault(name, set()).update(() if value is None else (type(value),))
        except STREAM_ERRORS:
            if not kinds:
                raise
    return kinds


def read_json_texts(
    unit: Unit, columns: TextColumns, bad: BadRecords, layout: LineFormat
) -> Iterator[TextRecords]:
    """Stream the records of the lines that start in a unit; blank lines are passed over."""
    buffer = RecordBuffer(columns)
    row, seen = -1, False
    try:
        with open_stream(unit.path) as stream:
            for row, line in enumerate(lines_of(stream, unit)):
                if not line.removeprefix(_BYTE_ORDER_MARK).strip():
                    continue
                seen = True
                try:
                    record = _json_object(line, layout.encoding)
                    buffer.add(row, *_json_values(record, columns))
                except BadValue as error:
                    bad.refuse(row, str(error), kept_of(line))
                if buffer.full:
                    yield from buffer.flush()
    except STREAM_ERRORS as error:
        seen = True
        bad.refuse(row + 1, cut_short(error))
    if not seen and not unit.stop:
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
        header = _csv_header(rows, layout)
    require(header, [text, *([identity] if identity else []), *(metadata if metadata != "all" else ())])
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
            header = _csv_header(rows, layout)
            require(header, columns.names)
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
        position = unit.start - 1 + _rest_of_line(stream)
    while not unit.stop or position < unit.stop:
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            return
        position += len(line)
        if too_long(line):
            position += _rest_of_line(stream)
        yield line


def too_long(line: bytes) -> bool:
    """Whether a line of ``lines_of`` had to be cut: only its start was read."""
    return len(line) > LONGEST_LINE and not line.endswith(b"\n")


def kept_of(line: bytes) -> bytes:
    """What the quarantine keeps of a line: all of it, but only the start of one that is no record anyway."""
    return line[:1000] if too_long(line) else line.rstrip(b"\r\n")


def _rest_of_line(stream: Any) -> int:
    """Read on to the start of the next line; returns the bytes read."""
    length = 0
    while block := stream.readline(1 << 20):
        length += len(block)
        if block.endswith(b"\n"):
            break
    return length


def sound_line(line: bytes, encoding: str) -> str:
    """The text of a line without a byte order mark.

    Raises
    ------
    BadValue
        If the line was cut or holds other bytes.
    """
    if too_long(line):
        raise BadValue(_TOO_LONG)
    try:
        return line.removeprefix(_BYTE_ORDER_MARK).decode(encoding)
    except UnicodeDecodeError as error:
        raise BadValue(f"byte {error.start} of the line is not {encoding.upper()}") from error


def _json_object(line: bytes, encoding: str) -> dict[str, Any]:
    try:
        value = json.loads(sound_line(line, encoding))
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
        with suppress(OverflowError):
            return float(value)
    if pa.types.is_boolean(kind) and type(value) is bool:
        return value
    if pa.types.is_integer(kind) and type(value) is int and -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return value
    raise BadValue(f"{name} is {str(value)[:40]!r}, but {kind} in the first {SAMPLE_RECORDS} records")


def _json_type(kinds: set[type]) -> Any:
    """int64, float64 or bool if all values are; strings otherwise (other values as their JSON)."""
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int}:
        return pa.int64()
    if kinds and kinds <= {int, float}:
        return pa.float64()
    return pa.string()


def _sound(name: str, text: str) -> str:
    """JSON can spell halves of surrogate pairs, and undecodable CSV bytes come as such: no characters either way."""
    if not text.isascii() and not is_utf8(text):
        raise BadValue(f"{name} holds a byte or an escape that is no character")
    return text


@contextmanager
def _csv_rows(path: str, layout: LineFormat) -> Iterator[Any]:
    csv.field_size_limit(LONGEST_LINE)
    with open_stream(path) as stream:
        # Undecodable bytes stay, so that the record can be named and kept aside as it was.
        encoding = "utf-8-sig" if codecs.lookup(layout.encoding).name == "utf-8" else layout.encoding
        text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")
        try:
            yield csv.reader(_bounded(text), delimiter=layout.delimiter, strict=True)
        finally:
            text.detach()


def _bounded(text: io.TextIOWrapper) -> Iterator[str]:
    """Lines, as long as they are no longer than they may be."""
    while line := text.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE and line[-1] not in "\r\n":
            raise UnreadableError(f"{_TOO_LONG}; give a file of records")
        yield line


def _csv_header(rows: Any, layout: LineFormat) -> list[str]:
    try:
        header: list[str] | None = next(rows, None)
    except csv.Error as error:
        raise UnreadableError(f"its header is no CSV ({first_line(error)})") from error
    if not header:
        raise UnreadableError(EMPTY)
    if not all(map(is_utf8, header)):
        raise UnreadableError(
            f"its header is not {layout.encoding.upper()}; say which with --read encoding=latin-1"
        )
    return header


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


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except STREAM_ERRORS as error:
        raise UnreadableError(cut_short(error)) from error


def cut_short(error: BaseException) -> str:
    """What to say of a stream that breaks off, or of a file that cannot be opened."""
    if isinstance(error, OSError) and error.errno is not None:
        return cannot_open(error)
    return f"the file ends early or is damaged here ({first_line(error)}); fetch it again"
