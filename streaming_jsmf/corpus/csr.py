"""From a row group to a block of H: documents x words, CSR, without a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from dask.sizeof import sizeof
from scipy.sparse import csr_array

from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.hashes import require_hash
from streaming_jsmf.corpus.records import Place, checked_bags
from streaming_jsmf.corpus.sizeof import register_sizeof
from streaming_jsmf.corpus.units import WorkUnit, read_labels

register_sizeof(sizeof)


def read_block(unit: WorkUnit, n_words: int) -> csr_array[Any]:
    """Read one row group as CSR counts (rows documents, ``n_words`` columns).

    The arrays are views of Arrow's buffers and read-only: copy before changing them. Records are checked on
    the way, at a fiftieth of the cost of multiplying them.

    Returns
    -------
    csr_array of the file's count type (int32 or float32 as a rule), int32 indices.

    Raises
    ------
    InputError
        For a bad record, with file, row group and row: see ``checked_bags``.
    StoreError
        If the file is truncated or corrupt, or is not the one that the corpus was opened with: the first read of a
        shard in a process takes its hash.
    """
    with open_parquet(unit.path, f"{unit.path}, row group {unit.row_group}") as file:
        if unit.sha256 is not None:
            require_hash(unit.path, unit.sha256)
        table = file.read_row_group(unit.row_group, columns=["ids", "counts"], use_threads=False)
    ids, counts = (_whole(table.column(name)) for name in ("ids", "counts"))
    bags = checked_bags(ids, counts, n_words, Place(unit.path, unit.row_group))
    # scipy's products want both index arrays in 32 bit, and copy them otherwise.
    indptr = bags.indptr.astype(np.int32) if bags.ids.size < np.iinfo(np.int32).max else bags.indptr
    indices = bags.ids.astype(indptr.dtype, copy=False)
    block = csr_array((bags.counts, indices, indptr), shape=(indptr.size - 1, n_words), copy=False)
    if unit.only is None:
        return block
    labels = read_labels(unit, unit.only.column)
    return block[[row for row, label in enumerate(labels) if label == unit.only.value]]


def iter_blocks(units: Iterable[WorkUnit], n_words: int) -> Iterator[csr_array[Any]]:
    """Yield the blocks of ``units`` one after the other; one is in memory at a time. One pass over the data."""
    for unit in units:
        yield read_block(unit, n_words)


def _whole(column: Any) -> Any:
    """A column as one array; Arrow splits only what exceeds 2 GB or comes from several row groups."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
