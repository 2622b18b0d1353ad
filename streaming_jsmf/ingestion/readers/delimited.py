"""CSV, TSV and other delimited text: find the layout of a file, cut it at records, and read its fields.

A quote opens a field only at its start, is doubled or escaped inside, and closes the field; only a delimiter or the end
of the record may follow. The first line of a record that breaks this rule, or has another number of fields, is a bad
record, and reading goes on at the next line. A compiled scanner finds the records, and Python's ``csv`` splits them.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.errors import first_line, option, pass_on_machine
from streaming_jsmf.ingestion.readers.base import BadRecords, Records, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import (
    STREAM_ERRORS,
    Recoded,
    bare_suffix,
    describe,
    is_compressed,
    is_wide,
    open_raw,
    open_stream,
    size_of,
)
from streaming_jsmf.ingestion.readers.lines import BYTE_ORDER_MARK, EMPTY, encoding_of_file, too_long
from streaming_jsmf.ingestion.readers.values import encoding_name, listed, name_encoding
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.validation import is_utf8

CSV_SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t"}

_SAMPLE = 1 << 20  # bytes of a file that show its layout
_SNIFFED, _COMPARED = 20, 100  # records that show the delimiter, and the header
_MOST_RECORDS = 1 << 16  # in a batch
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long
_ENDLESS = 1 << 62

#: Encodings whose bytes below 128 are always characters of ASCII. Files in others are recoded.
_ONE_BYTE = re.compile("utf-8|ascii|iso8859|cp125|koi8|mac")
_LINE_END = re.compile(rb"\r\n?|\n")

#: Kinds of strings that tell the values of a column from its name.
_KINDS = {
    "numbers": re.compile(r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d+)?\s?%?"),
    "dates": re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}.{,30}"),
    "addresses": re.compile(r"\w+://\S+|[^\s@]+@[^\s@]+"),
}
_MISSING = {"", "-", "?", "na", "n/a", "nan", "null", "none"}
_LONGEST_NAME = 60

# Kinds of records
_GOOD, _LITERAL, _BLANK, _BAD = 0, 1, 2, 3
_BROKEN, _OPEN = -1, -2


@dataclass(frozen=True)
class Layout:
    """How the fields of a file are written.

    Attributes
    ----------
    delimiter, quotechar, escapechar : As in Python's ``csv``; empty for none.
    quoting : "none" if quotes are text.
    has_header : Whether the first record has the names.
    names : Names of the columns; a column without a name is ignored.
    encoding : Encoding of the file; UTF-8 if it has a byte order mark.
    start, line : Bytes and lines before the first record.
    notes : What was found out about the file and may be wrong, for the log.
    """

    delimiter: str = ","
    quotechar: str = '"'
    escapechar: str = ""
    quoting: str = "auto"
    has_header: bool = True
    names: tuple[str, ...] = ()
    encoding: str = "utf-8"
    start: int = 0
    line: int = 0
    notes: tuple[str, ...] = ()

    @property
    def recoded(self) -> bool:
        """Whether the file is read as UTF-8, because its bytes do not show where its fields end."""
        return not _ONE_BYTE.match(codecs.lookup(self.encoding).name)

    @property
    def codec(self) -> str:
        """Encoding of the stream of ``_opened``."""
        return "utf-8" if self.recoded or self.encoding.startswith("utf-8") else self.encoding

    @property
    def by_lines(self) -> bool:
        """Whether a record that breaks the rule of quotes may be a line."""
        return self.delimiter == "\t" and self.quoting != "none"

    def syntax(self) -> tuple[NDArray[np.int16], ...]:
        """The bytes that may end or change a field, and those of delimiter, quote and escape (-1 for none)."""
        quote = "" if self.quoting == "none" else self.quotechar
        marks = [mark.encode(self.codec, "ignore") for mark in (self.delimiter, quote, self.escapechar)]
        special = np.zeros(256, np.int16)
        special[[*b"\r\n", *(mark[0] for mark in marks if mark)]] = 1
        return special, *(np.array(list(mark) or [-1], np.int16) for mark in marks)

    def parsed(self, data: bytes, literal: bool) -> list[list[str]]:
        """Split records that keep the rule, or lines without quotes. Undecodable bytes become lone surrogates."""
        csv.field_size_limit(max(limits.LONGEST_LINE, csv.field_size_limit()))
        # After an escaped line end, csv takes no end of the data for the end of a record.
        data += b"" if data.endswith((b"\r", b"\n")) else b"\n"
        text = io.TextIOWrapper(io.BytesIO(data), self.codec, "surrogateescape", newline="")
        quoting = csv.QUOTE_NONE if literal or self.quoting == "none" else csv.QUOTE_MINIMAL
        escape = None if literal else self.escapechar or None
        rows = csv.reader(
            text, delimiter=self.delimiter, quotechar=self.quotechar, escapechar=escape, quoting=quoting, strict=True
        )  # fmt: skip
        return list(filter(None, rows))


@dataclass(frozen=True)
class Part(Unit):
    """Records of a delimited file in a range of bytes, with the number of its first line in the file, from 0."""

    layout: Layout = Layout()
    line: int = 0


@dataclass(frozen=True)
class _Block:
    """n records in some bytes: (n + 1,) where they start and end, (n + 1,) their first lines, and (n,) their kinds.

    ``offset`` is the position of the bytes in the stream, and lines are counted from the first block.
    """

    layout: Layout
    data: bytes
    starts: NDArray[np.int64]
    lines: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    offset: int = 0

    @property
    def places(self) -> NDArray[np.int64]:
        """Where the records start, counted from the first one of all blocks."""
        return self.offset + self.starts[:-1]

    def original(self, record: int) -> bytes:
        """The bytes of a record in the file, without the line end; the first ones of a line that is too long."""
        start, end = self.starts[record], self.starts[record + 1]
        if end - start > limits.LONGEST_LINE:
            end = start + min(_KEPT, limits.LONGEST_LINE)
        data = self.data[start:end].rstrip(b"\r\n")
        if self.layout.recoded:
            data = data.decode("utf-8", "surrogateescape").encode(self.layout.encoding, "surrogateescape")
        return data

    def rows(self) -> list[list[str]]:
        """The fields of the good records."""
        # Blank lines, which csv skips, do not end a run of good records.
        kinds = np.where(self.kinds == _BLANK, _GOOD, self.kinds)
        edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
        rows: list[list[str]] = []
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            if last > first and kinds[first] != _BAD:
                data = self.data[self.starts[first] : self.starts[last]]
                rows += self.layout.parsed(data, kinds[first] == _LITERAL)
        return rows

    def fault(self, record: int) -> str:
        """Why a record is bad."""
        data = self.data[self.starts[record] : self.starts[record + 1]]
        if len(data) > limits.LONGEST_LINE:
            return too_long()
        try:
            n_fields = len(self.layout.parsed(data, literal=False)[0])
        except csv.Error as error:
            way_out = f"where quotes are text, use {option.quoting('none')}"
            if not self.layout.escapechar and b'\\"' in data:
                way_out = f'where \\" is a quote, use {option.read({"escapechar": chr(92)})}'
            if "unexpected end" in str(error):
                return f"it opens a quote that no good record closes ({way_out})"
            return f"its quotes break the rules of CSV: {first_line(error)} ({way_out})"
        n_names = len(self.layout.names)
        if n_fields == n_names:
            return f"the record is longer than {limits.LONGEST_LINE >> 20} MB"
        return f"it has {n_fields} fields, {'the header' if self.layout.has_header else 'others'} {n_names}"


@dataclass(frozen=True)
class _Originals(Sequence[bytes]):
    """The bytes of the good records of a block."""

    block: _Block
    records: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, i: Any) -> Any:
        return self.block.original(int(self.records[i]))


class Delimited:
    """The format of delimited text; a record that is written over several lines stands where its first line is."""

    def names(self, path: str, options: Any) -> list[str]:
        return [name for name in layout_of(path, options).names if name]

    def units(self, path: str, options: Any) -> list[Unit]:
        """Return parts of about ``UNIT_BYTES``, for which a large file is scanned once; others are not cut."""
        layout, size = layout_of(path, options), size_of(path)
        if size <= limits.UNIT_BYTES or layout.recoded or is_compressed(path) or is_wide(path):
            return [Part(path, layout.start, 0, size, layout, layout.line)]
        with open_raw(path) as stream:
            cuts = list(_cuts(stream, layout)) if stream.seekable() else [(layout.start, layout.line)]
        stops = [*(start for start, _ in cuts[1:]), size]
        return [
            Part(path, start, stop, stop - start, layout, line)
            for (start, line), stop in zip(cuts, stops, strict=True)
        ]

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None
    ) -> Iterator[Records]:
        # A unit without a layout is a whole file, in which lines are counted from its start.
        first = 0
        if not isinstance(unit, Part):
            layout = layout_of(unit.path, options)
            unit, first = Part(unit.path, layout.start, 0, 0, layout), layout.line
        names = _chosen(unit.layout.names, wanted)
        try:
            with _opened(unit.path, unit.layout) as stream:
                _skip(stream, unit.start)
                for block in _blocks(stream, unit.layout, unit.stop - unit.start if unit.stop else _ENDLESS):
                    for record in np.flatnonzero(block.kinds == _BAD).tolist():
                        bad.refuse(first + int(block.lines[record]), block.fault(record), block.original(record))
                    good = np.flatnonzero(block.kinds <= _LITERAL)
                    if len(good):
                        fields = list(zip(*block.rows(), strict=True))
                        columns = {name: _strings(fields[i]) for i, name in names}
                        yield Records(first + block.lines[good], columns, _Originals(block, good))
        except UnreadableError as error:
            if error.line is None:
                raise
            bad.refuse(first + error.line, str(error), error.record)

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, line {self.first_row(unit) + row + 1}"

    def first_row(self, unit: Unit) -> int:
        return unit.line if isinstance(unit, Part) else 0


def _chosen(names: Sequence[str], wanted: Collection[str] | None) -> list[tuple[int, str]]:
    """Return numbers and names of the columns to read. Raises UnreadableError if a name is repeated."""
    chosen = [(i, name) for i, name in enumerate(names) if name and (wanted is None or name in wanted)]
    for name, number in Counter(name for _, name in chosen).items():
        if number > 1:
            raise UnreadableError(
                f"it has {number} columns {name!r}; rename all but one, or choose others with {option.metadata('A,B')}"
            )
    return chosen


def _strings(values: Sequence[str]) -> Any:
    """Return an Arrow array of strings; bytes that could not be decoded are in it as they are."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        held = pa.array([value.encode("utf-8", "surrogateescape") for value in values], pa.binary())
        return pa.Array.from_buffers(pa.string(), len(held), held.buffers())


# Layout


def layout_of(path: str, options: Any) -> Layout:
    """Find the layout of a file from its start, where the options do not give it.

    Reads the whole file if there are several encodings to choose from. Raises UnreadableError.
    """
    encoding = encoding_of_file(path, options.encoding)
    layout = Layout(
        quotechar=options.quotechar or '"', escapechar=options.escapechar or "", quoting=options.quoting,
        encoding="utf-8" if encoding == "utf-8-sig" else encoding,
    )  # fmt: skip
    with _opened(path, layout) as stream:
        sample, whole = _sample(stream)
    start = len(BYTE_ORDER_MARK) * sample.startswith(BYTE_ORDER_MARK)
    usual = options.delimiter or CSV_SUFFIXES.get(bare_suffix(path), ",")
    line, given = 0, options.delimiter
    if (said := re.match(rb"sep=(.)\r?\n", sample[start:])) and not given:  # as Excel reads and writes it
        start, line, usual = start + said.end(), 1, said[1].decode("latin-1")
        given = usual
    sample = sample[start:]
    layout = replace(layout, delimiter=given or _delimiter(sample, layout, usual), start=start, line=line)
    notes = []
    if layout.delimiter != usual:
        notes.append(
            f"its fields are separated by {layout.delimiter!r}; {option.read({'delimiter': usual})} changes that"
        )
    if options.escapechar is None and layout.quoting != "none" and _has_escapes(sample, layout, whole):
        layout = replace(layout, escapechar="\\")
        notes.append('a quote within its fields is written \\"')
    return _with_names(replace(layout, notes=tuple(notes)), sample, options)


def _sample(stream: Any) -> tuple[bytes, bool]:
    """Return the lines at the start of a stream, and whether they are all."""
    data, damage, size = b"", "", _SAMPLE
    while not damage and len(data) < size <= limits.LONGEST_LINE + _SAMPLE:
        more, damage = _read(stream, size - len(data))
        data += more
        if len(data) < size or _whole_lines(data):
            break
        size *= 2
    if not data.removeprefix(BYTE_ORDER_MARK).strip():
        raise UnreadableError(damage or EMPTY)
    ended = len(data) < size
    return data[: len(data) if ended else _whole_lines(data) or None], ended


def _block_of(sample: bytes, layout: Layout, most: int, known: int = _ENDLESS) -> tuple[_Block, int]:
    """Return the first records of a sample and where they end; any number of fields is right without names."""
    return _scanned(sample, len(sample), layout, 0, 0, known, len(sample), most)[:2]


def _width(sample: bytes, layout: Layout) -> int:
    """Return the number of fields of the first record; 0 if it breaks the rule."""
    line = sample.lstrip(b"\r\n")
    if layout.by_lines:
        return 1 + _LINE_END.split(line, maxsplit=1)[0].count(b"\t")
    block, _ = _block_of(line, replace(layout, names=()), 1)
    return len(block.rows()[0]) if block.kinds[0] == _GOOD else 0


def _delimiter(sample: bytes, layout: Layout, usual: str) -> str:
    """Return the first delimiter that splits all first records into the same number of fields (2+), else ``usual``."""
    for delimiter in (usual, ";", "\t", "|", ","):
        found = replace(layout, delimiter=delimiter)
        width = _width(sample, found)
        if width > 1:
            block, _ = _block_of(sample, replace(found, names=("",) * width), _SNIFFED)
            if not (block.kinds == _BAD).any():
                return delimiter
    return usual


def _has_escapes(sample: bytes, layout: Layout, whole: bool) -> bool:
    """Whether a sample keeps the rule of quotes only if a backslash escapes them."""
    if b'\\"' not in sample:
        return False
    broken = []
    for escape in ("", "\\"):
        found = replace(layout, escapechar=escape)
        found = replace(found, names=("",) * max(_width(sample, found), 1))
        block, end = _block_of(sample, found, len(sample), _ENDLESS if whole else len(sample))
        broken.append(bool(np.isin(block.kinds, (_BAD, _LITERAL)).any()) or 2 * end < len(sample))
    return broken == [True, False]


def _with_names(layout: Layout, sample: bytes, options: Any) -> Layout:
    """Add the names from the options or the header, and skip the header."""
    width = _width(sample, layout)
    block, _ = _block_of(sample, replace(layout, names=("",) * width), _COMPARED)
    rows = block.rows() if width else []
    first = next((i for i, kind in enumerate(block.kinds) if kind != _BLANK), 0)
    if not rows or block.kinds[first] == _BAD:
        raise UnreadableError(f"its header is not CSV: {block.fault(first)}")
    header = [name.strip() for name in rows[0]]
    given, wanted = tuple(options.columns or ()), str(options.header).lower()
    has_header = wanted in ("first", "true") or (
        wanted == "auto" and not given and (bool({*options.text} & {*header}) or not _is_data(header, rows[1:]))
    )  # fmt: skip
    start, line = (int(block.starts[first + 1]), int(block.lines[first + 1])) if has_header else (0, 0)
    layout = replace(layout, has_header=has_header, start=layout.start + start, line=layout.line + line)
    if given and len(given) != width:
        raise UnreadableError(
            f"its first record has {width} fields, and {option.columns} has {len(given)} names"
        )
    if given:
        return replace(layout, names=given)
    if has_header:
        return _named(layout, header, sample[start:])
    names = tuple(f"column_{i}" for i in range(1, width + 1))
    note = (
        f"it has no header, and its columns are {listed(names)}; {option.columns('A,B')} names them, and "
        f"{option.header('first')} takes its first record as the header"
    )
    return replace(layout, names=names, notes=(*layout.notes, note) if wanted == "auto" else layout.notes)


def _named(layout: Layout, header: list[str], sample: bytes) -> Layout:
    """Add the names of a header, and that of the index that pandas or R writes without one."""
    if not all(map(is_utf8, header)):
        raise UnreadableError(f"its header is not {encoding_name(layout.encoding)}; {name_encoding()}")
    wider = replace(layout, names=("", *header))
    kinds = _block_of(sample, wider, _COMPARED)[0].kinds
    if len(header) > 1 and (kinds <= _LITERAL).any() and not (kinds == _BAD).any():
        header = ["", *header]
    header[0] = header[0] or ("" if "index" in header else "index")
    notes = layout.notes
    if unnamed := header.count(""):
        notes = (*notes, f"{unnamed} column{'s' * (unnamed > 1)} without a name {'are' if unnamed > 1 else 'is'} ignored")  # fmt: skip
    return replace(layout, names=tuple(header), notes=notes)


def _is_data(header: Sequence[str], rows: list[list[str]]) -> bool:
    """Whether the first record is one of the data: if in doubt, it is a header."""
    numbers = [int(name) for name in header if name and name.isdecimal()]
    numbered = numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else False
    if numbered and (len(numbers) > 2 or (numbers[0] == 0 and len(numbers) == sum(map(bool, header)))):
        return False  # years, or the numbers that pandas gives to columns without names
    others = [row for row in rows if [*map(str.strip, row)] != [*header]]
    signs = [
        _likeness(name, [row[i] for row in others if row[i].strip()])
        for i, name in enumerate(header)
        if name.lower() not in _MISSING
    ]
    return max(signs, default=0) > 0 and min(signs) >= 0


def _likeness(name: str, values: Sequence[str]) -> int:
    """Return 1 if a string is like the values of its column, -1 if it differs from all of them in kind, or 0."""
    for pattern in _KINDS.values():
        if values and all(pattern.fullmatch(value.strip()) for value in values):
            return 1 if pattern.fullmatch(name) else -1
    if values.count(name) > 1:
        return 1
    # Surveys have questions as names.
    if name[-1] in "?:" and 2 * sum(value.rstrip()[-1] == name[-1] for value in values) < len(values) + 1:
        return 0
    n_words = len(name.split())
    return int(len(name) > _LONGEST_NAME or n_words > 7 or (n_words > 3 and name[-1] in ".!…"))


# Bytes and records


@contextmanager
def _opened(path: str, layout: Layout) -> Iterator[Any]:
    """Open a stream of bytes that show where fields end, in the encoding ``layout.codec``."""
    with open_stream(path) as stream:
        yield (
            io.BufferedReader(Recoded(stream, layout.encoding, "surrogateescape"))
            if layout.recoded
            else stream
        )


def _skip(stream: Any, size: int) -> None:
    if stream.seekable():
        stream.seek(size)
    else:
        _read(stream, size)


def _read(stream: Any, size: int) -> tuple[bytes, str]:
    """Return ``size`` bytes, or less at the end, and the damage ("" for none) before which they are."""
    # A decompressor returns the data before the damage only if it is read piece by piece.
    read, pieces = getattr(stream, "read1", stream.read), []
    try:
        while size and (piece := read(size)):
            pieces.append(piece)
            size -= len(piece)
    except STREAM_ERRORS as error:
        pass_on_machine(error)
        return b"".join(pieces), describe(error)
    return b"".join(pieces), ""


class _Bytes:
    """The next bytes of a stream, ``left`` at most. None are left at its end, or at damage."""

    def __init__(self, stream: Any, left: int) -> None:
        self._stream, self.left, self.damage = stream, left, ""

    def read(self, size: int) -> bytes:
        size = min(size, self.left)
        data, damage = _read(self._stream, size)
        self.damage = self.damage or damage
        self.left = self.left - size if len(data) == size else 0
        return data

    def rest_of_line(self, data: bytes) -> tuple[int, bytes]:
        """Read on until a line has ended; return its length and the bytes after it, which start with ``data``."""
        length = 0
        while not (end := _LINE_END.search(data)) or (
            end[0] == b"\r" and end.end() == len(data) and self.left
        ):
            if not self.left:
                return length + len(data), b""
            kept = len(data) - data.endswith(b"\r")
            length, data = length + kept, data[kept:] + self.read(limits.BATCH_BYTES)
        return length + end.end(), data[end.end() :]


def _whole_lines(data: bytes) -> int:
    """Return where the last line ends that is surely whole."""
    return 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, max(len(data) - 1, 0)))


def _cuts(stream: Any, layout: Layout) -> Iterator[tuple[int, int]]:
    """Yield byte and line of the first record, and of each first record ``UNIT_BYTES`` after the one before."""
    _skip(stream, layout.start)
    cut = 0
    yield layout.start, layout.line
    for block in _blocks(stream, layout, _ENDLESS):
        while (i := int(np.searchsorted(block.places, cut + limits.UNIT_BYTES))) < len(block.kinds):
            cut = int(block.places[i])
            yield layout.start + cut, layout.line + int(block.lines[i])


def _blocks(stream: Any, layout: Layout, left: int) -> Iterator[_Block]:
    """Yield the records in the next ``left`` bytes of a stream, about ``BATCH_BYTES`` at a time.

    Raises UnreadableError at damage, after the lines before it.
    """
    source, data, offset, line = _Bytes(stream, left), b"", 0, 0
    while source.left or data:
        # A record that goes on is scanned again when there is twice as much of it.
        data += source.read(max(limits.BATCH_BYTES, len(data)))
        whole = _whole_lines(data) if source.left or source.damage else len(data)
        known, at, before = len(data) if source.left else _ENDLESS, 0, -1
        while before < at < whole:
            before = at
            block, at, line = _scanned(data, whole, layout, at, line, known, at + limits.BATCH_BYTES)
            if len(block.kinds):
                yield replace(block, offset=offset)
        data, offset = data[at:], offset + at
        if not whole and not source.left:
            break  # what is left is damaged
        if len(data) > limits.LONGEST_LINE and source.left:
            yield _Block(
                layout, data, np.array([0, len(data)]), np.array([line, line + 1]), np.array([_BAD]), offset
            )
            length, rest = source.rest_of_line(data[-1:])
            data, offset, line = rest, offset + len(data) - 1 + length, line + 1
    if source.damage:
        raise UnreadableError(source.damage, line, data[:_KEPT])


def _scanned(
    data: bytes,
    whole: int,
    layout: Layout,
    at: int,
    line: int,
    known: int,
    stop: int,
    most: int = _MOST_RECORDS,
) -> tuple[_Block, int, int]:
    """Return the records from byte ``at`` on in the first ``whole`` bytes, byte and line where they end.

    Those that start within ``BATCH_BYTES``, ``most`` at most; the last one goes on at the next call if the file has
    more than the ``known`` bytes.
    """
    starts, lines, kinds = (
        np.empty(most + 1, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most, np.uint8),
    )
    n = _scan(
        np.frombuffer(data, np.uint8, whole), at, stop, known, layout.syntax(), len(layout.names),
        layout.by_lines, limits.LONGEST_LINE, line, starts, lines, kinds,
    )  # fmt: skip
    block = _Block(layout, data, starts[: n + 1].copy(), lines[: n + 1].copy(), kinds[:n].copy())
    return block, int(starts[n]), int(lines[n])


# fmt: off
@compiled(nogil=True)
def _scan(
    data: Any, i: int, stop: int, known: int, syntax: Any, n_fields: int, by_lines: bool, longest: int, line: int,
    starts: Any, lines: Any, kinds: Any,
) -> int:
    """Fill in the starts, first lines and kinds of the records that start before ``stop``; return their number."""
    # fmt: on
    n = 0
    while i < min(stop, len(data)) and n < len(kinds):
        starts[n], lines[n] = i, line
        end, fields = _end_of_record(data, i, syntax, n_fields)
        if end == _OPEN and known - i <= longest:
            break
        kinds[n] = _GOOD
        if end < 0 or end - i > longest or (n_fields > 0 and fields != n_fields):
            end, kinds[n] = _after_line(data, i), _BAD
            if by_lines and end - i <= longest and _count(data, i, end, syntax[1][0]) == n_fields - 1:
                kinds[n] = _LITERAL
        elif by_lines and n_fields > 1 and _each_line_has(data, i, end, syntax[1][0], n_fields - 1):
            end, kinds[n] = _after_line(data, i), _LITERAL
        if _ends_line(data[i]):
            end, kinds[n] = _after_line(data, i), _BLANK
        line += _count_lines(data, i, end)
        i = end
        n += 1
    starts[n], lines[n] = i, line
    return n


@compiled(nogil=True)
def _end_of_record(data: Any, i: int, syntax: Any, most: int) -> Any:
    """Return where the record at ``i`` ends (_BROKEN or _OPEN if it does not), and its number of fields."""
    special, delimiter, quote, escape = syntax
    fields, at_start = 1, True
    while i < len(data):
        if not special[data[i]]:
            i, at_start = i + 1, False
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
            i, at_start, fields = i + len(delimiter), True, fields + 1
            if fields - 1 == most:
                return _BROKEN, fields
        else:
            i, at_start = i + 1, False
    return len(data), fields


@compiled(nogil=True)
def _after_quoted(data: Any, i: int, syntax: Any) -> int:
    """Return where the quoted field ends whose first byte is ``i``, _BROKEN or _OPEN."""
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


@compiled(nogil=True)
def _is(data: Any, i: int, mark: Any) -> bool:
    for k in range(len(mark)):
        if i + k >= len(data) or data[i + k] != mark[k]:
            return False
    return True


@compiled(nogil=True)
def _ends_line(byte: Any) -> bool:
    return byte == 10 or byte == 13


@compiled(nogil=True)
def _after_line(data: Any, i: int) -> int:
    """Return where the line ends that byte ``i`` is in."""
    while i < len(data) and not _ends_line(data[i]):
        i += 1
    crlf = i + 1 < len(data) and data[i] == 13 and data[i + 1] == 10
    return min(i + 1 + crlf, len(data))


@compiled(nogil=True)
def _count(data: Any, i: int, end: int, byte: int) -> int:
    n = 0
    for j in range(i, end):
        n += data[j] == byte
    return n


@compiled(nogil=True)
def _count_lines(data: Any, i: int, end: int) -> int:
    """Return the number of lines in some bytes, the last of which may lack its end."""
    n = int(not _ends_line(data[end - 1])) + (data[end - 1] == 13)
    for j in range(i, end - 1):
        n += data[j] == 10 or (data[j] == 13 and data[j + 1] != 10)
    return n + (data[end - 1] == 10)


@compiled(nogil=True)
def _each_line_has(data: Any, i: int, end: int, byte: int, number: int) -> bool:
    """Return whether bytes are several lines, each of which has a byte so many times."""
    first = _after_line(data, i)
    while i < end:
        after = _after_line(data, i)
        if first == end or _count(data, i, after, byte) != number:
            return False
        i = after
    return True
