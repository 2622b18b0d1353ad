"""Lines of a file, one by one within a byte range or in blocks, and fields of delimited text.

A quote opens a field only at its start, is doubled inside, and closes the field; only a delimiter or the end of the
record may follow.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.errors import first_line
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
from streaming_jsmf.ingestion.readers.files import (
    STREAM_ERRORS,
    describe,
    is_divisible,
    open_stream,
    size_of,
)
from streaming_jsmf.ingestion.readers.values import decode, encoding_hint, marked_encoding

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

        rows: list[int] = []
        texts: list[str] = []
        size = 0
        for row, line in read_lines(unit, text, bad):
            rows.append(row)
            texts.append(line)
            size += len(line) + _LINE_BYTES
            if size >= limits.BATCH_BYTES:
                yield Records(np.array(rows, np.int64), {"text": from_python(texts)})
                rows, texts, size = [], [], 0
        if rows:
            yield Records(np.array(rows, np.int64), {"text": from_python(texts)})

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


def line_blocks(stream: Any, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines of about ``BATCH_BYTES`` with the number of their first line, from ``first``.

    Raises UnreadableError after the lines before the damage, with the part of the line at which the stream breaks off.
    """
    # A decompressor returns the data before the damage only if it is read piece by piece.
    read = getattr(stream, "read1", stream.read)
    rest, damage, ended = b"", "", False
    while not ended:
        pieces, size = [rest], 0
        try:
            while size < limits.BATCH_BYTES and not ended:
                pieces.append(read(limits.BATCH_BYTES - size))
                size += len(pieces[-1])
                ended = not pieces[-1]
        except STREAM_ERRORS as error:
            damage = describe(error)
        data = b"".join(pieces)
        if len(data) > limits.LONGEST_LINE and b"\n" not in data:
            damage = too_long()
        ended = ended or bool(damage)
        cut = len(data) if ended and not damage else data.rfind(b"\n") + 1
        block, rest = data[:cut], data[cut:]
        if block:
            yield first, block
            first += n_lines(block)
    if damage:
        raise UnreadableError(
            damage, first, rest[: _KEPT if len(rest) > limits.LONGEST_LINE else None] or None
        )


def parse_lines(
    block: bytes, types: Mapping[str, Any], delimiter: str, quote: str, **convert: Any
) -> Any | None:
    """Return the table that Arrow reads from a block; None unless each line is one row of these columns."""
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=list(types)),
            pa_csv.ParseOptions(delimiter=delimiter, quote_char=quote or False),
            pa_csv.ConvertOptions(column_types=types, **convert),
        )
    except pa.ArrowInvalid:
        return None
    # Arrow skips empty lines, and joins lines if a quote is open at a line end.
    return table if table.num_rows == n_lines(block) else None


def parse_each_line(
    block: bytes, parse: Callable[[bytes], Sequence[Record]]
) -> tuple[NDArray[np.int64], list[Sequence[Record]], dict[int, str]]:
    """Parse the lines of a block one by one, which is slow but locates the bad ones; no fields mean a blank line.

    Returns the numbers of the good lines in the block, their fields, and why ``parse`` raised BadValue for the others.
    """
    rows, values, faults = [], [], {}
    for row, line in enumerate(block.split(b"\n")):
        try:
            if fields := parse(line.removesuffix(b"\r")):
                rows.append(row)
                values.append(fields)
        except BadValue as error:
            faults[row] = str(error)
    return np.array(rows, np.int64), values, faults


def header_line(stream: Any) -> bytes | None:
    """Read a line without its line end; None at the end of the stream. Raises UnreadableError if it is too long."""
    line: bytes = stream.readline(limits.LONGEST_LINE + 1)
    if _was_cut(line):
        raise UnreadableError(too_long())
    if not line:
        return None
    return line.removesuffix(b"\n").removesuffix(b"\r")


def n_lines(data: bytes) -> int:
    """Count the lines of a block; the last one may lack its line end."""
    return data.count(b"\n") + (not data.endswith(b"\n"))


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


def split_fields(line: bytes, delimiter: str, quote: str = QUOTE, encoding: str = "utf-8") -> list[str]:
    """Split a line that is a whole record, or raise BadValue; without a quote, delimiters may have any length."""
    text = decode(line, encoding)
    if not quote:
        return text.split(delimiter)
    try:
        return list(next(csv_records([text], delimiter, quote), [""]))
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise BadValue("a quote is not closed on its line") from error
        raise BadValue(f"the line cannot be split into fields ({first_line(error)})") from error
