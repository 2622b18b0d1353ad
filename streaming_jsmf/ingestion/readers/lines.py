"""Lines of a file, one by one within a byte range or in blocks, elements of a JSON array, and fields of delimited text.

A quote opens a field only at its start, is doubled inside, and closes the field; only a delimiter or the end of the
record may follow.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.errors import first_line
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    DamagedError,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import STREAM_ERRORS, bare_suffix, describe, open_stream
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


def line_blocks(stream: Any, first: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines of about ``BATCH_BYTES`` with the number of their first line, from ``first``.

    Raises DamagedError after the lines before the damage, with the part of the line at which the stream breaks off.
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
        raise DamagedError(damage, first, rest[: _KEPT if len(rest) > limits.LONGEST_LINE else None] or None)


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
