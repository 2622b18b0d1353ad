"""Counts as lines of numbers "document word count" after a header: UCI bags of words (docword) and Matrix Market."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, narrow_counts
from streaming_jsmf.errors import option
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, Batch, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import first_link, is_compressed, open_stream, read_pieces
from streaming_jsmf.ingestion.readers.formats import original, too_long
from streaming_jsmf.ingestion.readers.matrices import NO_COUNT, CountFiles, are_counts, sums, too_large
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH

_SIZE = re.compile(rb"[0-9]{1,40}")
_DOCWORD_NAME = re.compile(r"docword\.(.+?)\.txt(\.[a-z0-9]+)?")
_BANNER = "%%MatrixMarket matrix coordinate integer|real|pattern general"
_WHOLE = re.compile(rb"[+-]?[0-9]{1,40}")
_REAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.I)
_TYPES = {b"integer": (np.int64,) * 3, b"real": (np.int64, np.int64, np.float64), b"pattern": (np.int64,) * 2}

#: Counts in a file, as arrays of equal length: documents and words, from 0, the counts, and their lines.
Entries = tuple[NDArray[Any], ...]
_NOTHING: Entries = (np.empty(0, np.int64),) * 4


@dataclass(frozen=True)
class Header:
    """The header of a file: the largest document and word, which count from 1, and the number of lines that follow.

    ``size_line`` gives the latter, from 0; ``types`` are those of the fields of a line, without one for counts if each
    counts 1; ``document`` is the position of the document (0 or 1); ``hint`` is for messages about sizes and order.
    """

    n_documents: int
    n_words: int
    n_entries: int
    size_line: int
    types: tuple[Any, ...] = (np.int64, np.int64, np.int64)
    document: int = 0
    hint: str = ""

    @property
    def whole(self) -> bool:
        return np.float64 not in self.types


class NumberFiles(CountFiles):
    """Base of readers of number lines: each file is a unit, read once in blocks; a record is a line.

    Under "quarantine" a bad line is left out and the rest of its document kept. A document without lines is an empty
    bag. ``first_number`` is the number of the first document.
    """

    refuses_documents = False
    first_number: ClassVar[int] = 0

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, line {row + 1}"

    @abstractmethod
    def header(self, stream: Any) -> Header:
        """Read the first lines. Raises UnreadableError if they are not a header."""

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        """Stream the documents of a file. Memory: a few blocks of lines, one document and the words."""
        with bad.unreadable_file(), open_stream(unit.path) as stream:
            header = self.header(stream)
            self.require_words(unit.path, header.n_words, header.hint)
            blocks, most = _entries(stream, header, bad), limits.EMPTY_DOCUMENTS
            if unit.size:
                size = unit.size * (limits.LARGEST_PACKING if is_compressed(unit.path) else 1)
                most = min(most, limits.EMPTY_DOCUMENTS_PER_BYTE * size)
            for start, stop, entries in _documents(blocks, header.n_words, most):
                yield from _bags(entries, range(start, stop), header.whole, bad, self.first_number)


class DocwordSource(NumberFiles):
    """Reader "docword": D, W, NNZ, then lines "documentID wordID count" from 1, in ascending order of documents.

    ``document_id`` is the number of the document, which counts on from file to file. All files have the same words.
    """

    reader = "docword"
    patterns = ("docword*.txt",)
    stop_words = ENGLISH
    first_number = 1

    def usual_word_lists(self, path: str) -> Sequence[str]:
        named = _DOCWORD_NAME.fullmatch(first_link(path).rsplit("/", 1)[-1])
        return [*([f"vocab.{named[1]}.txt"] if named else []), "vocab.txt"]

    def header(self, stream: Any) -> Header:
        sizes: list[int] = []
        for number, name in enumerate(("documents D", "words W", "counts NNZ"), 1):
            line = _next_header_line(stream, number == 1, "its first lines must be D, W and NNZ")
            if not _SIZE.fullmatch(line.strip()):
                raise UnreadableError(f"line {number} is {shown(line)}, not the number of {name}")
            sizes.append(int(line))
        return Header(sizes[0], sizes[1], sizes[2], size_line=2)


class MatrixMarketSource(NumberFiles):
    """Reader "matrix-market": a sparse matrix as lines "row column count", grouped by document.

    Integers stay integers, reals become float32, and pattern entries count 1. Documents have no ids. All files have the
    same words.
    """

    reader = "matrix-market"
    patterns = ("*.mtx", "*.mm")

    def header(self, stream: Any) -> Header:
        missing = f"its first line must be {_BANNER}"
        banner = _next_header_line(stream, True, missing)
        number, line = 1, b"%"
        while line.startswith(b"%") or not line.strip():
            number, line = number + 1, _next_header_line(stream, False, missing)
        kind = banner.lower().split()
        if kind[:3] != _BANNER.lower().encode().split()[:3] or kind[4:] != [b"general"]:
            raise UnreadableError(
                f"line 1 is {shown(banner)}; only {_BANNER} can be read; write the matrix in this format"
            )
        if kind[3] not in _TYPES:
            raise UnreadableError(
                f"line 1 says the numbers are {shown(kind[3])}; they must be integer, real or pattern"
            )
        if len(line.split()) != 3 or not all(map(_SIZE.fullmatch, line.split())):
            raise UnreadableError(
                f"line {number} is {shown(line)}; it must have the numbers of rows, columns and entries"
            )
        *sizes, n_entries = (int(size) for size in line.split())
        document, other = (0, "columns") if self.options.documents == "rows" else (1, "rows")
        return Header(
            sizes[document],
            sizes[1 - document],
            n_entries,
            size_line=number - 1,
            types=_TYPES[kind[3]],
            document=document,
            hint=f"; if the {other} are the documents, use {option.read({'documents': other})}",
        )


def _next_header_line(stream: Any, first: bool, missing: str) -> bytes:
    """Return the next line of a header. Raises UnreadableError, with what is ``missing``, if the file ends."""
    line: bytes = stream.readline(limits.LONGEST_LINE + 1)
    if len(line) > limits.LONGEST_LINE and not line.endswith(b"\n"):
        raise UnreadableError(too_long())
    if not line:
        raise UnreadableError(f"{'it is empty' if first else 'it ends in its header'}; {missing}")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _entries(stream: Any, header: Header, bad: BadRecords) -> Iterator[tuple[Entries, int]]:
    """Yield blocks of the good lines after a header, and the number of documents that are complete after each."""
    reached = n_found = 0
    try:
        for first, block in _line_blocks(stream, header.size_line + 1):
            entries, reached, n_lines_of_block = _good_entries(block, first, reached, header, bad)
            n_found += n_lines_of_block
            if len(entries[0]):
                yield entries, reached - 1
    except UnreadableError as error:
        # Nothing is known about further documents, not even that they are empty.
        yield _NOTHING, reached
        bad.refuse(error.line, str(error), error.record)
        return
    if n_found != header.n_entries:
        reason = f"the header says NNZ = {header.n_entries}, the number of lines of counts is {n_found}"
        bad.refuse(header.size_line, reason)
    yield _NOTHING, header.n_documents


def _line_blocks(stream: Any, first: int) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines of about ``BATCH_BYTES`` with the number of their first line, from ``first``."""
    rest, damage, ended = b"", "", False
    while not ended:
        read, damage = read_pieces(stream, limits.BATCH_BYTES)
        data = rest + read
        if len(data) > limits.LONGEST_LINE and b"\n" not in data:
            damage = too_long()
        ended = bool(damage) or len(read) < limits.BATCH_BYTES
        cut = len(data) if ended and not damage else data.rfind(b"\n") + 1
        block, rest = data[:cut], data[cut:]
        if block:
            yield first, block
            first += _n_lines(block)
    if damage:
        raise UnreadableError(damage, first, original([rest], 0) or None)


def _good_entries(
    block: bytes, first: int, reached: int, header: Header, bad: BadRecords
) -> tuple[Entries, int, int]:
    """Return the good entries of a block, the largest document so far, and the number of lines except blank ones."""
    rows, columns, faults = _columns(block, header)
    n_found = len(rows) + len(faults)
    document, word = columns[header.document], columns[1 - header.document]
    count = columns[2] if len(columns) > 2 else np.ones(len(rows))
    counted = are_counts(count, header.whole)
    known = (word >= 1) & (word <= header.n_words)
    there = (document >= 1) & (document <= header.n_documents)
    last = np.maximum.accumulate(np.append(reached, np.where(counted & known & there, document, 0)))[1:]
    in_order = document >= last
    good = counted & known & there & in_order
    if faults or not good.all():
        # The first of several reasons comes last.
        reasons = {
            f"count {{count}} {NO_COUNT}": counted,
            f"word {{word}} is not in the vocabulary of {header.n_words} words": known,
            "document {document} comes after document {last}; sort the lines by document{hint}": in_order,
            f"document {{document}} is outside 1..{header.n_documents}": there,
        }
        for reason, right in reasons.items():
            for i in np.flatnonzero(~right).tolist():
                values = {"count": count[i], "word": word[i], "document": document[i], "last": last[i]}
                faults[int(rows[i])] = reason.format_map({**values, "hint": header.hint})
        lines = block.split(b"\n")
        for row in sorted(faults):
            bad.refuse(first + row, faults[row], lines[row])
    entries: Entries = (document - 1, word - 1, count, first + rows)
    if not good.all():
        entries = tuple(values[good] for values in entries)
    return entries, int(np.append(reached, last)[-1]), n_found


def _columns(block: bytes, header: Header) -> tuple[NDArray[np.int64], list[NDArray[Any]], dict[int, str]]:
    """Return the numbers of the well-formed lines, their columns, and the faults of the other lines by number."""
    if b"x" not in block and b"X" not in block:  # Arrow accepts 0x1F as a number
        columns = _parse(block, header.types)
        if columns is None:
            columns = _parse(b"\n".join(b" ".join(line.split()) for line in block.split(b"\n")), header.types)
        if columns is not None:
            return np.arange(len(columns[0])), columns, {}
    rows, values, faults = [], [], {}
    for row, line in enumerate(block.split(b"\n")):
        try:
            if fields := _numbers(line.split(), header):
                rows.append(row)
                values.append(fields)
        except BadValue as error:
            faults[row] = str(error)
    found = list(zip(*values, strict=True)) or [()] * len(header.types)
    return (
        np.array(rows, np.int64),
        [np.array(*pair) for pair in zip(found, header.types, strict=True)],
        faults,
    )


def _parse(block: bytes, types: Sequence[Any]) -> list[NDArray[Any]] | None:
    """Return the columns that Arrow reads from a block; None unless each line has these numbers."""
    kinds = {str(i): pa.from_numpy_dtype(kind) for i, kind in enumerate(types)}
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=[*kinds]),
            pa_csv.ParseOptions(delimiter=" ", quote_char=False),
            pa_csv.ConvertOptions(column_types=kinds, null_values=[], check_utf8=False),
        )
    except pa.ArrowInvalid:
        return None
    # Arrow skips empty lines.
    return [column.to_numpy() for column in table.columns] if len(table) == _n_lines(block) else None


def _n_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _numbers(fields: Sequence[bytes], header: Header) -> list[int | float]:
    """Return the numbers of a line; none if it is blank. Raises BadValue if it has others than its header says."""
    if fields and len(fields) != len(header.types):
        line = shown(b" ".join(fields))
        raise BadValue(
            f"the number of fields is {len(fields)}, not {len(header.types)}: {line}; it may be truncated"
        )
    names = {header.document: "document", 1 - header.document: "word", 2: "count"}
    found: list[int | float] = []
    for i, (field, kind) in enumerate(zip(fields, header.types, strict=False)):
        is_real = kind is np.float64
        if not (_REAL if is_real else _WHOLE).fullmatch(field):
            raise BadValue(f"the {names[i]} {shown(field)} is not a {'whole ' * (not is_real)}number")
        found.append(float(field) if is_real else int(field))
        if not is_real and abs(found[i]) >= 2**63:
            raise BadValue(f"the {names[i]} {shown(field)} is out of range")
    return found


def shown(text: bytes) -> str:
    """Quote the start of a line or field for messages: one line, at most 60 bytes."""
    return repr(text[:60].decode("ascii", "backslashreplace"))


def _documents(
    blocks: Iterable[tuple[Entries, int]], n_words: int, most_empty: int
) -> Iterator[tuple[int, int, Entries]]:
    """Yield ranges of documents with their entries, in which words are distinct and ascending."""
    held = _NOTHING  # of documents that may continue in the next block
    start = empty = 0
    for entries, stop in blocks:
        document, word, count, line = (np.concatenate(pair) for pair in zip(held, entries, strict=True))
        at, totals = sums(document * n_words + word, count)
        cut = int(np.searchsorted(document[at], stop))
        merged = (document[at], word[at], totals, line[at])
        complete, held = tuple(values[:cut] for values in merged), tuple(values[cut:] for values in merged)
        empty += stop - start - int(np.count_nonzero(np.diff(complete[0], prepend=-1)))
        if empty > most_empty:
            raise UnreadableError(
                f"the number of documents without counts up to number {stop} is {empty}, more than {most_empty} for "
                "its size; correct the numbers or leave such documents out"
            )
        yield start, stop, complete
        start = stop


def _bags(entries: Entries, documents: range, whole: bool, bad: BadRecords, first: int) -> Iterator[Batch]:
    """Yield the bags of a range of documents, the first of which has the number ``first``."""
    document, word, count, line = entries
    large = count > LARGEST_COUNT
    for i in np.flatnonzero(large).tolist():
        bad.refuse(int(line[i]), too_large(count[i], word[i] + 1))
    if large.any():
        document, word, count = document[~large], word[~large], count[~large]
    # There may be millions of empty documents in a row.
    for start in documents[:: limits.BATCH_VALUES]:
        numbers = np.arange(start, min(start + limits.BATCH_VALUES, documents.stop) + 1)
        bounds = np.searchsorted(document, numbers)
        inside = slice(bounds[0], bounds[-1])
        counts = narrow_counts(count[inside].astype(np.int64) if whole else count[inside])
        yield Batch(bounds - bounds[0], word[inside].astype(np.int32), counts, numbers[:-1] + first)
