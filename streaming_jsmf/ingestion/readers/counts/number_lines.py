"""Lines of numbers "document word count" after a header: what docword and Matrix Market files have in common."""

from __future__ import annotations

import io
import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.counts.entries import BagBuilder, Entries
from streaming_jsmf.ingestion.readers.counts.word_lists import CountFiles, read_words, whole_file
from streaming_jsmf.ingestion.readers.lines import LineBlock, LineReader, n_lines
from streaming_jsmf.ingestion.readers.records import BadValue
from streaming_jsmf.ingestion.readers.streams import UnreadableError, is_compressed, open_stream

_SIZE = re.compile(rb"[0-9]{1,40}")
_WHOLE = re.compile(rb"[+-]?[0-9]{1,40}")
_REAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.I)
_EDGES = re.compile(rb"^[ \t]+|[ \t\r]+$", re.M)
_GAPS = re.compile(rb"[ \t]+")


@dataclass(frozen=True)
class Layout:
    """What lines of numbers hold.

    Attributes
    ----------
    document, word
        Which number of a line is the document and which the word, both counted from 1 in the file.
    count
        "whole" or "real" numbers, or "none": each line counts 1.
    n_documents, n_words
        The largest document and word.
    n_entries, size_line
        How many lines the header says there are, and in which line, from 0, it says so.
    order
        What to do about documents that fall.
    words_said
        How the header says ``n_words``, for messages.
    numbered
        Whether documents have their number as id.
    """

    document: int
    word: int
    count: Literal["whole", "real", "none"]
    n_documents: int
    n_words: int
    n_entries: int
    size_line: int
    order: str
    words_said: str
    numbered: bool

    @property
    def n_numbers(self) -> int:
        """Numbers in a line."""
        return 2 if self.count == "none" else 3

    @property
    def count_type(self) -> Any:
        """Type of the counts of entries."""
        return np.float64 if self.count == "real" else np.int64

    @property
    def smallest(self) -> float:
        """The smallest count that is one."""
        return SMALLEST_COUNT if self.count == "real" else 1

    def check_words(self, n_words: int, listed: str) -> None:
        """Raise UnreadableError if the word list ``listed`` has another number of words."""
        if self.n_words != n_words:
            raise UnreadableError(f"{self.words_said}, the word list {listed} has {n_words} words")


class NumberFiles(CountFiles):
    """Files with a header and lines of numbers: each is a unit, read once and in blocks; a record is a line."""

    def units(self) -> list[Unit]:
        """One for each file. Raises InputError for a missing file and for word lists that differ."""
        units = [whole_file(path) for path in self.files]
        _ = self.vocabulary
        return units

    def place(self, unit: Unit, row: int) -> str:
        """File and line, from 1, of a record."""
        return f"{unit.path}, line {row + 1}"

    def words_of(self, path: str) -> tuple[str, ...]:
        """The words of one file. Reads its word list."""
        return read_words(self.word_list(path))

    @abstractmethod
    def word_list(self, path: str) -> str:
        """Path of the word list of a file."""

    @abstractmethod
    def header(self, lines: LineReader) -> Layout | None:
        """What the first lines say; None if the stream breaks off in them.

        Raises
        ------
        UnreadableError
            If they are no header.
        """

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """Stream the documents of a file. Memory: a few blocks of lines, one document and the words.

        Raises
        ------
        InputError
            For a word list that is missing, and under "fail" for a file that cannot be read and the first bad line.
        """
        listed = self.word_list(unit.path)
        try:
            with open_stream(unit.path) as stream:
                lines = LineReader(stream)
                layout = self.header(lines)
                if layout is not None:
                    layout.check_words(len(read_words(listed)), listed)
                    yield from _read_counts(lines, layout, most_empty_documents(unit), bad)
                if lines.damage:
                    bad.refuse(lines.line, lines.damage, lines.kept)
        except UnreadableError as error:
            bad.refuse(None, str(error))


def _read_counts(
    lines: LineReader, layout: Layout, most_empty: int, bad: BadRecords
) -> Iterator[SourceBatch]:
    """The documents in the lines after the header, to the end."""
    numbers = NumberLines(layout, bad)
    builder = BagBuilder(layout.n_words, layout.count_type, layout.numbered, most_empty, bad)
    for block in lines.blocks():
        yield from builder.add(numbers.read(block))
    if not lines.damage and numbers.n_lines != layout.n_entries:
        found = f"the file has {numbers.n_lines} lines of counts"
        bad.refuse(layout.size_line, f"the header says NNZ = {layout.n_entries}, {found}")
    # Of what was after a cut we know nothing, not even that documents were empty.
    yield from builder.close(None if lines.damage else layout.n_documents, lines.line)


def most_empty_documents(unit: Unit) -> int:
    """Documents of a file that no line may speak of: by its size, for what its header declares costs nothing there."""
    size = unit.size * (limits.LARGEST_PACKING if is_compressed(unit.path) else 1)
    by_size = limits.EMPTY_DOCUMENTS_PER_BYTE * size
    return min(limits.EMPTY_DOCUMENTS, by_size) if size else limits.EMPTY_DOCUMENTS


def parse_size(text: bytes) -> int | None:
    """A size of a header; None where it is no number."""
    return int(text) if _SIZE.fullmatch(text.strip()) else None


class NumberLines:
    """Reads blocks of lines as entries; a line that is bad is refused and left out.

    Attributes
    ----------
    n_lines
        Lines read so far, bad ones too, blank ones not.
    """

    def __init__(self, layout: Layout, bad: BadRecords) -> None:
        self.n_lines = 0
        self._layout = layout
        self._bad = bad
        self._last = 1  # largest document so far, as the file counts

    def read(self, block: LineBlock) -> Entries:
        """The entries of a block. Documents rise within and between blocks."""
        numbers = self._at_once(block.data)
        if numbers is None:
            numbers, lines = self._one_by_one(block)
        else:
            lines = block.first + np.arange(len(numbers[0]))
            self.n_lines += len(lines)
        document, word = numbers[self._layout.document], numbers[self._layout.word]
        if len(document):
            self._last = int(document[-1])
        count = np.ones(len(lines), np.int64) if self._layout.count == "none" else numbers[2]
        return Entries(document - 1, word - 1, count, lines)

    def _at_once(self, data: bytes) -> list[NDArray[Any]] | None:
        """Columns of a block without fault; None if there may be one."""
        # Arrow reads 0x1F as a number, which no line of counts should hold.
        if b"x" in data or b"X" in data:
            return None
        numbers = self._columns(data)
        if numbers is None:
            numbers = self._columns(_GAPS.sub(b" ", _EDGES.sub(b"", data)))
        if numbers is None or len(numbers[0]) != n_lines(data):
            return None
        layout = self._layout
        document, word = numbers[layout.document], numbers[layout.word]
        good = (document >= self._last) & (document <= layout.n_documents)
        good[1:] &= np.diff(document) >= 0
        good &= (word >= 1) & (word <= layout.n_words)
        if layout.count != "none":
            # Comparisons with NaN are false, so it is refused as well.
            good &= (numbers[2] >= layout.smallest) & (numbers[2] <= LARGEST_COUNT)
        return numbers if good.all() else None

    def _columns(self, data: bytes) -> list[NDArray[Any]] | None:
        layout = self._layout
        names = ["0", "1", "2"][: layout.n_numbers]
        types = [pa.int64(), pa.int64(), pa.float64() if layout.count == "real" else pa.int64()]
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(data),
                pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
                pa_csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
                pa_csv.ConvertOptions(
                    column_types=dict(zip(names, types, strict=False)), null_values=[], check_utf8=False
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [column.to_numpy() for column in table.columns]

    def _one_by_one(self, block: LineBlock) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """Columns of the good lines and their numbers; slow, and knows which line is bad and why."""
        layout = self._layout
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
            self._last = good[-1][layout.document]
        types = [np.int64, np.int64, layout.count_type][: layout.n_numbers]
        columns = list(zip(*good, strict=True)) or [()] * layout.n_numbers
        arrays = [np.array(values, kind) for values, kind in zip(columns, types, strict=True)]
        return arrays, np.array(lines, np.int64)

    def _numbers(self, line: bytes) -> list[int | float]:
        layout = self._layout
        fields = line.split()
        if len(fields) != layout.n_numbers:
            raise BadValue(
                f"the line has {len(fields)} fields, not {layout.n_numbers}: {shown(line)}; it may be cut"
            )
        document = _whole(fields[layout.document], "document")
        word = _whole(fields[layout.word], "word")
        if not 1 <= document <= layout.n_documents:
            raise BadValue(f"document {document} is outside 1..{layout.n_documents}")
        if document < self._last:
            raise BadValue(f"document {document} comes after document {self._last}; {layout.order}")
        if not 1 <= word <= layout.n_words:
            raise BadValue(f"word {word} is not in the vocabulary of {layout.n_words} words")
        if layout.count == "none":
            return [int(field) for field in fields]
        count = _real(fields[2]) if layout.count == "real" else _whole(fields[2], "count")
        if not layout.smallest <= count <= LARGEST_COUNT:
            raise BadValue(f"count {count} is not in (0, {LARGEST_COUNT}], as every count must be")
        return [int(fields[0]), int(fields[1]), count]


def shown(text: bytes) -> str:
    """The start of a line or field for messages: quoted, one line, no more than 60 bytes."""
    return repr(text[:60].decode("ascii", "backslashreplace"))


def _whole(text: bytes, name: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise BadValue(f"the {name} {shown(text)} is no whole number")
    return int(text)


def _real(text: bytes) -> float:
    if not _REAL.fullmatch(text):
        raise BadValue(f"the count {shown(text)} is no number")
    return float(text)
