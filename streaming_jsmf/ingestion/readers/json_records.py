"""JSON as a format of records: an object on each line, an array of objects, or objects over several lines."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import STREAM_ERRORS, open_stream
from streaming_jsmf.ingestion.readers.formats import (
    BYTE_ORDER_MARK,
    EMPTY,
    encoding_of,
    first_line_of,
    line_units,
    lines_of,
    original_line,
    text_of,
)
from streaming_jsmf.ingestion.readers.values import encoding_hint, from_python, require_few
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.validation import is_utf8

#: Records of a unit whose names do not count as late.
SAMPLE_RECORDS = 1000

_BLOCK = 1 << 20
_HEAD = 1 << 16  # bytes that show the layout of a file
_RECORD_BYTES, _VALUE_BYTES = 64, 8  # estimated overhead, besides the text

_scan = json.JSONDecoder().raw_decode
_GAP = re.compile(r"[\s,]*")
#: Strings, brackets and commas; last, the start of a string that goes on beyond the text.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},"]', re.DOTALL)
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}

Layout = Literal["line", "element", "object"]  # what a record of a file is

#: A record, or why it cannot be used.
_Value = dict[str, Any] | BadValue
#: The line of a record, or a text with the start and end of the record in it.
_Source = bytes | tuple[str, int, int]


class JsonFormat(Format):
    """Objects of JSON. Names such as ``content.body`` stand for values within objects.

    Objects and lists become JSON texts, and so do values of a column that has several types. Text columns may hold
    lists of strings.
    """

    def names(self, path: str, options: Any) -> list[str]:
        """Return the names in the first records of a file. Raises UnreadableError if it has no records."""
        found: dict[str, None] = {}
        reason = ""
        nested = _nested(options, None if options.metadata == "all" else options.metadata)
        try:
            for value in first_objects(path, options.encoding):
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
        return line_units(path, splittable=lambda: _layout(Unit(path)) == "line")

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        held, row, empty = _Held(options, wanted), -1, not unit.stop  # a range may lie within a long line
        try:
            for row, (value, source) in enumerate(_parsed(unit, options.encoding)):
                if value is None:
                    continue
                empty = False
                try:
                    record = held.prepared(value)
                    if held.is_full(record):
                        yield from held.taken()
                    held.add(row, record, source)
                except BadValue as error:
                    bad.refuse(row, str(error), _original([source], 0))
        except UnreadableError as error:
            yield from held.taken()
            raise UnreadableError(str(error), row + 1 if row >= 0 else None) from error
        yield from held.taken()
        if empty:
            raise UnreadableError(EMPTY)

    def place(self, unit: Unit, row: int) -> str:
        what = _layout(unit)
        suffix = " of the array" if what == "element" else ""
        return f"{unit.path}, {what} {self.first_row(unit) + row + 1}{suffix}"

    def first_row(self, unit: Unit) -> int:
        return first_line_of(unit)


JSON = JsonFormat()


def first_objects(path: str, encoding: str) -> Iterator[_Value | None]:
    """Yield the first records of a file, why a record cannot be used, and None for a blank line."""
    return (value for value, _ in islice(_parsed(Unit(path), encoding), SAMPLE_RECORDS))


def _layout(unit: Unit) -> Layout:
    """How the records of a file are written; as lines if it cannot be read."""
    if unit.stop:
        return "line"
    head = b""
    with suppress(UnreadableError), open_stream(unit.path) as stream:
        head = stream.read(_HEAD).removeprefix(BYTE_ORDER_MARK)
    if re.match(rb"\s*\[\s*[{\]]", head):
        return "element"
    first, _, rest = head.strip().partition(b"\n")
    if not first.startswith(b"{") or rest.strip()[:1] in (b"", b"{"):
        return "line"
    try:
        json.loads(text := first.decode("utf-8", "replace").rstrip())
    except json.JSONDecodeError as error:
        # An object that goes on in the next line, rather than one that is wrong.
        return "object" if error.pos >= len(text) else "line"
    except (ValueError, RecursionError):
        pass
    return "line"


def _parsed(unit: Unit, encoding: str) -> Iterator[tuple[_Value | None, _Source]]:
    """Yield the records of a unit, None for a blank line."""
    what, encoding = _layout(unit), encoding_of(unit.path, encoding)
    with open_stream(unit.path) as stream:
        if what != "line":
            yield from _elements(_Text(stream, encoding, what))
            return
        for line in lines_of(stream, unit):
            is_blank = not line.removeprefix(BYTE_ORDER_MARK).strip()
            yield None if is_blank else _loaded(line, encoding, what), line


def _loaded(data: bytes, encoding: str, what: Layout) -> _Value:
    try:
        value = json.loads(text_of(data, encoding, what, encoding_hint))
    except BadValue as error:
        return error
    except (ValueError, RecursionError) as error:
        return BadValue(f"the {what} is not JSON ({first_line(error)})")
    return value if isinstance(value, dict) else BadValue(f"the {what} is not a JSON object")


def _elements(source: _Text) -> Iterator[tuple[_Value, _Source]]:
    """Yield the elements of an array, or objects that follow each other. UnreadableError if they break off."""
    is_array = source.what == "element"
    while is_array and "[" not in source.text and source.read(0):
        pass
    at = source.text.find("[") + 1 if is_array else 0
    while True:
        at = _GAP.match(source.text, at).end()  # type: ignore[union-attr]
        if is_array and source.text.startswith("]", at):
            source.require_end(at + 1)
            return
        value, end = source.parsed(at)
        if end >= 0:
            yield value, (source.text, at, end)
            at = end
        elif len(source.text) - at > limits.LONGEST_LINE:
            raise UnreadableError(f"an {source.what} of the JSON has more than {limits.LONGEST_LINE:,} bytes")
        elif source.read(at):
            at = 0
        elif is_array or at < len(source.text):
            raise UnreadableError(f"the JSON {'array' if is_array else 'object'} is incomplete")
        else:
            return


class _Text:
    """The part of a stream that is held, decoded with the first encoding.

    Undecodable bytes become lone surrogates; ``doubtful`` says whether the text has any.
    """

    def __init__(self, stream: Any, encoding: str, what: Layout) -> None:
        # A decompressor returns the data before the damage only if it is read piece by piece.
        self._read = getattr(stream, "read1", stream.read)
        self._encoding, self._codec, self.what = encoding, encoding.split(",")[0], what
        self._decoder = codecs.getincrementaldecoder(self._codec)("surrogateescape")
        self._damage: Exception | None = None
        self.text, self.doubtful = "", False
        self.read(0)
        self.text = self.text.removeprefix("\ufeff")

    def read(self, at: int) -> bool:
        """Drop what is before ``at``, and read as much as is left; False at the end. Raises ``STREAM_ERRORS``."""
        size, pieces = max(_BLOCK, len(self.text) - at), [b""]
        try:
            while size > 0 and self._damage is None and (piece := self._read(size)):
                pieces.append(piece)
                size -= len(piece)
        except STREAM_ERRORS as error:
            self._damage = error
        data = b"".join(pieces)
        added = self._decoder.decode(data, not data)
        if not added:
            if self._damage is not None:
                raise self._damage
            return False
        self.text = self.text[at:] + added
        self.doubtful = not is_utf8(self.text)
        return True

    def parsed(self, at: int) -> tuple[Any, int]:
        """Return the record at a place and its end, which is -1 if it goes on beyond the text."""
        value = None
        try:
            value, end = _scan(self.text, at)
            if end == len(self.text) and not isinstance(value, dict):
                return None, -1  # a number may go on
        except (ValueError, RecursionError):
            end = _end_of(self.text, at)
        if end >= 0 and not (isinstance(value, dict) and self._is_sure(at, end)):
            data = self.text[at:end].encode(self._codec, "surrogateescape")
            value = _loaded(data, self._encoding, self.what)
        return value, end

    def _is_sure(self, at: int, end: int) -> bool:
        is_short = end - at <= limits.LONGEST_LINE
        return is_short and (not self.doubtful or is_utf8(self.text[at:end]))

    def require_end(self, at: int) -> None:
        while not self.text[at:].strip():
            if not self.read(len(self.text)):
                return
            at = 0
        raise UnreadableError("there is data after the JSON array; give one array, or one object per line")


def _end_of(text: str, at: int) -> int:
    """Return where a value that is not JSON ends, by its brackets; -1 if it goes on beyond the text."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        mark = token[0]
        depth += _DEEPER.get(mark, 0)
        if mark == '"':
            return -1
        if depth < 0 or (mark == "," and not depth):
            return max(token.start(), at + 1)
        if mark in "]}" and not depth:
            return token.end()
    return -1


def _original(sources: Sequence[_Source], i: int) -> bytes:
    source = sources[i]
    if isinstance(source, bytes):
        return original_line(source)
    text, at, end = source
    return text[at:end].encode("utf-8", "surrogateescape")


def _nested(options: Any, wanted: Collection[str] | None) -> list[str]:
    names = [*options.text, options.id, *(wanted or ())]
    return [name for name in dict.fromkeys(names) if name and "." in name]


def _flattened(record: dict[str, Any], nested: Sequence[str]) -> dict[str, Any]:
    """Add the values that names such as ``content.body`` stand for, and leave out the objects that hold them."""
    if not nested:
        return record
    parents = {name.partition(".")[0] for name in nested}
    found = {key: value for key, value in record.items() if key not in parents}
    for name in nested:
        value: Any = None if name in record else record
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found


class _Held:
    """The records of a batch, by column, because a list of many records slows the garbage collector."""

    def __init__(self, options: Any, wanted: Collection[str] | None) -> None:
        self._text, self._wanted, self._nested = options.text, wanted, _nested(options, wanted)
        self._id = [] if options.id in (None, NONE) else [options.id]
        self._known: set[str] = set()
        self._late: list[str] = []
        self._seen = 0
        self._clear()

    def _clear(self) -> None:
        self._rows: list[int] = []
        self._size = 0
        self._lists = False  # whether the texts are lists of tokens
        self._sources: list[_Source] = []
        self._columns: dict[str, list[Any]] = {}

    def prepared(self, value: _Value) -> dict[str, Any]:
        """Return the wanted values of a record. Raises BadValue if its texts are no strings or lists of strings."""
        if isinstance(value, BadValue):
            raise value
        record = _flattened(value, self._nested)
        for name in self._text:
            text = record.get(name)
            items = text if isinstance(text, list) else [text or ""]
            if not all(isinstance(item, str) for item in items):
                raise BadValue(f"{name} is of type {type(text).__name__}, not a string")
        wanted = self._wanted
        return record if wanted is None else {name: v for name, v in record.items() if name in wanted}

    def is_full(self, record: Mapping[str, Any]) -> bool:
        """Whether a record needs another batch, because texts of a batch are all strings or all lists."""
        return self._size >= limits.BATCH_BYTES or self._lists != self._has_lists(record)

    def _has_lists(self, record: Mapping[str, Any]) -> bool:
        return any(isinstance(record.get(name), list) for name in self._text)

    def add(self, row: int, record: dict[str, Any], source: _Source) -> None:
        n = len(self._rows)
        for name, value in record.items():
            column = self._columns.get(name)
            if column is None:
                column = self._columns[name] = self._new(name)
            if len(column) < n:
                column += [None] * (n - len(column))
            column.append(value)
        if not n:
            self._lists = self._has_lists(record)
        self._rows.append(row)
        self._sources.append(source)
        self._seen += 1
        length = len(source) if isinstance(source, bytes) else source[2] - source[1]
        self._size += length + _RECORD_BYTES + _VALUE_BYTES * len(self._columns)

    def _new(self, name: str) -> list[Any]:
        if name not in self._known and self._seen >= SAMPLE_RECORDS:
            self._late.append(name)
            require_few(self._late)
        self._known.add(name)
        return []

    def taken(self) -> Iterator[Records]:
        """Yield the batch, if there are records, and start another."""
        n, columns = len(self._rows), self._columns
        if not n:
            return
        for name in (*self._text, *self._id):
            columns.setdefault(name, [])
        arrays = {name: self._array(name, [*vs, *[None] * (n - len(vs))]) for name, vs in columns.items()}
        records = Records(np.array(self._rows, np.int64), arrays, partial(_original, self._sources))
        self._clear()
        yield records

    def _array(self, name: str, values: list[Any]) -> Any:
        types = {*map(type, values)} - {type(None)}
        if name not in self._text and types & {list, dict}:
            values = [json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for v in values]
        elif name in self._id and not types <= {int}:
            values = [v if isinstance(v, str | None) else json.dumps(v) for v in values]
        return from_python(values)
