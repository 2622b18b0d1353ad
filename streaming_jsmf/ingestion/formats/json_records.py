"""JSON as a format of records: on lines, or in a document that is read whole (``formats.json_documents``)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.formats import json_documents
from streaming_jsmf.ingestion.formats.lines import (
    BYTE_ORDER_MARK,
    EMPTY,
    Gathered,
    Parsed,
    RecordSource,
    Written,
    encoding_of,
    first_line_of,
    gathered,
    line_units,
    lines_of,
    open_unit,
    text_of,
)
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    BadValue,
    Format,
    Records,
    Unit,
    UnreadableError,
)
from streaming_jsmf.ingestion.sources.streams import open_stream, read_pieces
from streaming_jsmf.ingestion.sources.values import encoding_hint, from_python
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.storage.heads import found_once

RECORD_SEPARATOR = "\x1e"  # before each record of a JSON text sequence (RFC 7464)
_HEAD = 1 << 20  # bytes that show the layout of a file
_SAMPLE = 1000  # records that show the names


class JsonLayout(NamedTuple):
    """What a record is, a "line" or a "record" of a document; notes are for the log."""

    what: str = "line"
    notes: tuple[str, ...] = ()


class JsonFormat(Format):
    """Objects of JSON, or strings, which are a column ``text``. Names such as ``content.body`` are within objects.

    The other members of these objects are columns, too. Other objects and lists become JSON texts, and so do values of
    a column that has several types. Text columns may hold lists of strings.
    """

    in_bytes = True

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

    def units(self, path: str, options: Any) -> list[Unit]:
        layout = _layout_of(path, getattr(options, "encoding", "utf-8"))
        units = line_units(path, splittable=layout.what == "line")
        return [replace(each, notes=layout.notes, layout=layout) for each in units]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        try:
            found = _parsed(_with_layout(unit, options.encoding), options.encoding)
            yield from gathered(unit, found, bad, _Held(options, wanted))
        finally:
            json_documents.forget()

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, {(unit.layout or JsonLayout()).what} {self.first_row(unit) + row + 1}"

    def first_row(self, unit: Unit) -> int:
        return first_line_of(unit)


JSON = JsonFormat()


def first_objects(path: str, encoding: str) -> Iterator[Parsed]:
    """Yield the first records of a file, why a record cannot be used, and None for a blank line."""
    unit = _with_layout(Unit(path), encoding)
    return (value for value, _ in islice(_parsed(unit, encoding), _SAMPLE))


def lists_of(unit: Unit, name: str) -> Iterator[tuple[Parsed, RecordSource]]:
    """Yield the lists of strings or integers in a column, or instead of records, as that column."""
    for value, source in _parsed(_with_layout(unit, "utf-8"), "utf-8", name):
        if isinstance(value, dict):
            items = value.get(name, "")
            if items is not None and not (isinstance(items, list) and {*map(type, items)} <= {str, int}):
                yield BadValue(f"it has no list of strings or integers {name!r}"), source
                continue
            value = {name: items and [*map(str, items)]}
        yield value, source


def _with_layout(unit: Unit, encoding: str) -> Unit:
    """The unit with the layout of its file. Raises UnreadableError."""
    return unit if unit.layout else replace(unit, layout=_layout_of(unit.path, encoding))


@found_once
def _layout_of(path: str, encoding: str) -> JsonLayout:
    """Find the layout of a file from its start, and from all of it if it is a document. Raises UnreadableError."""
    with open_stream(path) as stream:
        data, _ = read_pieces(stream, _HEAD)
    if json_documents.are_lines(data.decode("utf-8", "replace")):
        return JsonLayout()
    document = json_documents.read_document(path, encoding_of(path, encoding))
    if document.is_line:
        return JsonLayout()
    return JsonLayout("record", (document.note,) * bool(document.note))


def _parsed(unit: Unit, encoding: str, lists: str = "") -> Iterator[tuple[Parsed, RecordSource]]:
    """Yield the records of a unit, None for a blank line. A list is a record with the column ``lists``, if given."""
    encoding = encoding_of(unit.path, encoding)
    if unit.layout.what != "line":
        found = json_documents.read_document(unit.path, encoding).records
        size = unit.size // max(len(found), 1)
        for value in found:
            yield _record(value, unit.layout.what, lists), Written(value, size)
        return
    with open_unit(unit) as stream:
        for line in lines_of(stream, unit):
            is_blank = not line.removeprefix(BYTE_ORDER_MARK).strip(b"\x1e \t\r\n\v\f")
            yield None if is_blank else _record(_loaded(line, encoding), "line", lists), line


def _record(value: Any, what: str, lists: str = "") -> dict[str, Any] | BadValue:
    if isinstance(value, dict | BadValue):
        return _joined(value) if isinstance(value, dict) else value
    if lists and isinstance(value, list):
        return {lists: value}
    return {"text": value} if isinstance(value, str) else BadValue(f"the {what} is not a JSON object")


def _loaded(data: bytes, encoding: str) -> Any:
    """Return the value on a line, or BadValue with the reason if it is not JSON."""
    try:
        return json.loads(text_of(data, encoding, hint=encoding_hint).lstrip(RECORD_SEPARATOR))
    except BadValue as error:
        return error
    except (ValueError, RecursionError) as error:
        if data.lstrip().startswith((b"//", b"/*", b"#")):
            return BadValue("the line is a comment, which JSON does not have")
        if data.lstrip().startswith(b"{'"):
            return BadValue("the line is a dict of Python, not JSON; write it with json.dumps")
        return BadValue(f"the line is not JSON ({first_line(error)})")


def _joined(record: dict[str, Any]) -> dict[str, Any]:
    """Join the parts of the text of a message of Telegram."""
    text = record.get("text")
    if not (isinstance(text, list) and any(isinstance(part, dict) for part in text)):
        return record
    parts: list[Any] = [part.get("text") if isinstance(part, dict) else part for part in text]
    return {**record, "text": "".join(parts)} if all(isinstance(part, str) for part in parts) else record


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
