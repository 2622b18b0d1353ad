"""Find the records of delimited text, and how their fields are written.

A quote opens a field only at its start, is doubled or escaped inside, and closes the field; only a delimiter or the end
of the record may follow, as in Python's ``csv`` with ``strict``. Where a record breaks this rule, or has another number
of fields than the others, its first line is bad, and the next line starts a record. If tabs separate the fields, such a
line is good, with quotes as text, if it has the right number of tabs; so are the lines of a longer record, if each of
them has.

Scanning takes linear time: a field whose quote is not closed ends at the next quote that opens one.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.ingestion.sources.protocol import UnreadableError, limits
from streaming_jsmf.ingestion.sources.streams import read_pieces
from streaming_jsmf.ingestion.sources.values import from_python
from streaming_jsmf.linalg.compiled import compiled

#: Kinds of records; a literal one is a line whose quotes are text.
GOOD, LITERAL, BLANK, BAD = 0, 1, 2, 3

ENDLESS = 1 << 62
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long
_MOST_RECORDS = 1 << 18  # in a block
_SAMPLED = 5000  # records that show their number of fields
_COMPARED = 100  # records that show whether the first field is the name of the row

#: Kinds of bytes, and where the next byte stands.
_OTHER, _LINE, _RETURN, _DELIMITER, _QUOTE, _ESCAPE = (np.uint8(i) for i in range(6))
_ONE = np.uint64(1)  # unsigned, as in ``tokens.split``
_AT_RECORD, _AT_FIELD, _PLAIN, _QUOTED, _CLOSED, _WRONG = range(6)
#: Where the next byte stands after one of each kind.
_NEXT = np.array(
    [
        [_PLAIN, _WRONG, _AT_RECORD, _AT_FIELD, _QUOTED, _WRONG],
        [_PLAIN, _AT_RECORD, _AT_FIELD, _AT_FIELD, _QUOTED, _WRONG],
        [_PLAIN, _AT_RECORD, _PLAIN, _AT_FIELD, _PLAIN, _WRONG],
        [_QUOTED, _QUOTED, _QUOTED, _QUOTED, _CLOSED, _WRONG],
        [_WRONG, _AT_RECORD, _CLOSED, _AT_FIELD, _QUOTED, _WRONG],
        [_WRONG] * 6,
    ]
)

_SEPARATOR = b"\x1f"  # replaces a delimiter of several bytes, because Arrow takes only one


class Dialect(NamedTuple):
    """How fields are written, as in Python's ``csv`` with ``strict``: "" for no quote or escape.

    ``blanks`` tells whether those at the start of a field are left out.
    """

    delimiter: str = ","
    quotechar: str = '"'
    escapechar: str = ""
    blanks: bool = False

    @property
    def by_lines(self) -> bool:
        """Whether a record that breaks the rule of quotes may be a line."""
        return self.delimiter == "\t" and bool(self.quotechar)

    def records(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Split lines with their ends into records, that of a blank line without fields. Raises ``csv.Error``."""
        csv.field_size_limit(max(limits.LONGEST_LINE, csv.field_size_limit()))
        if len(self.delimiter) > 1:  # csv takes only one character; quotes are text
            plain = (line.rstrip("\r\n") for line in lines)
            return (line.split(self.delimiter) if line else [] for line in plain)
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quotechar or None,
            escapechar=self.escapechar or None,
            quoting=csv.QUOTE_MINIMAL if self.quotechar else csv.QUOTE_NONE,
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
    rows : Fields of the good and literal records, as tuples, in which undecodable bytes are lone surrogates; or how
        to split the data, all records of which are good: the dialect and the number of fields.
    place : Where the data stand in the stream, except the start of a line that is longer than ``LONGEST_LINE``.
    """

    data: bytes
    starts: NDArray[np.int64]
    lines: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    rows: Any
    place: int = 0

    @property
    def good(self) -> NDArray[np.int64]:
        """(n,) numbers of the good and literal records."""
        return np.flatnonzero(self.kinds <= LITERAL)

    def original(self, record: int) -> bytes:
        """The bytes of a record without the line end; the first ones of a line that is too long."""
        start, end = self.starts[record], self.starts[record + 1]
        if end - start > limits.LONGEST_LINE:
            end = start + min(_KEPT, limits.LONGEST_LINE)
        return self.data[start:end].rstrip(b"\r\n")

    def columns(self, places: Sequence[int]) -> list[Any]:
        """Return some columns of the good records as Arrow arrays of strings."""
        rows = self.rows
        if isinstance(rows, tuple):
            held, (dialect, n_fields) = memoryview(self.data)[self.starts[0] : self.starts[-1]], rows
            try:
                return _by_arrow(held, dialect, n_fields, places)
            except (pa.ArrowInvalid, ValueError):  # also of bytes that are not UTF-8
                rows = scan(bytes(held), dialect, n_fields).rows
        return [from_python([row[place] for row in rows], "surrogateescape") for place in places]


def whole_lines(data: bytes) -> int:
    """Return where the last line ends that surely has its line end."""
    return 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, max(len(data) - 1, 0)))


def blocks(
    stream: Any, dialect: Dialect, n_fields: int, left: int = ENDLESS, size: int = ENDLESS
) -> Iterator[Block]:
    """Yield the records in the next ``left`` bytes of a stream, about ``BATCH_BYTES`` or ``size`` at a time.

    Raises UnreadableError at damage, after the lines before it.
    """
    size = min(size, limits.BATCH_BYTES)
    data, damage, place, line = b"", "", 0, 0
    while left:
        # A record that goes on is scanned again when there is twice as much of it.
        asked, had = min(left, max(size, len(data))), len(data)
        data, damage = read_pieces(stream, asked, data)
        left = left - asked if len(data) == had + asked and not damage else 0
        whole = whole_lines(data) if left or damage else len(data)
        at, before = 0, -1
        while before < at < whole:
            before, known = at, len(data) - at if left else ENDLESS
            block = _by_rule(memoryview(data)[at:whole], dialect, n_fields, size, ended=not left)
            block = block or scan(data[at:whole], dialect, n_fields, known, size)
            if len(block.kinds):
                yield replace(
                    block, data=data, starts=at + block.starts, lines=line + block.lines, place=place
                )
            at, line = at + int(block.starts[-1]), line + int(block.lines[-1])
        data, place = data[at:], place + at
        if not whole and len(data) > limits.LONGEST_LINE + 2:
            # Of a line that is too long, the start is kept, and the last byte, which may be half of a line end.
            kept = data[: limits.LONGEST_LINE + 1] + data[-1:]
            data, place = kept, place + len(data) - len(kept)
    if damage:
        raise UnreadableError(damage, line, data[:_KEPT])


def _by_rule(data: memoryview, dialect: Dialect, n_fields: int, size: int, *, ended: bool) -> Block | None:
    """As ``scan``, but without data, if all records are good, as most are; None otherwise, or if it is not sure.

    ``ended`` tells whether the stream ends with the data.
    """
    marks = [np.frombuffer(mark.encode(), np.uint8) for mark in dialect[:3]]
    if dialect.blanks or bytes(data[:3]) == codecs.BOM_UTF8:
        return None
    kinds = np.full(256, _OTHER)
    kinds[list(b"\r\n")] = _RETURN, _LINE
    kinds[marks[2]], kinds[marks[0][0]] = _ESCAPE, _DELIMITER
    kinds[marks[1] if len(marks[0]) == 1 else []] = _QUOTE  # csv takes only one character
    found = np.empty((2, min(_MOST_RECORDS, len(data)) + 1), np.int64)
    sizes = np.array([n_fields, size, limits.LONGEST_LINE, dialect.by_lines and n_fields > 1])
    n = _find_records(np.frombuffer(data, np.uint8), kinds, marks[0], sizes, *found)
    starts, lines = found[:, : n + 1].copy()
    if n <= 0 or (ended and n < _MOST_RECORDS and starts[n] < min(size, len(data))):
        return None
    return Block(b"", starts, lines, np.zeros(n, np.uint8), (dialect, n_fields))


@compiled(nogil=True)
def _find_records(data: Any, kinds: Any, delimiter: Any, sizes: Any, starts: Any, lines: Any) -> int:
    """Find where the good records that start in the first bytes start and end, and their number.

    The number is -1 if a record is not good. A record that has no end in the data is left out. ``sizes`` are the number
    of fields, of the first bytes, and of the bytes of the longest record, and whether a record is a line.
    """
    n_fields, size, longest, one_line = sizes
    starts[0] = lines[0] = 0
    i, stop, n, line, fields, state = np.uint64(0), np.uint64(len(data)), 0, 0, 1, _AT_RECORD
    while i <= stop and n < len(starts) - 1 and starts[n] < size:
        first = i
        while i < stop and kinds[data[i]] == _OTHER:
            i += _ONE
        if i > first:
            state = _NEXT[state, _OTHER]
        if i == stop and state in (_AT_RECORD, _QUOTED):
            break
        kind = _kind_at(data, i, kinds, delimiter)
        state = _NEXT[state, kind]
        if state == _WRONG:
            return -1
        i += np.uint64(len(delimiter)) if kind == _DELIMITER else _ONE
        line += kind == _LINE
        fields += kind == _DELIMITER and state == _AT_FIELD
        if kind == _LINE and state == _AT_RECORD:
            end = np.int64(min(i, stop))
            if fields != n_fields or end - starts[n] > longest or (one_line and line - lines[n] > 1):
                return -1
            n, fields = n + 1, 1
            starts[n], lines[n] = end, line
    return n


@compiled(nogil=True, internal=True)
def _kind_at(data: Any, i: Any, kinds: Any, delimiter: Any) -> Any:
    """The kind of the byte at i, where the last line may end; a single carriage return is as an escape."""
    stop = np.uint64(len(data))
    if i == stop:
        return _LINE
    kind = kinds[data[i]]
    if kind == _RETURN and (i + _ONE == stop or kinds[data[i + _ONE]] != _LINE):
        return _ESCAPE
    if kind == _DELIMITER and len(delimiter) > 1:
        for j in range(np.uint64(len(delimiter))):
            if i + j >= stop or data[i + j] != delimiter[j]:
                return _OTHER
    return kind


def _by_arrow(data: Any, dialect: Dialect, n_fields: int, places: Sequence[int]) -> list[Any]:
    """Columns of records that all are good. Raises ArrowInvalid, or ValueError for a delimiter that Arrow refuses."""
    delimiter, quote = dialect[:2]
    if len(delimiter) > 1:
        data = bytes(data)
        if _SEPARATOR in data:
            raise ValueError(f"the separator {_SEPARATOR!r} is in the data")
        data, delimiter, quote = data.replace(delimiter.encode(), _SEPARATOR), _SEPARATOR.decode(), ""
    names = [str(place) for place in range(n_fields)]
    wanted = dict.fromkeys((str(place) for place in places), pa.string())
    table = pa_csv.read_csv(
        pa.BufferReader(data),
        pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        pa_csv.ParseOptions(delimiter=delimiter, quote_char=quote or False, newlines_in_values=True),
        pa_csv.ConvertOptions(column_types=wanted, include_columns=[*wanted]),
    )
    return [table.column(str(place)).combine_chunks() for place in places]


def scan(
    data: bytes, dialect: Dialect, n_fields: int, known: int = ENDLESS, size: int = ENDLESS,
    most: int = _MOST_RECORDS,
) -> Block:  # fmt: skip
    """Return the records that start in the first ``size`` bytes of data, ``most`` at most.

    They have ``n_fields`` fields, or any number if it is 0. A record that goes on beyond the data is bad if it takes
    more than ``LONGEST_LINE`` of the ``known`` bytes that follow, and is left for the next block otherwise.
    """
    source = _Lines(data)
    reader = dialect.records(source)
    lines, kinds, rows = [0], list[int](), list[tuple[str, ...]]()
    while len(kinds) < most and source.starts[lines[-1]] < size and source.has(lines[-1]):
        start, fields, kind = lines[-1], list[str](), BAD
        try:
            fields = next(reader)
        except csv.Error as error:
            left = known - source.starts[start]
            if "unexpected end" in str(error) and left <= limits.LONGEST_LINE:
                break
        else:
            fits = (
                n_fields in (0, len(fields))
                and source.starts[source.at] - source.starts[start] <= limits.LONGEST_LINE
            )
            kind = GOOD if fits else BAD
        if source.texts[start] in ("\n", "\r", "\r\n"):
            kind = BLANK
        end = source.at if kind == GOOD else start + 1
        if dialect.by_lines and (kind == BAD or (kind == GOOD and n_fields > 1 and end > start + 1)):
            short = source.starts[start + 1] - source.starts[start] <= limits.LONGEST_LINE
            if short and all(text.count("\t") == n_fields - 1 for text in source.texts[start:end]):
                kind, end = LITERAL, start + 1
                fields = source.texts[start].rstrip("\r\n").split("\t")
        if kind <= LITERAL:
            rows.append(tuple(fields))
        if end != source.at:
            source.at, reader = end, dialect.records(source)
        lines.append(end)
        kinds.append(kind)
    starts = np.array([source.starts[each] for each in lines])
    return Block(data, starts, np.array(lines), np.array(kinds, np.uint8), rows)


class _Lines:
    """The lines of some bytes, from ``at`` on: those that were read, where they start, and the last one ends."""

    def __init__(self, data: bytes) -> None:
        self._more = io.TextIOWrapper(io.BytesIO(data), "utf-8", "surrogateescape", newline="")
        self._ascii = data.isascii()
        self.texts, self.starts, self.at = list[str](), [0], 0

    def has(self, number: int) -> bool:
        """Whether there is a line with this number; reads it."""
        if number == len(self.texts) and (line := self._more.readline()):
            size = len(line) if self._ascii else len(line.encode("utf-8", "surrogateescape"))
            self.starts.append(self.starts[-1] + size)
            # After an escaped line end, csv does not take the end of the data for that of the record.
            self.texts.append(line if line.endswith(("\r", "\n")) else f"{line}\n")
        return number < len(self.texts)

    def __iter__(self) -> Iterator[str]:
        while self.has(self.at):
            self.at += 1
            yield self.texts[self.at - 1]


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

    def n_bad(self, sample: bytes, dialect: Dialect, most: int = _SAMPLED) -> int:
        """Return how many of the first records after the header are bad."""
        return int((scan(sample[self.start :], dialect, self.n_fields, most=most).kinds == BAD).sum())


def shape_of(sample: bytes, dialect: Dialect) -> Shape:
    """Return the number of fields of the records of a sample; 0 if the first record breaks the rule of quotes.

    The header may have one name less than all others: R writes the names of rows without one, and other programs a
    delimiter at the end of each record.
    """
    rest = sample.lstrip(b"\r\n")
    at, first = len(sample) - len(rest), scan(rest, dialect, 0, most=1).rows
    width = (
        rest.splitlines()[0].count(b"\t") + 1 if rest and dialect.by_lines else len(first[0]) if first else 0
    )
    if not width or not rest:
        return Shape(0, 0)
    at += int(scan(rest, dialect, width, most=1).starts[1])
    rest = sample[at:]
    if (scan(rest, dialect, width + 1, len(rest), most=2).kinds == GOOD).sum() < 2:
        return Shape(width, at)
    others = scan(rest, dialect, width + 1, len(rest), most=_SAMPLED)
    rows = [*islice(others.rows, _COMPARED)]
    if (others.kinds == BAD).any() or len(rows) < 2:
        return Shape(width, at)
    if not any(row[-1] for row in rows):
        return Shape(width, at, after=1)
    names = {row[0] for row in rows}
    # A single field may be a title, and a comma of a text that is not quoted is often followed by a blank.
    sure = width > 1 or all(map(str.isdecimal, names))
    named = sure and len(names) == len(rows) and not any(field[:1] == " " for row in rows for field in row)
    return Shape(width, at, before=int(named and "" not in names))
