"""Documents in memory, and the reader that checks each one on the way in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.footer import check_columns, open_parquet
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.records import Place, checked_bags
from streaming_jsmf.errors import InputError

BATCH_NONZEROS = 1_000_000
ID_COLUMNS = ("document_id", "doc_id")

Counts = NDArray[np.int32] | NDArray[np.float32]


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


def iter_documents(corpus: Corpus, id_column: str | None = None) -> Iterator[Documents]:
    """One pass over a corpus in batches of about a million nonzeros, in order of shards and rows.

    Every record is checked: no nulls, ids and counts of equal length, ids in range and rising, counts
    positive and finite. Integer counts become int32, others float32.

    Parameters
    ----------
    corpus
        What to read.
    id_column
        Column kept as document_id; without it ``document_id``, else ``doc_id``, else numbers from 0.

    Raises
    ------
    InputError
        For the first bad record; the message names file, row group and row.
    StoreError
        For a damaged file.
    """
    first = 0
    for shard in corpus.shards:
        path = corpus.shard_path(shard)
        with open_parquet(path, path) as file:
            check_columns(file.schema_arrow, path)
            name = _id_column(file.schema_arrow.names, id_column, path)
            for g in range(file.metadata.num_row_groups):
                row = 0
                for batch in file.iter_batches(
                    _batch_rows(file.metadata, g), row_groups=[g], use_threads=False
                ):
                    where = Place(path, g, row)
                    yield _to_documents(batch, name, corpus.n_words, first, where)
                    first, row = first + batch.num_rows, row + batch.num_rows


def documents_from_batch(batch: Any, n_words: int, id_column: str | None = None) -> Documents:
    """Check and convert one Arrow record batch with list columns ``ids`` and ``counts``.

    Raises
    ------
    InputError
        For the first bad record, and for columns that are missing or mistyped.
    """
    where = Place("the record batch", 0, 0)
    check_columns(batch.schema, where.path)
    return _to_documents(batch, _id_column(batch.schema.names, id_column, where.path), n_words, 0, where)


def narrow_counts(counts: NDArray[Any]) -> Counts:
    """Checked counts as int32 if they are integers, else as float32."""
    if np.issubdtype(counts.dtype, np.integer):
        return counts.astype(np.int32, copy=False)
    return counts.astype(np.float32, copy=False)


def _batch_rows(metadata: Any, g: int) -> int:
    """Rows that hold about BATCH_NONZEROS: a foreign writer's row groups may be far larger than ours."""
    group = metadata.row_group(g)
    values = max(group.column(i).num_values for i in range(group.num_columns))
    return max(1, int(BATCH_NONZEROS * group.num_rows / max(values, 1)))


def _id_column(names: list[str], wanted: str | None, path: str) -> str | None:
    if wanted is not None and wanted not in names:
        raise InputError(f"{path} has no column {wanted!r} for document ids; it has {', '.join(names)}")
    return wanted or next((name for name in ID_COLUMNS if name in names), None)


def _to_documents(batch: Any, id_column: str | None, n_words: int, first: int, where: Place) -> Documents:
    bags = checked_bags(batch.column("ids"), batch.column("counts"), n_words, where)
    metadata = {
        name: batch.column(name) for name in batch.schema.names if name not in ("ids", "counts", id_column)
    }
    return Documents(
        bags.indptr,
        bags.ids.astype(np.int32, copy=False),
        narrow_counts(bags.counts),
        _document_ids(batch, id_column, first, where),
        metadata,
    )


def _document_ids(batch: Any, id_column: str | None, first: int, where: Place) -> Any:
    """The id column as int64 or string; running numbers over the corpus when there is none."""
    if id_column is None:
        return pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
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
