"""Rows of counts: record batches of CSR matrices, the checks of counts, and the word lists beside files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import LARGEST_COUNT, SMALLEST_COUNT, Bags
from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME, read_vocabulary
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Records, UnreadableError, limits
from streaming_jsmf.ingestion.sources.streams import find_beside

#: Columns of a bag of words: lists of words, and lists of their counts.
BAGS = WORDS, COUNTS = "text", "counts"


def words_beside(path: str, options: Any, usual: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the words of the list that an option names, or that has a ``usual`` name and is beside a file.

    Raises InputError if the list is missing.
    """
    names = [*usual, *TEXT_NAMES, VOCABULARY_NAME] if options.word_list is None else [options.word_list]
    found = find_beside(path, names)
    if found is None:
        raise InputError(
            f"{path} has no word list ({' or '.join(names)}); name it with {option.word_list('FILE')}"
        )
    return read_vocabulary(found)[0].words


def batches_of(
    matrix: Any, words: Sequence[str], columns: Mapping[str, Any] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a CSR matrix as record batches of about ``BATCH_VALUES`` values.

    The words keep their order in the vocabulary. ``columns`` are Arrow arrays with a value for each row. Raises
    UnreadableError if the matrix has another number of words, or if its arrays do not fit together.
    """
    if matrix.shape[1] != len(words):
        raise UnreadableError(
            f"the number of words is {matrix.shape[1]} in the file and {len(words)} in its word list"
        )
    if matrix.dtype.kind not in "iubf":
        raise UnreadableError(f"its values are of type {matrix.dtype}; write the matrix with numbers")
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise UnreadableError(f"its arrays do not fit together ({error}); write the matrix again") from error
    data = matrix.data.astype(np.uint8) if matrix.dtype.kind == "b" else matrix.data
    ids = matrix.indices.astype(np.int32, copy=False)
    return record_batches(
        Bags(matrix.indptr.astype(np.int64), ids, data, pa.array(words, pa.string())), columns
    )


def record_batches(bags: Bags, columns: Mapping[str, Any] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield bags, and ``columns`` of their documents, as record batches of about ``BATCH_VALUES`` values."""
    for start, stop in pairwise(row_cuts(bags.indptr, limits.BATCH_VALUES)):
        held = dict(zip(BAGS, bags.slice(start, stop).lists(), strict=True))
        more = {name: values.slice(start, stop - start) for name, values in (columns or {}).items()}
        yield pa.record_batch({**held, **more})


#: Why a count cannot be used.
NO_COUNT = f"is not in (0, {LARGEST_COUNT}], as every count must be"


def are_counts(numbers: NDArray[Any], whole: bool) -> NDArray[np.bool_]:
    """Return which numbers can be counts; NaN cannot, because comparisons with it are false."""
    return (numbers >= (1 if whole else SMALLEST_COUNT)) & (numbers <= LARGEST_COUNT)


def too_large(total: float, word: object) -> str:
    return f"the counts of word {word} add up to {total:.0f}, above {LARGEST_COUNT}"


def row_cuts(indptr: NDArray[Any], values: int) -> list[int]:
    """Return cuts 0 = a < b < ... = m into runs of rows; rows plus values of a run are about ``values``."""
    weight = np.arange(len(indptr))
    weight += indptr
    cuts = [0]
    while cuts[-1] < len(indptr) - 1:
        fitting = int(np.searchsorted(weight, weight[cuts[-1]] + values, side="right")) - 1
        cuts.append(max(fitting, cuts[-1] + 1))
    return cuts


def list_faults(records: Records) -> dict[int, str]:
    """Return why bags of words cannot be used, by index: no lists, or lists of different lengths, or of nulls.

    Raises UnreadableError if the columns hold other values.
    """
    lists, counts = records.columns[WORDS], records.columns[COUNTS]
    for name, values in ((WORDS, lists), (COUNTS, counts)):
        if not pa.types.is_list(values.type):
            raise UnreadableError(f"column {name!r} is {values.type}; it must hold lists")
    sizes, others = (pc.list_value_length(values) for values in (lists, counts))
    uneven = np.flatnonzero(np.asarray(pc.not_equal(sizes, others).fill_null(True)))
    faults = {i: f"it has {sizes[i]} words and {others[i]} counts" for i in uneven.tolist()}
    for name, values in ((WORDS, lists), (COUNTS, counts)):
        nulls = np.flatnonzero(np.asarray(values.is_null()))
        faults |= dict.fromkeys(nulls.tolist(), f"{name} is null")
        if values.flatten().null_count:
            rows = np.repeat(np.arange(len(values)), np.asarray(pc.list_value_length(values).fill_null(0)))
            nulls = rows[np.asarray(values.flatten().is_null())]
            faults |= dict.fromkeys(nulls.tolist(), f"{name} holds a null")
    return faults


def bags_of(records: Records, bad: BadRecords) -> tuple[Bags, NDArray[np.bool_]]:
    """Return the bags of words of records without ``list_faults``, and a mask of those that can be used.

    A record with a count that cannot be used goes to ``bad``. Zeros are dropped, and repeated words summed.
    """
    lists, stored = records.columns[WORDS], records.columns[COUNTS].flatten().to_numpy(zero_copy_only=False)
    indptr = np.append(0, np.cumsum(np.asarray(pc.list_value_length(lists)), dtype=np.int64))
    words = lists.flatten()
    if not pa.types.is_dictionary(words.type):
        words = words.dictionary_encode()
    given = Bags(indptr, np.asarray(words.indices), stored, words.dictionary)
    document, whole = given.rows, stored.dtype.kind in "iub"
    counts = stored if whole else stored.astype(np.float64)
    kept = np.ones(len(given), bool)

    def refuse(documents: NDArray[Any], wrong: NDArray[np.bool_], explain: Callable[[int], str]) -> None:
        positions = np.flatnonzero(wrong)
        for row, i in zip(*np.unique(documents[positions], return_index=True), strict=True):
            kept[row] = False
            bag = given.slice(row, row + 1)
            record = " ".join(f"{w}:{c}" for w, c in zip(bag.ids, bag.counts, strict=True))
            bad.refuse(int(records.rows[row]), explain(int(positions[i])), record)

    good = (counts == 0) | are_counts(counts, whole)
    refuse(document, ~good, lambda i: f"count {stored[i]} {NO_COUNT}")
    chosen = kept[document] & (counts != 0)
    bags = Bags.summed(document[chosen], given.ids[chosen], counts[chosen], len(given), given.words)
    refuse(
        bags.rows, bags.counts > LARGEST_COUNT, lambda i: too_large(bags.counts[i], f"{bags.ids[i]} (from 0)")
    )
    return bags, kept
