"""Rows of (document, word, count) in any order become documents: scattered to buckets on disk, gathered in memory.

Every unit is written once to a file of its own, sorted by bucket; a document is in one bucket only. A bucket is
then read from all files, and sorted and summed in memory. Disk: about as much as the rows unpacked.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.records import LARGEST_COUNT, Counts
from streaming_jsmf.errors import StoreError, first_line, pass_on_machine
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.hashing import hash_values
from streaming_jsmf.ingestion.readers.parquet import is_parquet
from streaming_jsmf.ingestion.readers.streams import UnreadableError, is_compressed, open_parquet_source

BUCKET_BYTES = 64 << 20
MAX_BUCKETS = 4096
_ROW_BYTES = 24  # of a (document, word, count) outside of its Parquet file, about
_TEXT_GROWTH = 5  # of compressed text when it is unpacked, about
_FLUSH_BYTES = 64 << 20  # of words that are held before they are written
_KEY = b"n_buckets"


class ShuffledSource(Protocol):
    """A reader whose documents are spread over its files; picklable, the same rows every time it is read."""

    files: tuple[str, ...]

    @property
    def reader(self) -> str:
        """Its name in specs and on the command line."""

    @property
    def vocabulary(self) -> Sequence[str] | None:
        """None: the words are found while reading."""

    def units(self) -> Sequence[Unit]:
        """All units. Raises InputError if there is nothing to read or the files differ in kind."""

    def first_row(self, unit: Unit) -> int:
        """Number, within its file and from 0, of the unit's first row. May read; called for messages only."""

    def place(self, unit: Unit, row: int) -> str:
        """Where a row of a unit is, for messages."""

    def scatter(self, unit: Unit, bad: BadRecords, target: Path, n_buckets: int) -> None:
        """Read one unit in bounded memory and write its rows to ``target``, which ``gather`` reads."""

    def gather(self, files: Sequence[Path], bucket: int, bad: BadRecords) -> Iterator[SourceBatch]:
        """The documents of a bucket, from the files of all units; see ``gather`` below."""


@dataclass(frozen=True, eq=False)
class Coded:
    """n values: ``codes`` (n,) int32 are places in ``values``, an Arrow array that may hold some twice."""

    codes: NDArray[np.int32]
    values: Any


@dataclass(frozen=True, eq=False)
class Triples:
    """n checked rows: documents (int64 or string), words (string), counts (n,) int32 or float32."""

    documents: Coded
    words: Coded
    counts: Counts

    def take(self, start: int, stop: int) -> Triples:
        """Rows start..stop-1, without a copy."""
        return Triples(
            Coded(self.documents.codes[start:stop], self.documents.values),
            Coded(self.words.codes[start:stop], self.words.values),
            self.counts[start:stop],
        )


def n_buckets_for(source: ShuffledSource) -> int:
    """Buckets, 1 to 4096, so that one takes about 64 MB. Reads the footers of Parquet files, and no rows."""
    total = sum(_parquet_bytes(path) for path in source.files if is_parquet(path))
    for unit in source.units():
        if not is_parquet(unit.path):
            total += unit.size * (_TEXT_GROWTH if is_compressed(unit.path) else 1)
    return min(max(-(-total // BUCKET_BYTES), 1), MAX_BUCKETS)


def _parquet_bytes(path: str) -> int:
    try:
        with open_parquet_source(path) as file:
            return int(file.metadata.num_rows) * _ROW_BYTES
    except UnreadableError:
        return 0


def write_buckets(pieces: Iterable[Triples], target: Path, n_buckets: int) -> None:
    """Write rows to an Arrow IPC file, which is there when it is complete.

    About a million rows at a time are sorted by bucket and written as one record batch for each bucket, empty or
    not: batch i is of bucket i modulo ``n_buckets``.

    Raises
    ------
    ValueError
        If ``n_buckets`` is not in 1..4096.
    """
    if not 1 <= n_buckets <= MAX_BUCKETS:
        raise ValueError(f"{n_buckets} buckets; 1 to {MAX_BUCKETS} are possible")
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    writer = _BucketWriter(beside, n_buckets)
    try:
        for piece in pieces:
            writer.add(piece)
        writer.close()
        beside.replace(target)
    finally:
        writer.abort()
        beside.unlink(missing_ok=True)


class _BucketWriter:
    """Holds rows until there are enough to sort and write."""

    def __init__(self, path: Path, n_buckets: int) -> None:
        self._path = path
        self._n_buckets = n_buckets
        self._file: Any = None
        self._pieces: list[Triples] = []
        self._rows, self._bytes = 0, 0

    def add(self, piece: Triples) -> None:
        n_rows = len(piece.counts)
        if n_rows == 0:
            return
        # Words that take a few bytes as codes may take many as strings.
        lengths = np.asarray(pc.binary_length(piece.words.values))
        n_bytes = int(lengths[piece.words.codes].sum(dtype=np.int64))
        if n_bytes > _FLUSH_BYTES and n_rows > 1:
            self.add(piece.take(0, n_rows // 2))
            self.add(piece.take(n_rows // 2, n_rows))
            return
        if self._rows + n_rows > limits.BATCH_VALUES or self._bytes + n_bytes > _FLUSH_BYTES:
            self._flush()
        self._pieces.append(piece)
        self._rows += n_rows
        self._bytes += n_bytes

    def close(self) -> None:
        self._flush()
        if self._file is None:
            self._open(pa.schema([]))
        self.abort()

    def abort(self) -> None:
        """Close the file; may be called again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, schema: Any) -> None:
        metadata = {_KEY: str(self._n_buckets).encode()}
        self._file = pa.ipc.new_file(str(self._path), schema.with_metadata(metadata))

    def _flush(self) -> None:
        if not self._pieces:
            return
        documents = _joined([piece.documents for piece in self._pieces])
        words = _joined([piece.words for piece in self._pieces])
        counts = np.concatenate([piece.counts for piece in self._pieces])
        self._pieces, self._rows, self._bytes = [], 0, 0
        # Numbers of 16 bits are sorted by radix.
        buckets = bucket_of(documents.values, self._n_buckets)[documents.codes]
        order = np.argsort(buckets, kind="stable")
        ends = np.cumsum(np.bincount(buckets, minlength=self._n_buckets)).tolist()
        columns = {
            "document": documents.values.take(pa.array(documents.codes[order])),
            "word": words.values.take(pa.array(words.codes[order])),
            "count": pa.array(counts[order]),
        }
        batch = pa.record_batch(columns)
        if self._file is None:
            self._open(batch.schema)
        for start, stop in zip([0, *ends], ends, strict=False):
            self._file.write_batch(batch.slice(start, stop - start))


def bucket_of(documents: Any, n_buckets: int) -> NDArray[np.uint16]:
    """(m,) buckets of an Arrow array of document ids: a hash, the same everywhere."""
    return (hash_values(documents)[:, 0] % np.uint64(n_buckets)).astype(np.uint16)


def _joined(parts: Sequence[Coded]) -> Coded:
    """All parts with one dictionary of distinct values."""
    chunks = pa.chunked_array([part.values for part in parts]).dictionary_encode().chunks
    codes = [np.asarray(chunk.indices)[part.codes] for chunk, part in zip(chunks, parts, strict=True)]
    return Coded(np.concatenate(codes), chunks[0].dictionary)


def gather(files: Sequence[Path], bucket: int, bad: BadRecords) -> Iterator[SourceBatch]:
    """The documents of a bucket, by rising id, their words by rising bytes; equal (document, word) are summed.

    The result does not depend on the order of files or rows, to the last bit. A sum above the largest count goes
    to ``bad``. Memory: the bucket, a few times over. Batches of about a million values; ``rows`` number the
    documents of the bucket.

    Raises
    ------
    StoreError
        For a file that is missing or damaged, or not of the same source and buckets.
    InputError
        Under "fail" for a sum that is too large.
    """
    parts = [batch for path in files for batch in _batches(path, bucket)]
    if not parts:
        return
    if any(part.schema != parts[0].schema for part in parts):
        raise StoreError("the scattered files have different columns; remove them and run again")
    table = pa.Table.from_batches(parts)
    documents, words = _ranked(table.column("document")), _ranked(table.column("word"))
    counts = np.asarray(table.column("count"))
    del table, parts
    sums = _sums(documents.codes.astype(np.int64) * len(words.values) + words.codes, counts)
    yield from _as_batches(sums, documents.values, words.values, counts.dtype, bad)


def _batches(path: Path, bucket: int) -> Iterator[Any]:
    """The record batches of a bucket in one file, on mapped memory."""
    try:
        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            n_buckets = int((file.schema.metadata or {}).get(_KEY, b"0"))
            if not 0 <= bucket < n_buckets or file.num_record_batches % n_buckets:
                raise StoreError(f"{path} does not hold bucket {bucket}; remove it and run again")
            for i in range(bucket, file.num_record_batches, n_buckets):
                batch = file.get_batch(i)
                # A damaged offset would lead outside of the file.
                batch.validate(full=True)
                if batch.num_rows:
                    yield batch
    except (OSError, ValueError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise StoreError(
            f"{path} is missing, truncated or damaged ({first_line(error)}); remove it and run again"
        ) from error


def _ranked(column: Any) -> Coded:
    """The distinct values of a column in rising order, and each row's place among them."""
    # One table of values serves all chunks, so they share a dictionary.
    chunks = column.dictionary_encode().chunks
    values = chunks[0].dictionary
    order = np.asarray(pc.array_sort_indices(values))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = np.concatenate([np.asarray(chunk.indices) for chunk in chunks])
    return Coded(rank[codes], values.take(pa.array(order)))


@dataclass(frozen=True, eq=False)
class _Sums:
    """Distinct keys, rising, and the float64 sum of the counts of each."""

    keys: NDArray[np.int64]
    totals: NDArray[np.float64]


def _sums(keys: NDArray[np.int64], counts: NDArray[Any]) -> _Sums:
    """Sums in an order that depends on the values alone; whole numbers are exact below 2^53."""
    order = np.argsort(keys)
    keys, counts = keys[order], counts[order]
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    if counts.dtype != np.int32:
        again = np.flatnonzero(~(new & np.append(new[1:], True)))
        counts[again] = counts[again[np.lexsort((counts[again], keys[again]))]]
    # One after the other, not in pairs: the bits do not depend on the machine.
    totals = np.bincount(np.cumsum(new) - 1, counts.astype(np.float64)).astype(np.float64, copy=False)
    return _Sums(keys[new], totals)


def _as_batches(
    sums: _Sums, documents: Any, words: Any, counts_type: np.dtype[Any], bad: BadRecords
) -> Iterator[SourceBatch]:
    rows, codes = np.divmod(sums.keys, len(words))
    totals = sums.totals
    large = totals > LARGEST_COUNT
    for i in np.flatnonzero(large).tolist():
        document, word = documents[int(rows[i])].as_py(), words[int(codes[i])].as_py()
        pair = f"word {word!r} in document {document!r}"
        reason = f"the counts of {pair} add up to {totals[i]:.0f}, above {LARGEST_COUNT}"
        bad.refuse(None, reason, f"{document}\t{word}\t{totals[i]:.0f}")
    if large.any():
        rows, codes, totals = rows[~large], codes[~large], totals[~large]
    indptr = np.flatnonzero(np.diff(rows, prepend=-1, append=-1))
    present = rows[indptr[:-1]]
    start = 0
    while start < len(present):
        room = np.searchsorted(indptr, indptr[start] + limits.BATCH_VALUES, side="right") - 1
        stop = max(start + 1, int(room))
        low, high = indptr[start], indptr[stop]
        used = _used(codes[low:high], words)
        yield SourceBatch(
            indptr[start : stop + 1] - low,
            used.codes,
            totals[low:high].astype(counts_type),
            np.arange(start, stop),
            document_id=documents.take(pa.array(present[start:stop])),
            dictionary=used.values,
        )
        start = stop


def _used(codes: NDArray[np.int64], words: Any) -> Coded:
    """The same words with a dictionary of those that occur."""
    occurs = np.zeros(len(words), bool)
    occurs[codes] = True
    new = (np.cumsum(occurs) - 1).astype(np.int32)
    return Coded(new[codes], words.filter(pa.array(occurs)))
