"""From a row group to a block of H: documents x words, CSR, without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from dask.sizeof import sizeof
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.blocks.parquet import damage_named, parquet_file
from streaming_jsmf.blocks.sizeof import register_sizeof
from streaming_jsmf.blocks.units import WorkUnit
from streaming_jsmf.errors import InputError

register_sizeof(sizeof)


def read_block(unit: WorkUnit, n_words: int) -> csr_array[Any]:
    """Read one row group as CSR counts (rows documents, ``n_words`` columns).

    The arrays are views of Arrow's buffers and read-only: copy before changing them. ``ids`` and
    ``counts`` are checked, at a fiftieth of the cost of multiplying them.

    Returns
    -------
    csr_array of the file's count type (int32 or float32 as a rule), int32 indices.

    Raises
    ------
    InputError
        A null, an id outside the vocabulary or out of order, a count that is not positive and finite, lists
        of different lengths: with file, row group and row.
    StoreError
        If the file is truncated or corrupt.
    """
    with parquet_file(unit.path) as file, damage_named(unit.place):
        table = file.read_row_group(unit.row_group, columns=["ids", "counts"], use_threads=False)
    ids, counts = (_only_chunk(table.column(name)) for name in ("ids", "counts"))
    _refuse_nulls(unit, "ids", ids)
    _refuse_nulls(unit, "counts", counts)
    indptr = ids.offsets.to_numpy(zero_copy_only=False)
    indices = _values(ids)
    data = _values(counts)
    _refuse_different_lengths(unit, indptr, counts.offsets.to_numpy(zero_copy_only=False))
    _refuse_bad_ids(unit, indptr, indices, n_words)
    _refuse_bad_counts(unit, indptr, data)
    if indices.dtype != np.int32:
        indices = indices.astype(np.int32)
    return csr_array((data, indices, indptr), shape=(indptr.size - 1, n_words), copy=False)


def iter_blocks(units: Iterable[WorkUnit], n_words: int) -> Iterator[csr_array[Any]]:
    """Yield the blocks of ``units`` one after the other; one is in memory at a time. One pass over the data."""
    for unit in units:
        yield read_block(unit, n_words)


def _only_chunk(column: Any) -> Any:
    """The column as one array whose offsets start at 0; copies only where Arrow has split or sliced it."""
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return array if array.offset == 0 else pa.concat_arrays([array])


def _values(lists: Any) -> NDArray[Any]:
    values: NDArray[Any] = lists.values.to_numpy(zero_copy_only=False)
    return values


def _fail(unit: WorkUnit, row: int, reason: str) -> None:
    raise InputError(f"{unit.place}, row {row}: {reason}; mend the record or ingest the corpus again")


def _row_of(indptr: NDArray[Any], position: int) -> int:
    """Row that holds the value at ``position``."""
    return int(np.searchsorted(indptr, position, side="right")) - 1


def _refuse_nulls(unit: WorkUnit, name: str, lists: Any) -> None:
    # A null list looks like an empty document to everything that follows.
    if lists.null_count:
        _fail(unit, int(pc.index(pc.is_null(lists), True).as_py()), f"{name} is null")
    if lists.values.null_count:
        position = int(pc.index(pc.is_null(lists.values), True).as_py())
        _fail(unit, _row_of(lists.offsets.to_numpy(zero_copy_only=False), position), f"{name} holds a null")


def _refuse_different_lengths(unit: WorkUnit, ids: NDArray[Any], counts: NDArray[Any]) -> None:
    if not np.array_equal(ids, counts):
        row = int(np.flatnonzero(np.diff(ids) != np.diff(counts))[0])
        _fail(unit, row, "ids and counts have different lengths")


def _refuse_bad_ids(unit: WorkUnit, indptr: NDArray[Any], indices: NDArray[Any], n_words: int) -> None:
    if not indices.size:
        return
    if indices.min() < 0 or indices.max() >= n_words:
        position = int(np.flatnonzero((indices < 0) | (indices >= n_words))[0])
        _fail(
            unit,
            _row_of(indptr, position),
            f"id {indices[position]} is outside the vocabulary of {n_words} words",
        )
    rising = indices[1:] > indices[:-1]
    # Between the last id of a document and the first of the next anything goes.
    boundaries = indptr[1:-1]
    rising[boundaries[(boundaries > 0) & (boundaries < indices.size)] - 1] = True
    if not rising.all():
        position = int(np.flatnonzero(~rising)[0]) + 1
        _fail(unit, _row_of(indptr, position), "ids are not rising (sorted, each once)")


def _refuse_bad_counts(unit: WorkUnit, indptr: NDArray[Any], data: NDArray[Any]) -> None:
    # The comparison is false for NaN as well.
    good = data > 0
    if data.dtype.kind == "f":
        good &= np.isfinite(data)
    if not good.all():
        position = int(np.flatnonzero(~good)[0])
        _fail(unit, _row_of(indptr, position), f"count {data[position]} is not a positive number")
