"""JSON as a format of records: on lines, in an array, as the members of an object, or by column."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

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
from streaming_jsmf.ingestion.readers.files import open_stream, read_pieces
from streaming_jsmf.ingestion.readers.formats import (
    BYTE_ORDER_MARK,
    EMPTY,
    Gathered,
    Parsed,
    RecordBytes,
    encoding_of,
    first_line_of,
    gathered,
    line_units,
    lines_of,
    text_of,
)
from streaming_jsmf.ingestion.readers.json_layout import (
    ELEMENT,
    OBJECT,
    TOKEN,
    JsonLayout,
    is_records,
    layout_of,
    whole,
)
from streaming_jsmf.ingestion.readers.values import decode, encoding_hint, from_python, listed
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.validation import is_utf8

RECORD_SEPARATOR = "\x1e"  # before each record of a JSON text sequence (RFC 7464)
_SAMPLE = 1000  # records that show the names
_BLOCK = 1 << 16  # an error of JSON counts the lines of what is held, up to its place

_scan = json.JSONDecoder().raw_decode
_GAP = re.compile(r"[\s,;)\ufeff]*")  # with the end of a call in JavaScript
_DEEPER = {"[": 1, "{": 1, "]": -1, "}": -1}


class JsonFormat(Format):
    """Objects of JSON, or strings, which are a column ``text``. Names such as ``content.body`` are within objects.

    The other members of these objects are columns, too. Other objects and lists become JSON texts, and so do values of
    a column that has several types. Text columns may hold lists of strings.
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
            raise UnreadableError(f"it holds no JSON objects ({reason or EMPTY})")
        return list(found)

    def units(self, path: str, options: Any) -> list[Unit]:  # noqa: ARG002
        layout = layout_of(path)
        units = line_units(path, splittable=layout.what == "line")
        notes = (layout.note,) if layout.note else ()
        return [replace(each, notes=notes, layout=layout) for each in units]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        return gathered(unit, _parsed(_with_layout(unit), options.encoding), bad, _Held(options, wanted))

    def place(self, unit: Unit, row: int) -> str:
        layout = _with_layout(unit).layout
        suffix = f" of {'.'.join(layout.path)}" if layout.path else " of the array" * (layout == ELEMENT)
        return f"{unit.path}, {layout.what} {self.first_row(unit) + row + 1}{suffix}"

    def first_row(self, unit: Unit) -> int:
        return first_line_of(unit)


JSON = JsonFormat()


def first_objects(path: str, encoding: str) -> Iterator[Parsed]:
    """Yield the first records of a file, why a record cannot be used, and None for a blank line."""
    return (value for value, _ in islice(_parsed(_with_layout(Unit(path)), encoding), _SAMPLE))


def lists_of(unit: Unit, name: str) -> Iterator[tuple[Parsed, RecordBytes]]:
    """Yield the lists of strings or integers in a column, or instead of records, as that column."""
    for value, source in _parsed(_with_layout(unit), "utf-8", name):
        if isinstance(value, dict):
            items = value.get(name, "")
            if items is not None and not (isinstance(items, list) and {*map(type, items)} <= {str, int}):
                yield BadValue(f"it has no list of strings or integers {name!r}"), source
                continue
            value = {name: items and [*map(str, items)]}
        yield value, source


def _with_layout(unit: Unit) -> Unit:
    return unit if unit.layout else replace(unit, layout=layout_of(unit.path))


# Parsing


def _parsed(unit: Unit, encoding: str, lists: str = "") -> Iterator[tuple[Parsed, RecordBytes]]:
    """Yield the records of a unit, None for a blank line. A list is a record with the column ``lists``, if given."""
    layout, encoding = unit.layout, encoding_of(unit.path, encoding)
    what = layout.what
    with open_stream(unit.path) as stream:
        if what == "line":
            for line in lines_of(stream, unit):
                is_blank = not line.removeprefix(BYTE_ORDER_MARK).strip(b"\x1e \t\r\n\v\f")
                yield None if is_blank else _record(_loaded(line, encoding, what), what, lists), line
        elif what == "row":
            for row in _rows(stream, encoding):
                yield row, json.dumps(row).encode()
        else:
            stream.read(layout.skip)
            for value, source, name in _values(_Cursor(stream, encoding, layout), layout.path):
                record = _record(value, what, lists)
                if layout.key and isinstance(record, dict):
                    record = {layout.key: name, **record}
                yield record, source


def _record(value: Any, what: str, lists: str = "") -> dict[str, Any] | BadValue:
    if isinstance(value, dict | BadValue):
        return whole(value) if isinstance(value, dict) else value
    if lists and isinstance(value, list):
        return {lists: value}
    return {"text": value} if isinstance(value, str) else BadValue(f"the {what} is not a JSON object")


def _loaded(data: bytes, encoding: str, what: str) -> Any:
    """Return a value of JSON, or BadValue with the reason if it is not JSON."""
    try:
        return json.loads(text_of(data, encoding, what, encoding_hint).lstrip(RECORD_SEPARATOR))
    except BadValue as error:
        return error
    except (ValueError, RecursionError) as error:
        if data.lstrip().startswith((b"//", b"/*", b"#")):
            return BadValue(f"the {what} is a comment, which JSON does not have")
        if data.lstrip().startswith(b"{'"):
            return BadValue(f"the {what} is a dict of Python, not JSON; write it with json.dumps")
        return BadValue(f"the {what} is not JSON ({first_line(error)})")


def _rows(stream: Any, encoding: str) -> Iterator[dict[str, Any]]:
    """Yield the records of an object of lists, or of objects by index. Reads the whole file."""
    data = stream.read(limits.LARGEST_FILE + 1)
    if len(data) > limits.LARGEST_FILE:
        most = limits.LARGEST_FILE >> 20
        raise UnreadableError(
            f"it has a list for each column, and more than {most} MB; write an object for each record"
        )
    try:
        columns = json.loads(decode(data.removeprefix(BYTE_ORDER_MARK), encoding, "file", encoding_hint))
    except (BadValue, ValueError, RecursionError) as error:
        raise UnreadableError(first_line(error)) from error
    if all(isinstance(column, dict) for column in columns.values()):
        for index in dict.fromkeys(index for column in columns.values() for index in column):
            yield {"index": index, **{name: column.get(index) for name, column in columns.items()}}
        return
    sizes = [len(column) if isinstance(column, list) else 1 for column in columns.values()]
    if len({*sizes}) > 1:
        raise UnreadableError(f"its lists {listed(columns)} have {listed(map(str, sizes))} values")
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _values(cursor: _Cursor, path: Sequence[str]) -> Iterator[tuple[Any, RecordBytes, str]]:
    """Yield the records at a cursor with their names. UnreadableError if they break off, or more is there."""
    if cursor.layout == OBJECT:
        while cursor.peek():
            yield *cursor.take(), ""
        return
    yield from _inside(cursor, path)
    while cursor.layout == ELEMENT and cursor.peek() == "[":  # files that were joined
        yield from _inside(cursor, path)
    if cursor.peek():
        raise UnreadableError(
            f"there is data after the JSON {cursor.whole}; give one, or one object per line"
        )


def _inside(cursor: _Cursor, path: Sequence[str]) -> Iterator[tuple[Any, RecordBytes, str]]:
    in_object = bool(path or cursor.layout.key)
    mark = cursor.peek()
    if path and mark == "[":
        for _ in cursor.items("]"):
            yield from _inside(cursor, path)
    elif mark != "[{"[in_object]:
        value, source = cursor.take()
        if value is not None:
            yield BadValue(f"it is not {'an object' if in_object else 'a list'}"), source, ""
    elif not in_object:
        for _ in cursor.items("]"):
            yield *cursor.take(), ""
    else:
        yield from _members(cursor, path)


def _members(cursor: _Cursor, path: Sequence[str]) -> Iterator[tuple[Any, RecordBytes, str]]:
    done = False
    for name in cursor.members():
        if not path:
            yield *cursor.take(), name
        elif name == path[0] and not done:
            yield from _inside(cursor, path[1:])
            done = True
        elif is_records(cursor.take()[0]) and done:
            raise UnreadableError(
                f"it has the list {name} of objects after {path[0]}; write the records of one list, one object per line"
            )


class _Cursor:
    """A place in a stream of JSON, of which a part is held, decoded with the first encoding."""

    def __init__(self, stream: Any, encoding: str, layout: JsonLayout) -> None:
        self._stream, self._damage, self.layout = stream, "", layout
        self._encoding, self._codec = encoding, encoding.split(",")[0]
        self._decoder = codecs.getincrementaldecoder(self._codec)("surrogateescape")
        self._text, self._at, self._doubtful = "", 0, False
        self.whole = "array" if layout.what == "element" else "object"

    def peek(self) -> str:
        """Go to the next character other than white space and commas, and return it; "" at the end."""
        while True:
            self._at = _GAP.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read():
                return ""

    def items(self, closing: str) -> Iterator[None]:
        """Stop at each item of the array or object at the cursor, which must be taken, and after it."""
        self._at += 1
        while (mark := self.peek()) != closing:
            if not mark:
                raise UnreadableError(f"the JSON {self.whole} is incomplete")
            yield
        self._at += 1

    def members(self) -> Iterator[str]:
        """Stop at each value of the object at the cursor; yield its name."""
        for _ in self.items("}"):
            name, _ = self.take()
            if self.peek() != ":" or not isinstance(name, str):
                raise UnreadableError("a name and a colon are missing in the JSON object")
            self._at += 1
            yield name

    def take(self) -> tuple[Any, RecordBytes]:
        """Return the value at the cursor, or BadValue, and its source; go to its end."""
        self.peek()
        while True:
            value, end = self._parsed(self._at)
            if end >= 0:
                source, self._at = (self._text, self._at, end), end
                return value, source
            if len(self._text) - self._at > limits.LONGEST_LINE:
                what = self.layout.what
                raise UnreadableError(f"the {what} of the JSON has more than {limits.LONGEST_LINE:,} bytes")
            if not self._read():
                raise UnreadableError(f"the JSON {self.whole} is incomplete")

    def _read(self) -> bool:
        """Drop what is before the cursor, and read as much as is left; False at the end. Raises UnreadableError."""
        data = b""
        if not self._damage:
            data, self._damage = read_pieces(self._stream, max(_BLOCK, len(self._text) - self._at))
        added = self._decoder.decode(data, not data)
        if not added:
            if self._damage:
                raise UnreadableError(self._damage)
            return False
        self._text, self._at = self._text[self._at :] + added, 0
        self._doubtful = not is_utf8(self._text)
        return True

    def _parsed(self, at: int) -> tuple[Any, int]:
        """Return the value at a place and its end, which is -1 if it goes on beyond the text."""
        value = None
        try:
            value, end = _scan(self._text, at)
            if end < len(self._text) or isinstance(value, dict):
                if end - at <= limits.LONGEST_LINE and not (
                    self._doubtful and not is_utf8(self._text[at:end])
                ):
                    return value, end
            else:
                end = -1  # a number may go on
        except (ValueError, RecursionError):
            end = _end_of(self._text, at)
        if end < 0:
            return None, -1
        return _loaded(
            self._text[at:end].encode(self._codec, "surrogateescape"), self._encoding, self.layout.what
        ), end


def _end_of(text: str, at: int) -> int:
    """Return where a value that is not JSON ends, by its brackets; -1 if it goes on beyond the text."""
    depth = 0
    for token in TOKEN.finditer(text, at):
        mark = token[0]
        depth += _DEEPER.get(mark, 0)
        if mark == '"':
            return -1
        if depth < 0 or (mark == "," and not depth):
            return max(token.start(), at + 1)
        if mark in "]}" and not depth:
            return token.end()
    return -1


def _nested(options: Any, wanted: Collection[str] | None) -> list[str]:
    names = [*options.text, options.id, *(wanted or ())]
    return [name for name in dict.fromkeys(names) if name and "." in name]


def _flattened(record: Mapping[str, Any], nested: Sequence[str]) -> Mapping[str, Any]:
    """Return a record in which the objects that hold ``nested`` names, such as ``content.body``, are their members."""
    if not nested:
        return record
    outer = {
        ".".join(parts[:n]) for name in nested for parts in [name.split(".")] for n in range(1, len(parts))
    }
    return {
        **dict(_members_of(record, outer, "")),
        **{name: record[name] for name in nested if name in record},
    }


def _members_of(value: Mapping[str, Any], outer: Collection[str], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, each in value.items():
        name = f"{prefix}{key}"
        if name in outer and isinstance(each, dict):
            yield from _members_of(each, outer, f"{name}.")
        else:
            yield name, each


class _Held(Gathered):
    """The wanted values of the records of a batch; its texts are all strings, or all lists of tokens."""

    def __init__(self, options: Any, wanted: Collection[str] | None) -> None:
        self._texts, self._wanted, self._nested = options.text, wanted, _nested(options, wanted)
        self._id = None if options.id == NONE else options.id
        self._lists = False
        super().__init__(list(dict.fromkeys([*options.text, *([self._id] if self._id else [])])))

    def prepared(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        record = _flattened(record, self._nested)
        for name in self._texts:
            text = record.get(name)
            items = text if isinstance(text, list) else [text or ""]
            if not all(isinstance(item, str) for item in items):
                raise BadValue(f"{name} is of type {type(text).__name__}, not a string")
        wanted = self._wanted
        return record if wanted is None else {name: v for name, v in record.items() if name in wanted}

    def is_full(self, record: Mapping[str, Any]) -> bool:
        before, self._lists = self._lists, any(isinstance(record.get(name), list) for name in self._texts)
        return before != self._lists or super().is_full(record)

    def array(self, name: str, values: list[Any]) -> Any:
        types = {*map(type, values)} - {type(None)}
        if name not in self._texts and types & {list, dict}:
            values = [json.dumps(v, ensure_ascii=False) if isinstance(v, list | dict) else v for v in values]
        elif name == self._id and not types <= {int}:
            values = [v if isinstance(v, str | None) else json.dumps(v) for v in values]
        return from_python(values)
