"""Rows of (document, word, count) or ratings in any order, which an external group-by turns into documents.

Each unit is written to an Arrow file, sorted by bucket (a hash of the document). Each bucket is then read from all
files, sorted and summed in memory. Disk: about the size of the uncompressed rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import RatingsOptions, ReaderName, TableOptions, TriplesOptions
from streaming_jsmf.corpus.records import LARGEST_COUNT, SMALLEST_COUNT
from streaming_jsmf.errors import InputError, StoreError, first_line, pass_on_machine
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Unit, UnreadableError, limits
from streaming_jsmf.ingestion.readers.files import (
    TABLE_PATTERNS,
    find_beside,
    is_compressed,
    open_parquet_source,
    size_of,
)
from streaming_jsmf.ingestion.readers.listing import is_parquet
from streaming_jsmf.ingestion.readers.matrices import row_cuts, sums, too_large
from streaming_jsmf.ingestion.readers.records import RecordFiles
from streaming_jsmf.ingestion.readers.tables import (
    Convert,
    coded,
    read_names,
    read_table,
)
from streaming_jsmf.ingestion.readers.values import is_text, require_columns
from streaming_jsmf.ingestion.repeats import hash_values

BUCKET_BYTES = 64 << 20
MAX_BUCKETS = 4096
_ROW_BYTES = 24  # approximate size of a (document, word, count) outside Parquet
_TEXT_GROWTH = 5  # approximate decompression ratio of text
_WORD_BYTES = 64 << 20  # of the words of rows that are sorted together
_BUCKETS = b"n_buckets"

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class TriplesSource(RecordFiles):
    """Reader "triples": files of rows whose documents are grouped by ``scatter`` and ``gather``.

    Two passes over the rows, one of them over the files. Equal (document, word) are summed.
    """

    reader: ClassVar[ReaderName] = "triples"
    options_type: ClassVar[type[TableOptions]] = TriplesOptions
    patterns = TABLE_PATTERNS
    refuses_documents = False

    def count_kind(self, kind: Any) -> str:
        """Return "int" or "float" for the Arrow type of the count column, or None without counts."""
        if kind is None or pa.types.is_integer(kind):
            return "int"
        return "float" if pa.types.is_floating(kind) else str(self.options.count_type)

    def words(self, path: str) -> Convert:  # noqa: ARG002
        """Return how the words of a file are converted. Raises InputError if that is not possible."""
        return lambda values: (values.cast(pa.string()), {})

    def counts(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Convert counts to int32 or float32; they must be positive, and whole numbers for "int"."""
        whole = self.count_kind(values.type) == "int"
        numbers = parse_numbers(values)
        # Comparisons with NaN are false.
        good = (numbers >= SMALLEST_COUNT) & (numbers <= LARGEST_COUNT)
        if whole:
            good &= numbers == np.floor(numbers)
        faults = {}
        for i in np.flatnonzero(~good).tolist():
            number, written = numbers[i], str(values[i].as_py())
            if np.isnan(number) and written != "nan":
                faults[i] = f"{written!r} is not a number"
            elif whole and number > 0 and number != np.floor(number):
                faults[i] = f"{written} is not a whole number; set count_type to float to keep such counts"
            else:
                faults[i] = f"{written} is not in (0, {LARGEST_COUNT}], as every count must be"
        return np.where(good, numbers, 0).astype(np.int32 if whole else np.float32), faults

    def parts(self, path: str) -> Sequence[Unit]:
        """Return runs of row groups, or a whole text file, because it starts with a header."""
        return super().parts(path) if is_parquet(path) else [Unit(path, size=size_of(path))]

    def units(self) -> Sequence[Unit]:
        """Return the units of all files. Raises InputError if there is no file or types differ."""
        kinds = [(path, kind) for path in self.files if (kind := self._kind(path)) is not None]
        for path, kind in kinds[1:]:
            if kind != kinds[0][1]:
                raise InputError(
                    f"{path} has {kind}, {kinds[0][0]} has {kinds[0][1]}; make the columns of the same types"
                )
        return super().units()

    def place(self, unit: Unit, row: int) -> str:
        return super().place(unit, row + (not self.options.columns and not is_parquet(unit.path)))

    def n_buckets(self) -> int:
        """Return the number of buckets of about 64 MB, 1 to 4096. Reads only the footers of Parquet files."""
        size = sum(map(self._size, self.units()))
        return min(max(-(-size // BUCKET_BYTES), 1), MAX_BUCKETS)

    def scatter(self, unit: Unit, bad: BadRecords, target: Path, n_buckets: int) -> None:
        """Read one unit and write its rows to ``target``. One pass, with about a million rows in memory."""
        write_buckets(self._checked_rows(unit, bad), target, n_buckets)

    def gather(self, files: Sequence[Path], bucket: int, bad: BadRecords) -> Iterator[Batch]:
        """Yield the documents of a bucket, from the files of all units (see ``read_bucket``)."""
        return read_bucket(files, bucket, bad)

    def _size(self, unit: Unit) -> int:
        """Return about how many bytes the rows of a unit take."""
        if not is_parquet(unit.path):
            return unit.size * (_TEXT_GROWTH if is_compressed(unit.path) else 1)
        try:
            with open_parquet_source(unit.path) as file:
                groups = range(unit.start, unit.stop)
                return sum(_ROW_BYTES * int(file.metadata.row_group(g).num_rows) for g in groups)
        except UnreadableError:
            return 0  # reading reports the reason

    def _kind(self, path: str) -> str | None:
        """Describe the types of ids and counts of a file; None if columns are missing, which reading reports."""
        document, _, *count = self.options.roles
        is_number, of_counts = self.options.integer_ids, pa.string() if count else None
        if is_parquet(path):
            try:
                with open_parquet_source(path) as file:
                    schema = file.schema_arrow
                require_columns([document, *count], schema.names)
            except UnreadableError:
                return None
            is_number = pa.types.is_integer(schema.field(document).type)
            of_counts = schema.field(count[0]).type if count else None
        return f"{'int64' if is_number else 'string'} ids and {self.count_kind(of_counts)} counts"

    def _checked_rows(self, unit: Unit, bad: BadRecords) -> Iterator[Any]:
        """Yield record batches of the good rows (see ``write_buckets``); the others go to ``bad`` in order."""
        parse_ids = self.options.integer_ids and not is_parquet(unit.path)
        converts: list[Convert] = [partial(document_ids, parse=parse_ids), self.words(unit.path), self.counts]
        with bad.unreadable_file():
            for batch in read_table(unit, self.options.roles, self.options, bad):
                columns, reasons = [], dict[int, str]()
                for i, (name, convert) in enumerate(zip(self.options.roles, converts, strict=False)):
                    codes, values, wrong = coded(batch.columns[name], name, convert, numbers=i == 2)
                    columns.append((codes, values))
                    reasons = wrong | reasons
                for row in sorted(reasons):
                    bad.refuse(int(batch.rows[row]), reasons[row], batch.record(row))
                kept: Any = slice(None)
                if reasons:
                    kept = np.ones(len(batch.rows), bool)
                    kept[list(reasons)] = False
                keys = [pa.DictionaryArray.from_arrays(of[kept], values) for of, values in columns[:2]]
                counts = np.ones(len(keys[0]), np.int32)
                for codes, values in columns[2:]:
                    counts = values[codes[kept]]
                yield pa.record_batch([*keys, pa.array(counts)], names=["document", "word", "count"])


def parse_numbers(values: Any) -> NDArray[np.float64]:
    """Return the numbers of an Arrow array of numbers or strings; NaN for other strings."""
    if is_text(values.type):
        values = pc.if_else(pc.match_substring_regex(values, _NUMBER), values, "nan")
    return np.asarray(values.cast(pa.float64(), safe=False))


def document_ids(values: Any, parse: bool) -> tuple[Any, dict[int, str]]:
    """Convert document ids to int64 if they are integers, or strings to ``parse``."""
    faults = {}
    if pa.types.is_uint64(values.type):
        numbers = np.asarray(values)
        large = np.flatnonzero(numbers > np.iinfo(np.int64).max)
        faults = dict.fromkeys(large.tolist(), "is above 2^63 - 1; write ids as strings")
        values = pa.array(numbers.view(np.int64))
    elif parse and is_text(values.type):
        fits = np.array(pc.match_substring_regex(values, _INTEGER))
        for i in np.flatnonzero(fits & (np.asarray(pc.binary_length(values)) > 18)).tolist():
            fits[i] = -(2**63) <= int(values[i].as_py()) < 2**63
        reason = "is not a 64-bit integer; set integer_ids to false to keep such ids"
        faults = {i: f"{values[i].as_py()!r} {reason}" for i in np.flatnonzero(~fits).tolist()}
        values = pc.if_else(pa.array(fits), values, "0")
    is_number = parse or pa.types.is_integer(values.type)
    return values.cast(pa.int64()) if is_number else values, faults


class RatingsSource(TriplesSource):
    """Reader "ratings": counts are twice the ratings, in half stars; users are documents, items are words.

    A user's ratings of an item are summed. MovieLens is read in this way by Lee, Bindel and Mimno (2015), Joint
    Stochastic Matrix Factorization.
    """

    reader = "ratings"
    options_type = RatingsOptions

    def count_kind(self, kind: Any) -> str:  # noqa: ARG002
        return "int"

    def counts(self, values: Any) -> tuple[Any, dict[int, str]]:
        best = self.options.max_rating
        with np.errstate(over="ignore"):
            twice = 2 * parse_numbers(values)
        # Comparisons with NaN are false.
        good = (twice >= 1) & (twice <= 2 * best) & (twice == np.floor(twice))
        faults = {
            i: f"{values[i].as_py()} is not one of 0.5, 1, ... {best:g} (option max_rating)"
            for i in np.flatnonzero(~good).tolist()
        }
        return np.where(good, twice, 0).astype(np.int32), faults

    def words(self, path: str) -> Convert:
        if self.options.names is None:
            return super().words(path)
        where = names_path(path, self.options.names)
        names = read_names(where, self.options)
        items, distinct = pa.array(names.keys(), pa.string()), pa.array(names.values(), pa.string())

        def renamed(values: Any) -> tuple[Any, dict[int, str]]:
            values = values.cast(pa.string())
            at = pc.index_in(values, value_set=items)
            unknown = np.flatnonzero(np.asarray(at.is_null())).tolist()
            faults = {i: f"{values[i].as_py()!r} has no name in {where}" for i in unknown}
            return distinct.take(at).fill_null(""), faults

        return renamed


def names_path(path: str, names: str) -> str:
    """Return the path of the file of names of a file of ratings. Raises InputError if it is missing."""
    found = find_beside(path, [names])
    if found is None:
        raise InputError(f"{path}: there is no file of names {names} beside it; check the option names")
    return found


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
                for start, stop in pairwise([0, *ends]):
                    writer.write_batch(rows.slice(start, stop - start))
        writer = writer or _open_writer(beside, pa.schema([]), n_buckets)
        writer.close()
        beside.replace(target)
    finally:
        if writer is not None:
            writer.close()
        beside.unlink(missing_ok=True)


def _open_writer(path: Path, schema: Any, n_buckets: int) -> Any:
    return pa.ipc.new_file(str(path), schema.with_metadata({_BUCKETS: str(n_buckets).encode()}))


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
    counts, keys = (
        np.asarray(table.column("count")),
        document_ranks.astype(np.int64) * len(words) + word_ranks,
    )
    del table, parts
    kind = counts.dtype
    at, totals = sums(keys, counts, by_size=kind != np.int32)  # sums of integers are exact below 2^53
    rows, codes = np.divmod(keys[at], len(words))
    large = totals > LARGEST_COUNT
    for i in np.flatnonzero(large).tolist():
        document, word = documents[int(rows[i])].as_py(), words[int(codes[i])].as_py()
        reason = too_large(totals[i], f"{word!r} in document {document!r}")
        bad.refuse(None, reason, f"{document}\t{word}\t{totals[i]:.0f}")
    kept = ~large
    yield from _as_batches(rows[kept], codes[kept], totals[kept].astype(kind), documents, words)


def _batches(path: Path, bucket: int) -> Iterator[Any]:
    try:
        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            n_buckets = int((file.schema.metadata or {}).get(_BUCKETS, b"0"))
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
    order = np.asarray(pc.array_sort_indices(chunks[0].dictionary))
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    codes = np.concatenate([np.asarray(chunk.indices) for chunk in chunks])
    return chunks[0].dictionary.take(pa.array(order)), rank[codes]


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
