"""Lines of numbers "document word count" in ascending order of documents, read in blocks of bounded size."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.ingestion.formats.lines import too_long
from streaming_jsmf.ingestion.sources.matrices import NO_COUNT, are_counts, record_batches
from streaming_jsmf.ingestion.sources.protocol import UnreadableError, limits
from streaming_jsmf.ingestion.sources.streams import is_compressed, read_pieces, size_of


class Header(NamedTuple):
    """What the first lines say: numbers of documents, words and lines of counts, and of the lines of the header.

    ``types`` are those of the fields of a line, without one for counts if each counts 1; ``document`` is the position
    of the document in a line (0 or 1); ``hint`` is for messages about sizes and order.
    """

    n_documents: int
    n_words: int
    n_entries: int
    n_lines: int
    types: tuple[Any, ...] = (np.int64, np.int64, np.int64)
    document: int = 0
    hint: str = ""


def header_line(stream: Any, number: int, missing: str) -> bytes:
    """Return the next line of a header. Raises UnreadableError, with what is ``missing``, if the file ends."""
    line: bytes = stream.readline(limits.LONGEST_LINE + 1)
    if len(line) > limits.LONGEST_LINE:
        raise UnreadableError(too_long())
    if not line:
        raise UnreadableError(f"{'it ends in its header' if number > 1 else 'it is empty'}; {missing}")
    return line.rstrip(b"\r\n")


def documents(path: str, stream: Any, header: Header, words: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the documents of the lines after a header. Repeated words are summed, empty documents kept.

    Raises UnreadableError for the first line that cannot be used, with its number.
    """
    if header.n_words != len(words):
        raise UnreadableError(
            f"the number of words is {header.n_words} in the file and {len(words)} in its word list{header.hint}"
        )
    size = size_of(path) * (limits.LARGEST_PACKING if is_compressed(path) else 1)
    most = min(limits.EMPTY_DOCUMENTS, limits.EMPTY_DOCUMENTS_PER_BYTE * size)
    if header.n_documents - header.n_entries > most:
        raise UnreadableError(
            f"it declares {header.n_documents} documents and {header.n_entries} counts, so more than {most} documents "
            "would be empty; correct the numbers or leave such documents out"
        )
    held = [np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, header.types[-1])]
    start, n_found = 1, 0
    for line, block in _blocks(stream, header.n_lines + 1):
        found = _checked(_parsed(block, header, line), header, start, block, line)
        n_found += len(found[0])
        held = [np.concatenate(pair) for pair in zip(held, found, strict=True)]
        if len(held[0]):
            stop = int(held[0][-1])  # the last document may go on
            cut = int(np.searchsorted(held[0], stop))
            yield from _batches(held, cut, range(start, stop), words)
            held, start = [values[cut:] for values in held], stop
    yield from _batches(held, len(held[0]), range(start, header.n_documents + 1), words)
    if n_found != header.n_entries:
        raise UnreadableError(
            f"line {header.n_lines}: the header says NNZ = {header.n_entries}, the number of lines of counts is "
            f"{n_found}"
        )


def _batches(
    columns: list[NDArray[Any]], cut: int, numbers: range, words: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    document, word, count = (values[:cut] for values in columns)
    entries = document - numbers.start, (word - 1).astype(np.int32), count
    return record_batches(Bags.summed(*entries, len(numbers), pa.array(words, pa.string())))


def _blocks(stream: Any, first: int) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines of about ``BATCH_BYTES`` with the number of their first line, from 1."""
    rest, ended = b"", False
    while not ended:
        read, damage = read_pieces(stream, limits.BATCH_BYTES)
        data, ended = rest + read, len(read) < limits.BATCH_BYTES
        if damage or (len(data) > limits.LONGEST_LINE and b"\n" not in data):
            raise UnreadableError(f"line {first + data.count(10)}: {damage or too_long()}")
        cut = len(data) if ended else data.rfind(b"\n") + 1
        block, rest = data[:cut], data[cut:]
        if block:
            yield first, block
            first += block.count(b"\n")


def _parsed(block: bytes, header: Header, line: int) -> list[NDArray[Any]]:
    """Return the numbers of a block by column. Raises UnreadableError for the first line that has others."""
    kinds = {str(i): pa.from_numpy_dtype(kind) for i, kind in enumerate(header.types)}
    try:
        # Arrow accepts 0x1F as a number, and only one blank between two.
        if b"x" in block or b"X" in block:
            raise pa.ArrowInvalid
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            pa_csv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=[*kinds]),
            pa_csv.ParseOptions(delimiter=" ", quote_char=False),
            pa_csv.ConvertOptions(column_types=kinds, null_values=[], check_utf8=False),
        )
        if len(table) < block.count(b"\n") or b"\r" in block:  # Arrow skips blank lines
            raise pa.ArrowInvalid
        return [column.to_numpy() for column in table.columns]
    except pa.ArrowInvalid:
        return _parsed_slowly(block.decode("ascii", "backslashreplace"), header, line)


def _parsed_slowly(block: str, header: Header, line: int) -> list[NDArray[Any]]:
    lines = [(number, text.split()) for number, text in enumerate(block.split("\n"), line) if text.strip()]
    names = {header.document: "document", 1 - header.document: "word", 2: "count"}
    columns = [np.empty(0, kind) for kind in header.types]
    for number, fields in lines:
        if len(fields) != len(header.types):
            raise UnreadableError(
                f"line {number}: the number of fields is {len(fields)}, not {len(header.types)}: "
                f"{shown(' '.join(fields))}; it may be truncated"
            )
    for i, kind in enumerate(header.types if lines else ()):
        texts = [fields[i] for _, fields in lines]
        try:
            columns[i] = np.loadtxt(io.StringIO("\n".join(texts)), kind, comments=None, ndmin=1)
        except ValueError:
            for (number, _), text in zip(lines, texts, strict=True):
                try:
                    np.loadtxt(io.StringIO(text), kind, comments=None)
                except ValueError as error:
                    wanted = "a number" if kind is np.float64 else "a whole number of at most 64 bits"
                    raise UnreadableError(
                        f"line {number}: the {names[i]} {shown(text)} is not {wanted}"
                    ) from error
            raise
    return columns


def _checked(
    columns: list[NDArray[Any]], header: Header, start: int, block: bytes, line: int
) -> list[NDArray[Any]]:
    """Return documents, words and counts; raises UnreadableError for the first line that has a wrong one."""
    document, word = columns[header.document], columns[1 - header.document]
    count = columns[2] if len(columns) > 2 else np.ones(len(word), header.types[-1])
    known, there = (word >= 1) & (word <= header.n_words), (document >= 1) & (document <= header.n_documents)
    in_order = np.diff(document, prepend=start) >= 0
    good = known & there & in_order & are_counts(count, np.float64 not in header.types)
    if not good.all():
        i = int(np.argmin(good))
        reason = f"count {count[i]} {NO_COUNT}"
        if not there[i]:
            reason = f"document {document[i]} is outside 1..{header.n_documents}"
        elif not known[i]:
            reason = f"word {word[i]} is not in the vocabulary of {header.n_words} words"
        elif not in_order[i]:
            before = document[i - 1] if i else start
            reason = f"document {document[i]} comes after document {before}; sort the lines by document{header.hint}"
        texts = [number for number, text in enumerate(block.split(b"\n"), line) if text.strip()]
        raise UnreadableError(f"line {texts[i]}: {reason}")
    return [document, word, count]


def shown(text: str) -> str:
    """Quote the start of a line or field for messages."""
    return repr(text[:60])
