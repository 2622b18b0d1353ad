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

from streaming_jsmf.errors import first_line, pass_on_machine
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
    encoding_of,
    first_line_of,
    line_units,
    lines_of,
    original_line,
    text_of,
)
from streaming_jsmf.ingestion.readers.values import decode, encoding_hint, from_python, require_few
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
        return line_units(path, splittable=lambda: _layout(path) == "lines")

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        layout: Layout = "lines" if unit.stop else _layout(unit.path)
        row, empty = -1, not unit.stop  # a range may lie within a long line
        held, damage = _Held(options, wanted), None
        try:
            for row, (value, text) in enumerate(_parsed(unit, layout, options.encoding)):
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


def first_objects(path: str, encoding: str) -> Iterator[dict[str, Any] | BadValue | None]:
    """Yield the first records of a file, why a record cannot be used, and None for a blank line."""
    return (value for value, _ in islice(_parsed(Unit(path), _layout(path), encoding), SAMPLE_RECORDS))


def _parsed(unit: Unit, layout: Layout, encoding: str) -> Iterator[_Parsed]:
    encoding = encoding_of(unit.path, encoding)
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
    while is_array and "[" not in source.text and source.read(0):
        pass
    at = source.text.find("[") + 1 if is_array else 0
    while True:
        at = _GAP.match(source.text, at).end()  # type: ignore[union-attr]
        if is_array and source.text.startswith("]", at):
            _require_end(source, at + 1)
            return
        value, end = source.parsed(at, what)
        if end >= 0:
            yield value, (source.text, at, end)
            at = end
        elif len(source.text) - at > limits.LONGEST_LINE:
            raise UnreadableError(f"an {what} of the JSON has more than {limits.LONGEST_LINE:,} bytes")
        elif source.read(at):
            at = 0
        elif is_array or at < len(source.text):
            raise UnreadableError(f"the JSON {'array' if is_array else 'object'} is incomplete")
        else:
            return


def _fault(text: str, what: str) -> BadValue:
    """Return why a text is no JSON object, with places from its start."""
    try:
        _loaded(text, what)
    except BadValue as error:
        return error
    return BadValue(f"the {what} is not JSON")


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


def _require_end(source: _Text, at: int) -> None:
    while not source.text[at:].strip():
        if not source.read(len(source.text)):
            return
        at = 0
    raise UnreadableError("there is data after the JSON array; give one array, or one object per line")


class _Text:
    """The part of a stream that is held, decoded with the first encoding.

    ``doubtful`` says that it has bytes that are none of its characters, which become lone surrogates.
    """

    def __init__(self, stream: Any, encoding: str) -> None:
        # A decompressor returns the data before the damage only if it is read piece by piece.
        self._read = getattr(stream, "read1", stream.read)
        self._encoding, self._codec = encoding, encoding.split(",")[0]
        self._decoder = codecs.getincrementaldecoder(self._codec)("surrogateescape")
        self._damage = ""
        self.text, self.doubtful = "", False
        self.read(0)
        self.text = self.text.removeprefix("\ufeff")

    def read(self, at: int) -> bool:
        """Drop what is before ``at``, and read as much as is left; False at the end. Raises UnreadableError."""
        if self._damage:
            raise UnreadableError(self._damage)
        size, pieces = max(_BLOCK, len(self.text) - at), [b""]
        try:
            while size > 0 and (piece := self._read(size)):
                pieces.append(piece)
                size -= len(piece)
        except STREAM_ERRORS as error:
            pass_on_machine(error)
            self._damage = describe(error)
        data = b"".join(pieces)
        added = self._decoder.decode(data, not data)
        if not added:
            return bool(self._damage) and self.read(at)
        self.text = self.text[at:] + added
        self.doubtful = not is_utf8(self.text)
        return True

    def parsed(self, at: int, what: str) -> tuple[Any, int]:
        """Return the object at a place, or a BadValue, and its end; -1 if it goes on beyond the text."""
        end = -1
        try:
            value, end = _scan(self.text, at)
            if end == len(self.text) and not isinstance(value, dict):
                return None, -1  # a number may go on
            if self.doubtful and not is_utf8(part := self.text[at:end]):
                data = part.encode(self._codec, "surrogateescape")
                return _loaded(decode(data, self._encoding, what, encoding_hint), what), end
            return _object(value, what), end
        except BadValue as error:
            return error, end
        except (ValueError, RecursionError):
            end = _end_of(self.text, at)
            return (_fault(self.text[at:end], what) if end >= 0 else None), end


class _Originals(Sequence[bytes]):
    """The bytes of records, which are made only for bad ones."""

    def __init__(self, texts: Sequence[bytes | _Part]) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, i: Any) -> Any:
        return _original(self._texts[i])


def _original(text: bytes | _Part) -> bytes:
    if isinstance(text, bytes):
        return original_line(text)
    whole, at, end = text
    return whole[at:end].encode("utf-8", "surrogateescape")


def _nested(options: Any, wanted: Collection[str] | None) -> list[str]:
    names = [*options.text, options.id, *(wanted or ())]
    return [name for name in dict.fromkeys(names) if name and "." in name]


def _flattened(record: dict[str, Any], nested: Sequence[str]) -> dict[str, Any]:
    """Add the values that names such as ``content.body`` stand for, and leave out the objects that hold them."""
    if not nested:
        return record
    found: dict[str, Any] = {}
    for name in nested:
        value: Any = record
        for key in name.split(".") if name not in record else ():
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value is not record:
            found[name] = value
    parents = {name.partition(".")[0] for name in nested}
    return {**{key: value for key, value in record.items() if key not in parents}, **found}


class _Held:
    """The records of a batch, by column, because a list of many records slows the garbage collector."""

    def __init__(self, options: Any, wanted: Collection[str] | None) -> None:
        self._text, self._wanted = options.text, wanted
        self._id = [] if options.id in (None, NONE) else [options.id]
        self._nested = _nested(options, wanted)
        self._known: dict[str, None] = {}
        self._late: dict[str, None] = {}
        self._seen = 0
        self._clear()

    def _clear(self) -> None:
        self.rows: list[int] = []
        self.size = 0
        self._lists = False
        self._texts: list[bytes | _Part] = []
        self._columns: dict[str, list[Any]] = {}

    def prepared(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return the wanted values of a record. Raises BadValue if its texts are no strings or lists of strings."""
        record = _flattened(record, self._nested)
        for name in self._text:
            value = record.get(name)
            if not isinstance(value, str | None) and not _is_tokens(value):
                raise BadValue(f"{name} is of type {type(value).__name__}, not a string")
        wanted = self._wanted
        return record if wanted is None else {name: v for name, v in record.items() if name in wanted}

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Whether the texts of the record and of those before are all strings, or all lists."""
        return self._lists == _has_lists(record, self._text)

    def add(self, row: int, record: dict[str, Any], text: bytes | _Part) -> None:
        n, columns = len(self.rows), self._columns
        for name, value in record.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = self._new(name)
            if len(column) < n:
                column += [None] * (n - len(column))
            column.append(value)
        if not n:
            self._lists = _has_lists(record, self._text)
        self.rows.append(row)
        self._texts.append(text)
        self._seen += 1
        length = len(text) if isinstance(text, bytes) else text[2] - text[1]
        self.size += length + _RECORD_BYTES + _VALUE_BYTES * len(columns)

    def _new(self, name: str) -> list[Any]:
        if name not in self._known:
            self._known[name] = None
            if self._seen >= SAMPLE_RECORDS:
                self._late[name] = None
                require_few([*self._late])
        return []

    def taken(self) -> Records:
        """Return the batch, and start another."""
        n = len(self.rows)
        for name in (*self._text, *self._id):
            self._columns.setdefault(name, [])
        columns = {
            name: self._array(name, values + [None] * (n - len(values)))
            for name, values in self._columns.items()
        }
        records = Records(np.array(self.rows, np.int64), columns, _Originals(self._texts))
        self._clear()
        return records

    def _array(self, name: str, values: list[Any]) -> Any:
        types = {*map(type, values)} - {type(None)}
        if name not in self._text and types & {list, dict}:
            values = [json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for v in values]
        elif name in self._id and not types <= {int}:
            values = [v if isinstance(v, str | None) else json.dumps(v) for v in values]
        return from_python(values)


def _has_lists(record: Mapping[str, Any], names: Sequence[str]) -> bool:
    return any(isinstance(record.get(name), list) for name in names)


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
