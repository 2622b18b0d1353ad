"""List columns as arrays, validated record by record, and documents in memory."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.errors import InputError

BATCH_NONZEROS = 1_000_000
ID_COLUMNS = ("document_id", "doc_id")

#: Columns of corpora and of topic shares that are not metadata.
OWN_COLUMNS = ("ids", "counts", "document_id", "known_tokens", "topics", "topic_shares", "topic")

Counts = NDArray[np.int32] | NDArray[np.float32]
LARGEST_COUNT = int(np.iinfo(np.int32).max)
SMALLEST_COUNT = float(np.finfo(np.float32).tiny)  # smaller counts become 0 or lose precision in float32


def free_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken: the given one, with as many ``_`` behind it as that needs."""
    while name in taken:
        name += "_"
    return name


class RecordError(InputError):
    """A bad record, with its ``row`` within the batch and the ``reason``. Pickle needs the defaults."""

    def __init__(self, message: str, row: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.row = row
        self.reason = reason


@dataclass(frozen=True)
class Place:
    """Location of the records of a row group, for messages; rows count from 0."""

    path: str
    row_group: int

    def refuse(self, row: int, reason: str) -> RecordError:
        """Return the error to raise for a record."""
        where = f"{self.path}, row group {self.row_group}, row {row} from 0"
        return RecordError(f"{where}: {reason}; correct the record", row, reason)


#: Bags of words as views of Arrow buffers: int64 indptr from 0, ascending ids, and positive counts.
Bags = tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]


def checked_bags(ids: Any, counts: Any, n_words: int, where: Place) -> Bags:
    """Convert two Arrow list arrays to bags, without copying their values.

    Raises ``InputError`` with file, row group and row at the first null, lists of different lengths, id outside
    ``0..n_words-1`` or not ascending, or count that is not positive and finite.
    """
    indptr, values = _lists(ids, "ids", where)
    other, numbers = _lists(counts, "counts", where)
    uneven = np.diff(indptr) != np.diff(other)
    if uneven.any():
        row = int(np.argmax(uneven))
        raise where.refuse(row, f"{np.diff(indptr)[row]} ids but {np.diff(other)[row]} counts")

    def require(good: NDArray[np.bool_], reason: str) -> None:
        if not good.all():
            at = int(np.argmin(good))
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            raise where.refuse(row, reason.format(id=values[at], before=values[at - 1], count=numbers[at]))

    require((values >= 0) & (values < n_words), f"word id {{id}} is outside 0..{n_words - 1}")
    ascending = np.ones(len(values), bool)
    ascending[1:] = values[1:] > values[:-1]
    starts = indptr[:-1]
    ascending[starts[starts < len(values)]] = True
    require(ascending, "id {id} comes after {before}; ids must be in ascending order")
    # Comparisons with NaN are false, so NaN is refused.
    in_range = (numbers >= SMALLEST_COUNT) & (numbers <= LARGEST_COUNT)
    require(in_range, f"count {{count}} is not in (0, {LARGEST_COUNT}]")
    return indptr, values, numbers


def _lists(column: Any, name: str, where: Place) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """indptr (from 0) and values of a list column; refuses null lists and null elements."""
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise where.refuse(row, f"{name} is null; an empty document is an empty list")
    # A sliced array keeps the offsets of the whole array.
    offsets = np.asarray(column.offsets).astype(np.int64)
    indptr, values = offsets - offsets[0], column.flatten()
    if values.null_count:
        at = int(np.argmax(np.asarray(values.is_null())))
        raise where.refuse(int(np.searchsorted(indptr, at, side="right")) - 1, f"{name} holds a null")
    return indptr, np.asarray(values)


@dataclass(frozen=True, eq=False)
class Documents:
    """m documents as a CSR block with their ids and metadata.

    Attributes
    ----------
    indptr : (m + 1,) int64, starts at 0.
    ids : (nonzeros,) int32; ascending within a document.
    counts : (nonzeros,) int32 or float32; positive.
    document_id : Arrow array of m strings or int64.
    metadata : Further Arrow arrays of length m, by column name.
    """

    indptr: NDArray[np.int64]
    ids: NDArray[np.int32]
    counts: Counts
    document_id: Any
    metadata: Mapping[str, Any]

    @property
    def n_documents(self) -> int:
        return len(self.indptr) - 1

    def tokens(self) -> NDArray[np.float64]:
        """Sum of the counts of each document, (m,) float64; the bits do not depend on the batches."""
        rows = np.repeat(np.arange(self.n_documents), np.diff(self.indptr))
        sums = np.bincount(rows, self.counts.astype(np.float64), self.n_documents)
        return sums.astype(np.float64, copy=False)

    def take(self, start: int, stop: int) -> Documents:
        """Documents ``start`` to ``stop - 1``, without copying ids and counts."""
        low, high = self.indptr[start], self.indptr[stop]
        return Documents(
            self.indptr[start : stop + 1] - low,
            self.ids[low:high],
            self.counts[low:high],
            self.document_id[start:stop],
            {name: column[start:stop] for name, column in self.metadata.items()},
        )


def id_column(names: Sequence[str]) -> str | None:
    """Return the column of document ids, by its usual names; None if it is missing."""
    return next((name for name in ID_COLUMNS if name in names), None)


def narrow_counts(counts: NDArray[Any]) -> Counts:
    """Convert checked counts to int32 if they are integers, else to float32."""
    if np.issubdtype(counts.dtype, np.integer):
        return counts.astype(np.int32, copy=False)
    return counts.astype(np.float32, copy=False)


def without_views(kind: Any) -> Any:
    """Return an Arrow type with plain strings and bytes in place of views, whose rows Arrow cannot select."""
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return pa.string() if types.is_string_view(kind) else pa.binary()
    if types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, without_views(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pa.struct([field.with_type(without_views(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        item = kind.value_field.with_type(without_views(kind.value_type))
        return pa.list_(item) if types.is_list(kind) else pa.large_list(item)
    return kind


def registers_pandas(file: Any) -> bool:
    """Whether a file of Parquet or Arrow has types of pandas that Arrow did not know before: it must be opened again.

    Periods and intervals are numbers and objects until pandas, which takes .3 s to import, makes its first array.
    """
    schema = getattr(file, "schema_arrow", None) or file.schema
    types = {(field.metadata or {}).get(b"ARROW:extension:name", b"") for field in schema}
    if not any(name.startswith(b"pandas.") for name in types):
        return False
    import pandas as pd

    pa.array(pd.PeriodIndex([], freq="D"))
    return True


def without_extension(values: Any) -> Any:
    """Return an Arrow array of an extension type as one of a plain type, by default its storage.

    Periods of pandas become the times at which they begin, and its intervals strings.
    """
    name = values.type.extension_name
    if name == "pandas.period":
        periods = values.to_pandas().array.asfreq("us", "start")
        return pa.array(periods.asi8, pa.timestamp("us"), mask=periods.isna())
    if name == "pandas.interval":
        return pa.array(values.to_pandas().map(str, "ignore"), pa.string())
    if name == "arrow.uuid":
        return pa.array([None if value is None else str(value) for value in values.to_pylist()], pa.string())
    return values.storage


def document_ids(column: Any, name: str, where: Place) -> Any:
    """Convert an Arrow id column to int64 or string; ``InputError`` for nulls and other types."""
    column = column.cast(without_views(column.type))
    if column.null_count:
        row = int(np.argmax(np.asarray(column.is_null())))
        raise where.refuse(row, f"{name} is null")
    if pa.types.is_integer(column.type):
        return column.cast(pa.int64())
    if is_string(column.type):
        return column.cast(pa.string())
    raise InputError(f"{where.path}: column {name!r} is {column.type}; document ids are strings or integers")
