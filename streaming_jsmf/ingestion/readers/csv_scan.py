"""Find the records of delimited text in its bytes, and how their fields are written.

A quote opens a field only at its start, is doubled or escaped inside, and closes the field; only a delimiter or the end
of the record may follow. Where a record breaks this rule, or has another number of fields than the others, its first
line is bad, and the next line starts a record. If tabs separate the fields, such a line is good, with quotes as text,
if it has the right number of tabs; so are the lines of a longer record, if each of them has.

Scanning takes linear time: of the lines before a long quoted field, only those that open a quote reach it, which are
fewer than twice the number of columns.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.ingestion.readers.base import UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import read_pieces
from streaming_jsmf.ingestion.readers.values import from_python
from streaming_jsmf.linalg.compiled import compiled

#: Kinds of records; a literal one is a line whose quotes are text.
GOOD, LITERAL, BLANK, BAD = 0, 1, 2, 3
_BROKEN, _OPEN = -1, -2  # instead of the end of a record

ENDLESS = 1 << 62
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long
_MOST_RECORDS = 1 << 18  # in a block
_COMPARED = 100  # records that show whether the first field has the names of rows

_SEPARATOR = b"\x1f"  # replaces a delimiter of several bytes, because Arrow takes only one
_PARSED = 500  # records that are lists at the same time, because the garbage collector visits every list


class Dialect(NamedTuple):
    """How fields are written, as in Python's ``csv`` with ``strict``: "" for no quote or escape; encoding of the bytes.

    The bytes below 128 must be characters of ASCII wherever they stand. ``blanks`` tells whether those at the start of
    a field are left out.
    """

    delimiter: str = ","
    quotechar: str = '"'
    escapechar: str = ""
    codec: str = "utf-8"
    blanks: bool = False

    @property
    def by_lines(self) -> bool:
        """Whether a record that breaks the rule of quotes may be a line."""
        return self.delimiter == "\t" and bool(self.quotechar)

    def syntax(self) -> tuple[NDArray[np.int16], ...]:
        """The bytes that may end or change a field (256,), and those of delimiter, quote and escape (-1 for none).

        A blank that is left out is 2, the others are 1.
        """
        marks = [mark.encode(self.codec, "ignore") for mark in self[:3]]
        special = np.zeros(256, np.int16)
        special[ord(" ")] = 2 * self.blanks
        special[[*b"\r\n", *(mark[0] for mark in marks if mark)]] = 1
        return special, *(np.array(list(mark) or [-1], np.int16) for mark in marks)

    def rows(self, data: bytes, literal: bool = False) -> Iterator[list[str]]:
        """Split records that keep the rule, or lines without quotes. Undecodable bytes become lone surrogates."""
        csv.field_size_limit(max(limits.LONGEST_LINE, csv.field_size_limit()))
        if len(self.delimiter) > 1:  # csv takes only one character; quotes are text
            lines = io.TextIOWrapper(io.BytesIO(data), self.codec, "surrogateescape")
            return (line.rstrip("\n").split(self.delimiter) if line != "\n" else [] for line in lines)
        # After an escaped line end, csv does not take the end of the data for that of the record.
        data += b"" if data.endswith((b"\r", b"\n")) else b"\n"
        return csv.reader(
            io.TextIOWrapper(io.BytesIO(data), self.codec, "surrogateescape", newline=""),
            delimiter=self.delimiter,
            quotechar=self.quotechar or None,
            escapechar=None if literal else self.escapechar or None,
            quoting=csv.QUOTE_NONE if literal or not self.quotechar else csv.QUOTE_MINIMAL,
            skipinitialspace=self.blanks,
            strict=True,
        )


@dataclass(frozen=True)
class Block:
    """Records in some bytes of a stream, n of them good.

    Attributes
    ----------
    data : The bytes.
    starts : Where each record starts in the data, and the last one ends.
    lines : The line at which each record starts, and the line after the last one.
    kinds : Kind of each record.
    good : (n,) numbers of the good and literal records.
    n_fields : Number of fields of the records; 0 for any.
    place : Where the data stand in the stream, except the start of a line that is longer than ``LONGEST_LINE``.
    """

    dialect: Dialect
    data: bytes
    starts: NDArray[np.int64]
    lines: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    good: NDArray[np.int64]
    n_fields: int
    place: int = 0

    def original(self, record: int) -> bytes:
        """The bytes of a record without the line end; the first ones of a line that is too long."""
        start, end = self.starts[record], self.starts[record + 1]
        if end - start > limits.LONGEST_LINE:
            end = start + min(_KEPT, limits.LONGEST_LINE)
        return self.data[start:end].rstrip(b"\r\n")

    def rows(self) -> Iterator[list[str]]:
        """Yield the fields of the good records."""
        # csv skips blank lines, so they do not end a run.
        kinds = np.where(self.kinds == BLANK, GOOD, self.kinds)
        for first, last in pairwise([*np.flatnonzero(np.diff(kinds, prepend=-1)).tolist(), len(kinds)]):
            if kinds[first] != BAD:
                data = self.data[self.starts[first] : self.starts[last]]
                yield from filter(None, self.dialect.rows(data, kinds[first] == LITERAL))

    def columns(self, places: Sequence[int]) -> list[Any]:
        """Return some columns of the good records as Arrow arrays of strings."""
        return self._by_arrow(places) or [
            from_python(values, "surrogateescape") for values in self.fields(places)
        ]

    def _by_arrow(self, places: Sequence[int]) -> list[Any] | None:
        """Return the columns as Arrow reads them, several times faster; None if it might read other records."""
        delimiter, quote, escape = (mark.encode() for mark in self.dialect[:3])
        data = self.data[self.starts[0] : self.starts[-1]]
        unusual = (self.kinds == LITERAL) | (self.kinds == BAD)
        if not places or not self.n_fields or unusual.any() or (escape and escape in data):
            return None
        if len(delimiter) > 1 and _SEPARATOR not in data:
            data, delimiter = data.replace(delimiter, _SEPARATOR), _SEPARATOR
        if len(delimiter) > 1 or len(quote) > 1 or self.dialect.codec != "utf-8" or self.dialect.blanks:
            return None
        names = [str(place) for place in range(self.n_fields)]
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                pa_csv.ParseOptions(
                    delimiter=delimiter.decode(), quote_char=quote.decode() or False, newlines_in_values=True
                ),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), include_columns=[*map(str, places)]
                ),
            )
        except pa.ArrowInvalid:  # also of bytes that are not UTF-8
            return None
        return [column.combine_chunks() for column in table.columns] if len(table) == self.good.size else None

    def fields(self, columns: Sequence[int]) -> list[list[str]]:
        """Return the fields of some columns of the good records."""
        found: list[list[str]] = [[] for _ in columns]
        rows = self.rows()
        while some := list(islice(rows, _PARSED)):
            fields = list(zip(*some, strict=True))
            for values, column in zip(found, columns, strict=True):
                values += fields[column]
        return found


def whole_lines(data: bytes) -> int:
    """Return where the last line ends that surely has its line end."""
    return 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, max(len(data) - 1, 0)))


def blocks(stream: Any, dialect: Dialect, n_fields: int, left: int = ENDLESS) -> Iterator[Block]:
    """Yield the records in the next ``left`` bytes of a stream, about ``BATCH_BYTES`` at a time.

    Raises UnreadableError at damage, after the lines before it.
    """
    data, damage, place, line = b"", "", 0, 0
    while left:
        # A record that goes on is scanned again when there is twice as much of it.
        asked = min(left, max(limits.BATCH_BYTES, len(data)))
        more, damage = read_pieces(stream, asked)
        left = left - asked if len(more) == asked and not damage else 0
        data += more
        whole = whole_lines(data) if left or damage else len(data)
        known, at, before = len(data) if left else ENDLESS, 0, -1
        while before < at < whole:
            before = at
            block = scan(data, dialect, n_fields, at, line, known, limits.BATCH_BYTES, whole)
            at, line = int(block.starts[-1]), int(block.lines[-1])
            if len(block.kinds):
                yield replace(block, place=place)
        data, place = data[at:], place + at
        if not whole and len(data) > limits.LONGEST_LINE + 2:
            # Of a line that is too long, the start is kept, and the last byte, which may be half of a line end.
            kept = data[: limits.LONGEST_LINE + 1] + data[-1:]
            data, place = kept, place + len(data) - len(kept)
    if damage:
        raise UnreadableError(damage, line, data[:_KEPT])


def scan(
    data: bytes, dialect: Dialect, n_fields: int, at: int = 0, line: int = 0, known: int = ENDLESS,
    size: int = ENDLESS, whole: int | None = None, most: int = _MOST_RECORDS,
) -> Block:  # fmt: skip
    """Return the records that start in ``size`` bytes of ``data[at:whole]``, ``most`` at most.

    They have ``n_fields`` fields, or any number if it is 0. A record that goes on beyond these bytes is bad if it takes
    more than ``LONGEST_LINE`` of the ``known`` bytes of the data, and is left for the next block otherwise.
    """
    starts, lines, kinds = (
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most, np.uint8),
    )
    seen = np.frombuffer(data, np.uint8)[:whole]
    bounds = (at, min(at + size, len(seen)), known, limits.LONGEST_LINE, n_fields, line)
    n = _scan(seen, dialect.syntax(), dialect.by_lines, bounds, starts, lines, kinds)
    kinds = kinds[:n].copy()
    good = np.flatnonzero(kinds <= LITERAL)
    return Block(dialect, data, starts[: n + 1].copy(), lines[: n + 1].copy(), kinds, good, n_fields)


class Shape(NamedTuple):
    """Number of fields of the first record, and of further ones that all others have before and after these.

    ``start`` is where the second record starts.
    """

    width: int
    start: int
    before: int = 0
    after: int = 0

    @property
    def n_fields(self) -> int:
        return self.before + self.width + self.after

    def n_bad(self, sample: bytes, dialect: Dialect, most: int = _MOST_RECORDS) -> int:
        """Return how many of the records after the first one are bad."""
        return int((scan(sample, dialect, self.n_fields, self.start, most=most).kinds == BAD).sum())


def shape_of(sample: bytes, dialect: Dialect) -> Shape:
    """Return the number of fields of the records of a sample; 0 if the first record breaks the rule of quotes.

    The header may have one name less than all others: R writes the names of rows without one, and other programs a
    delimiter at the end of each record.
    """
    at = len(sample) - len(sample.lstrip(b"\r\n"))
    block = scan(sample, dialect, 0, at, most=1)
    if dialect.by_lines:
        width = 1 + sample[at : re.compile(rb"[\r\n]|$").search(sample, at).start()].count(b"\t")  # type: ignore[union-attr]
    else:
        width = len(next(block.rows())) if block.good.size else 0
    if not width or at == len(sample):
        return Shape(0, 0)
    start = int(scan(sample, dialect, width, at, most=1).starts[1])
    if (scan(sample, dialect, width + 1, start, known=len(sample), most=2).kinds == GOOD).sum() < 2:
        return Shape(width, start)
    others = scan(sample, dialect, width + 1, start, known=len(sample))
    rows = [*islice(others.rows(), _COMPARED)]
    if (others.kinds == BAD).any() or len(rows) < 2:
        return Shape(width, start)
    if not any(row[-1] for row in rows):
        return Shape(width, start, after=1)
    names = {row[0] for row in rows}
    # A single field may be a title, and a comma of a text that is not quoted is often followed by a blank.
    sure = width > 1 or all(map(str.isdecimal, names))
    named = sure and len(names) == len(rows) and not any(field[:1] == " " for row in rows for field in row)
    return Shape(width, start, before=int(named and "" not in names))


@compiled(nogil=True)
def _scan(data: Any, syntax: Any, by_lines: bool, bounds: Any, starts: Any, lines: Any, kinds: Any) -> int:
    """Fill in where the records start, their first lines and kinds; return their number."""
    i, stop, known, longest, n_fields, line = bounds
    n = 0
    while i < stop and n < len(kinds):
        starts[n], lines[n], kinds[n] = i, line, GOOD
        end, fields = _end_of_record(data, i, syntax, n_fields)
        if end == _OPEN and known - i <= longest:
            break
        if _ends_line(data[i]):
            kinds[n] = BLANK
        elif end < 0 or end - i > longest or (n_fields > 0 and fields != n_fields):
            end, kinds[n] = _after_line(data, i), BAD
        n_lines, fewest, most = _measure(data, i, end, syntax[1][0])
        if by_lines and kinds[n] != BLANK and end - i <= longest and fewest == most == n_fields - 1:
            if kinds[n] == BAD:
                kinds[n] = LITERAL
            elif n_lines > 1 and n_fields > 1:
                end, kinds[n], n_lines = _after_line(data, i), LITERAL, 1
        i, n, line = end, n + 1, line + n_lines
    starts[n], lines[n] = i, line
    return n


@compiled(nogil=True, internal=True)
def _end_of_record(data: Any, i: int, syntax: Any, most: int) -> Any:
    """Return where the record at ``i`` ends, _BROKEN or _OPEN, and its number of fields."""
    special, delimiter, quote, escape = syntax
    fields, at_start = 1, True
    while i < len(data):
        kind = special[data[i]]
        if kind != 1:
            i, at_start = i + 1, at_start and kind == 2
        elif _ends_line(data[i]):
            return _after_line(data, i), fields
        elif at_start and _is(data, i, quote):
            i, at_start = _after_quoted(data, i + len(quote), syntax), False
            if i < 0:
                return i, fields
        elif _is(data, i, escape):
            i, at_start = i + len(escape) + 1, False
            if i > len(data) or (i == len(data) and _ends_line(data[i - 1])):
                return _OPEN, fields
        elif _is(data, i, delimiter):
            if fields == most:
                return _BROKEN, fields
            i, at_start, fields = i + len(delimiter), True, fields + 1
        else:
            i, at_start = i + 1, False
    return len(data), fields


@compiled(nogil=True, internal=True)
def _after_quoted(data: Any, i: int, syntax: Any) -> int:
    """Return the byte after the quoted field whose content starts at ``i``, _BROKEN or _OPEN."""
    special, delimiter, quote, escape = syntax
    while i < len(data):
        if not special[data[i]]:
            i += 1
        elif _is(data, i, escape):
            i += len(escape) + 1
        elif _is(data, i, quote):
            i += len(quote)
            if i >= len(data) or _ends_line(data[i]) or _is(data, i, delimiter):
                return i
            if not _is(data, i, quote):
                return _BROKEN
            i += len(quote)
        else:
            i += 1
    return _OPEN


@compiled(nogil=True, internal=True)
def _is(data: Any, i: int, mark: Any) -> Any:
    for k in range(len(mark)):  # noqa: SIM110 (all() is not compiled)
        if i + k >= len(data) or data[i + k] != mark[k]:
            return False
    return True


@compiled(nogil=True, internal=True)
def _ends_line(byte: Any) -> Any:
    return byte == 10 or byte == 13


@compiled(nogil=True, internal=True)
def _after_line(data: Any, i: int) -> Any:
    """Return where the line ends that byte ``i`` is in."""
    while i < len(data) and not _ends_line(data[i]):
        i += 1
    return min(i + 1 + (i + 1 < len(data) and data[i] == 13 and data[i + 1] == 10), len(data))


@compiled(nogil=True, internal=True)
def _measure(data: Any, i: int, end: int, byte: int) -> Any:
    """Return the number of lines in some bytes, and how often the lines with least and most of it have a byte."""
    n_lines, fewest, most = 0, end - i, 0
    while i < end:
        number = 0
        while i < end and not _ends_line(data[i]):
            number += data[i] == byte
            i += 1
        i += 1 + (i + 1 < end and data[i] == 13 and data[i + 1] == 10)
        n_lines, fewest, most = n_lines + 1, min(fewest, number), max(most, number)
    return n_lines, fewest, most
