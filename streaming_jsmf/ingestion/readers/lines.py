"""Lines of a file, one by one within a byte range or in blocks, and fields of delimited text.

A quote opens a field only at its start, is doubled inside, and closes the field; only a delimiter or the end of the
record may follow.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import (
    is_divisible,
    open_stream,
    size_of,
)
from streaming_jsmf.ingestion.readers.values import decode, encoding_hint, from_python, marked_encoding

EMPTY = "the file is empty"
QUOTE = '"'
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE_BYTES = 64  # estimated overhead of a line in memory
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long

Record = TypeVar("Record")


def too_long() -> str:
    return f"the line is longer than {limits.LONGEST_LINE >> 20} MB, too long for a record"


def read_lines(
    unit: Unit,
    parse: Callable[[bytes], Record | None],
    bad: BadRecords,
) -> Iterator[tuple[int, Record]]:
    """Yield row and parsed record of each line that starts within a unit; skip lines that ``parse`` maps to None.

    Lines for which ``parse`` raises ``BadValue`` go to ``bad``; so does an empty file, and the line at which a damaged
    file breaks off.
    """
    row, empty = -1, not unit.stop  # a range may lie within a long line
    try:
        with open_stream(unit.path) as stream:
            for row, line in enumerate(lines_of(stream, unit)):
                try:
                    record = parse(line)
                except BadValue as error:
                    empty = False
                    bad.refuse(row, str(error), original_line(line))
                    continue
                if record is not None:
                    empty = False
                    yield row, record
    except UnreadableError as error:
        bad.refuse(row + 1 if row >= 0 else None, str(error))
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


def text_of(line: bytes, encoding: str = "utf-8", hint: Callable[[], str] = str) -> str:
    """Decode a line of ``lines_of`` without a byte order mark. Raises BadValue if it was cut or is not text."""
    if _was_cut(line):
        raise BadValue(too_long())
    return decode(line.removeprefix(BYTE_ORDER_MARK), encoding, hint=hint)


def original_line(line: bytes) -> bytes:
    """Return a line of ``lines_of`` for the quarantine: without its end, or the start of one that is too long."""
    return line[:_KEPT] if _was_cut(line) else line.rstrip(b"\r\n")


def line_units(path: str, splittable: Callable[[], bool] = lambda: True) -> list[Unit]:
    """Return byte ranges of a file of lines, or the file as a whole if it is small or cannot be split.

    ``splittable`` tells whether each line is a record; it is called for a large file only.
    """
    size, step = size_of(path), limits.UNIT_BYTES
    if size <= step or not is_divisible(path) or not splittable():
        return [Unit(path, size=size)]
    return [
        Unit(path, start, min(start + step, size), min(step, size - start)) for start in range(0, size, step)
    ]


def first_line_of(unit: Unit) -> int:
    """Return the number of the line at which a unit starts, from 0; reads the lines before it."""
    if not unit.start:
        return 0
    lines, left = 1, unit.start - 1
    with open_stream(unit.path) as stream:
        while left and (block := stream.read(min(left, 1 << 20))):
            lines += block.count(b"\n")
            left -= len(block)
    return lines


def line_records(unit: Unit, parse: Callable[[bytes], str | None], bad: BadRecords) -> Iterator[Records]:
    """Yield the lines of a unit as a column ``text``; see ``read_lines``."""
    rows: list[int] = []
    texts: list[str] = []
    size = 0
    for row, line in read_lines(unit, parse, bad):
        rows.append(row)
        texts.append(line)
        size += len(line) + _LINE_BYTES
        if size >= limits.BATCH_BYTES:
            yield Records(np.array(rows, np.int64), {"text": from_python(texts)})
            rows, texts, size = [], [], 0
    if rows:
        yield Records(np.array(rows, np.int64), {"text": from_python(texts)})


class LineFormat(Format):
    """Lines of text. The column ``text`` has those that are not blank, without white space around them."""

    def names(self, path: str, options: Any) -> list[str]:  # noqa: ARG002
        return ["text"]

    def units(self, path: str, options: Any = None) -> list[Unit]:  # noqa: ARG002
        return line_units(path)

    def records(
        self,
        unit: Unit,
        options: Any,
        bad: BadRecords,
        wanted: Collection[str] | None = None,  # noqa: ARG002
    ) -> Iterator[Records]:
        encoding = encoding_of(unit.path, options.encoding)

        def text(line: bytes) -> str | None:
            return text_of(line, encoding, encoding_hint).strip() or None

        return line_records(unit, text, bad)

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, line {self.first_row(unit) + row + 1}"

    def first_row(self, unit: Unit) -> int:
        return first_line_of(unit)


LINES = LineFormat()


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


def encoding_of_file(path: str, encoding: str) -> str:
    """Return the encoding of a byte order mark, the first of a comma-separated list that decodes the file, or the last.

    A list costs one more pass. Raises as ``open_stream``.
    """
    with open_stream(path) as stream:
        marked = marked_encoding(stream.read(4))
    *tried, last = encoding.split(",")
    return marked or next((codec for codec in tried if _decodes(path, codec)), last)


@contextmanager
def open_text(path: str, encoding: str, errors: str = "surrogateescape") -> Iterator[io.TextIOWrapper]:
    """Open a text stream in ``encoding_of_file`` with line ends unchanged; ``errors`` is that of ``open``."""
    codec = encoding_of_file(path, encoding)
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
