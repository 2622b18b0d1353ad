"""External group-by that turns rows of (document, word, count) in any order into documents.

Each unit is written to an Arrow file, sorted by bucket (a hash of the document). Each bucket is then read from all
files, sorted and summed in memory. Disk: about the size of the uncompressed rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT
from streaming_jsmf.errors import StoreError, first_line, pass_on_machine
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, limits
from streaming_jsmf.ingestion.readers.counts import row_cuts
from streaming_jsmf.ingestion.repeats import hash_values

MAX_BUCKETS = 4096
_WORD_BYTES = 64 << 20  # of the words of rows that are sorted together
_KEY = b"n_buckets"


def write_buckets(pieces: Iterable[Any], target: Path, n_buckets: int) -> None:
    """Write rows to an Arrow IPC file, which appears when it is complete. ``n_buckets`` is in 1..4096.

    The rows of each piece are sorted by bucket and written as one record batch per bucket, possibly empty: batch i
    belongs to bucket i modulo ``n_buckets``. ``pieces`` are record batches with columns ``document`` (dictionary of
    int64 or strings), ``word`` (dictionary of strings) and ``count`` (int32 or float32), without nulls.
    """
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    writer: Any = None
    try:
        for piece in pieces:
            for part in _bounded(piece):
                rows, ends = _sort_by_bucket(part, n_buckets)
                writer = writer or _open_writer(beside, rows.schema, n_buckets)
                for start, stop in zip([0, *ends], ends, strict=False):
                    writer.write_batch(rows.slice(start, stop - start))
        writer = writer or _open_writer(beside, pa.schema([]), n_buckets)
        writer.close()
        beside.replace(target)
    finally:
        if writer is not None:
            writer.close()
        beside.unlink(missing_ok=True)


def _open_writer(path: Path, schema: Any, n_buckets: int) -> Any:
    return pa.ipc.new_file(str(path), schema.with_metadata({_KEY: str(n_buckets).encode()}))


def _sort_by_bucket(batch: Any, n_buckets: int) -> tuple[Any, list[int]]:
    """Return the rows without dictionaries, sorted by bucket, and the end of each bucket."""
    documents, words, counts = batch.columns
    codes = np.asarray(documents.indices)
    # NumPy uses radix sort for 16-bit integers.
    buckets = (hash_values(documents.dictionary)[:, 0] % np.uint64(n_buckets)).astype(np.uint16)[codes]
    order = np.argsort(buckets, kind="stable")
    columns = {
        "document": documents.dictionary.take(pa.array(codes[order])),
        "word": words.dictionary.take(pa.array(np.asarray(words.indices)[order])),
        "count": pa.array(np.asarray(counts)[order]),
    }
    return pa.record_batch(columns), np.cumsum(np.bincount(buckets, minlength=n_buckets)).tolist()


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


def read_bucket(files: Sequence[Path], bucket: int, bad: BadRecords) -> Iterator[Batch]:
    """Yield the documents of a bucket in batches of about a million values; equal (document, word) are summed.

    Documents are sorted by id and words by bytes, so the result does not depend on the order of files or rows, to the
    last bit. Sums above the largest count go to ``bad``. ``rows`` number the documents of the bucket. Memory: a few
    times the bucket. Raises StoreError for a file that is missing, damaged, or of another source or number of buckets.
    """
    parts = [batch for path in files for batch in _batches(path, bucket)]
    if not parts:
        return
    if any(part.schema != parts[0].schema for part in parts):
        raise StoreError("the scattered files have different columns; remove them and run again")
    table = pa.Table.from_batches(parts)
    documents, document_ranks = _ranked(table.column("document"))
    words, word_ranks = _ranked(table.column("word"))
    counts = np.asarray(table.column("count"))
    del table, parts
    keys, totals = _sums(document_ranks.astype(np.int64) * len(words) + word_ranks, counts)
    rows, codes = np.divmod(keys, len(words))
    large = totals > LARGEST_COUNT
    for i in np.flatnonzero(large).tolist():
        document, word = documents[int(rows[i])].as_py(), words[int(codes[i])].as_py()
        pair = f"word {word!r} in document {document!r}"
        reason = f"the counts of {pair} add up to {totals[i]:.0f}, above {LARGEST_COUNT}"
        bad.refuse(None, reason, f"{document}\t{word}\t{totals[i]:.0f}")
    if large.any():
        rows, codes, totals = rows[~large], codes[~large], totals[~large]
    yield from _as_batches(rows, codes, totals.astype(counts.dtype), documents, words)


def _batches(path: Path, bucket: int) -> Iterator[Any]:
    try:
        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            n_buckets = int((file.schema.metadata or {}).get(_KEY, b"0"))
            if not 0 <= bucket < n_buckets or file.num_record_batches % n_buckets:
                raise StoreError(f"{path} does not hold bucket {bucket}; remove it and run again")
            for i in range(bucket, file.num_record_batches, n_buckets):
                batch = file.get_batch(i)
                # A damaged offset would point outside the file.
                batch.validate(full=True)
                if batch.num_rows:
                    yield batch
    except (OSError, ValueError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(
            f"{path} is missing, truncated or damaged ({first_line(error)}); remove it and run again"
        ) from error


def _ranked(column: Any) -> tuple[Any, NDArray[np.int32]]:
    """Return the sorted distinct values of a column, and the rank of each row's value."""
    # All chunks share a dictionary.
    chunks = column.dictionary_encode().chunks
    values = chunks[0].dictionary
    order = np.asarray(pc.array_sort_indices(values))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = np.concatenate([np.asarray(chunk.indices) for chunk in chunks])
    return values.take(pa.array(order)), rank[codes]


def _sums(keys: NDArray[np.int64], counts: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return sorted distinct keys and the sums of their counts, in an order determined by the values alone."""
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    if counts.dtype != np.int32:  # sums of integers are exact below 2^53
        again = np.flatnonzero(~(new & np.append(new[1:], True)))
        counts[again] = counts[again[np.lexsort((counts[again], keys[again]))]]
    # Sequential rather than pairwise summation, so that the bits do not depend on the machine.
    totals = np.bincount(np.cumsum(new) - 1, counts.astype(np.float64)).astype(np.float64, copy=False)
    return keys[new], totals


def _as_batches(
    rows: NDArray[np.int64], codes: NDArray[np.int64], counts: NDArray[Any], documents: Any, words: Any
) -> Iterator[Batch]:
    indptr = np.flatnonzero(np.diff(rows, prepend=-1, append=-1))
    present = rows[indptr[:-1]]
    for start, stop in pairwise(row_cuts(indptr, limits.BATCH_VALUES)):
        low, high = indptr[start], indptr[stop]
        occurs = np.zeros(len(words), bool)
        occurs[codes[low:high]] = True
        yield Batch(
            indptr[start : stop + 1] - low,
            (np.cumsum(occurs) - 1).astype(np.int32)[codes[low:high]],
            counts[low:high],
            np.arange(start, stop),
            document_id=documents.take(pa.array(present[start:stop])),
            dictionary=words.filter(pa.array(occurs)),
        )
