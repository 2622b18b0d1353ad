"""Files of number lines: UCI bags of words (docword) and Matrix Market."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from streaming_jsmf.ingestion.readers.base import UnreadableError
from streaming_jsmf.ingestion.readers.lines import LineReader
from streaming_jsmf.ingestion.readers.number_lines import Header, NumberFiles, parse_size, shown
from streaming_jsmf.ingestion.readers.units import compressed
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.validation import Strict

_DOCWORD_NAME = re.compile(r"docword\.(.+?)\.txt(\.[a-z0-9]+)?")
_COUNT_TYPES: dict[bytes, type[np.int64] | type[np.float64] | None] = {
    b"integer": np.int64,
    b"real": np.float64,
    b"pattern": None,
}
_BANNER = "%%MatrixMarket matrix coordinate integer|real|pattern general"


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

    def header(self, lines: LineReader) -> Header | None:
        sizes: list[int] = []
        for name in ("documents D", "words W", "counts NNZ"):
            line = lines.next_line()
            if line is None and lines.damage:
                return None
            if line is None:
                what = "it ends in its header" if sizes else "it is empty"
                raise UnreadableError(f"{what}; its first lines must be D, W and NNZ")
            size = parse_size(line)
            if size is None:
                raise UnreadableError(f"line {lines.line} is {shown(line)}, not the number of {name}")
            sizes.append(size)
        return Header(
            document=0,
            word=1,
            count_type=np.int64,
            n_documents=sizes[0],
            n_words=sizes[1],
            n_entries=sizes[2],
            size_line=lines.line - 1,
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

    def header(self, lines: LineReader) -> Header | None:
        banner = lines.next_line()
        line: bytes | None = b"%"
        while line is not None and (line.startswith(b"%") or not line.strip()):
            line = lines.next_line() if banner is not None else None
        if banner is None or line is None:
            if lines.damage:
                return None
            what = "it is empty" if banner is None else "it ends in its header"
            raise UnreadableError(f"{what}; its first line must be {_BANNER}")
        kind = banner.lower().split()
        if kind[:3] != _BANNER.lower().encode().split()[:3] or kind[4:] != [b"general"]:
            raise UnreadableError(
                f"line 1 is {shown(banner)}; only {_BANNER} can be read, write the matrix as that"
            )
        if kind[3] not in _COUNT_TYPES:
            raise UnreadableError(
                f"line 1 says the numbers are {shown(kind[3])}; they must be integer, real or pattern"
            )
        sizes = [size for text in line.split() if (size := parse_size(text)) is not None]
        if len(sizes) != 3 or len(line.split()) != 3:
            raise UnreadableError(
                f"line {lines.line} is {shown(line)}; it must have the numbers of rows, columns and entries"
            )
        document, word, other = (0, 1, "columns") if self.options.documents == "rows" else (1, 0, "rows")
        return Header(
            document,
            word,
            _COUNT_TYPES[kind[3]],
            n_documents=sizes[document],
            n_words=sizes[word],
            n_entries=sizes[2],
            size_line=lines.line - 1,
            order="entries must be grouped by document: write the file sorted by document, or, if the "
            f"{other} are the documents, set the option documents to {other!r}",
            words_said=f"the matrix has {sizes[word]} {other} for words (see the option documents)",
            numbered=False,
        )
