"""Blocks of lines "document word count" as arrays of numbers, and these as bags of words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT, narrow_counts
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, SourceBatch, UnreadableError
from streaming_jsmf.ingestion.readers.counts import Entries, merge_entries, too_large
from streaming_jsmf.ingestion.readers.lines import LineBlock, n_lines

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


class BagBuilder:
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


def shown(text: bytes) -> str:
    """Quote the start of a line or field for messages: one line, at most 60 bytes."""
    return repr(text[:60].decode("ascii", "backslashreplace"))
