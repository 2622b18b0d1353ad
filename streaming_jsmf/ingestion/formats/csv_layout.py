"""Find the layout of delimited text from the start of a file: its encoding, dialect, titles and names."""

from __future__ import annotations

import codecs
import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, product
from typing import Any

import numpy as np

from streaming_jsmf.config import TextOptions
from streaming_jsmf.errors import first_line, option
from streaming_jsmf.ingestion.formats.csv_scan import (
    BAD,
    BLANK,
    ENDLESS,
    LITERAL,
    Block,
    Dialect,
    scan,
    shape_of,
    whole_lines,
)
from streaming_jsmf.ingestion.formats.lines import EMPTY, RENAME, encoding_of_file, other_kind, too_long
from streaming_jsmf.ingestion.sources.compression import recoded
from streaming_jsmf.ingestion.sources.protocol import UnreadableError, distinct_names, limits
from streaming_jsmf.ingestion.sources.streams import bare_suffix, open_stream, read_pieces
from streaming_jsmf.ingestion.sources.values import encoding_name, listed, name_encoding
from streaming_jsmf.storage.heads import found_once
from streaming_jsmf.validation import is_utf8

UTF_8 = "utf-8"
SNIFFED = 20  # records that show the delimiter
CSV_SUFFIXES = {".csv": ",", ".tsv": "\t", ".tab": "\t", ".psv": "|"}

_SAMPLE = 1 << 20  # bytes of a file that show its layout
_COMPARED = 100  # records that show the header
_HEAD, TITLES = 1 << 16, 20  # bytes, and lines, of a file in which its header is searched
_HIVE = "\x01"  # the delimiter of Hive, which no text has
_DELIMITERS = ";\t|,^~"
_BETWEEN = re.escape(f"{_DELIMITERS}{_HIVE}".encode())
_QUOTES = rb"[\"'~|^`%$*]"  # not # before comments

#: The start of a table of R: strings in quotes, separated by blanks.
_OF_R = re.compile(rb'(?:"[^"\r\n]*"\r?\n)?"[^"\r\n]*" ["0-9-]')

#: Kinds of values that tell a header from data.
_KINDS = (
    re.compile(r"[-+]?[.,]*\d[\d.,]*(?:[eE][-+]?\d+)?\s?%?"),
    re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}.{,30}"),
    re.compile(r"\w+://\S+|[^\s@]+@[^\s@]+"),
)
_MISSING = {"", "-", "?", "na", "n/a", "nan", "null", "none"}
_NAME = re.compile(r"[^\W\d][^.!,;]{,39}")
_USUAL_NAMES = set("id text title name label category date body content message comment review url".split())  # noqa: SIM905
_LONGEST_NAME = 60
_SHOWN = 5  # names
OF_QUALTRICS = "its second and third rows, the questions and ids of Qualtrics, are not read"
_ROW_NAME = "row_name"  # the column of R's names of rows


@dataclass(frozen=True)
class CsvLayout:
    """Dialect, names, and where the records start.

    Attributes
    ----------
    names : Names of the columns; a column without a name is ignored.
    has_header : Whether the names are those of the first record.
    encoding : Encoding of the file, as Python names it. Fields are found in UTF-8, to which others are recoded.
    start, line : Bytes and lines before the first record.
    notes : What was found that may be wrong, for the log.
    """

    dialect: Dialect
    encoding: str = UTF_8
    names: tuple[str, ...] = ()
    has_header: bool = True
    start: int = 0
    line: int = 0
    notes: tuple[str, ...] = ()

    @property
    def recoded(self) -> bool:
        return self.encoding != UTF_8


@found_once
def layout_of(path: str, options: Any) -> CsvLayout:
    """Find the layout of a file from its start, where the options do not give it.

    Reads the whole file if there are several encodings to choose from. Raises UnreadableError.
    """
    encoding = codecs.lookup(encoding_of_file(path, options.encoding).replace("utf-8-sig", UTF_8)).name
    with opened(path, encoding) as stream:
        data, damage = read_pieces(stream, _SAMPLE)
        if not whole_lines(data):
            data += read_pieces(stream, limits.LONGEST_LINE)[0]
    if kind := other_kind(data):
        raise UnreadableError(f"it is {kind}, whatever its name says; {RENAME}")
    start = first = re.match(rb"(?:\xef\xbb\xbf)?(?:sep=[^\r\n]\r?\n)?", data).end()  # type: ignore[union-attr] # of Excel
    sample = data[start : len(data) if len(data) < _SAMPLE else whole_lines(data) or None]
    usual = Dialect(options.delimiter or CSV_SUFFIXES.get(bare_suffix(path), ","))
    dialect, skipped = dialect_of(sample, usual, options), options.skip_lines
    if skipped is None:
        skipped = 0 if options.header == "none" else _n_titles(sample, dialect, usual, options)
    if skipped:
        before = sum(map(len, islice(sample.splitlines(keepends=True), skipped)))
        start, sample = start + before, sample[before:]
        dialect = dialect_of(sample, usual, options)
    if not sample.strip():
        raise UnreadableError(damage or EMPTY)
    notes = [header_below("line", skipped)] * (skipped > 0 and options.skip_lines is None)
    notes += filter(None, [_unusual(dialect, usual, options)])
    line = data[:first].count(b"\n") + skipped
    return _with_names(CsvLayout(dialect, encoding, (), True, start, line, tuple(notes)), sample, options)


@contextmanager
def opened(path: str, encoding: str) -> Iterator[Any]:
    """Open a stream of bytes in which fields can be found; see ``CsvLayout.encoding``."""
    with open_stream(path) as stream:
        yield stream if encoding == UTF_8 else recoded(stream, encoding, "surrogateescape")


def header_below(unit: str, skipped: int) -> str:
    """A line on a header below others."""
    return f"its header is {unit} {skipped + 1}; {skipping(0)} reads what is above, too"


def skipping(lines: object) -> str:
    """The option that skips lines before the header."""
    return str(option.skip_lines(lines))


def fault(block: Block, record: int, layout: CsvLayout) -> str:
    """Why a record is bad, which is its first line."""
    data, dialect = block.data[block.starts[record] : block.starts[record + 1]], layout.dialect
    if len(data) > limits.LONGEST_LINE:
        return too_long()
    try:
        n_fields = len(next(dialect.records([data.decode("utf-8", "surrogateescape").rstrip("\r\n") + "\n"])))
    except csv.Error as error:
        way_out = f"where quotes are text, use {option.quoting('none')}"
        if not dialect.escapechar and b'\\"' in data:
            way_out = f'where \\" is a quote, use {option.escapechar(chr(92))}'
        if "unexpected end" in str(error):
            return f"it opens a quote that no record of {len(layout.names)} fields closes ({way_out})"
        return f"its quotes break the rules of CSV: {first_line(error)} ({way_out})"
    n_names, others = len(layout.names), "the header" if layout.has_header else "others"
    reason = f"it has {n_fields} field{'s' * (n_fields != 1)}, {others} {n_names}"
    is_early = layout.has_header and n_fields > n_names and block.lines[record] < TITLES
    return f"{reason} ({skipping('N')} skips lines before the header)" if is_early else reason


def dialect_of(sample: bytes, usual: Dialect, options: Any) -> Dialect:
    """Return the dialect under which a sample has the fewest bad records.

    It splits the first records into equally many fields (2+), if any dialect does. Otherwise it may be one whose
    delimiter is only within quotes. The usual delimiter comes first.
    """
    delimiters = [usual.delimiter]
    if not options.delimiter:
        of_r = [" "] * bool(_OF_R.match(sample))
        delimiters = [*([_HIVE] if _HIVE.encode() in sample else []), *delimiters, *_DELIMITERS, *of_r]
    best, fewest = usual, 2 * ENDLESS
    for delimiter, (quote, escape, blanks) in product(dict.fromkeys(delimiters), _marks(sample, options)):
        if delimiter != usual.delimiter and delimiter.encode() not in sample:
            continue
        if not fewest:  # no other has fewer
            break
        tried = Dialect(delimiter, quote, escape, blanks)
        shape = shape_of(sample, tried)
        splits = quote != delimiter and shape.n_fields > 1 and not shape.n_bad(sample, tried, SNIFFED)
        in_quotes = fewest > ENDLESS and shape.n_fields == 1 and not shape.n_bad(sample, tried)
        if splits or in_quotes or delimiter == usual.delimiter:
            n_bad = shape.n_bad(sample, tried) + ENDLESS * (not splits)
            if n_bad < fewest:
                best, fewest = tried, n_bad
    return best


def _marks(sample: bytes, options: Any) -> list[tuple[str, str, bool]]:
    """Return the quotes, escapes, and blanks before quotes that the options allow and the sample has signs of."""
    if options.quoting == "none" or len(options.delimiter or "") > 1:
        return [("", options.escapechar or "", False)]
    head = sample[:_HEAD]
    openings = re.findall(rb"(?m)(?:^|[%b])( *)(%b)" % (_BETWEEN, _QUOTES), head)
    closings = Counter(re.findall(rb"(?m)(%b)(?=[%b]|\r?$)" % (_QUOTES, _BETWEEN), head))
    found = Counter(quote for blanks, quote in openings if not blanks)
    signs = Counter({quote.decode(): min(number, closings[quote]) for quote, number in found.items()})
    usual = signs.pop('"', 0)
    quotes = [options.quotechar or '"']
    if not options.quotechar and signs:
        [(other, number)] = signs.most_common(1)
        is_quoted = sample.startswith(other.encode()) or number >= len(head.splitlines())
        quotes = [other, '"'] if number > usual and is_quoted else ['"', other]
    indented = sum(bool(blanks) for blanks, _ in openings)
    of_most = 2 * indented > len(head.splitlines())
    return [
        (quote, escape, blanks)
        for quote in quotes
        for escape in (("", "\\") if options.escapechar is None else (options.escapechar,))
        if escape != "\\" or options.escapechar or f"\\{quote}".encode() in sample
        for blanks in ((True, False) if of_most else (False, True) if indented else (False,))
    ]


def _unusual(dialect: Dialect, usual: Dialect, options: Any) -> str:
    """Return a line that says what was detected, or ""."""
    found, changes = [], []
    if dialect.delimiter != usual.delimiter:
        found.append(f"separated by {dialect.delimiter!r}")
        changes.append(option.delimiter(usual.delimiter))
    if dialect.quotechar != usual.quotechar and not options.quotechar and options.quoting != "none":
        found.append(f"quoted with {dialect.quotechar}")
        changes.append(option.quotechar(usual.quotechar))
    if dialect.blanks:
        found.append("written after blanks, which are left out")
    if dialect.escapechar and not options.escapechar:
        found.append(f"written with {dialect.escapechar}{dialect.quotechar} for a quotation mark")
    way_out = f"; {' and '.join(map(str, changes))} change{'s' * (len(changes) == 1)} that" * bool(changes)
    return f"its fields are {' and '.join(found)}{way_out}" * bool(found)


def is_table(head: bytes) -> bool:
    """Whether the first bytes of a file of any name surely are a header and records."""
    is_hive = b"\x01" in head.partition(b"\n")[0]
    return len(head.splitlines()) > 2 and (is_hive or _table(head, Dialect(), TextOptions()) is not None)


def _n_titles(sample: bytes, found: Dialect, usual: Dialect, options: Any) -> int:
    """Return the number of lines before the header, such as a title, if what follows surely is a table."""
    head = sample[: whole_lines(sample[:_HEAD])] if len(sample) > _HEAD else sample
    lines = head.splitlines(keepends=True)
    if _are_titles(lines[:1], found):
        for n in range(1, min(TITLES, len(lines) - 1)):
            if lines[n].strip() and (dialect := _table(b"".join(lines[n:]), usual, options)):
                titles = b"".join(lines[:n]).strip()
                return n if titles and _are_titles(lines[:n], dialect) else 0
    return 0


def _are_titles(lines: Sequence[bytes], dialect: Dialect) -> bool:
    """Whether lines are blank, comments, or have at most the first field."""
    block = scan(b"".join(line for line in lines if not line.startswith(b"#")), dialect, 0)
    return not (block.kinds == BAD).any() and not any(any(row[1:]) for row in block.rows)


def _table(data: bytes, usual: Dialect, options: Any) -> Dialect | None:
    """Return the dialect of data that surely are a header and records: short names over values that differ in kind."""
    dialect = dialect_of(data, usual, options)
    block = scan(data, dialect, shape_of(data, dialect).width, len(data), most=SNIFFED)
    if (block.kinds == BAD).any() or block.good.size < 2:
        return None
    names, *rows = ([field.strip() for field in row] for row in block.rows)
    signs = [_likeness(name, [row[i] for row in rows if row[i]]) for i, name in enumerate(names) if name]
    are_names = len({*names}) == len(names) > 1 and all(map(_NAME.fullmatch, filter(None, names)))
    known = not _USUAL_NAMES.isdisjoint(name.lower() for name in names) or {*options.text} <= {*names}
    return dialect if are_names and (known or -1 in signs) and max(signs) <= 0 else None


def _with_names(layout: CsvLayout, sample: bytes, options: Any) -> CsvLayout:
    """Add the names, and skip the header."""
    shape = shape_of(sample, layout.dialect)
    block = scan(sample, layout.dialect, shape.width, most=_COMPARED)
    first = int(np.argmax(block.kinds != BLANK))
    if not shape.width or block.kinds[first] > LITERAL:
        raise UnreadableError(f"its header is not CSV: {fault(block, first, layout)}")
    rows = [[field.strip() for field in row] for row in block.rows]
    given, header = options.columns, options.header
    known = shape.n_fields > shape.width or set(options.text) <= set(rows[0])
    if header == "auto" and not known and _is_prose(sample, layout.dialect):
        marks = "commas" if layout.dialect.delimiter == "," else "semicolons"
        raise UnreadableError(
            f"its {marks} outside of quotes are mostly before blanks, so its lines may be texts, not records; "
            f"{option.reader('lines')} reads each line as a text, also the first one ({rows[0][0][:_LONGEST_NAME]!r}); "
            f"{option.header('first')} or {option.header('none')} reads records"
        )
    has_header = header == "first" or (header == "auto" and (known or not _is_data(*rows)))
    if has_header:
        below = first + n_header(rows)
        start, line = layout.start + int(block.starts[below]), layout.line + int(block.lines[below])
        layout = replace(layout, start=start, line=line)
        if not all(map(is_utf8, rows[0])):
            raise UnreadableError(f"its header is not {encoding_name(layout.encoding)}; {name_encoding()}")
        names, note = named([*[_ROW_NAME] * shape.before, *rows[0], *[""] * shape.after])
        if shape.before:
            note = f"its records have a field before those of the header, which is read as {_ROW_NAME}"
        if below > first + 1:
            note = OF_QUALTRICS
    else:
        names = numbered(shape.n_fields)
        some = listed(names[:_SHOWN]) + ", ..." * (len(names) > _SHOWN)
        note = (
            f"it has no header, and its columns are {some}; {option.columns('A,B')} names them, and "
            f"{option.header('first')} takes its first record as the header"
        ) * (header == "auto")
    if given and len(given) != len(names):
        raise UnreadableError(
            f"its first record has {len(names)} fields; {option.columns(','.join(given))} must name each of them"
        )
    notes = (*layout.notes, note) if note else layout.notes
    return replace(layout, names=given or names, has_header=has_header, notes=notes)


def n_header(rows: Sequence[Sequence[Any]]) -> int:
    """Return how many of the first rows are the header; Qualtrics has the questions and their ids below the names."""
    return 3 if len(rows) > 2 and str(rows[2][0]).startswith('{"ImportId":') else 1


def _is_prose(sample: bytes, dialect: Dialect) -> bool:
    """Whether records are sentences: commas outside of quotes are before blanks, with several words between them."""
    rows = scan(sample, dialect, 0, most=_COMPARED).rows
    first = [row[0] for row in rows if row and row[0]]
    later = [part for row in rows for part in row[1:] if part]
    n_blank = sum(part[0] == " " for part in later)
    if (
        dialect.delimiter not in ",;"
        or len(first) < 5
        or 10 * n_blank < 9 * len(later)
        or 4 * len(later) < len(first)
    ):
        return False
    return all(sum(len(part.split()) for part in parts) > 2 * len(parts) for parts in (first, later))


def named(header: list[str]) -> tuple[tuple[str, ...], str]:
    """Return the names of a header, with "index" for that of pandas, and a note on columns without a name."""
    first = header[0] or ("" if "index" in header else "index")
    names = iter(distinct_names([name for name in (first, *header[1:]) if name]))
    unnamed = [first, *header[1:]].count("")
    note = (
        f"{unnamed} columns without a name are ignored"
        if unnamed > 1
        else "a column without a name is ignored"
    )
    return tuple(name and next(names) for name in (first, *header[1:])), note * (unnamed > 0)


def numbered(width: int) -> tuple[str, ...]:
    """Return the names of columns without a header."""
    return tuple(f"column_{i}" for i in range(1, width + 1))


def _is_data(header: Sequence[str], *rows: Sequence[str]) -> bool:
    """Whether the first record is one of the data: if in doubt, it is a header."""
    numbers = [int(name) for name in header if name.isdecimal() and len(name) < 19]
    counted = bool(numbers) and numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    if counted and (len(numbers) > 2 or (numbers[0] == 0 and len(numbers) == sum(map(bool, header)))):
        return False  # years, or the numbers that pandas gives to columns without a name
    signs = [
        _likeness(name, [row[i] for row in rows if row[i] and row != header])
        for i, name in enumerate(header)
        if name.lower() not in _MISSING
    ]
    return max(signs, default=0) > 0 and min(signs) >= 0


def _likeness(name: str, values: Sequence[str]) -> int:
    """Return 1 if a string is like the values of its column, -1 if it differs from all of them in kind, or 0."""
    for kind in _KINDS:
        if values and all(map(kind.fullmatch, values)):
            return 1 if kind.fullmatch(name) else -1
    if values.count(name) > 1:
        return 1
    if name[-1] in "?:" and 2 * sum(value[-1] == name[-1] for value in values) <= len(values):
        return 0  # surveys have questions as names
    n_words = len(name.split())
    return int(len(name) > _LONGEST_NAME or n_words > 7 or (n_words > 3 and name[-1] in ".!…"))
