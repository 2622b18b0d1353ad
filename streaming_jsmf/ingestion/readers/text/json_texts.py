"""Texts in JSON lines: records one by one, each checked alone, in batches of about 8 MB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pyarrow as pa

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.readers.base import BadRecords, Unit
from streaming_jsmf.ingestion.readers.lines import BYTE_ORDER_MARK, lines_of, read_lines, text_of
from streaming_jsmf.ingestion.readers.records import NAME_ENCODING, BadValue, is_utf8
from streaming_jsmf.ingestion.readers.streams import DamagedError, UnreadableError, open_stream
from streaming_jsmf.ingestion.readers.text.batches import (
    RecordBuffer,
    TextColumns,
    TextRecords,
    chosen_columns,
)
from streaming_jsmf.ingestion.readers.text.options import TextOptions

#: Records of the first file that decide the types of JSON's metadata.
SAMPLE_RECORDS = 1000

_LARGEST_INTEGER = 2**63


def json_columns(path: str, options: TextOptions) -> TextColumns:
    """The columns of a JSON-lines source, by the first thousand records of its first file.

    Raises
    ------
    UnreadableError
        If none of them is a record, or a key is missing in all.
    """
    kinds, reason = _sampled_kinds(path, options.encoding)
    if not kinds:
        raise UnreadableError(f"it holds no JSON objects, one a line ({reason})")
    name, kept = chosen_columns(list(kinds), options)
    id_type = None if name is None else (pa.int64() if kinds[name] <= {int} else pa.string())
    return TextColumns(options.text, name, id_type, {key: _json_type(kinds[key]) for key in kept})


def _sampled_kinds(path: str, encoding: str) -> tuple[dict[str, set[type]], str]:
    """Types of the values of each key in the first thousand records, null left out; what is wrong with a line."""
    kinds: dict[str, set[type]] = {}
    reason = ""
    try:
        with open_stream(path) as stream:
            for line in islice(lines_of(stream, Unit(path)), SAMPLE_RECORDS):
                try:
                    record = _json_object(line, encoding)
                except BadValue as error:
                    reason = reason or str(error)
                    continue
                for name, value in record.items():
                    kinds.setdefault(name, set()).update(() if value is None else (type(value),))
    except DamagedError:
        if not kinds:
            raise
    return kinds, reason or "the file is empty"


def read_json_texts(
    unit: Unit, columns: TextColumns, bad: BadRecords, encoding: str
) -> Iterator[TextRecords]:
    """Stream the records of the lines that start in a unit; blank lines are passed over."""

    def parse(line: bytes) -> tuple[str, Any, list[Any]] | None:
        if not line.removeprefix(BYTE_ORDER_MARK).strip():
            return None
        return _json_values(_json_object(line, encoding), columns)

    buffer = RecordBuffer(columns)
    for row, record in read_lines(unit, parse, bad):
        buffer.add(row, *record)
        if buffer.full:
            yield from buffer.flush()
    yield from buffer.flush()


def text_in(line: bytes, encoding: str) -> str:
    """The text of a line. Raises BadValue, which says how an encoding is named."""
    try:
        return text_of(line, encoding)
    except BadValue as error:
        raise BadValue(f"{error} ({NAME_ENCODING})" if "is not" in str(error) else str(error)) from error


def _json_object(line: bytes, encoding: str) -> dict[str, Any]:
    try:
        value = json.loads(text_in(line, encoding))
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
    return sound(columns.text, text), identity, metadata


def _json_value(name: str, value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_string(kind):
        return sound(name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
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


def sound(name: str, text: str) -> str:
    """JSON can spell halves of surrogate pairs, and undecodable CSV bytes come as such: no characters either way."""
    if not text.isascii() and not is_utf8(text):
        raise BadValue(f"{name} holds a byte or an escape that is no character")
    return text
