"""What the readers of counts share: word lists, lines in blocks, and bags out of (document, word, count)."""

from __future__ import annotations

import gzip
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import Counts
from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME, read_vocabulary
from streaming_jsmf.errors import InputError, first_line
from streaming_jsmf.sources.base import BATCH_BYTES, BATCH_VALUES, BadRecords, SourceBatch, Unit
from streaming_jsmf.storage.paths import file_size, is_file, is_url, join, normalise, open_file

LONGEST_LINE = 1 << 20  # bytes; three numbers need less, and what has no line ends must not fill the memory
LARGEST_COUNT = int(np.iinfo(np.int32).max)
SMALLEST_COUNT = float(np.finfo(np.float32).tiny)  # below it a float count would become 0 or lose its digits
WORD_LISTS = (*TEXT_NAMES, VOCABULARY_NAME)


@dataclass(frozen=True)
class CountFiles(ABC):
    """Files of counts with one vocabulary. Subclasses add their ``options``.

    Attributes
    ----------
    files
        Absolute local paths or URLs.
    """

    files: tuple[str, ...]

    @abstractmethod
    def words_of(self, path: str) -> tuple[str, ...]:
        """The words of one file. Reads its word list."""

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The words of all files. Reads every word list once.

        Raises
        ------
        InputError
            If there is no file, a word list is missing or no vocabulary, or files differ in their words.
        """
        if not self.files:
            raise InputError("there are no files of counts to read; give at least one")
        first, words = self.files[0], self.words_of(self.files[0])
        for path in self.files[1:]:
            others = self.words_of(path)
            if others != words:
                pairs = enumerate(zip(words, others, strict=False))
                at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(words), len(others)))
                raise InputError(
                    f"{path} has other words than {first}, from word {at} (from 0) on; files that are read "
                    "together must share one vocabulary: read them apart"
                )
        return words

    def first_row(self, unit: Unit) -> int:
        """Number, within its file, of the unit's first record."""
        return unit.start

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the words, which each task reads for itself: tasks stay small.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


def word_list(path: str, wanted: str | None, beside: Sequence[str] = WORD_LISTS) -> str:
    """Path of the word list of a file: ``wanted``, relative to the file, or the first of the names beside it.

    Raises
    ------
    InputError
        If there is none.
    """
    folder = path.rsplit("/", 1)[0] if is_url(path) else str(Path(path).parent)
    if wanted is None:
        candidates = [join(folder, name) for name in beside]
    elif is_url(wanted) or Path(wanted).expanduser().is_absolute():
        candidates = [normalise(wanted)]
    else:
        candidates = [join(folder, wanted)]
    found = next((candidate for candidate in candidates if is_file(candidate)), None)
    if found is None:
        names = wanted or " or ".join(beside)
        raise InputError(f"{path} has no word list ({names}); set the option vocabulary to its path")
    return found


def read_words(path: str) -> tuple[str, ...]:
    """The words of a word list. Reads it once; see ``read_vocabulary`` for the errors."""
    return read_vocabulary(path)[0].words


class LineFiles(CountFiles):
    """Count files of lines: each is a unit, and a record is named by its line."""

    def units(self) -> list[Unit]:
        """One for each file. Raises InputError for a missing file and for word lists that differ."""
        units = [Unit(path, size=size_of(path)) for path in self.files]
        _ = self.vocabulary
        return units

    def place(self, unit: Unit, row: int) -> str:
        """File and line, from 1, of a record."""
        return f"{unit.path}, line {row + 1}"


def size_of(path: str) -> int:
    """Bytes of a file.

    Raises
    ------
    InputError
        If it is missing or cannot be reached.
    """
    try:
        return file_size(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}); check the path") from error


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a file; ``first`` is the number of the first one, from 0."""

    first: int
    data: bytes


class LineReader:
    """Whole lines of a binary stream, a few first and the rest in blocks of about ``BATCH_BYTES``. One pass.

    Attributes
    ----------
    line
        Number, from 0, of the next line.
    stopped
        Whether the stream ended before its time; it has been refused then.
    """

    def __init__(self, stream: Any, bad: BadRecords) -> None:
        # A gzip stream gives all it has before it fails only when asked piece by piece.
        self._read = stream.read1 if isinstance(stream, gzip.GzipFile) else stream.read
        self._bad = bad
        self._rest, self._at = b"", 0  # read, and how much of it was given out
        self._ended = False
        self._damage = ""
        self.line = 0
        self.stopped = False

    def next_line(self) -> bytes | None:
        """The next line without its end; None after the last one."""
        going, end = True, self._rest.find(b"\n", self._at)
        while end < 0 and going:
            going = self._more()
            end = self._rest.find(b"\n", self._at)
        if end < 0 and (self._damage or self._at == len(self._rest)):
            self._report_damage()
            return None
        end = end if end >= 0 else len(self._rest)
        line, self._at = self._rest[self._at : end], min(end + 1, len(self._rest))
        self.line += 1
        return line

    def blocks(self) -> Iterator[LineBlock]:
        """What follows, in blocks that end with a line."""
        going = True
        while going:
            going = self._more()
            cut = self._rest.rfind(b"\n") + 1 if going or self._damage else len(self._rest)
            data, self._rest = self._rest[:cut], self._rest[cut:]
            if data:
                first, self.line = self.line, self.line + n_lines(data)
                yield LineBlock(first, data)
        self._report_damage()

    def _more(self) -> bool:
        """Have ``BATCH_BYTES`` of lines, or that much more of a line; False at the end."""
        pieces = [self._rest[self._at :]]
        size = len(pieces[0]) if b"\n" in pieces[0] else 0  # what came with the header
        try:
            while size < BATCH_BYTES and not self._ended:
                piece = self._read(BATCH_BYTES - size)
                pieces.append(piece)
                size += len(piece)
                self._ended = not piece
        except EOFError:
            self._damage = "the gzip stream ends early; fetch the file again"
        except (zlib.error, gzip.BadGzipFile) as error:
            self._damage = f"the gzip stream is damaged ({first_line(error)}); fetch the file again"
        self._rest, self._at = b"".join(pieces), 0
        if len(self._rest) > LONGEST_LINE and b"\n" not in self._rest:
            self._damage = f"the line is longer than {LONGEST_LINE} bytes; these are no lines of numbers"
        self._ended = self._ended or bool(self._damage)
        return not self._ended

    def _report_damage(self) -> None:
        if self._damage and not self.stopped:
            self.stopped = True
            self._bad.refuse(self.line, self._damage, self._rest[self._at :][:LONGEST_LINE] or None)


@contextmanager
def open_lines(path: str, bad: BadRecords) -> Iterator[LineReader]:
    """Lines of a file or URL, unpacked if its name ends with ``.gz``.

    Raises
    ------
    InputError
        If it cannot be opened or read.
    """
    try:
        with open_file(path) as stream:
            if path.endswith(".gz"):
                with gzip.GzipFile(fileobj=stream) as unpacked:
                    yield LineReader(unpacked, bad)
            else:
                yield LineReader(stream, bad)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({first_line(error)}); check the path") from error


def n_lines(data: bytes) -> int:
    """Lines in a block; the last one may lack its end."""
    return data.count(b"\n") + (not data.endswith(b"\n"))


@dataclass(frozen=True, eq=False)
class Entries:
    """Counts of words in documents, grouped by document. Arrays of one length.

    ``document`` and ``word`` are int64 from 0, ``count`` int64 or float64, ``line`` int64: where it was read.
    """

    document: NDArray[Any]
    word: NDArray[Any]
    count: NDArray[Any]
    line: NDArray[Any]

    def take(self, chosen: Any) -> Entries:
        """The entries of a slice, mask or index."""
        return Entries(self.document[chosen], self.word[chosen], self.count[chosen], self.line[chosen])

    def followed_by(self, other: Entries) -> Entries:
        """These entries and the others after them."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Entries(*(np.concatenate(pair) for pair in pairs))


def no_entries(count_type: Any) -> Entries:
    """No entries, with counts of a type."""
    empty = np.empty(0, np.int64)
    return Entries(empty, empty, np.empty(0, count_type), empty)


def merged(entries: Entries, n_words: int) -> Entries:
    """Counts of the same word in a document added; words rising in each document, ``line`` that of its first entry.

    Counts are added in the order given, so that the sums do not depend on where blocks end.
    """
    if len(entries.document) == 0:
        return entries
    heads = np.flatnonzero(np.diff(entries.document, prepend=-1))
    line = np.repeat(entries.line[heads], np.diff(heads, append=len(entries.document)))
    key = entries.document * n_words + entries.word
    if (np.diff(key) > 0).all():
        return Entries(entries.document, entries.word, entries.count, line)
    _, place, group = np.unique(key, return_index=True, return_inverse=True)
    total = np.bincount(group, entries.count).astype(entries.count.dtype)
    return Entries(entries.document[place], entries.word[place], total, line[place])


def too_large(total: float, word: str) -> str:
    """Why a sum of counts of a word is refused."""
    return f"the counts of word {word} add up to {total}, above {LARGEST_COUNT}"


class BagBuilder:
    """Batches of bags out of entries that come with rising documents. Holds one block and one document.

    Parameters
    ----------
    n_words
        N, above all words.
    count_type
        int64 or float64, as the entries have; bags have int32 or float32.
    numbered
        Whether documents have their number, from 1, as id.
    bad
        Takes sums that are too large.
    """

    def __init__(self, n_words: int, count_type: Any, numbered: bool, bad: BadRecords) -> None:
        self._n_words = n_words
        self._open = no_entries(count_type)  # of the last document; it may go on in the next block
        self._numbered = numbered
        self._bad = bad
        self._next = 0  # first document not given out

    def add(self, entries: Entries) -> Iterator[SourceBatch]:
        """Give out the documents before the last one, those without entries too."""
        if len(entries.document) == 0:
            return
        together = merged(self._open.followed_by(entries), self._n_words)
        last = int(together.document[-1])
        cut = int(np.searchsorted(together.document, last))
        self._open = together.take(slice(cut, None))
        yield from self._give(together.take(slice(0, cut)), last, int(self._open.line[0]))

    def close(self, n_documents: int | None, end: int) -> Iterator[SourceBatch]:
        """Give out the rest, up to ``n_documents`` or else the last one that has entries.

        ``end`` is the line after the last, where empty documents would be.
        """
        seen = int(self._open.document[-1]) + 1 if len(self._open.document) else 0
        yield from self._give(self._open, seen if n_documents is None else n_documents, end)

    def _give(self, entries: Entries, stop: int, end: int) -> Iterator[SourceBatch]:
        large = entries.count > LARGEST_COUNT
        for i in np.flatnonzero(large):
            self._bad.refuse(int(entries.line[i]), too_large(entries.count[i], f"{entries.word[i] + 1}"))
        kept = entries.take(~large)
        whole = np.issubdtype(kept.count.dtype, np.integer)
        lines = np.append(kept.line, end)
        # A gap may be of millions of empty documents.
        for start in range(self._next, stop, BATCH_VALUES):
            documents = np.arange(start, min(start + BATCH_VALUES, stop) + 1)
            bounds = np.searchsorted(kept.document, documents)
            inside = kept.take(slice(bounds[0], bounds[-1]))
            counts: Counts = inside.count.astype(np.int32) if whole else inside.count.astype(np.float32)
            yield SourceBatch(
                indptr=bounds - bounds[0],
                codes=inside.word.astype(np.int32),
                counts=counts,
                rows=lines[bounds[:-1]],
                document_id=pa.array(documents[1:]) if self._numbered else None,
            )
        self._next = stop
