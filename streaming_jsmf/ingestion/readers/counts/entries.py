"""Counts as (document, word, count), grouped by document: those of a word added up, and bags made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, narrow_counts
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch
from streaming_jsmf.ingestion.readers.streams import UnreadableError


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
    most_empty
        Documents without entries that the file may have.
    bad
        Takes sums that are too large.

    Raises
    ------
    UnreadableError
        While it gives out documents, if far more of them have no entries than a file may have.
    """

    def __init__(
        self, n_words: int, count_type: Any, numbered: bool, most_empty: int, bad: BadRecords
    ) -> None:
        self._n_words = n_words
        self._open = no_entries(count_type)  # of the last document; it may go on in the next block
        self._numbered = numbered
        self._most_empty = most_empty
        self._bad = bad
        self._next = 0  # first document not given out
        self._empty = 0  # documents without entries

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
        # A gap may be of millions of empty documents.
        for start in range(self._next, stop, limits.BATCH_VALUES):
            documents = np.arange(start, min(start + limits.BATCH_VALUES, stop) + 1)
            bounds = np.searchsorted(kept.document, documents)
            inside = kept.take(slice(bounds[0], bounds[-1]))
            yield SourceBatch(
                indptr=bounds - bounds[0],
                codes=inside.word.astype(np.int32),
                counts=narrow_counts(inside.count),
                rows=lines[bounds[:-1]],
                document_id=pa.array(documents[1:]) if self._numbered else None,
            )
        self._next = stop
