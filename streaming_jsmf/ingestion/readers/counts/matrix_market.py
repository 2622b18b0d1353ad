"""Matrix Market files: a sparse matrix of counts as lines "row column count"."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from streaming_jsmf.ingestion.readers.counts.number_lines import Layout, NumberFiles, parse_size, shown
from streaming_jsmf.ingestion.readers.counts.word_lists import word_list
from streaming_jsmf.ingestion.readers.lines import LineReader
from streaming_jsmf.ingestion.readers.streams import UnreadableError
from streaming_jsmf.validation import Strict

_COUNTS: dict[bytes, Literal["whole", "real", "none"]] = {
    b"integer": "whole",
    b"real": "real",
    b"pattern": "none",
}
_BANNER = "%%MatrixMarket matrix coordinate integer|real|pattern general"


class MatrixMarketOptions(Strict):
    """Keys of the reader.

    Attributes
    ----------
    documents
        Which of "rows" and "columns" are the documents.
    vocabulary
        Path or URL of the word list, relative to the file; by default ``vocab.txt``, ``vocabulary.txt`` or
        ``vocabulary.parquet`` beside it.
    """

    documents: Literal["rows", "columns"] = "rows"
    vocabulary: str | None = None


@dataclass(frozen=True)
class MatrixMarketSource(NumberFiles):
    """Files ``.mtx``, packed or not, with a sparse matrix whose entries are grouped by document.

    Integers stay integers, reals become float32, the entries of a pattern count 1. Documents have no ids; a row
    or column without entries is an empty bag. ``rows`` is the line a document starts at (from 0). Under
    "quarantine" a bad line is put aside and the rest of its document kept.

    Attributes
    ----------
    files
        Absolute local paths or URLs; all with the same words.
    options
        The keys.
    """

    reader: ClassVar[str] = "matrix-market"
    options: MatrixMarketOptions = field(default_factory=MatrixMarketOptions)

    def word_list(self, path: str) -> str:
        """As the option says, or beside the file."""
        return word_list(path, self.options.vocabulary)

    def header(self, lines: LineReader) -> Layout | None:
        """The type and sizes of the matrix."""
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
        if kind[3] not in _COUNTS:
            raise UnreadableError(
                f"line 1 says the numbers are {shown(kind[3])}; they must be integer, real or pattern"
            )
        sizes = [size for text in line.split() if (size := parse_size(text)) is not None]
        if len(sizes) != 3 or len(line.split()) != 3:
            raise UnreadableError(
                f"line {lines.line} is {shown(line)}; it must have the numbers of rows, columns and entries"
            )
        return self._layout(_COUNTS[kind[3]], sizes, lines.line - 1)

    def _layout(self, count: Literal["whole", "real", "none"], sizes: list[int], line: int) -> Layout:
        document, word, other = (0, 1, "columns") if self.options.documents == "rows" else (1, 0, "rows")
        order = (
            "entries must be grouped by document: write the file sorted by document, or, if the "
            f"{other} are the documents, set the option documents to {other!r}"
        )
        return Layout(
            document,
            word,
            count,
            n_documents=sizes[document],
            n_words=sizes[word],
            n_entries=sizes[2],
            size_line=line,
            order=order,
            words_said=f"the matrix has {sizes[word]} {other} for words (see the option documents)",
            numbered=False,
        )
