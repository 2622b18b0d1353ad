"""The records of JSON files: a line each, or the elements of one array; and values within them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import DamagedError, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import bare_suffix, open_stream
from streaming_jsmf.ingestion.readers.lines import BYTE_ORDER_MARK, lines_of

#: Yields the records of a stream that belong to a unit.
Split = Callable[[Any, Unit], Iterator[bytes]]

#: Strings, brackets and commas; last, the start of a string that goes on in the next block.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},"]', re.DOTALL)
_DEEPER = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_BLOCK = 1 << 20


def is_array(path: str) -> bool:
    """Whether a file is named .json and starts as an array of objects, rather than JSON lines.

    False if it cannot be read.
    """
    if bare_suffix(path) != ".json":
        return False
    try:
        with open_stream(path) as stream:
            return bool(re.match(rb"\s*\[\s*[{\]]", stream.read(1000).removeprefix(BYTE_ORDER_MARK)))
    except UnreadableError:
        return False


def records_of(path: str) -> Split:
    """How a JSON file is divided into records: by lines, or by the elements of its array."""
    return _elements_of if is_array(path) else lines_of


def _elements_of(stream: Any, unit: Unit) -> Iterator[bytes]:  # noqa: ARG001
    """Yield the elements of a JSON array one at a time; DamagedError if it breaks off, or something follows it."""
    held, scanned, depth = b"", 0, 0
    while block := stream.read(_BLOCK):
        held += block
        start = 0
        for token in _TOKEN.finditer(held, scanned):
            mark = token[0]
            if mark == b'"':
                scanned = token.start()
                break
            scanned = token.end()
            depth += _DEEPER.get(mark, 0)
            ends = (mark == b"," and depth == 1) or (mark == b"]" and depth == 0)
            if ends and (element := held[start : token.start()].strip()):
                yield element
            if ends or (mark == b"[" and depth == 1):
                start = scanned
            if depth == 0:
                _require_end(held[scanned:] + stream.read(_BLOCK))
                return
        held, scanned = held[start:], scanned - start
        if len(held) > limits.LONGEST_LINE:
            raise DamagedError(f"an element of the JSON array has more than {limits.LONGEST_LINE:,} bytes")
    raise DamagedError("the JSON array breaks off")


def _require_end(rest: bytes) -> None:
    if rest.strip():
        raise DamagedError("something follows the JSON array; give one array, or one object per line")


def with_nested(record: dict[str, Any], nested: Collection[str]) -> dict[str, Any]:
    """Add the values of nested names to a record, and leave out the objects that contain them."""
    found: dict[str, Any] = {}
    for name in nested:
        value: Any = record
        for key in name.split(".") if name not in record else ():
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None and value is not record:
            found[name] = value
    parents = {name.partition(".")[0] for name in nested}
    return {**{key: value for key, value in record.items() if key not in parents}, **found}
