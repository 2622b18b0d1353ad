"""Files of number lines after a header: UCI bags of words (docword) and Matrix Market."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, DamagedError, SourceBatch, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.counts import CountFiles, whole_file
from streaming_jsmf.ingestion.readers.files import is_compressed, open_stream
from streaming_jsmf.ingestion.readers.lines import header_line, line_blocks
from streaming_jsmf.ingestion.readers.number_lines import BagBuilder, EntryParser, Header, shown
from streaming_jsmf.ingestion.readers.units import compressed
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
            parser, builder = EntryParser(header, bad), BagBuilder(header, _most_empty(unit), bad)
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


@dataclass(frozen=True)
class DocwordSource(NumberFiles):
    """Reader "docword": D, W, NNZ, then lines "documentID wordID count" from 1, in ascending order of documents.

    ``document_id`` is the number of the document. All files have the same words.
    """

    options: DocwordOptions = field(default_factory=DocwordOptions)

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


@dataclass(frozen=True)
class MatrixMarketSource(NumberFiles):
    """Reader "matrix-market": a sparse matrix as lines "row column count", grouped by document.

    Integers stay integers, reals become float32, and pattern entries count 1. Documents have no ids. All files have the
    same words.
    """

    options: MatrixMarketOptions = field(default_factory=MatrixMarketOptions)

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
