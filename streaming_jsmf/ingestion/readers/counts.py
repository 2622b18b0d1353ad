"""Base of readers of counts: one vocabulary for all files, sums of repeated counts, and bags of sorted entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, narrow_counts
from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME, read_vocabulary
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    Batch,
    DamagedError,
    Source,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import find_beside, size_of

_WORD_LISTS = (*TEXT_NAMES, VOCABULARY_NAME)


class CountFiles(Source):
    """Base of readers of files of counts over one vocabulary; word lists are named relative to each file."""

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """Words of all files; reads every word list once. Raises InputError if one is missing, invalid or different."""
        first, words = self.files[0], self.words_of(self.files[0])
        for path in self.files[1:]:
            others = self.words_of(path)
            if others != words:
                pairs = enumerate(zip(words, others, strict=False))
                at = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(words), len(others)))
                raise InputError(
                    f"{path} has other words than {first} from word {at} on, counted from 0; files that are ingested "
                    "together must share one vocabulary: ingest them separately"
                )
        return words

    def words_of(self, path: str) -> tuple[str, ...]:
        return read_vocabulary(self.word_list(path))[0].words

    def units(self) -> Sequence[Unit]:
        """Return the units of all files. Raises InputError if a file is missing or unreachable, or words differ."""
        for path in self.files:
            try:
                size_of(path)
            except DamagedError as error:
                raise InputError(f"{path}: {error}") from error
        units = super().units()
        _ = self.vocabulary
        return units

    def parts(self, path: str) -> Sequence[Unit]:
        return [Unit(path, size=size_of(path))]

    def place(self, unit: Unit, row: int) -> str:
        return f"{unit.path}, row {unit.start + row} from 0"

    def usual_word_lists(self, path: str) -> Sequence[str]:  # noqa: ARG002
        return _WORD_LISTS

    def word_list(self, path: str) -> str:
        """Return the path of a file's word list. Raises InputError if it is missing."""
        wanted = self.options.vocabulary
        names = self.usual_word_lists(path) if wanted is None else [wanted]
        found = find_beside(path, names)
        if found is None:
            raise InputError(
                f"{path} has no word list ({' or '.join(names)}); set the option vocabulary to its path"
            )
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        # Exclude the words to keep tasks small; each task reads them itself.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, eq=False)
class Entries:
    """Counts grouped by document, as arrays of equal length; ``document`` and ``word`` are int64 from 0.

    ``line`` is that of the entry, for messages.
    """

    document: NDArray[Any]
    word: NDArray[Any]
    count: NDArray[Any]
    line: NDArray[Any]

    def take(self, chosen: Any) -> Entries:
        return Entries(self.document[chosen], self.word[chosen], self.count[chosen], self.line[chosen])

    def followed_by(self, other: Entries) -> Entries:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Entries(*(np.concatenate(pair) for pair in pairs))


def merge_entries(entries: Entries, n_words: int) -> Entries:
    """Sum the counts of a word in a document; words become ascending, ``line`` is that of the first entry.

    Counts are added in the given order, so that sums do not depend on block boundaries.
    """
    if len(entries.document) == 0:
        return entries
    heads = np.flatnonzero(np.diff(entries.document, prepend=-1))
    line = np.repeat(entries.line[heads], np.diff(heads, append=len(entries.document)))
    key = entries.document * n_words + entries.word
    if (np.diff(key) > 0).all():
        return Entries(entries.document, entries.word, entries.count, line)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    total = np.bincount(group, entries.count).astype(entries.count.dtype)
    return Entries(entries.document[first], entries.word[first], total, line[first])


def row_cuts(indptr: NDArray[Any], values: int) -> list[int]:
    """Return cuts 0 = a < b < ... = m into runs of rows; rows plus values of a run are about ``values``."""
    weight = np.arange(len(indptr))
    weight += indptr
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        fitting = int(np.searchsorted(weight, weight[cuts[-1]] + values, side="right")) - 1
        cuts.append(max(fitting, cuts[-1] + 1))
    return cuts


def too_large(total: float, word: str) -> str:
    return f"the counts of word {word} add up to {total}, above {LARGEST_COUNT}"


def bags_of_entries(
    blocks: Iterable[tuple[Entries, int]], n_words: int, bad: BadRecords, *, first: int, most_empty: int
) -> Iterator[Batch]:
    """Yield the bags of entries in ascending order of documents, including those of documents without entries.

    Each block comes with the number of documents that are complete after it. ``rows`` count the documents from
    ``first``. Raises UnreadableError if more than ``most_empty`` documents have no entries.
    """
    held: Entries | None = None  # of documents that may continue in the next block
    start = empty = 0
    for entries, stop in blocks:
        together = merge_entries(entries if held is None else held.followed_by(entries), n_words)
        del entries
        cut = int(np.searchsorted(together.document, stop))
        complete, held = together.take(slice(0, cut)), together.take(slice(cut, None))
        empty += stop - start - int(np.count_nonzero(np.diff(complete.document, prepend=-1)))
        if empty > most_empty:
            raise UnreadableError(
                f"{empty} documents up to number {stop} have no counts, more than {most_empty} for its size; correct "
                "the numbers or leave such documents out"
            )
        yield from _bags(complete, range(start, stop), bad, first)
        start = stop


def _bags(entries: Entries, documents: range, bad: BadRecords, first: int) -> Iterator[Batch]:
    """Yield the bags of a range of documents."""
    large = entries.count > LARGEST_COUNT
    for i in np.flatnonzero(large):
        bad.refuse(int(entries.line[i]), too_large(entries.count[i], f"{entries.word[i] + 1}"))
    kept = entries.take(~large)
    # There may be millions of empty documents in a row.
    for start in documents[:: limits.BATCH_VALUES]:
        numbers = np.arange(start, min(start + limits.BATCH_VALUES, documents.stop) + 1)
        bounds = np.searchsorted(kept.document, numbers)
        inside = kept.take(slice(bounds[0], bounds[-1]))
        yield Batch(
            indptr=bounds - bounds[0],
            codes=inside.word.astype(np.int32),
            counts=narrow_counts(inside.count),
            rows=numbers[:-1] + first,
        )
