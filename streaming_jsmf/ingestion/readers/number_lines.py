"""Lines of numbers "document word count" after a header, as in docword and Matrix Market files."""

from __future__ import annotations

import io
import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT, narrow_counts
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, SourceBatch, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.counts import (
    CountFiles,
    Entries,
    merge_entries,
    too_large,
    whole_file,
)
from streaming_jsmf.ingestion.readers.files import is_compressed, open_stream
from streaming_jsmf.ingestion.readers.lines import LineBlock, LineReader, n_lines

_SIZE = re.compile(rb"[0-9]{1,40}")
_WHOLE = re.compile(rb"[+-]?[0-9]{1,40}")
_REAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.I)
_EDGES = re.compile(rb"^[ \t]+|[ \t\r]+$", re.M)
_GAPS = re.compile(rb"[ \t]+")


@dataclass(frozen=True)
class Header:
    """The header of a file.

    Attributes
    ----------
    document, word
        Positions of the document and the word in a line; both count from 1 in the file.
    count_type
        int64 or float64; None if each line counts 1.
    n_documents, n_words, n_entries
        Largest document and word, and number of lines.
    size_line
        Line of the header, from 0, that gives ``n_entries``.
    order, words_said
        For messages: how to correct the order of documents, and how the header gives ``n_words``.
    """

    document: int
    word: int
    count_type: type[np.int64] | type[np.float64] | None
    n_documents: int
    n_words: int
    n_entries: int
    size_line: int
    order: str
    words_said: str
    numbered: bool

    @property
    def types(self) -> list[Any]:
        return [np.int64, np.int64, *([self.count_type] if self.count_type else [])]

    @property
    def smallest(self) -> float:
        return SMALLEST_COUNT if self.count_type is np.float64 else 1


class NumberFiles(CountFiles):
    """Base of readers of number lines: each file is a unit, read once in blocks; a record is a line.

    Under "quarantine" a bad line is left out and the rest of its document kept. A document without lines is an empty
    bag; ``rows`` are the lines, from 0, at which documents start.
    """

    def units(self) -> list[Unit]:
        units = [whole_file(path) for path in self.files]
        _ = self.vocabulary
        return units

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, line {row + 1}"

    @abstractmethod
    def header(self, lines: LineReader) -> Header | None:
        """Read the first lines; None if the stream breaks off. Raises UnreadableError if they are not a header."""

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """Stream the documents of a file. Memory: a few blocks of lines, one document and the words."""
        listed = self.word_list(unit.path)
        with bad.unreadable_file(), open_stream(unit.path) as stream:
            lines = LineReader(stream)
            header = self.header(lines)
            if header is not None:
                n_words = len(self.words_of(unit.path))
                if header.n_words != n_words:
                    raise UnreadableError(f"{header.words_said}, the word list {listed} has {n_words} words")
                yield from _read_counts(lines, header, _most_empty(unit), bad)
            if lines.damage:
                bad.refuse(lines.line, lines.damage, lines.partial_line)


def parse_size(text: bytes) -> int | None:
    """Parse a size in a header; None if it is not a number."""
    return int(text) if _SIZE.fullmatch(text.strip()) else None


def shown(text: bytes) -> str:
    """Quote the start of a line or field for messages: one line, at most 60 bytes."""
    return repr(text[:60].decode("ascii", "backslashreplace"))


def _read_counts(
    lines: LineReader, header: Header, most_empty: int, bad: BadRecords
) -> Iterator[SourceBatch]:
    parser = EntryParser(header, bad)
    builder = _BagBuilder(header, most_empty, bad)
    for block in lines.blocks():
        yield from builder.add(parser.parse(block))
    if not lines.damage and parser.n_lines != header.n_entries:
        found = f"the file has {parser.n_lines} lines of counts"
        bad.refuse(header.size_line, f"the header says NNZ = {header.n_entries}, {found}")
    # After a cut, nothing is known about further documents, not even that they are empty.
    yield from builder.close(None if lines.damage else header.n_documents, lines.line)


def _most_empty(unit: Unit) -> int:
    size = unit.size * (limits.LARGEST_PACKING if is_compressed(unit.path) else 1)
    by_size = limits.EMPTY_DOCUMENTS_PER_BYTE * size
    return min(limits.EMPTY_DOCUMENTS, by_size) if size else limits.EMPTY_DOCUMENTS


class EntryParser:
    """Parser of blocks of lines that refuses bad lines; ``n_lines`` counts all lines read except blank ones."""

    def __init__(self, header: Header, bad: BadRecords) -> None:
        self.n_lines = 0
        self._header = header
        self._bad = bad
        self._last = 1  # largest document number so far, from 1

    def parse(self, block: LineBlock) -> Entries:
        """Return the entries of a block in ascending order of documents; lines out of order are refused."""
        numbers = self._parse_block(block.data)
        if numbers is None:
            numbers, lines = self._parse_by_line(block)
        else:
            lines = block.first + np.arange(len(numbers[0]))
            self.n_lines += len(lines)
        document, word = numbers[self._header.document], numbers[self._header.word]
        if len(document):
            self._last = int(document[-1])
        count = numbers[2] if self._header.count_type else np.ones(len(lines), np.int64)
        return Entries(document - 1, word - 1, count, lines)

    def _parse_block(self, data: bytes) -> list[NDArray[Any]] | None:
        """Return the columns of a block without faults; None if there may be one."""
        # Arrow accepts 0x1F as a number.
        if b"x" in data or b"X" in data:
            return None
        numbers = self._columns(data)
        if numbers is None:
            numbers = self._columns(_GAPS.sub(b" ", _EDGES.sub(b"", data)))
        if numbers is None or len(numbers[0]) != n_lines(data):
            return None
        header = self._header
        document, word = numbers[header.document], numbers[header.word]
        good = (document >= self._last) & (document <= header.n_documents)
        good[1:] &= np.diff(document) >= 0
        good &= (word >= 1) & (word <= header.n_words)
        if header.count_type:
            # Comparisons with NaN are false, so NaN is refused as well.
            good &= (numbers[2] >= header.smallest) & (numbers[2] <= LARGEST_COUNT)
        return numbers if good.all() else None

    def _columns(self, data: bytes) -> list[NDArray[Any]] | None:
        types = {str(i): pa.from_numpy_dtype(kind) for i, kind in enumerate(self._header.types)}
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=list(types)),
                pa_csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
                pa_csv.ConvertOptions(column_types=types, null_values=[], check_utf8=False),
            )
        except pa.ArrowInvalid:
            return None
        return [column.to_numpy() for column in table.columns]

    def _parse_by_line(self, block: LineBlock) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """Return the columns of the good lines and their line numbers. Slow, but locates the bad lines."""
        header = self._header
        good: list[list[Any]] = []
        lines = []
        for i, ended in enumerate(io.BytesIO(block.data), block.first):
            if not ended.strip():
                continue
            self.n_lines += 1
            line = ended.removesuffix(b"\n")
            try:
                good.append(self._numbers(line))
            except BadValue as reason:
                self._bad.refuse(i, str(reason), line)
                continue
            lines.append(i)
            self._last = good[-1][header.document]
        columns = list(zip(*good, strict=True)) or [()] * len(header.types)
        arrays = [np.array(values, kind) for values, kind in zip(columns, header.types, strict=True)]
        return arrays, np.array(lines, np.int64)

    def _numbers(self, line: bytes) -> list[int | float]:
        header = self._header
        fields = line.split()
        if len(fields) != len(header.types):
            raise BadValue(
                f"the line has {len(fields)} fields, not {len(header.types)}: {shown(line)}; it may be cut"
            )
        document = _whole(fields[header.document], "document")
        word = _whole(fields[header.word], "word")
        if not 1 <= document <= header.n_documents:
            raise BadValue(f"document {document} is outside 1..{header.n_documents}")
        if document < self._last:
            raise BadValue(f"document {document} comes after document {self._last}; {header.order}")
        if not 1 <= word <= header.n_words:
            raise BadValue(f"word {word} is not in the vocabulary of {header.n_words} words")
        if header.count_type is None:
            return [int(field) for field in fields]
        count = _whole(fields[2], "count") if header.count_type is np.int64 else _real(fields[2])
        if not header.smallest <= count <= LARGEST_COUNT:
            raise BadValue(f"count {count} is not in (0, {LARGEST_COUNT}], as every count must be")
        return [int(fields[0]), int(fields[1]), count]


def _whole(text: bytes, name: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise BadValue(f"the {name} {shown(text)} is not a whole number")
    return int(text)


def _real(text: bytes) -> float:
    if not _REAL.fullmatch(text):
        raise BadValue(f"the count {shown(text)} is not a number")
    return float(text)


class _BagBuilder:
    """Build batches of bags from sorted entries; UnreadableError if too many documents have no entries."""

    def __init__(self, header: Header, most_empty: int, bad: BadRecords) -> None:
        self._header = header
        empty = np.empty(0, np.int64)
        # Entries of the last document, which may continue in the next block.
        self._open = Entries(empty, empty, np.empty(0, header.count_type or np.int64), empty)
        self._most_empty = most_empty
        self._bad = bad
        self._next = 0  # first document not returned
        self._empty = 0  # documents without entries

    def add(self, entries: Entries) -> Iterator[SourceBatch]:
        """Yield the documents before the last one, including those without entries."""
        if len(entries.document) == 0:
            return
        together = merge_entries(self._open.followed_by(entries), self._header.n_words)
        last = int(together.document[-1])
        cut = int(np.searchsorted(together.document, last))
        self._open = together.take(slice(cut, None))
        yield from self._emit(together.take(slice(0, cut)), last, int(self._open.line[0]))

    def close(self, n_documents: int | None, end: int) -> Iterator[SourceBatch]:
        """Yield the remaining documents, to ``n_documents`` or the last one with entries; ``end`` is the next line."""
        seen = int(self._open.document[-1]) + 1 if len(self._open.document) else 0
        yield from self._emit(self._open, seen if n_documents is None else n_documents, end)

    def _emit(self, entries: Entries, stop: int, end: int) -> Iterator[SourceBatch]:
        self._empty += stop - self._next - int(np.count_nonzero(np.diff(entries.document, prepend=-1)))
        if self._empty > self._most_empty:
            raise UnreadableError(
                f"{self._empty} documents up to number {stop} have no counts, more than {self._most_empty} "
                "for its size; correct the numbers or leave such documents out"
            )
        large = entries.count > LARGEST_COUNT
        for i in np.flatnonzero(large):
            self._bad.refuse(int(entries.line[i]), too_large(entries.count[i], f"{entries.word[i] + 1}"))
        kept = entries.take(~large)
        lines = np.append(kept.line, end)
        # There may be millions of empty documents in a row.
        for start in range(self._next, stop, limits.BATCH_VALUES):
            documents = np.arange(start, min(start + limits.BATCH_VALUES, stop) + 1)
            bounds = np.searchsorted(kept.document, documents)
            inside = kept.take(slice(bounds[0], bounds[-1]))
            yield SourceBatch(
                indptr=bounds - bounds[0],
                codes=inside.word.astype(np.int32),
                counts=narrow_counts(inside.count),
                rows=lines[bounds[:-1]],
                document_id=pa.array(documents[1:]) if self._header.numbered else None,
            )
        self._next = stop
