"""Matrix Market files: a sparse matrix of counts as lines "row column count"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from streaming_jsmf.sources.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.sources.counts.docword import Layout, parse_size, read_counts, shown
from streaming_jsmf.sources.counts.grouped import (
    LineFiles,
    LineReader,
    open_lines,
    read_words,
    word_list,
)
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
class MatrixMarketSource(LineFiles):
    """Files ``.mtx`` or ``.mtx.gz`` with a sparse matrix whose entries are grouped by document.

    Integers stay integers, reals become float32, the entries of a pattern count 1. Documents have no ids; a row
    or column without entries is an empty bag. ``rows`` is the line a document starts at (from 0). Under
    "quarantine" a bad line is put aside and the rest of its document kept. Each unit is a file, read once and in
    blocks.

    Attributes
    ----------
    files
        Absolute local paths or URLs; all with the same words.
    options
        The keys.
    """

    reader: ClassVar[str] = "matrix-market"
    options: MatrixMarketOptions = field(default_factory=MatrixMarketOptions)

    def words_of(self, path: str) -> tuple[str, ...]:
        """The words of one file. Reads its word list."""
        return read_words(word_list(path, self.options.vocabulary))

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """Stream the documents of a file. Memory: a few blocks of lines, one document and the words.

        Raises
        ------
        InputError
            If the file cannot be opened, and under "fail" for the first line that is bad.
        """
        listed = word_list(unit.path, self.options.vocabulary)
        with open_lines(unit.path, bad) as lines:
            layout = self._header(lines, bad)
            if layout is None:
                return
            n_words = len(read_words(listed))
            if layout.n_words != n_words:
                sides = "columns" if self.options.documents == "rows" else "rows"
                bad.refuse(
                    None,
                    f"the matrix has {layout.n_words} {sides} for words, the word list {listed} has {n_words} "
                    "words; check the option documents",
                )
                return
            yield from read_counts(lines, layout, False, bad)

    def _header(self, lines: LineReader, bad: BadRecords) -> Layout | None:
        """The type and sizes of the matrix; None if they cannot be read, which is refused."""
        banner = lines.next_line()
        line: bytes | None = b"%"
        while line is not None and (line.startswith(b"%") or not line.strip()):
            line = lines.next_line() if banner is not None else None
        if banner is None or line is None:
            if not lines.stopped:
                what = "it is empty" if banner is None else "it ends in its header"
                bad.refuse(None, f"{what}; its first line must be {_BANNER}")
            return None
        kind = banner.lower().split()
        if kind[:3] != _BANNER.lower().encode().split()[:3] or kind[4:] != [b"general"]:
            bad.refuse(
                None, f"line 1 is {shown(banner)}; only {_BANNER} can be read, write the matrix as that"
            )
            return None
        count, sizes = _COUNTS.get(kind[3]), [parse_size(text) for text in line.split()]
        if count is None:
            bad.refuse(
                None, f"line 1 says the numbers are {shown(kind[3])}; they must be integer, real or pattern"
            )
            return None
        if len(sizes) != 3 or None in sizes:
            bad.refuse(
                None,
                f"line {lines.line} is {shown(line)}; it must have the numbers of rows, columns and entries",
            )
            return None
        return self._layout(count, [size or 0 for size in sizes], lines.line - 1)

    def _layout(self, count: Literal["whole", "real", "none"], sizes: list[int], line: int) -> Layout:
        document, word, other = (0, 1, "columns") if self.options.documents == "rows" else (1, 0, "rows")
        order = (
            "entries must be grouped by document: write the file sorted by document, or, if the "
            f"{other} are the documents, set the option documents to {other!r}"
        )
        return Layout(document, word, count, sizes[document], sizes[word], sizes[2], line, order)
