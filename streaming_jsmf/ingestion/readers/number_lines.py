"""Counts as lines of numbers "document word count" after a header: UCI bags of words (docword) and Matrix Market."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.config import MatrixMarketOptions, WordListOptions
from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    BadValue,
    Batch,
    DamagedError,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.counts import CountFiles, Entries, bags_of_entries
from streaming_jsmf.ingestion.readers.files import compressed, first_link, is_compressed, open_stream
from streaming_jsmf.ingestion.readers.lines import (
    header_line,
    line_blocks,
    parse_each_line,
    parse_lines,
)
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH

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
    document, word : Positions of the document and the word in a line; both count from 1 in the file.
    count_type : int64 or float64; None if each line counts 1.
    n_documents, n_words, n_entries : Largest document and word, and number of lines.
    size_line : Line of the header, from 0, that gives ``n_entries``.
    order, words_said : For messages: how to correct the order of documents, and how the header gives ``n_words``.
    first : Id of the first document.
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
    first: int

    @property
    def types(self) -> list[Any]:
        return [np.int64, np.int64, *([self.count_type] if self.count_type else [])]

    @property
    def smallest(self) -> float:
        return SMALLEST_COUNT if self.count_type is np.float64 else 1


class NumberFiles(CountFiles):
    """Base of readers of number lines: each file is a unit, read once in blocks; a record is a line.

    Under "quarantine" a bad line is left out and the rest of its document kept. A document without lines is an empty
    bag.
    """

    refuses_documents = False

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, line {row + 1}"

    @abstractmethod
    def header(self, stream: Any) -> Header:
        """Read the first lines. Raises UnreadableError if they are not a header."""

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        """Stream the documents of a file. Memory: a few blocks of lines, one document and the words."""
        listed = self.word_list(unit.path)
        with bad.unreadable_file(), open_stream(unit.path) as stream:
            header, n_words = self.header(stream), len(self.words_of(unit.path))
            if header.n_words != n_words:
                raise UnreadableError(f"{header.words_said}, the word list {listed} has {n_words} words")
            blocks = _entries(stream, header, bad)
            yield from bags_of_entries(blocks, n_words, bad, first=header.first, most_empty=_most_empty(unit))


class DocwordSource(NumberFiles):
    """Reader "docword": D, W, NNZ, then lines "documentID wordID count" from 1, in ascending order of documents.

    ``document_id`` is the number of the document, which counts on from file to file. All files have the same words.
    """

    reader = "docword"
    options_type = WordListOptions
    patterns = compressed("docword*.txt")
    stop_words = ENGLISH

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
            first=1,
        )


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
                f"line 1 is {shown(banner)}; only {_BANNER} can be read; write the matrix in this format"
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
            first=0,
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


def _entries(stream: Any, header: Header, bad: BadRecords) -> Iterator[tuple[Entries, int]]:
    """Yield the good lines after a header, as ``bags_of_entries`` takes them; the others go to ``bad``."""
    reached = n_found = 0
    none = np.empty(0, np.int64)
    nothing = Entries(none, none, none.astype(header.count_type or np.int64), none)
    try:
        for first, block in line_blocks(stream, header.size_line + 1):
            entries, reached, n_lines_of_block = _good_entries(block, first, reached, header, bad)
            n_found += n_lines_of_block
            if len(entries.document):
                yield entries, reached - 1
    except DamagedError as error:
        # Nothing is known about further documents, not even that they are empty.
        yield nothing, reached
        bad.refuse(error.line, str(error), error.record)
        return
    if n_found != header.n_entries:
        found = f"the file has {n_found} lines of counts"
        bad.refuse(header.size_line, f"the header says NNZ = {header.n_entries}, {found}")
    yield nothing, header.n_documents


def _good_entries(
    block: bytes, first: int, reached: int, header: Header, bad: BadRecords
) -> tuple[Entries, int, int]:
    """Return the good entries of a block, the largest document so far, and the number of lines except blank ones.

    Documents must not fall below ``reached``, the largest one before the block; it counts from 1.
    """
    rows, columns, faults = _columns(block, header)
    n_found = len(rows) + len(faults)
    document, word = columns[header.document], columns[header.word]
    count = columns[2] if header.count_type else np.ones(len(rows), np.int64)
    entries = Entries(document - 1, word - 1, count, first + rows)
    if not faults and _all_good(document, word, count, reached, header):
        return entries, int(document[-1]), n_found
    # Comparisons with NaN are false, so NaN is refused as well.
    good = (count >= header.smallest) & (count <= LARGEST_COUNT)
    good &= (document >= 1) & (document <= header.n_documents) & (word >= 1) & (word <= header.n_words)
    largest = np.maximum.accumulate(np.append(reached, np.where(good, document, 0)))
    good &= document == largest[1:]
    lines = block.split(b"\n")
    for i in np.flatnonzero(~good).tolist():
        faults[int(rows[i])] = _explain(lines[rows[i]].split(), int(largest[i + 1]), header)
    for row in sorted(faults):
        bad.refuse(first + row, faults[row], lines[row])
    return entries.take(good), int(largest[-1]), n_found


def _all_good(
    document: NDArray[Any], word: NDArray[Any], count: NDArray[Any], reached: int, header: Header
) -> bool:
    """Return whether no line is to be refused, in less time and memory than it takes to find out which."""
    return bool(
        len(word)
        and max(reached, 1) <= document[0]
        and document[-1] <= header.n_documents
        and (document[1:] >= document[:-1]).all()
        and 1 <= word.min() <= word.max() <= header.n_words
        and header.smallest <= count.min() <= count.max() <= LARGEST_COUNT
    )


def _columns(block: bytes, header: Header) -> tuple[NDArray[np.int64], list[NDArray[Any]], dict[int, str]]:
    """Return the numbers of the well-formed lines, their columns, and the faults of the other lines by number."""
    types = {str(i): pa.from_numpy_dtype(kind) for i, kind in enumerate(header.types)}
    table = None
    if b"x" not in block and b"X" not in block:  # Arrow accepts 0x1F as a number
        parse = partial(parse_lines, types=types, delimiter=" ", quote="", null_values=[], check_utf8=False)
        table = parse(block)
        if table is None:
            table = parse(_GAPS.sub(b" ", _EDGES.sub(b"", block)))
    if table is not None:
        return np.arange(table.num_rows), [column.to_numpy() for column in table.columns], {}
    names = {header.document: "document", header.word: "word", 2: "count"}

    def parse_fields(line: bytes) -> list[int | float]:
        fields = line.split()
        if fields and len(fields) != len(header.types):
            raise BadValue(
                f"the line has {len(fields)} fields, not {len(header.types)}: {shown(line)}; it may be truncated"
            )
        return [_number(field, header.types[i], names[i]) for i, field in enumerate(fields)]

    rows, values, faults = parse_each_line(block, parse_fields)
    columns = list(zip(*values, strict=True)) or [()] * len(header.types)
    return rows, [np.array(*pair) for pair in zip(columns, header.types, strict=True)], faults


def _explain(fields: Sequence[bytes], reached: int, header: Header) -> str:
    """Return why a well-formed line is refused; ``reached`` is the largest document before it."""
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
