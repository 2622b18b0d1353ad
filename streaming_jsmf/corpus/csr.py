"""Blocks of H (documents x words): row groups as CSR arrays without a copy, and a corpus as a Dask array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from dask.sizeof import sizeof
from scipy.sparse import csr_array

from streaming_jsmf.corpus.footer import open_parquet, reading
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.corpus.records import Place, checked_bags
from streaming_jsmf.corpus.sizeof import register_sizeof
from streaming_jsmf.corpus.units import WorkUnit, labels_of, list_units
from streaming_jsmf.storage.paths import AnyPath

register_sizeof(sizeof)


def read_block(unit: WorkUnit, n_words: int) -> csr_array[Any]:
    """Read one row group as CSR counts, (rows, ``n_words``), with the count type of the file and int32 indices.

    The arrays are read-only views of Arrow buffers; copy them before changing them. Raises ``InputError`` for a bad
    record (see ``checked_bags``; checking takes about 2 % of the time of a product), and ``StoreError`` if the file is
    damaged or has changed since the corpus was opened; the first read of a shard in a process computes its hash.
    """
    (block,) = iter_blocks([unit], n_words)
    return block


def iter_blocks(units: Iterable[WorkUnit], n_words: int) -> Iterator[csr_array[Any]]:
    """Yield the blocks of ``units`` in order, with one in memory at a time. Makes one pass over the data.

    Opens each shard once for units that follow each other. Errors as in ``read_block``.
    """
    for (path, sha256, state, hashed), together in groupby(
        units, attrgetter("path", "sha256", "state", "hashed")
    ):
        with open_parquet(path, path, sha256=sha256, known=state if hashed else None) as file:
            for unit in together:
                yield _block(file, unit, n_words)


def _block(file: Any, unit: WorkUnit, n_words: int) -> csr_array[Any]:
    with reading(f"{unit.path}, row group {unit.row_group}"):
        table = file.read_row_group(unit.row_group, columns=["ids", "counts"], use_threads=False)
    ids, counts = (_one_array(table.column(name)) for name in ("ids", "counts"))
    indptr, indices, values = checked_bags(ids, counts, n_words, Place(unit.path, unit.row_group))
    # scipy copies the index arrays in products unless both are int32.
    if indices.size < np.iinfo(np.int32).max:
        indptr = indptr.astype(np.int32)
    indices = indices.astype(indptr.dtype, copy=False)
    block = csr_array((values, indices, indptr), shape=(indptr.size - 1, n_words), copy=False)
    if unit.only is None:
        return block
    labels = labels_of(unit, unit.only.column, block.shape[0])
    return block[[row for row, label in enumerate(labels) if label == unit.only.value]]


def _one_array(column: Any) -> Any:
    """Return a column as one array; Arrow splits columns only above 2 GB."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def to_dask_array(corpus: AnyPath | Corpus) -> Any:
    """Return H (documents x words) as a lazy Dask array with one ``csr_array`` block per row group.

    Use ``map_blocks`` with ``meta=``: Dask does not define array operators such as ``@`` and ``.sum`` for sparse
    blocks, and some fail silently.
    """
    from dask import array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph
    from dask.task_spec import Task

    corpus = open_corpus(corpus)
    units = list_units(corpus)
    name = f"corpus-{tokenize(corpus.fingerprint, corpus.root)}"
    layer = {
        (name, i, 0): Task((name, i, 0), read_block, unit, corpus.n_words) for i, unit in enumerate(units)
    }
    return da.Array(
        HighLevelGraph.from_collections(name, layer),
        name,
        chunks=(tuple(unit.rows for unit in units), (corpus.n_words,)),
        meta=csr_array((0, 0), dtype=np.int32),
        dtype=np.int32,
    )
