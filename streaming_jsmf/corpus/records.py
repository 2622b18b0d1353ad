"""Records as they are read: list columns become arrays, and the first bad record is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError

#: Counts are int32 or float32.
LARGEST_COUNT = int(np.iinfo(np.int32).max)
SMALLEST_COUNT = float(np.finfo(np.float32).tiny)  # below it a float count would become 0 or lose its digits


class RecordError(InputError):
    """A bad record: ``row`` within its batch and ``reason``, besides the whole message.

    With defaults, since pickle makes an exception of its message alone and sets the attributes after that.
    """

    def __init__(self, message: str, row: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.row = row
        self.reason = reason


@dataclass(frozen=True)
class Place:
    """Where a batch of records lies, for messages: rows count from 0 within the row group."""

    path: str
    row_group: int
    row: int = 0

    def refuse(self, row: int, reason: str) -> RecordError:
        """The error for a record, to be raised."""
        where = f"{self.path}, row group {self.row_group}, row {self.row + row} from 0"
        return RecordError(f"{where}: {reason}; mend the record", row, reason)


@dataclass(frozen=True, eq=False)
class Bags:
    """Checked bags of words: int64 ``indptr`` from 0, word ids rising within a document, positive counts.

    ``ids`` and ``counts`` are views of Arrow's buffers with the file's types.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[Any]
    counts: NDArray[Any]


def checked_bags(ids: Any, counts: Any, n_words: int, where: Place) -> Bags:
    """Return the bags of two Arrow list arrays, without a copy of their values.

    Raises
    ------
    InputError
        For the first null, lists of different lengths, id outside ``0..n_words-1`` or not rising, or count that
        is not positive and finite: with file, row group and row.
    """
    indptr, values = _lists(ids, "ids", where)
    other, numbers = _lists(counts, "counts", where)
    uneven = np.diff(indptr) != np.diff(other)
    if uneven.any():
        row = int(np.argmax(uneven))
        raise where.refuse(row, f"{np.diff(indptr)[row]} ids but {np.diff(other)[row]} counts")
    _check_ids(indptr, values, n_words, where)
    _check_counts(indptr, numbers, where)
    return Bags(indptr, values, numbers)


def _lists(column: Any, name: str, where: Place) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """indptr (from 0) and values of a list column; null lists and null elements are refused."""
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise where.refuse(row, f"{name} is null; an empty document is an empty list")
    # A sliced array keeps the offsets of the whole.
    offsets = np.asarray(column.offsets).astype(np.int64)
    indptr, values = offsets - offsets[0], column.flatten()
    if values.null_count:
        position = int(np.argmax(np.asarray(values.is_null())))
        raise where.refuse(_row_of(indptr, position), f"{name} holds a null")
    return indptr, np.asarray(values)


def _check_ids(indptr: NDArray[np.int64], ids: NDArray[Any], n_words: int, where: Place) -> None:
    at = _first((ids < 0) | (ids >= n_words))
    if at is not None:
        raise where.refuse(_row_of(indptr, at), f"word id {ids[at]} is outside 0..{n_words - 1}")
    falls = np.zeros(len(ids), bool)
    falls[1:] = ids[1:] <= ids[:-1]
    # From the last id of a document to the first of the next anything goes.
    starts = indptr[:-1]
    falls[starts[starts < len(ids)]] = False
    at = _first(falls)
    if at is not None:
        raise where.refuse(_row_of(indptr, at), f"id {ids[at]} comes after {ids[at - 1]}; ids must rise")


def _check_counts(indptr: NDArray[np.int64], counts: NDArray[Any], where: Place) -> None:
    # Comparisons with NaN are false, so it is refused as well.
    at = _first(~((counts >= SMALLEST_COUNT) & (counts <= LARGEST_COUNT)))
    if at is not None:
        reason = f"count {counts[at]} is not in (0, {LARGEST_COUNT}], as every count must be"
        raise where.refuse(_row_of(indptr, at), reason)


def _first(bad: NDArray[np.bool_]) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


def _row_of(indptr: NDArray[np.int64], position: int) -> int:
    return int(np.searchsorted(indptr, position, side="right")) - 1
