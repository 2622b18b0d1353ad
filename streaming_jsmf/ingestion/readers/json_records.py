"""JSON as a format of records: an object on each line, an array of objects, or objects over several lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from streaming_jsmf.errors import first_line, pass_on_machine
from streaming_jsmf.ingestion.columns import from_python
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import STREAM_ERRORS, describe, open_stream
from streaming_jsmf.ingestion.readers.lines import (
    BYTE_ORDER_MARK,
    EMPTY,
    KEPT,
    encoding_of,
    first_line_of,
    line_units,
    lines_of,
    text_of,
)
from streaming_jsmf.ingestion.readers.values import decode, encoding_hint, require_few
from streaming_jsmf.validation import is_utf8

#: Records of a unit whose names do not count as late.
SAMPLE_RECORDS = 1000

_BLOCK = 1 << 20
_HEAD = 1 << 16  # bytes that show the layout of a file
_RECORD_BYTES, _VALUE_BYTES = 64, 8  # estimated overhead, besides the text

_GAP = re.compile(r"[\s,]*")
#: Strings, brackets and commas; last, the start of a string that goes on beyond the text.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},"]', re.DOTALL)
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}

Layout = Literal["lines", "array", "objects"]
_WHAT: dict[Layout, str] = {"lines": "line", "array": "element", "objects": "object"}

#: A record, why it cannot be used, or None for a blank line; and its text.
_Parsed = tuple[dict[str, Any] | BadValue | None, "bytes | _Part"]
#: A text, and the start and end of a record in it.
_Part = tuple[str, int, int]


class JsonFormat(Format):
    """Objects of JSON. Names such as ``content.body`` stand for values within objects.

    Objects and lists become JSON texts, and so do values of a column that has several types. Text columns may hold
    lists of strings.
    """

    def names(self, path: str, options: Any) -> list[str]:
        """Return the names in the first records of a file. Raises UnreadableError if there is none."""
        found: dict[str, None] = {}
        reason = ""
        nested = _nested(options, None if options.metadata == "all" else options.metadata)
        try:
            for value, _ in islice(_parsed(Unit(path), _layout(path), options), SAMPLE_RECORDS):
                if isinstance(value, BadValue):
                    reason = reason or str(value)
                elif value is not None:
                    found |= dict.fromkeys(_flattened(value, nested))
        except UnreadableError:
            if not found:
                raise
        if not found:
            raise UnreadableError(f"it holds no JSON objects, one per line ({reason or EMPTY})")
        return list(found)

    def units(self, path: str, options: Any) -> list[Unit]:  # noqa: ARG002
        return line_units(path, splittable=lambda: _layout(path) == "lines")

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        layout: Layout = "lines" if unit.stop else _layout(unit.path)
        row, empty = -1, not unit.stop  # a range may lie within a long line
        held, damage = _Held(options, wanted), None
        try:
            for row, (value, text) in enumerate(_parsed(unit, layout, options)):
                try:
                    if value is None:
                        continue
                    empty = False
                    if isinstance(value, BadValue):
                        raise value
                    record = held.prepared(value)
                    if held.rows and (held.size >= limits.BATCH_BYTES or not held.fits(record)):
                        yield held.taken()
                    held.add(row, record, text)
                except BadValue as error:
                    bad.refuse(row, str(error), _original(text))
        except UnreadableError as error:
            damage = error
        if held.rows:
            yield held.taken()
        if damage is not None:
            raise UnreadableError(str(damage), row + 1 if row >= 0 else None)
        if empty:
            raise UnreadableError(EMPTY)

    def place(self, unit: Unit, row: int) -> str:
        layout: Layout = "lines" if unit.stop else _layout(unit.path)
        if layout == "array":
            return f"{unit.path}, element {row + 1} of the array"
        return f"{unit.path}, {_WHAT[layout]} {self.first_row(unit) + row + 1}"

    def first_row(self, unit: Unit) -> int:
        return first_line_of(unit)


JSON = JsonFormat()


def _layout(path: str) -> Layout:
    """How the records of a file are written; as lines if it cannot be read."""
    head = b""
    with suppress(UnreadableError), open_stream(path) as stream:
        head = stream.read(_HEAD).removeprefix(BYTE_ORDER_MARK)
    if re.match(rb"\s*\[\s*[{\]]", head):
        return "array"
    first, _, rest = head.strip().partition(b"\n")
    if not first.startswith(b"{") or rest.strip()[:1] in (b"", b"{"):
        return "lines"
    try:
        json.loads(text := first.decode("utf-8", "replace").rstrip())
    except json.JSONDecodeError as error:
        # An object that goes on in the next line, rather than one that is wrong.
        return "objects" if error.pos >= len(text) else "lines"
    except (ValueError, RecursionError):
        pass
    return "lines"


def _parsed(unit: Unit, layout: Layout, options: Any) -> Iterator[_Parsed]:
    encoding = encoding_of(unit.path, options.encoding)
    with open_stream(unit.path) as stream:
        if layout == "lines":
            yield from (_of_line(line, encoding) for line in lines_of(stream, unit))
        else:
            yield from _elements(stream, layout, encoding)


def _of_line(line: bytes, encoding: str) -> _Parsed:
    if not line.removeprefix(BYTE_ORDER_MARK).strip():
        return None, line
    try:
        return _loaded(text_of(line, encoding, encoding_hint), "line"), line
    except BadValue as error:
        return error, line


def _loaded(text: str, what: str) -> Any:
    try:
        return _object(json.loads(text), what)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"the {what} is not JSON ({first_line(error)})") from error


def _object(value: Any, what: str) -> Any:
    if not isinstance(value, dict):
        raise BadValue(f"the {what} is not a JSON object")
    return value


def _elements(stream: Any, layout: Layout, encoding: str) -> Iterator[_Parsed]:
    """Yield the elements of an array, or objects that follow each other; UnreadableError if they break off."""
    what, is_array = _WHAT[layout], layout == "array"
    source = _Text(stream, encoding)
    scan = json.JSONDecoder().raw_decode
    source.read(0)
    at = source.text.index("[") + 1 if is_array else 0
    while True:
        at = _GAP.match(source.text, at).end()  # type: ignore[union-attr]
        if at == len(source.text):
            if not source.read(at):
                break
            at = 0
            continue
        if is_array and source.text[at] == "]":
            _require_end(source, at + 1)
            return
        value: Any
        try:
            value, end = scan(source.text, at)
            complete = end < len(source.text) or isinstance(value, dict)  # a number may go on
            value = source.loaded(at, end, what) if source.doubtful else _object(value, what)
        except BadValue as error:
            value = error
        except (ValueError, RecursionError) as error:
            found = _end_of(source.text, at)
            end, complete = found or 0, found is not None
            value = BadValue(f"the {what} is not JSON ({first_line(error)})")
        if not complete:
            if len(source.text) - at > limits.LONGEST_LINE:
                raise UnreadableError(
                    f"{_article(what)} of the JSON {layout} has more than {limits.LONGEST_LINE:,} bytes"
                )
            if source.read(at):
                at = 0
                continue
            break
        yield value, (source.text, at, end)
        at = end
    if is_array or at < len(source.text):
        raise UnreadableError(f"the JSON {'array' if is_array else 'object'} is incomplete")
