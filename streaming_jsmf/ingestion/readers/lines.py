"""Lines of a file: one by one within a range of bytes, or whole blocks of them; each line once, and none too long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, Unit
from streaming_jsmf.ingestion.readers.records import BadValue, decode
from streaming_jsmf.ingestion.readers.streams import (
    STREAM_ERRORS,
    DamagedError,
    is_compressed,
    open_stream,
    size_of,
    why,
)

EMPTY = "the file is empty"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long

Record = TypeVar("Record")


def too_long() -> str:
    """Why a line is refused."""
    return f"the line is longer than {limits.LONGEST_LINE >> 20} MB, no record"


def line_units(path: str, *, splittable: bool) -> list[Unit]:
    """Ranges of ``UNIT_BYTES`` of a file whose records end with their lines; else, or compressed, the whole file."""
    try:
        size = size_of(path)
    except DamagedError:
        return [Unit(path)]  # reading tells why
    if not splittable or is_compressed(path) or size <= limits.UNIT_BYTES:
        return [Unit(path, 0, 0, size)]
    return [
        Unit(path, start, min(start + limits.UNIT_BYTES, size), min(limits.UNIT_BYTES, size - start))
        for start in range(0, size, limits.UNIT_BYTES)
    ]


def line_first_row(unit: Unit) -> int:
    """Lines that start before the unit. Reads the file up to there."""
    if not unit.start:
        return 0
    lines, left = 1, unit.start - 1
    with open_stream(unit.path) as stream:
        while left and (block := stream.read(min(left, 1 << 20))):
            lines += block.count(b"\n")
            left -= len(block)
    return lines


def line_place(unit: Unit, row: int) -> str:
    """File and line, from 1, of a record of a unit."""
    return f"{unit.path}, line {line_first_row(unit) + row + 1}"


def read_lines(
    unit: Unit, parse: Callable[[bytes], Record | None], bad: BadRecords
) -> Iterator[tuple[int, Record]]:
    """Row and record of each line that starts within a unit; what ``parse`` gives None for is passed over.

    Lines for which it raises ``BadValue`` go to ``bad``, and so does a file that is empty, or damaged: then the line
    at which it breaks off.
    """
    row, empty = -1, not unit.stop  # a range may hold the middle of a long line alone
    try:
        with open_stream(unit.path) as stream:
            for row, line in enumerate(lines_of(stream, unit)):
                try:
                    record = parse(line)
                except BadValue as error:
                    empty = False
                    bad.refuse(row, str(error), _kept(line))
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
    """The lines that start within the unit: the last may end beyond it, where the next unit will not start it."""
    position = 0
    if unit.start:
        stream.seek(unit.start - 1)
        position = unit.start - 1 + _rest_of_line(stream)
    while not unit.stop or position < unit.stop:
        line = stream.readline(limits.LONGEST_LINE + 1)
        if not line:
            return
        position += len(line)
        if _was_cut(line):
            position += _rest_of_line(stream)
        yield line


def text_of(line: bytes, encoding: str = "utf-8") -> str:
    """The text of a line of ``lines_of``, without a byte order mark. Raises BadValue if it was cut or is no text."""
    if _was_cut(line):
        raise BadValue(too_long())
    return decode(line.removeprefix(BYTE_ORDER_MARK), encoding)


def _was_cut(line: bytes) -> bool:
    return len(line) > limits.LONGEST_LINE and not line.endswith(b"\n")


def _kept(line: bytes) -> bytes:
    return line[:_KEPT] if _was_cut(line) else line.rstrip(b"\r\n")


def _rest_of_line(stream: Any) -> int:
    """Read on to the start of the next line; returns the bytes read."""
    length = 0
    while block := stream.readline(1 << 20):
        length += len(block)
        if block.endswith(b"\n"):
            break
    return length


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file; ``first`` is the number of the first one, from 0."""

    first: int
    data: bytes


class LineReader:
    """Whole lines of a stream, a few first and the rest in blocks of about ``BATCH_BYTES``. One pass.

    Attributes
    ----------
    line
        Number, from 0, of the next line.
    damage
        Why the stream ended before its time; empty while it has not, or at its proper end.
    """

    def __init__(self, stream: Any) -> None:
        # What is unpacked comes before the damage only when asked for piece by piece.
        self._read = getattr(stream, "read1", stream.read)
        self._rest, self._at = b"", 0  # read, and how much of it was given out
        self._ended = False
        self.damage = ""
        self.line = 0

    def next_line(self) -> bytes | None:
        """The next line without its end; None after the last one."""
        going, end = True, self._rest.find(b"\n", self._at)
        while end < 0 and going:
            going = self._more()
            end = self._rest.find(b"\n", self._at)
        if end < 0 and (self.damage or self._at == len(self._rest)):
            return None
        end = end if end >= 0 else len(self._rest)
        line, self._at = self._rest[self._at : end], min(end + 1, len(self._rest))
        self.line += 1
        return line

    def blocks(self) -> Iterator[LineBlock]:
        """What follows, in blocks that end with a line."""
        going = True
        while going:
            going = self._more()
            cut = self._rest.rfind(b"\n") + 1 if going or self.damage else len(self._rest)
            data, self._rest = self._rest[:cut], self._rest[cut:]
            if data:
                first, self.line = self.line, self.line + n_lines(data)
                yield LineBlock(first, data)

    @property
    def kept(self) -> bytes | None:
        """What was read of the line at which the stream broke off, for the quarantine."""
        rest = self._rest[self._at :]
        return rest[: _KEPT if len(rest) > limits.LONGEST_LINE else None] or None

    def _more(self) -> bool:
        """Have ``BATCH_BYTES`` of lines, or that much more of a line; False at the end."""
        pieces = [self._rest[self._at :]]
        size = len(pieces[0]) if b"\n" in pieces[0] else 0  # what came with the header
        try:
            while size < limits.BATCH_BYTES and not self._ended:
                piece = self._read(limits.BATCH_BYTES - size)
                pieces.append(piece)
                size += len(piece)
                self._ended = not piece
        except STREAM_ERRORS as error:
            self.damage = why(error)
        self._rest, self._at = b"".join(pieces), 0
        if len(self._rest) > limits.LONGEST_LINE and b"\n" not in self._rest:
            self.damage = too_long()
        self._ended = self._ended or bool(self.damage)
        return not self._ended


def n_lines(data: bytes) -> int:
    """Lines in a block; the last one may lack its end."""
    return data.count(b"\n") + (not data.endswith(b"\n"))
