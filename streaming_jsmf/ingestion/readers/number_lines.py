"""Counts as lines of numbers "document word count" after a header: UCI bags of words (docword) and Matrix Market."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    DamagedError,
    SourceBatch,
    Unit,
    UnreadableError,
)
from streaming_jsmf.ingestion.readers.counts import BagBuilder, CountFiles, Entries, whole_file
from streaming_jsmf.ingestion.readers.files import compressed, is_compressed, open_stream
from streaming_jsmf.ingestion.readers.lines import LineBlock, header_line, line_blocks, n_lines
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.validation import Strict

_SIZE = re.compile(rb"[0-9]{1,40}")
_DOCWORD_NAME = re.compile(r"docword\.(.+?)\.txt(\.[a-z0-9]+)?")
_COUNT_TYPES: dict[bytes, type[np.int64] | type[np.float64] | None] = {
    b"integer": np.int64,
    b"real": np.float64,
    b"pattern": None,
}
_BANNER = "%%MatrixMarket matrix coordinate integer|real|pattern general"
_WHOLE = re.compile(rb"[+-]?[0-9]{1,40}")
_REAL = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?(inf|infinity|nan)", re.I)
_EDGES = re.compile(rb"^[ \t]+|[ \t\r]+$", re.M)
_GAPS = re.compile(rb"[ \t]+")
_FAR = 2**62  # stands for larger integers, all out of range


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
    numbered
        Whether the numbers of documents are their ids.
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
    def header(self, stream: Any) -> Header:
        """Read the first lines. Raises UnreadableError if they are not a header."""

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """Stream the documents of a file. Memory: a few blocks of lines, one document and the words."""
        listed = self.word_list(unit.path)
        with bad.unreadable_file(), open_stream(unit.path) as stream:
            header, n_words = self.header(stream), len(self.words_of(unit.path))
            if header.n_words != n_words:
                raise UnreadableError(f"{header.words_said}, the word list {listed} has {n_words} words")
            parser = EntryParser(header, bad)
            builder = BagBuilder(
                n_words, header.count_type or np.int64, header.numbered, _most_empty(unit), bad
            )
            end = header.size_line + 1
            try:
                for block in line_blocks(stream, end):
                    end = block.stop
                    yield from builder.add(parser.parse(block))
            except DamagedError as error:
                # Nothing is known about further documents, not even that they are empty.
                yield from builder.close(None, end)
                bad.refuse(error.line, str(error), error.record)
                return
            if parser.n_lines != header.n_entries:
                found = f"the file has {parser.n_lines} lines of counts"
                bad.refuse(header.size_line, f"the header says NNZ = {header.n_entries}, {found}")
            yield from builder.close(header.n_documents, end)


class DocwordOptions(Strict):
    """``vocabulary`` is the word list, relative to the file; the default for ``docword.X.txt`` is ``vocab.X.txt``."""

    vocabulary: str | None = None


class DocwordSource(NumberFiles):
    """Reader "docword": D, W, NNZ, then lines "documentID wordID count" from 1, in ascending order of documents.

    ``document_id`` is the number of the document. All files have the same words.
    """

    reader = "docword"
    options_type = DocwordOptions
    patterns = compressed("docword*.txt")
    stop_words = ENGLISH

    def usual_word_lists(self, path: str) -> Sequence[str]:
        named = _DOCWORD_NAME.fullmatch(path.rsplit("/", 1)[-1])
        return [f"vocab.{named[1]}.txt" if named else "vocab.txt"]

    def header(self, stream: Any) -> Header:
        sizes: list[int] = []
        for number, name in enumerate(("documents D", "words W", "counts NNZ"), 1):
            line = _next_header_line(stream, number == 1, "its first lines must be D, W and NNZ")
            if not _SIZE.fullmatch(line.strip()):
                raise UnreadableError(f"line {number} is {shown(line)}, not the number of {name}")
            sizes.append(int(line))
        return Header(
            document=0,
            word=1,
            count_type=np.int64,
            n_documents=sizes[0],
            n_words=sizes[1],
            n_entries=sizes[2],
            size_line=2,
            order="lines must be grouped by document, with rising numbers: sort them",
            words_said=f"line 2 says W = {sizes[1]}",
            numbered=True,
        )


class MatrixMarketOptions(Strict):
    """``documents``: whether "rows" or "columns" are documents; ``vocabulary``: the word list, relative to the file."""

    documents: Literal["rows", "columns"] = "rows"
    vocabulary: str | None = None


class MatrixMarketSource(NumberFiles):
    """Reader "matrix-market": a sparse matrix as lines "row column count", grouped by document.

    Integers stay integers, reals become float32, and pattern entries count 1. Documents have no ids. All files have the
    same words.
    """

    reader = "matrix-market"
    options_type = MatrixMarketOptions
    patterns = compressed("*.mtx")

    def header(self, stream: Any) -> Header:
        missing = f"its first line must be {_BANNER}"
        banner = _next_header_line(stream, True, missing)
        number, line = 1, b"%"
        while line.startswith(b"%") or not line.strip():
            number, line = number + 1, _next_header_line(stream, False, missing)
        kind = banner.lower().split()
        if kind[:3] != _BANNER.lower().encode().split()[:3] or kind[4:] != [b"general"]:
            raise UnreadableError(
                f"line 1 is {shown(banner)}; only {_BANNER} can be read, write the matrix as that"
            )
        if kind[3] not in _COUNT_TYPES:
            raise UnreadableError(
                f"line 1 says the numbers are {shown(kind[3])}; they must be integer, real or pattern"
            )
        if len(line.split()) != 3 or not all(map(_SIZE.fullmatch, line.split())):
            raise UnreadableError(
                f"line {number} is {shown(line)}; it must have the numbers of rows, columns and entries"
            )
        sizes = [int(size) for size in line.split()]
        document, word, other = (0, 1, "columns") if self.options.documents == "rows" else (1, 0, "rows")
        return Header(
            document,
            word,
            _COUNT_TYPES[kind[3]],
            n_documents=sizes[document],
            n_words=sizes[word],
            n_entries=sizes[2],
            size_line=number - 1,
            order="entries must be grouped by document: write the file sorted by document, or, if the "
            f"{other} are the documents, set the option documents to {other!r}",
            words_said=f"the matrix has {sizes[word]} {other} for words (see the option documents)",
            numbered=False,
        )


def _next_header_line(stream: Any, first: bool, missing: str) -> bytes:
    """Return the next line of a header. Raises UnreadableError, with what is ``missing``, if the file ends."""
    line = header_line(stream)
    if line is None:
        raise UnreadableError(f"{'it is empty' if first else 'it ends in its header'}; {missing}")
    return line


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
        header, faults = self._header, dict[int, str]()
        columns = self._columns(block.data)
        if columns is None:
            columns = self._columns(_GAPS.sub(b" ", _EDGES.sub(b"", block.data)))
        if columns is None:
            rows, columns = self._columns_by_line(block.data, faults)
        else:
            rows = np.arange(len(columns[0]))
        self.n_lines += len(rows) + len(faults)
        document, word = columns[header.document], columns[header.word]
        count = columns[2] if header.count_type else np.ones(len(rows), np.int64)
        entries = Entries(document - 1, word - 1, count, block.first + rows)
        if not faults and self._all_good(document, word, count):
            return entries
        # Comparisons with NaN are false, so NaN is refused as well.
        good = (count >= header.smallest) & (count <= LARGEST_COUNT)
        good &= (document >= 1) & (document <= header.n_documents) & (word >= 1) & (word <= header.n_words)
        # The largest document of the good lines up to each line.
        reached = np.maximum.accumulate(np.append(self._last, np.where(good, document, 0)))
        good &= document == reached[1:]
        self._last = int(reached[-1])
        lines = block.data.split(b"\n")
        for i in np.flatnonzero(~good).tolist():
            faults[int(rows[i])] = self._explain(lines[rows[i]].split(), int(reached[i + 1]))
        for row in sorted(faults):
            self._bad.refuse(block.first + row, faults[row], lines[row])
        return entries.take(good)

    def _all_good(self, document: NDArray[Any], word: NDArray[Any], count: NDArray[Any]) -> bool:
        """Return whether no line is to be refused, quickly."""
        header = self._header
        if not (
            len(word)
            and self._last <= document[0]
            and document[-1] <= header.n_documents
            and (document[1:] >= document[:-1]).all()
            and 1 <= word.min() <= word.max() <= header.n_words
            and header.smallest <= count.min() <= count.max() <= LARGEST_COUNT
        ):
            return False
        self._last = int(document[-1])
        return True

    def _columns(self, data: bytes) -> list[NDArray[Any]] | None:
        """Return the columns of a block; None if a line may be blank or malformed."""
        # Arrow accepts 0x1F as a number.
        if b"x" in data or b"X" in data:
            return None
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
        return [column.to_numpy() for column in table.columns] if table.num_rows == n_lines(data) else None

    def _columns_by_line(
        self, data: bytes, faults: dict[int, str]
    ) -> tuple[NDArray[np.int64], list[NDArray[Any]]]:
        """Return the numbers of the well-formed lines and their columns; the others go to ``faults``. Slow."""
        header = self._header
        names = {header.document: "document", header.word: "word", 2: "count"}
        rows, values = [], []
        for row, line in enumerate(data.split(b"\n")):
            fields = line.split()
            try:
                if fields and len(fields) != len(header.types):
                    raise BadValue(
                        f"the line has {len(fields)} fields, not {len(header.types)}: {shown(line)}; it may be cut"
                    )
                parsed = [_number(field, header.types[i], names[i]) for i, field in enumerate(fields)]
            except BadValue as error:
                faults[row] = str(error)
                continue
            if parsed:
                rows.append(row)
                values.append(parsed)
        columns = list(zip(*values, strict=True)) or [()] * len(header.types)
        arrays = [np.array(column, kind) for column, kind in zip(columns, header.types, strict=True)]
        return np.array(rows, np.int64), arrays

    def _explain(self, fields: Sequence[bytes], reached: int) -> str:
        """Return why a well-formed line is refused; ``reached`` is the largest document before it."""
        header = self._header
        document, word = int(fields[header.document]), int(fields[header.word])
        if not 1 <= document <= header.n_documents:
            return f"document {document} is outside 1..{header.n_documents}"
        if document < reached:
            return f"document {document} comes after document {reached}; {header.order}"
        if not 1 <= word <= header.n_words:
            return f"word {word} is not in the vocabulary of {header.n_words} words"
        return f"count {fields[2].decode()} is not in (0, {LARGEST_COUNT}], as every count must be"


def _number(text: bytes, kind: Any, name: str) -> int | float:
    if kind is np.float64:
        if not _REAL.fullmatch(text):
            raise BadValue(f"the {name} {shown(text)} is not a number")
        return float(text)
    if not _WHOLE.fullmatch(text):
        raise BadValue(f"the {name} {shown(text)} is not a whole number")
    return max(-_FAR, min(int(text), _FAR))


def shown(text: bytes) -> str:
    """Quote the start of a line or field for messages: one line, at most 60 bytes."""
    return repr(text[:60].decode("ascii", "backslashreplace"))
