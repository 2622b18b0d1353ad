"""Lines of a file, one by one within a byte range or in blocks, elements of a JSON array, and fields of delimited text.

A quote opens a field only at its start, is doubled inside, and closes the field; only a delimiter or the end of the
record may follow.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    DamagedError,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import bare_suffix, open_stream
from streaming_jsmf.ingestion.readers.values import decode, marked_encoding

EMPTY = "the file is empty"
QUOTE = '"'
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long

#: Strings, brackets and commas; last, the start of a string that goes on in the next block.
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},"]', re.DOTALL)
_DEEPER = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_BLOCK = 1 << 20

Record = TypeVar("Record")
#: Yields the records of a stream that belong to a unit.
Split = Callable[[Any, Unit], Iterator[bytes]]


def too_long() -> str:
    return f"the line is longer than {limits.LONGEST_LINE >> 20} MB, too long for a record"


def read_lines(
    unit: Unit,
    parse: Callable[[bytes], Record | None],
    bad: BadRecords,
    split: Split | None = None,
) -> Iterator[tuple[int, Record]]:
    """Yield row and parsed record of each line that starts within a unit; skip lines that ``parse`` maps to None.

    ``split`` divides the stream into other parts than lines. Lines for which ``parse`` raises ``BadValue`` go to
    ``bad``; so does an empty file, and the line at which a damaged file breaks off.
    """
    row, empty = -1, not unit.stop  # a range may lie within a long line
    try:
        with open_stream(unit.path) as stream:
            for row, line in enumerate((split or lines_of)(stream, unit)):
                try:
                    record = parse(line)
                except BadValue as error:
                    empty = False
                    bad.refuse(row, str(error), line[:_KEPT] if _was_cut(line) else line.rstrip(b"\r\n"))
                    continue
                if record is not None:
                    empty = False
                    yield row, record
    except DamagedError as error:
        bad.refuse(row + 1, str(error))
        return
    if empty:
        bad.refuse(None, EMPTY)


def lines_of(stream: Any, unit: Unit) -> Iterator[bytes]:
    """Yield the lines that start within the unit, even if the last one ends beyond it. Long lines are cut."""
    position = 0
    if unit.start:
        stream.seek(unit.start - 1)
        position = unit.start - 1 + _skip_line(stream)
    while not unit.stop or position < unit.stop:
        line = stream.readline(limits.LONGEST_LINE + 1)
        if not line:
            return
        position += len(line)
        if _was_cut(line):
            position += _skip_line(stream)
        yield line


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
    raise DamagedError("the JSON array is incomplete")


def _require_end(rest: bytes) -> None:
    if rest.strip():
        raise DamagedError("there is data after the JSON array; give one array, or one object per line")


def text_of(line: bytes, encoding: str = "utf-8", hint: Callable[[], str] = str) -> str:
    """Decode a line of ``lines_of`` without a byte order mark. Raises BadValue if it was cut or is not text."""
    if _was_cut(line):
        raise BadValue(too_long())
    return decode(line.removeprefix(BYTE_ORDER_MARK), encoding, hint=hint)


def _was_cut(line: bytes) -> bool:
    return len(line) > limits.LONGEST_LINE and not line.endswith(b"\n")


def _skip_line(stream: Any) -> int:
    """Read up to the start of the next line; return the number of bytes read."""
    length = 0
    while block := stream.readline(1 << 20):
        length += len(block)
        if block.endswith(b"\n"):
            break
    return length


def encoding_of(path: str, encoding: str) -> str:
    """Return the encoding of the lines of ``open_stream``: UTF-8 if the file has a byte order mark, else the given one.

    A file that cannot be read has the given one.
    """
    if encoding != "utf-8":
        with suppress(UnreadableError), open_stream(path) as stream:
            if marked_encoding(stream.read(4)):
                return "utf-8"
    return encoding


@contextmanager
def open_text(path: str, encoding: str, errors: str = "surrogateescape") -> Iterator[io.TextIOWrapper]:
    """Open a text stream with line ends unchanged. Raises as ``open_stream``; ``errors`` is that of ``open``.

    The encoding is given by a byte order mark, or is the first of a comma-separated list that decodes the whole file
    (which costs one more pass), or the last.
    """
    with open_stream(path) as stream:
        marked = marked_encoding(stream.read(4))
    *tried, last = encoding.split(",")
    codec = marked or next((codec for codec in tried if _decodes(path, codec)), last)
    with open_stream(path) as stream:
        text = io.TextIOWrapper(stream, encoding=codec, errors=errors, newline="")
        try:
            yield text
        finally:
            text.detach()


def _decodes(path: str, codec: str) -> bool:
    decoder = codecs.getincrementaldecoder(codec)()
    with open_stream(path) as stream:
        try:
            while data := stream.read(1 << 20):
                decoder.decode(data)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def csv_records(lines: Iterable[str], delimiter: str, quote: str = QUOTE) -> Any:
    """Return a strict ``csv.reader`` of lines with their ends; it can continue after a ``csv.Error``."""
    csv.field_size_limit(limits.LONGEST_LINE)
    return csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)
