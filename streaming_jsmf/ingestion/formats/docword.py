"""UCI bags of words, and other lines of numbers "document word count" in ascending order of documents, in a stream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.ingestion.sources.matrices import NO_COUNT, are_counts, record_batches, words_beside
from streaming_jsmf.ingestion.sources.protocol import UnreadableError, limits
from streaming_jsmf.ingestion.sources.streams import first_link, open_stream

SIZE = re.compile(r"[0-9]{1,18}")
_NAME = re.compile(r"docword\.(.+?)\.txt(\.[a-z0-9]+)?")
_LONGEST_LINE = 1000  # bytes of a line of numbers


class Header(NamedTuple):
    """What the first lines say: numbers of documents, words and lines of counts, and of the lines of the header.

    ``count`` is the type of the counts, or None if each line counts 1; ``document`` is the position of the document in
    a line (0 or 1); ``hint`` is for messages about sizes and order.
    """

    n_documents: int
    n_words: int
    n_entries: int
    n_lines: int
    count: Any = np.int64
    document: int = 0
    hint: str = ""


def words(path: str, options: Any) -> Sequence[str]:
    """Return the words of a file. Raises InputError if its word list is missing."""
    named = _NAME.fullmatch(first_link(path).rsplit("/", 1)[-1])
    return words_beside(path, options, [f"vocab.{named[1]}.txt"] if named else [])


def read(path: str, options: Any) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a file. Memory: a block of lines, one document and the words."""
    with open_stream(path) as stream:
        sizes: list[int] = []
        for number, name in enumerate(("documents D", "words W", "counts NNZ"), 1):
            line = header_line(stream, "its first lines must be D, W and NNZ").strip()
            if not SIZE.fullmatch(line):
                raise UnreadableError(f"line {number} is {line!r}, not the number of {name}")
            sizes.append(int(line))
        yield from documents(stream, Header(sizes[0], sizes[1], sizes[2], n_lines=3), words(path, options))


def header_line(stream: Any, missing: str) -> str:
    """Return the next line of a header, at most its start. Raises UnreadableError, with what is ``missing``."""
    line: bytes = stream.readline(_LONGEST_LINE)
    if not line:
        raise UnreadableError(f"it is empty or ends in its header; {missing}")
    return line.decode("latin-1").rstrip("\r\n")


def documents(stream: Any, header: Header, words: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the documents of the lines after a header. Repeated words are summed, empty documents kept.

    Raises UnreadableError for the first line that cannot be used, with its number.
    """
    if header.n_words != len(words):
        raise UnreadableError(
            f"the number of words is {header.n_words} in the file and {len(words)} in its word list{header.hint}"
        )
    if header.n_documents - header.n_entries > limits.EMPTY_DOCUMENTS:
        raise UnreadableError(
            f"it declares {header.n_documents} documents and {header.n_entries} counts, so more than "
            f"{limits.EMPTY_DOCUMENTS} documents would be empty; correct the numbers or leave such documents out"
        )
    held = [np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, header.count or np.int64)]
    start, line = 1, header.n_lines + 1
    for block in _blocks(stream, header):
        _require_usable(block, header, start, line)
        line += len(block[0])
        held = [np.concatenate(pair) for pair in zip(held, block, strict=True)]
        stop = int(held[0][-1])  # the last document may go on
        cut = int(np.searchsorted(held[0], stop))
        yield from _batches([values[:cut] for values in held], range(start, stop), words)
        held, start = [values[cut:] for values in held], stop
    yield from _batches(held, range(start, header.n_documents + 1), words)
    if (n_found := line - 1 - header.n_lines) != header.n_entries:
        raise UnreadableError(
            f"line {header.n_lines}: the header says NNZ = {header.n_entries}, the number of lines of counts is "
            f"{n_found}"
        )


def _batches(
    columns: Sequence[NDArray[Any]], numbers: range, words: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    document, word, count = columns
    entries = document - numbers.start, (word - 1).astype(np.int32), count
    return record_batches(Bags.summed(*entries, len(numbers), pa.array(words, pa.string())))


def _blocks(stream: Any, header: Header) -> Iterator[list[NDArray[Any]]]:
    """Yield documents, words and counts of about ``BATCH_BYTES`` of lines."""
    kinds = {"document": pa.int64(), "word": pa.int64()}
    names = [*kinds][:: -1 if header.document else 1]
    if header.count:
        names.append("count")
        kinds["count"] = pa.from_numpy_dtype(header.count)
    try:
        blocks = pa_csv.open_csv(
            pa.PythonFile(_Tidied(stream), mode="r"),
            pa_csv.ReadOptions(
                use_threads=False, block_size=max(limits.BATCH_BYTES, _LONGEST_LINE), column_names=names
            ),
            pa_csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
            pa_csv.ConvertOptions(column_types=kinds, null_values=[]),
        )
        for block in blocks:
            found = [block.column(name).to_numpy() for name in kinds]
            if len(block):
                yield found if header.count else [*found, np.ones(len(block), np.int64)]
    except pa.ArrowInvalid as error:
        if "Empty CSV file" in str(error):
            return
        row = re.search(r"Row #(\d+): (.*)", str(error), re.DOTALL)
        if row is None:
            raise UnreadableError(f"it has a line that is longer than {_LONGEST_LINE} bytes") from error
        line, n = header.n_lines + int(row[1]), len(names)
        raise UnreadableError(f"line {line} is not {n} numbers ({row[2]})") from error


class _Tidied:
    """A stream of lines of numbers with one blank between them, where there may be several, or tabs."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        """Return whole lines of at most ``size`` bytes."""
        block: bytes = self._stream.read(size - _LONGEST_LINE) + self._stream.readline(_LONGEST_LINE)
        # Most files need no change, and searching is fast.
        if block[:1] in b" \t" or any(odd in block for odd in (b"  ", b"\t", b"\n ", b" \n", b" \r")):
            block = re.sub(rb"(?m)^ | (?=\r?$)", b"", re.sub(rb"[ \t]+", b" ", block))
        return block


def _require_usable(block: Sequence[NDArray[Any]], header: Header, start: int, line: int) -> None:
    """Raise UnreadableError for the first line of a block that has wrong numbers."""
    document, word, count = block
    known, there = (word >= 1) & (word <= header.n_words), (document >= 1) & (document <= header.n_documents)
    in_order = np.diff(document, prepend=start) >= 0
    good = known & there & in_order & are_counts(count, header.count is not np.float64)
    if good.all():
        return
    i = int(np.argmin(good))
    reason = f"count {count[i]} {NO_COUNT}"
    if not there[i]:
        reason = f"document {document[i]} is outside 1..{header.n_documents}"
    elif not known[i]:
        reason = f"word {word[i]} is not in the vocabulary of {header.n_words} words"
    elif not in_order[i]:
        before = document[i - 1] if i else start
        reason = (
            f"document {document[i]} comes after document {before}; sort the lines by document{header.hint}"
        )
    raise UnreadableError(f"line {line + i}: {reason}")
