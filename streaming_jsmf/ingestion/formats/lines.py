"""Lines as a format of records, lines within a byte range, and the encodings of files."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    BadValue,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import is_divisible, open_raw, open_stream, size_of, start_of
from streaming_jsmf.ingestion.sources.values import (
    decode,
    encoding_hint,
    from_python,
    is_binary,
    marked_encoding,
    require_few,
)

EMPTY = "the file is empty"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_RECORD_BYTES, _VALUE_BYTES = 64, 8  # estimated overhead of a record in memory, besides its bytes
_KEPT = 1000  # bytes that the quarantine keeps of a line that is too long

#: How files begin that are sometimes named as if they were others.
_KINDS = (
    (rb"\{\\rtf", "RTF"),
    (rb"%PDF-", "PDF"),
    (rb"%!PS", "PostScript"),
    (rb"ARROW1", "Arrow"),
    (rb"SQLite format 3", "a database of SQLite"),
    (rb"\x93NUMPY|\x80[\x02-\x05]", "an array or pickle of Python"),
    (rb"\x89HDF|Obj\x01", "HDF5 or Avro"),
    (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a", "an image"),
    (rb"PK\x03\x04.{26}(?:\[Content_Types\]|_rels/|xl/|mimetype)", "an Excel or OpenDocument file"),
    (rb"PK\x03\x04", "a zip archive"),
    (rb"PAR1", "Parquet"),
    (rb"\xd0\xcf\x11\xe0", "an Excel file (.xls)"),
    (rb"From \S+ +\w{3} \w{3} .{,9}[0-9]{2}:[0-9]{2}", "mail"),
    (rb"(?i)\s*<(?:!doctype html|html|head|meta|table)\b", "HTML"),
    (rb"\s*<\?xml", "XML"),
    (rb"\s*(?:\[\s*)?\{\s*\"(?:[^\"\\]|\\.)*\"\s*:", "JSON"),
)

RENAME = "give it the suffix of what it is, or save it as CSV"

#: The values of a record by column, why it cannot be used, or None for a blank line.
Parsed = Mapping[str, Any] | BadValue | None


class Written(NamedTuple):
    """A record that was read as a value of JSON, and its approximate size in bytes."""

    value: Any
    size: int


#: A record as it is in the file, or as a value.
RecordSource = bytes | Written


def too_long(what: str = "line") -> str:
    return f"the {what} is longer than {limits.LONGEST_LINE >> 20} MB, too long for a record"


@contextmanager
def open_unit(unit: Unit) -> Iterator[Any]:
    """Open a stream for ``lines_of``; only of files that are not compressed do units start later."""
    with open_raw(unit.path) if unit.start else open_stream(unit.path) as stream:
        yield stream


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


def text_of(line: bytes, encoding: str = "utf-8", what: str = "line", hint: Callable[[], str] = str) -> str:
    """Decode a line of ``lines_of`` without a byte order mark. Raises BadValue if it was cut or is not text."""
    if _was_cut(line):
        raise BadValue(too_long(what))
    return decode(line.removeprefix(BYTE_ORDER_MARK), encoding, what, hint)


def original(sources: Sequence[RecordSource], i: int) -> bytes:
    """Return a record for the quarantine: a line without its end, or the start of one that is too long."""
    source = sources[i]
    if isinstance(source, Written):
        return json.dumps(source.value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return source[:_KEPT] if _was_cut(source) else source.rstrip(b"\r\n")


def line_units(path: str, splittable: bool = True) -> list[Unit]:
    """Return byte ranges of a file of lines, or the file as a whole if it is small or cannot be split.

    ``splittable`` tells whether each line is a record.
    """
    size, step = size_of(path), limits.UNIT_BYTES
    if size <= step or not is_divisible(path) or not splittable:
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


def line_records(
    unit: Unit, parse: Callable[[bytes], str | None], bad: BadRecords, but: Collection[str] = ()
) -> Iterator[Records]:
    """Yield the lines of a unit as a column ``text``, without those that ``parse`` maps to None.

    Lines for which ``parse`` raises ``BadValue`` go to ``bad``. Raises UnreadableError if the file is empty, damaged or
    of another kind, other than those in ``but``.
    """

    def parsed() -> Iterator[tuple[Parsed, RecordSource]]:
        with open_unit(unit) as stream:
            head = b"" if unit.start else start_of(stream)
            kind = other_kind(head) or "a binary file" * is_binary(head)
            if kind and kind not in but:
                way_out = f"convert it, or name another reader, such as {option.reader('text')}"
                raise UnreadableError(f"it is {kind}, not lines of text; {way_out}")
            for line in lines_of(stream, unit):
                try:
                    text = parse(line)
                    yield None if text is None else {"text": text}, line
                except BadValue as error:
                    yield error, line

    return gathered(unit, parsed(), bad, Gathered())


class Gathered:
    """The records of a batch, by column, because a list of many records slows the garbage collector.

    ``required`` columns are in every batch.
    """

    def __init__(self, required: Sequence[str] = ()) -> None:
        self._required = required
        self._known: set[str] = set()
        self._late: list[str] = []
        self._clear()

    def _clear(self) -> None:
        self._rows: list[int] = []
        self._size = 0
        self._sources: list[RecordSource] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in self._required}

    def prepared(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values of a record that are kept. Raises BadValue if it cannot be used."""
        return record

    def array(self, name: str, values: list[Any]) -> Any:  # noqa: ARG002
        """Return the values of a column as an Arrow array."""
        return from_python(values)

    def add(self, row: int, record: Mapping[str, Any], source: RecordSource) -> None:
        n, columns = len(self._rows), self._columns
        for name, value in record.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = []
            if len(column) < n:
                column += [None] * (n - len(column))
            column.append(value)
        self._rows.append(row)
        self._sources.append(source)
        length = source.size if isinstance(source, Written) else len(source)
        self._size += length + _RECORD_BYTES + _VALUE_BYTES * len(columns)

    def is_full(self, record: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return whether a record needs another batch."""
        return self._size >= limits.BATCH_BYTES

    def taken(self) -> Iterator[Records]:
        """Yield the batch, if there are records, and start another. Raises InputError for too many late columns."""
        n, columns = len(self._rows), self._columns
        if not n:
            return
        self._late += [name for name in columns if self._known and name not in self._known]
        require_few(self._late)
        self._known |= columns.keys()
        arrays = {name: self.array(name, [*vs, *[None] * (n - len(vs))]) for name, vs in columns.items()}
        records = Records(np.array(self._rows, np.int64), arrays, partial(original, self._sources))
        self._clear()
        yield records


def gathered(
    unit: Unit, parsed: Iterable[tuple[Parsed, RecordSource | None]], bad: BadRecords, held: Gathered
) -> Iterator[Records]:
    """Yield the records of a unit in batches; bad ones go to ``bad``, with their number as the row.

    The source of a bad record is None if it could not be read.

    Raises UnreadableError if there is nothing, or after the records before the one at which ``parsed`` raised it.
    """
    row, empty = -1, not unit.stop  # a range may lie within a long line
    try:
        for row, (value, source) in enumerate(parsed):
            if value is None:
                continue
            empty = False
            try:
                if isinstance(value, BadValue):
                    raise value
                record = held.prepared(value)
            except BadValue as error:
                bad.refuse(row, str(error), None if source is None else original([source], 0))
                continue
            if held.is_full(record):
                yield from held.taken()
            held.add(row, record, source or b"")
    except UnreadableError as error:
        yield from held.taken()
        raise UnreadableError(str(error), row + 1 if row >= 0 else None) from error
    yield from held.taken()
    if empty:
        raise UnreadableError(EMPTY)


class LineFormat(Format):
    """Lines of text. The column ``text`` has those that are not blank, without white space around them."""

    counted, in_bytes = "line", True

    def names(self, path: str, options: Any) -> list[str]:  # noqa: ARG002
        return ["text"]

    def units(self, path: str, options: Any = None) -> list[Unit]:  # noqa: ARG002
        return line_units(path)

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        encoding = encoding_of(unit.path, options.encoding)

        def text(line: bytes) -> str | None:
            return text_of(line, encoding, hint=encoding_hint).strip() or None

        return line_records(unit, text, bad, but=("HTML", "XML"))

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


def other_kind(head: bytes) -> str:
    """Return what a file surely is if it is neither plain text nor a table of text; "" otherwise."""
    head = head.removeprefix(codecs.BOM_UTF8)
    return next((kind for pattern, kind in _KINDS if re.match(pattern, head, re.DOTALL)), "")


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
