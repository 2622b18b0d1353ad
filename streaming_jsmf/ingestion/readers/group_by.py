"""The group-by that makes documents of rows (document, word, count), by buckets on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import LARGEST_COUNT, Bags
from streaming_jsmf.corpus.hashes import hash_values
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.sources.matrices import row_cuts, too_large
from streaming_jsmf.ingestion.sources.protocol import BadRecords, Batch, limits
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.replace import file_written
from streaming_jsmf.storage.tables import read_range, write_pieces

_WORD_BYTES = 64 << 20  # of the words of rows that are sorted together


def write_buckets(pieces: Iterable[Any], target: Path, n_buckets: int) -> None:
    """Write rows by bucket, a hash of the document (``write_pieces``), to a file that appears when it is complete.

    ``pieces`` are record batches with columns ``document`` (dictionary of int64 or strings), ``word`` (dictionary of
    strings) and ``count`` (int32 or float32), without nulls. ``n_buckets`` is in 1..4096.
    """
    parts = (_with_buckets(part, n_buckets) for piece in pieces for part in _bounded(piece))
    with file_written(target, overwrite=True) as made:
        write_pieces(made, parts, n_buckets)


def _with_buckets(batch: Any, n_buckets: int) -> tuple[Any, NDArray[np.uint16]]:
    """Return the rows without dictionaries, and their buckets, which NumPy sorts faster in 16 bits."""
    documents = batch.column("document")
    buckets = (hash_values(documents.dictionary)[:, 0] % np.uint64(n_buckets)).astype(np.uint16)
    plain = [column.dictionary_decode() for column in batch.columns[:2]]
    table = pa.table([*plain, batch.column("count")], names=batch.schema.names)
    return table, buckets[np.asarray(documents.indices)]


def _bounded(batch: Any) -> Iterator[Any]:
    """Split a batch until the words of its rows fit in memory, which may take far more than their dictionary."""
    words = batch.column("word")
    size = int(np.asarray(pc.binary_length(words.dictionary))[np.asarray(words.indices)].sum(dtype=np.int64))
    if size > _WORD_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _bounded(batch.slice(0, half))
        yield from _bounded(batch.slice(half))
    elif batch.num_rows:
        yield batch


def read_bucket(files: Sequence[StorePath], bucket: int, n_buckets: int, bad: BadRecords) -> Iterator[Batch]:
    """Yield the documents of a bucket in batches of about a million values; equal (document, word) are summed.

    Documents are sorted by id and words by bytes, so the result does not depend on the order of files or rows, to the
    last bit. Sums above the largest count go to ``bad``. ``rows`` number the documents of the bucket. Memory: a few
    times the bucket. Raises StoreError for a file that is missing
    or damaged, and InputError if files differ in types.
    """
    parts = []
    for path in files:
        part = read_range(path, bucket, n_buckets)
        parts += [part] if len(part) else []
    if not parts:
        return
    kinds = [" and ".join(map(str, part.schema.types[::2])) for part in parts]
    for other in {*kinds} - {kinds[0]}:
        raise InputError(
            f"documents and counts are {kinds[0]} in some files and {other} in others; make the columns of the same "
            "types"
        )
    table = pa.concat_tables(parts)
    documents, rows = _ranked(table.column("document"))
    words, ids = _ranked(table.column("word"))
    counts = np.asarray(table.column("count"))
    del table, parts
    bags = Bags.summed(rows, ids, counts, len(documents), words, by_size=counts.dtype != np.int32)
    large = np.flatnonzero(bags.counts > LARGEST_COUNT)
    for row, i in zip(bags.rows[large], large.tolist(), strict=True):
        document, word = documents[row].as_py(), words[bags.ids[i]].as_py()
        reason = too_large(bags.counts[i], f"{word!r} in document {document!r}")
        bad.refuse(None, reason, f"{document}\t{word}\t{bags.counts[i]:.0f}")
    bags = bags.where(bags.counts <= LARGEST_COUNT).narrow()
    present = bags.lengths > 0
    bags, documents = bags.take(present), documents.filter(pa.array(present))
    for start, stop in pairwise(row_cuts(bags.indptr, limits.BATCH_VALUES)):
        numbers = np.arange(start, stop)
        yield Batch(bags.slice(start, stop).compact(), documents[start:stop], rows=numbers)


def _ranked(column: Any) -> tuple[Any, NDArray[np.int32]]:
    """Return the sorted distinct values of a column, and the rank of each row's value."""
    # All chunks share a dictionary.
    chunks = column.dictionary_encode().chunks
    order = np.asarray(pc.array_sort_indices(chunks[0].dictionary))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = np.concatenate([np.asarray(chunk.indices) for chunk in chunks])
    return chunks[0].dictionary.take(pa.array(order)), rank[codes]
