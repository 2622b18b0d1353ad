"""JSON documents, which are read whole: the records are an array, values one after the other, or within an object.

An object may hold them in the only list of objects with texts, up to three levels down, as the values of its names, or
by column: in lists, or in objects by index as pandas writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.sources.protocol import BadValue, UnreadableError
from streaming_jsmf.ingestion.sources.streams import alone_if_large, open_stream, read_pieces
from streaming_jsmf.ingestion.sources.values import decode, encoding_hint, listed
from streaming_jsmf.storage.paths import state_of

#: Bytes of the largest document; as Python values it takes five to ten times as much memory.
LARGEST = 1 << 30

_LEVELS = 3  # of objects in which a list is looked for
_SHORT, _LONG = 20, 200  # characters: of the texts of records at least, of the values beside them at most
_MANY = 50  # strings of an object that are records rather than values of one

_BLANK = "\ufeff\x1e \t\r\n"
_GAP = re.compile(r"[\s,\ufeff\x1e]*")
_decode = json.JSONDecoder().raw_decode


class Document(NamedTuple):
    """The records of a document, what was assumed, for the log, and whether it is an object on a single line."""

    records: Sequence[Any]
    note: str = ""
    is_line: bool = False


def are_lines(start: str) -> bool:
    """Return whether the records of a file are its lines, given its start, or it is no JSON, which lines report."""
    text = start.lstrip(_BLANK)
    first, _, rest = text.partition("\n")
    first, rest = first.rstrip(), rest.lstrip(_BLANK)
    if text.startswith("["):
        # Lists of tokens, one on each line, or a list that is no record before objects, rather than an array of
        # records, or several that were joined.
        return first.endswith("]") and rest[:1] in ("[", "{") and text[1:].lstrip()[:1] != "{"
    if not text.startswith("{"):
        return True
    if not rest:
        return False
    try:
        _, end = _decode(first)
    except json.JSONDecodeError as error:
        # An object that goes on in the next line, rather than one that is wrong.
        return error.pos < len(first) or rest.startswith("{")
    except (ValueError, RecursionError):
        return True
    return end == len(first) or first[end:].lstrip()[0] not in "{,"


def read_document(path: str, encoding: str) -> Document:
    """Return the records of a document. All steps of a process share the last one; ``forget`` it when it is read.

    Raises UnreadableError if it is larger than ``LARGEST``, damaged, or has several lists of records.
    """
    with alone_if_large(path):
        return _read(path, encoding, state_of(path) or object())


@lru_cache(1)
def _read(path: str, encoding: str, _: Any) -> Document:
    with open_stream(path) as stream:
        data, damage = read_pieces(stream, LARGEST + 1)
    if damage:
        raise UnreadableError(damage)
    if len(data) > LARGEST:
        raise UnreadableError(
            f"it is a JSON document of more than {LARGEST:,} bytes, which would be read whole; write an object on each "
            "line, for example with jq -c '.[]'"
        )
    try:
        text = decode(data, encoding, "file", encoding_hint)
    except BadValue as error:
        raise UnreadableError(str(error)) from error
    at = _GAP.match(text).end()  # type: ignore[union-attr]
    values: list[Any] = []
    while at < len(text):
        try:
            value, at = _decode(text, at)
        except (ValueError, RecursionError) as error:
            if (mended := _without_last_comma(text)) != text:
                text = mended
                continue
            what = "there is other data after the JSON" if values else "the JSON is incomplete or damaged"
            raise UnreadableError(f"{what} ({first_line(error)})") from error
        values.append(value)
        at = _GAP.match(text, at).end()  # type: ignore[union-attr]
    if all(isinstance(value, list) for value in values):
        return Document([each for value in values for each in value])
    if len(values) == 1 and isinstance(values[0], dict):
        found = _of_object(values[0])
        return found._replace(is_line=not found.note and "\n" not in text.strip())
    return Document(values)


#: Free the memory of the last document.
forget = _read.cache_clear


def _without_last_comma(text: str) -> str:
    """An array without a comma behind its last element, as programs that print one element at a time leave it."""
    head, bracket, _ = text.rpartition("]")
    head = head.rstrip()
    return f"{head[:-1]}{bracket}" if head.endswith(",") and not text[text.rfind("]") + 1 :].strip() else text


def _of_object(held: Mapping[str, Any]) -> Document:
    """Return the records that an object holds, or the object as the only record."""
    values, itself = [*held.values()], Document([held])
    kinds = {*map(type, values)}
    if kinds == {str} and len(values) >= _MANY:
        return _by_name(held)
    if any(isinstance(value, str) and len(value) > _LONG for value in values):
        return itself
    found = None
    if kinds in ({list}, {dict}) and any(map(_has_texts, values)):
        found = (_rows if kinds == {list} else _of_objects)(held)
    if found:
        return found
    inner: dict[str, Any] = dict(held)
    for _ in range(_LEVELS):
        if lists := {name: value for name, value in inner.items() if is_records(value)}:
            return _only_list(held, lists)
        inner = {
            f"{name}.{key}": each for name, value in inner.items() for key, each in _merged(value).items()
        }
    return itself


def _rows(held: Mapping[str, Any]) -> Document | None:
    """The rows of lists, one for each column."""
    if any(isinstance(inner, list | dict) for value in held.values() for inner in value):
        return None
    sizes = [len(value) for value in held.values()]
    if len({*sizes}) > 1:
        raise UnreadableError(f"its lists {listed(held)} have {listed(map(str, sizes))} values")
    rows = [dict(zip(held, row, strict=True)) for row in zip(*held.values(), strict=True)]
    return _of_columns(rows)


def _of_columns(rows: Sequence[Any]) -> Document:
    return Document(rows, "its values are columns, of which each record has a row")


def _of_objects(held: Mapping[str, Any]) -> Document | None:
    """The rows of objects by index, one for each column, or records by name."""
    first, *others = held.values()
    if all(map(str.isdecimal, first)) and not all(map(str.isdecimal, held)):
        index = dict.fromkeys(key for column in held.values() for key in column)
        return _of_columns(
            [{"index": key, **{name: column.get(key) for name, column in held.items()}} for key in index]
        )
    if others and all(2 * len(value.keys() & first) >= len(first) for value in others):
        return _by_name(held)
    return None


def _by_name(held: Mapping[str, Any]) -> Document:
    key = "key" if any("id" in value for value in held.values() if isinstance(value, dict)) else "id"
    rows = [
        {key: name, **(value if isinstance(value, dict) else {"text": value})} for name, value in held.items()
    ]
    return Document(rows, f"its records are the values of one object; {key} has their names")


def _only_list(held: Mapping[str, Any], found: Mapping[str, list[Any]]) -> Document:
    name, *others = found
    if others:
        raise UnreadableError(
            f"it has the list {others[0]} of objects after {name}; write the records of one list, one object per line"
        )
    note = f"its records are the objects in {name}" + "; what is beside it is not read" * ([*held] != [name])
    return Document(found[name], note)


def _merged(value: Any) -> dict[str, Any]:
    """The members of an object, or of the objects in a list, whose lists are joined."""
    found: dict[str, Any] = {}
    for each in value if isinstance(value, list) else [value]:
        for name, inner in each.items() if isinstance(each, dict) else ():
            before = found.get(name)
            found[name] = [*before, *inner] if isinstance(before, list) and isinstance(inner, list) else inner
    return found


def _has_texts(value: Any) -> bool:
    """Whether a value has strings that are long enough for texts, other than in lists of objects."""
    if isinstance(value, dict):
        return any(map(_has_texts, value.values()))
    if isinstance(value, list):
        return any(isinstance(each, str) and _has_texts(each) for each in value)
    return isinstance(value, str) and len(value) >= _SHORT


def is_records(value: Any) -> bool:
    """Return whether a value is a list of objects with texts."""
    is_list = isinstance(value, list) and len(value) > 1 and all(isinstance(each, dict) for each in value)
    return is_list and any(map(_has_texts, value))
