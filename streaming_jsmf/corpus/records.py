"""Records: the list columns of a file become arrays, the first bad record is named, and documents in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.footer import check_columns
from streaming_jsmf.errors import InputError

BATCH_NONZEROS = 1_000_000
ID_COLUMNS = ("document_id", "doc_id")

Counts = NDArray[np.int32] | NDArray[np.float32]
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


@dataclass(frozen=True, eq=False)
class Documents:
    """m documents as a CSR block and the columns that go with it.

    Attributes
    ----------
    indptr
        (m + 1,) int64, starts at 0.
    ids
        (nonzeros,) int32; rising within a document.
    counts
        (nonzeros,) int32 or float32; positive.
    document_id
        Arrow array of m strings or int64.
    metadata
        Further Arrow arrays of length m, by column name.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    counts: Counts
    document_id: Any
    metadata: Mapping[str, Any]

    @property
    def n_documents(self) -> int:
        """m."""
        return len(self.indptr) - 1

    @property
    def rows(self) -> NDArray[np.int64]:
        """Document (0..m-1) of each nonzero."""
        return np.repeat(np.arange(self.n_documents), np.diff(self.indptr))

    def tokens(self) -> NDArray[np.float64]:
        """Sum of counts of each document, float64, m; the same bits however documents are batched."""
        weights = self.counts.astype(np.float64)
        return np.bincount(self.rows, weights, self.n_documents).astype(np.float64, copy=False)

    def take(self, start: int, stop: int) -> Documents:
        """Documents start..stop-1, without a copy of ids and counts."""
        low, high = self.indptr[start], self.indptr[stop]
        return Documents(
            self.indptr[start : stop + 1] - low,
            self.ids[low:high],
            self.counts[low:high],
            self.document_id[start:stop],
            {name: column[start:stop] for name, column in self.metadata.items()},
        )

    def keep(
        self, documents: NDArray[np.bool_], nonzeros: NDArray[np.bool_], new_ids: NDArray[np.int32]
    ) -> Documents:
        """The masked documents (m) with the masked nonzeros, word ids replaced by ``new_ids[id]``."""
        mask = nonzeros & documents[self.rows]
        lengths = np.bincount(self.rows[mask], minlength=self.n_documents)[documents]
        chosen = pa.array(documents)
        return Documents(
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            new_ids[self.ids[mask]],
            self.counts[mask],
            self.document_id.filter(chosen),
            {name: column.filter(chosen) for name, column in self.metadata.items()},
        )


def documents_from_batch(batch: Any, n_words: int, id_column: str | None = None) -> Documents:
    """Check and convert one Arrow record batch with list columns ``ids`` and ``counts``.

    Raises
    ------
    InputError
        For the first bad record, and for columns that are missing or mistyped.
    """
    where = Place("the record batch", 0, 0)
    check_columns(batch.schema, where.path)
    return _to_documents(batch, _id_column(batch.schema.names, id_column, where.path), n_words, where)


def narrow_counts(counts: NDArray[Any]) -> Counts:
    """Checked counts as int32 if they are integers, else as float32."""
    if np.issubdtype(counts.dtype, np.integer):
        return counts.astype(np.int32, copy=False)
    return counts.astype(np.float32, copy=False)


def _id_column(names: list[str], wanted: str | None, path: str) -> str | None:
    if wanted is not None and wanted not in names:
        raise InputError(f"{path} has no column {wanted!r} for document ids; it has {', '.join(names)}")
    return wanted or next((name for name in ID_COLUMNS if name in names), None)


def _to_documents(batch: Any, id_column: str | None, n_words: int, where: Place) -> Documents:
    bags = checked_bags(batch.column("ids"), batch.column("counts"), n_words, where)
    metadata = {
        name: batch.column(name) for name in batch.schema.names if name not in ("ids", "counts", id_column)
    }
    return Documents(
        bags.indptr,
        bags.ids.astype(np.int32, copy=False),
        narrow_counts(bags.counts),
        _document_ids(batch, id_column, where),
        metadata,
    )


def _document_ids(batch: Any, id_column: str | None, where: Place) -> Any:
    """The id column as int64 or string; running numbers when there is none."""
    if id_column is None:
        return pa.array(np.arange(batch.num_rows, dtype=np.int64))
    return document_ids(batch.column(id_column), id_column, where)


def document_ids(column: Any, name: str, where: Place) -> Any:
    """An id column of Arrow as int64 or string.

    Raises
    ------
    InputError
        For a null, with its row, and for another type.
    """
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise where.refuse(row, f"{name} is null")
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string())
    raise InputError(f"{where.path}: column {name!r} is {column.type}; document ids are strings or integers")
