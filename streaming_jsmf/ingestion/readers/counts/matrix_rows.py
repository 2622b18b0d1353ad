"""Rows of sparse matrices as bags: cut into units and batches, and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT, narrow_counts
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.counts.entries import Entries, merged, too_large
from streaming_jsmf.ingestion.readers.counts.word_lists import whole_file

#: Batches of values for one task.
BATCHES_PER_UNIT = 8


@dataclass(frozen=True, eq=False)
class Rows:
    """m rows of a sparse matrix.

    Attributes
    ----------
    first
        Number of the first one within its unit.
    indptr
        (m + 1,) integers from 0.
    words, counts
        (nonzeros,) as they were found; not checked.
    """

    first: int
    indptr: NDArray[Any]
    words: NDArray[Any]
    counts: NDArray[Any]


def row_cuts(indptr: NDArray[Any], values: int) -> list[int]:
    """Places 0 = a < b < ... = m that cut rows into pieces of about ``values`` values, rows counted in."""
    weight = np.arange(len(indptr))
    weight += indptr
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        fitting = int(np.searchsorted(weight, weight[cuts[-1]] + values, side="right")) - 1
        cuts.append(max(fitting, cuts[-1] + 1))
    return cuts


def row_units(path: str, indptr: NDArray[Any]) -> list[Unit]:
    """Units of about ``BATCHES_PER_UNIT`` batches of the values of a matrix."""
    size, cuts = whole_file(path).size, row_cuts(indptr, BATCHES_PER_UNIT * limits.BATCH_VALUES)
    share = size / max(int(indptr[-1]) - int(indptr[0]), 1)
    units = [Unit(path, a, b, int(share * int(indptr[b] - indptr[a]))) for a, b in pairwise(cuts)]
    return units or [Unit(path, size=size)]


def row_place(unit: Unit, row: int) -> str:
    """File and row of a matrix."""
    return f"{unit.path}, row {unit.start + row} from 0"


def bags_of_rows(rows: Rows, n_words: int, bad: BadRecords) -> SourceBatch:
    """The bags of rows; a row with a word or count that is bad is refused and left out as a whole.

    Zeros are dropped and counts of the same word added. Integer and boolean counts become int32, others float32.
    """
    m, whole = len(rows.indptr) - 1, rows.counts.dtype.kind in "iub"
    document = np.repeat(np.arange(m), np.diff(rows.indptr))
    counts = rows.counts.astype(np.float64) if rows.counts.dtype.kind == "f" else rows.counts
    kept = np.ones(m, bool)

    def refuse(documents: NDArray[Any], wrong: NDArray[np.bool_], why: Callable[[int], str]) -> None:
        places = np.flatnonzero(wrong)
        for row, i in zip(*np.unique(documents[places], return_index=True), strict=True):
            kept[row] = False
            bad.refuse(rows.first + int(row), why(int(places[i])), _record(rows, int(row)))

    def why_wrong(i: int) -> str:
        if 0 <= rows.words[i] < n_words:
            return f"count {rows.counts[i]} is not in (0, {LARGEST_COUNT}], as every count must be"
        return f"word {rows.words[i]} (from 0) is not in the vocabulary of {n_words} words"

    # Comparisons with NaN are false, so it is refused as well.
    good = (counts == 0) | ((counts >= (1 if whole else SMALLEST_COUNT)) & (counts <= LARGEST_COUNT))
    refuse(document, ~good | (rows.words < 0) | (rows.words >= n_words), why_wrong)
    chosen = kept[document] & (counts != 0)
    document, added = document[chosen], counts[chosen].astype(np.int64 if whole else np.float64)
    sums = merged(Entries(document, rows.words[chosen].astype(np.int64), added, document), n_words)
    refuse(
        sums.document,
        sums.count > LARGEST_COUNT,
        lambda i: too_large(sums.count[i], f"{sums.word[i]} (from 0)"),
    )
    sums = sums.take(kept[sums.document])
    lengths = np.bincount(sums.document, minlength=m)[kept]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SourceBatch(
        indptr, sums.word.astype(np.int32), narrow_counts(sums.count), rows.first + np.flatnonzero(kept)
    )


def _record(rows: Rows, row: int) -> str:
    """A row as text: word:count, with a space between."""
    inside = slice(int(rows.indptr[row]), int(rows.indptr[row + 1]))
    return " ".join(f"{w}:{c}" for w, c in zip(rows.words[inside], rows.counts[inside], strict=True))
