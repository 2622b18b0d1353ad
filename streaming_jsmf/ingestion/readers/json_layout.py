"""How the records of a JSON file are written: on lines, in a list, as the members of an object, or by column."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Literal

from streaming_jsmf.ingestion.readers.base import UnreadableError
from streaming_jsmf.ingestion.readers.files import open_stream
from streaming_jsmf.ingestion.readers.formats import BYTE_ORDER_MARK

_HEAD = 1 << 20  # bytes that show the layout of a file
_MOST_TOKENS = 20_000  # of the head
#: Members of a tweet that hold its whole text, and the name of the text in them.
_WHOLE = {"extended_tweet": "full_text", "note_tweet": "text"}
_SHORT, _LONG = 20, 200  # characters: of the texts of records at least, of the values beside them at most
_MANY = 50  # strings of an object that are records rather than values of one

#: What JavaScript has before JSON, such as ``window.YTD.tweets.part0 =`` or the name of a function.
_SCRIPT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:var|let|const) )?[\w.$]+\s*[=(]\s*(?=[\[{])")
#: Strings, brackets and commas; last, the start of a string that goes on beyond the text.
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},"]', re.DOTALL)


@dataclass(frozen=True)
class JsonLayout:
    """How the records of a file are written.

    Attributes
    ----------
    what : What a record is: a line, an object that follows another, an element of an array, a member of an object, or a
        row of lists.
    path : Names of the objects that hold the array.
    key : Column of the names of members.
    note : What was assumed, for the log.
    skip : Bytes before the JSON.
    """

    what: Literal["line", "object", "element", "member", "row"]
    path: tuple[str, ...] = ()
    key: str = ""
    note: str = ""
    skip: int = 0


LINE, OBJECT, ELEMENT = JsonLayout("line"), JsonLayout("object"), JsonLayout("element")
_ROWS = JsonLayout("row", note="its values are columns, of which each record has a row")


def layout_of(path: str) -> JsonLayout:
    """Find the layout of a file from its start; lines if it cannot be read."""
    data = b""
    with suppress(UnreadableError), open_stream(path) as stream:
        data = stream.read(_HEAD)
    script = _SCRIPT.match(data)
    skip = script.end() if script else 0
    text = data[skip:].removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace").lstrip()
    layout = _layout(text.rstrip("); \r\n") if script else text)
    cut = "the whole texts of tweets that are cut are read" * any(f'"{name}"' in text for name in _WHOLE)
    return replace(layout, note="; ".join(filter(None, [layout.note, cut])), skip=skip)


def _layout(text: str) -> JsonLayout:
    first, more, rest = text.partition("\n")
    first = first.rstrip()
    if text.startswith("["):
        is_list_of_each_line = first.endswith("]") and rest.lstrip().startswith("[")
        return ELEMENT if re.match(r'\[\s*[\[{"\]]', text) and not is_list_of_each_line else LINE
    if not text.startswith("{"):
        return LINE
    other = LINE
    try:
        _, end = json.JSONDecoder().raw_decode(first)
        if end < len(first):
            return OBJECT if first[end:].lstrip()[0] in "{," else LINE
        if rest.strip():
            return LINE
    except json.JSONDecodeError as error:
        # An object that goes on in the next line, rather than one that is wrong.
        if more and error.pos < len(first):
            return LINE
        other = LINE if not more or rest.lstrip().startswith("{") else OBJECT
    except (ValueError, RecursionError):
        return LINE
    return _of_object(text) or other


def _of_object(text: str) -> JsonLayout | None:
    """Return the layout of the records in one object, given its start; None if it is a record itself, or unclear."""
    start, is_cut = _start_of(text)
    values = [*start.values()]
    whole = values[: -1 if is_cut and len(values) > 1 else None]
    kinds = {*map(type, values)}
    if kinds == {str} and len(values) >= _MANY:
        return _by_name(start)
    if any(isinstance(value, str) and len(value) > _LONG for value in values):
        return None
    is_table = any(map(_has_texts, values))
    if (
        is_table
        and kinds == {list}
        and not any(isinstance(inner, list | dict) for value in values for inner in value)
    ):
        return _ROWS if len({*map(len, whole)}) == 1 else None
    if is_table and kinds == {dict}:
        first = values[0].keys()
        if all(name.isdecimal() for name in first) and not all(name.isdecimal() for name in start):
            return _ROWS
        if len(values) > 1 and all(2 * len(value.keys() & first) >= len(first) for value in whole):
            return _by_name(start)
    return _in_list(start)


def _has_texts(value: Any) -> bool:
    """Whether a value has strings that are long enough for texts, other than in lists of objects."""
    if isinstance(value, dict):
        return any(map(_has_texts, value.values()))
    if isinstance(value, list):
        return any(isinstance(each, str) and _has_texts(each) for each in value)
    return isinstance(value, str) and len(value) >= _SHORT


def _by_name(start: Mapping[str, Any]) -> JsonLayout:
    records = [value for value in start.values() if isinstance(value, dict)]
    key = "key" if any("id" in record for record in records) else "id"
    return JsonLayout(
        "member", key=key, note=f"its records are the values of one object; {key} has their names"
    )


def _in_list(start: Mapping[str, Any]) -> JsonLayout | None:
    """Return the layout if an object has one list of objects with texts, or else if the objects in it have one."""
    inner: dict[tuple[str, ...], Any] = {(name,): value for name, value in start.items()}
    for _ in range(3):
        if found := [path for path, value in inner.items() if is_records(value)]:
            name, is_alone = ".".join(found[0]), len(start) == len(found[0]) == 1
            note = f"its records are the objects in {name}{'' if is_alone else '; what is beside it is not read'}"
            return JsonLayout("element", found[0], note=note) if len(found) == 1 else None
        inner = {(*path, key): value for path, each in inner.items() for key, value in _merged(each).items()}
    return None


def _merged(value: Any) -> dict[str, Any]:
    """The members of an object, or of the objects in a list, whose lists are joined."""
    found: dict[str, Any] = {}
    for each in value if isinstance(value, list) else [value]:
        for name, inner in each.items() if isinstance(each, dict) else ():
            before = found.get(name)
            found[name] = [*before, *inner] if isinstance(before, list) and isinstance(inner, list) else inner
    return found


def is_records(value: Any) -> bool:
    """Return whether a value is a list of objects with texts."""
    is_list = isinstance(value, list) and len(value) > 1 and all(isinstance(each, dict) for each in value)
    return is_list and any(map(_has_texts, value))


def _start_of(text: str) -> tuple[dict[str, Any], bool]:
    """Return an object as far as a text has it, and whether it goes on; {} if it is not JSON, or not alone."""
    closing, end, closed = "", 0, ""
    for token in islice(TOKEN.finditer(text), _MOST_TOKENS):
        mark = token[0]
        if mark in "[{":
            closing = ("]" if mark == "[" else "}") + closing
            end, closed = token.end(), closing
        elif mark in "]}":
            closing = closing[1:]
            if not closing:
                is_alone = not text[token.end() :].strip()
                return (_object(text[: token.end()]) if is_alone else {}), False
        elif mark == ",":
            end, closed = token.start(), closing
        elif mark == '"':
            break
    return _object(text[:end] + closed), True


def _object(text: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        return value if isinstance(value, dict) else {}
    return {}


def whole(record: dict[str, Any]) -> dict[str, Any]:
    """Give a tweet its whole text, if ``text`` is cut, and join the parts of a message of Telegram."""
    text, again = record.get("text"), record.get("retweeted_status")
    if isinstance(text, list) and any(isinstance(part, dict) for part in text):
        parts: list[Any] = [part.get("text") if isinstance(part, dict) else part for part in text]
        return {**record, "text": "".join(parts)} if all(isinstance(part, str) for part in parts) else record
    for outer, name in _WHOLE.items():
        inner = record.get(outer)
        if isinstance(inner, dict) and isinstance(inner.get(name), str):
            return {**record, "text": inner[name]}
    if isinstance(again, dict) and isinstance(text, str) and text.startswith("RT @") and text.endswith("…"):
        start, colon, _ = text.partition(": ")
        return {**record, "text": f"{start}{colon}{whole(again).get('text', text)}"}
    return record
