"""Rows of (document, word, count) or ratings in any order, which a group-by turns into documents (``bags``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import RatingsOptions, ReaderName
from streaming_jsmf.corpus.bags import LARGEST_COUNT, Bags
from streaming_jsmf.corpus.hashes import hash_values
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.formats.delimited import DELIMITED
from streaming_jsmf.ingestion.formats.parquet import PARQUET
from streaming_jsmf.ingestion.readers.probe import is_parquet
from streaming_jsmf.ingestion.sources.adapter import RecordFiles, original_of
from streaming_jsmf.ingestion.sources.matrices import NO_COUNT, are_counts, row_cuts, too_large
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Batch,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import (
    TABLE_PATTERNS,
    find_beside,
    is_compressed,
    open_parquet_source,
    size_of,
)
from streaming_jsmf.ingestion.sources.values import as_bytes, invalid_rows, is_text, require_columns
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.replace import file_written
from streaming_jsmf.storage.tables import read_range, write_pieces

BUCKET_BYTES = 64 << 20
MAX_BUCKETS = 4096
_WORD_BYTES = 64 << 20  # of the words of rows that are sorted together
_ROW_BYTES = 24  # approximate size of a (document, word, count) outside Parquet
_TEXT_GROWTH = 5  # approximate decompression ratio of text

_INTEGER = r"^-?[0-9]{1,19}$"
_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"

#: From distinct values, an Arrow array, to the values that stand for them, and why some cannot be used, by index.
Convert = Callable[[Any], tuple[Any, dict[int, str]]]


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


class TriplesSource(RecordFiles):
    """Reader "triples": files of rows whose documents are grouped by ``scatter`` and ``gather``.

    Two passes over the rows, one of them over the files. Equal (document, word) are summed.
    """

    reader: ClassVar[ReaderName] = "triples"
    patterns = TABLE_PATTERNS
    refuses_documents = False

    def format(self, path: str) -> Format:
        return PARQUET if is_parquet(path) else DELIMITED

    def count_kind(self, kind: Any) -> str:
        """Return "int" or "float" for the Arrow type of the count column, or None without counts."""
        if kind is None or pa.types.is_integer(kind):
            return "int"
        return "float" if pa.types.is_floating(kind) else str(self.options.count_type)

    def n_buckets(self) -> int:
        """Return the number of buckets of about 64 MB, 1 to 4096. Reads only the footers of Parquet files."""
        return min(max(-(-sum(map(_size, self.files)) // BUCKET_BYTES), 1), MAX_BUCKETS)

    def scatter(self, unit: Unit, bad: BadRecords, target: Path, n_buckets: int) -> None:
        """Read one unit and write its rows to ``target``. One pass, with about a million rows in memory."""
        write_buckets(self._checked_rows(unit, bad), target, n_buckets)

    #: Yields the documents of a bucket, from the files of all units.
    gather = staticmethod(read_bucket)

    def _checked_rows(self, unit: Unit, bad: BadRecords) -> Iterator[Any]:
        """Yield record batches of the good rows (see ``write_buckets``); the others go to ``bad`` in order."""
        parse_ids = self.options.integer_ids and not is_parquet(unit.path)
        converts: list[Convert] = [partial(document_ids, parse=parse_ids), self.words(unit.path), self.counts]
        with bad.unreadable_file():
            for records in self._records(unit, bad):
                columns, reasons = [], dict[int, str]()
                for i, (name, convert) in enumerate(zip(self.options.roles, converts, strict=False)):
                    codes, values, wrong = coded(records.columns[name], name, convert, numbers=i == 2)
                    columns.append((codes, values))
                    reasons = wrong | reasons
                kept: Any = slice(None)
                if reasons:
                    kept = bad.refuse_rows(records.rows, reasons, original_of(records))
                keys = [pa.DictionaryArray.from_arrays(of[kept], values) for of, values in columns[:2]]
                counts = np.ones(len(keys[0]), np.int32)
                for codes, values in columns[2:]:
                    counts = values[codes[kept]]
                yield pa.record_batch([*keys, pa.array(counts)], names=["document", "word", "count"])

    def _records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        """Yield the rows of a unit, which have the columns. Raises UnreadableError if the file lacks one."""
        form, roles = self.format(unit.path), self.options.roles
        require_columns(roles, form.names(unit.path, self.options))
        yield from form.records(unit, self.options, bad, roles)

    def words(self, path: str) -> Convert:  # noqa: ARG002
        """Return how the words of a file are converted. Raises InputError if that is not possible."""
        return lambda values: (values.cast(pa.string()), {})

    def counts(self, values: Any) -> tuple[Any, dict[int, str]]:
        """Convert counts to int32 or float32; they must be positive, and whole numbers for "int"."""
        whole = self.count_kind(values.type) == "int"
        numbers = parse_numbers(values)
        good = are_counts(numbers, whole)
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
                faults[i] = f"{written} {NO_COUNT}"
        return np.where(good, numbers, 0).astype(np.int32 if whole else np.float32), faults


def _size(path: str) -> int:
    """Return about how many bytes the rows of a file take."""
    try:
        if not is_parquet(path):
            return size_of(path) * (_TEXT_GROWTH if is_compressed(path) else 1)
        with open_parquet_source(path) as file:
            return _ROW_BYTES * int(file.metadata.num_rows)
    except UnreadableError:
        return 0  # reading reports the reason


class RatingsSource(TriplesSource):
    """Reader "ratings": counts are twice the ratings, in half stars; users are documents, items are words.

    A user's ratings of an item are summed. MovieLens is read in this way by Lee, Bindel and Mimno (2015), Joint
    Stochastic Matrix Factorization.
    """

    reader = "ratings"

    def count_kind(self, kind: Any) -> str:  # noqa: ARG002
        return "int"

    def counts(self, values: Any) -> tuple[Any, dict[int, str]]:
        best = self.options.max_rating
        with np.errstate(over="ignore"):
            twice = 2 * parse_numbers(values)
        # Comparisons with NaN are false.
        good = (twice >= 1) & (twice <= 2 * best) & (twice == np.floor(twice))
        faults = {
            i: f"{values[i].as_py()} is not one of 0.5, 1, ... {best:g} ({option.max_rating})"
            for i in np.flatnonzero(~good).tolist()
        }
        return np.where(good, twice, 0).astype(np.int32), faults

    def words(self, path: str) -> Convert:
        if self.options.names is None:
            return super().words(path)
        where = find_beside(path, [self.options.names])
        if where is None:
            missing = f"there is no file of names {self.options.names} beside it; check {option.names}"
            raise InputError(f"{path}: {missing}")
        names = read_names(where, self.options)
        items, distinct = pa.array(names.keys(), pa.string()), pa.array(names.values(), pa.string())

        def renamed(values: Any) -> tuple[Any, dict[int, str]]:
            values = values.cast(pa.string())
            at = pc.index_in(values, value_set=items)
            unknown = np.flatnonzero(np.asarray(at.is_null())).tolist()
            faults = {i: f"{values[i].as_py()!r} has no name in {where}" for i in unknown}
            return distinct.take(at).fill_null(""), faults

        return renamed


def read_names(path: str, options: RatingsOptions) -> dict[str, str]:
    """Read distinct names by item, in one pass with the names in memory; shared names become "name (item)".

    Raises InputError if the file cannot be read, and for the first line that is malformed, empty, or gives an item a
    second name.
    """
    unit, found = Unit(path), dict[str, str]()
    bad = BadRecords("quarantine", unit, DELIMITED.place)
    try:
        for records in _name_records(unit, options, bad):
            _add_names(found, records, bad)
    except UnreadableError as error:
        raise InputError(f"{path}: {error}") from error
    for each in bad.records[:1]:
        raise InputError(f"{DELIMITED.place(unit, each.row or 0)}: {each.reason}; correct the line")
    while len(uses := Counter(found.values())) < len(found):
        found = {item: f"{name} ({item})" if uses[name] > 1 else name for item, name in found.items()}
    return found


def _name_records(unit: Unit, options: RatingsOptions, bad: BadRecords) -> Iterator[Records]:
    """Yield the columns of the items and the names."""
    wanted, layout = [options.names_item, options.names_name], options.names_layout
    names = DELIMITED.names(unit.path, layout)
    # Without a header, the columns that are named are the first ones.
    known = dict(zip(options.names_columns or names, names, strict=False))
    require_columns(wanted, [*known])
    for records in DELIMITED.records(unit, layout, bad, [known[name] for name in wanted]):
        yield replace(records, columns={name: records.columns[known[name]] for name in wanted})


def _add_names(found: dict[str, str], records: Records, bad: BadRecords) -> None:
    columns = {
        name: checked_texts(pc.ascii_trim_whitespace(values)) for name, values in records.columns.items()
    }
    faults = {i: f"{name} {why}" for name, (_, wrong) in columns.items() for i, why in wrong.items()}
    for i, (item, name) in enumerate(zip(*(texts.to_pylist() for texts, _ in columns.values()), strict=True)):
        if i not in faults and found.setdefault(item, name) != name:
            faults[i] = f"item {item!r} has another name above"
    bad.refuse_rows(records.rows, faults, lambda _: None)


def coded(
    column: Any, name: str, convert: Convert, *, numbers: bool = False
) -> tuple[NDArray[np.int32], Any, dict[int, str]]:
    """Encode a column of strings or integers, or of any ``numbers``, and convert its distinct values.

    Returns the index of each row's value, the converted values, and why rows cannot be used: nulls, strings that are
    empty or not UTF-8, and those that ``convert`` refuses. Raises UnreadableError for other types.
    """
    kind = column.type
    if not (is_text(kind) or pa.types.is_integer(kind) or (numbers and pa.types.is_floating(kind))):
        wanted = "numbers" if numbers else "strings or integers"
        raise UnreadableError(f"column {name!r} is {kind}; it must hold {wanted}")
    if numbers and not is_text(kind):
        codes = np.where(np.asarray(column.is_null()), -1, np.arange(len(column), dtype=np.int32))
        values = column.fill_null(0)
    else:
        column = column.dictionary_encode()
        codes = np.asarray(column.indices.fill_null(-1)).astype(np.int32, copy=False)
        values = column.dictionary
    values, unusable = checked_texts(values) if is_text(kind) else (values, {})
    values, refused = convert(values)
    faults = refused | unusable
    good = np.ones(len(values) + 1, bool)
    good[[-1, *faults]] = False  # the last element is for the code -1 of nulls
    bad = {i: f"{name} {faults.get(int(codes[i]), 'is null')}" for i in np.flatnonzero(~good[codes]).tolist()}
    return codes, values, bad


def checked_texts(values: Any) -> tuple[Any, dict[int, str]]:
    """Return strings, and why some cannot be used."""
    values = as_bytes(values)
    empty = np.flatnonzero(np.asarray(pc.binary_length(values).fill_null(0)) == 0)
    faults = dict.fromkeys(empty.tolist(), "is empty")
    if invalid := invalid_rows(values):
        faults |= dict.fromkeys(invalid, "holds bytes that are not UTF-8")
        values = pa.array([(value or b"").decode("utf-8", "replace") for value in values.to_pylist()])
    return values.cast(pa.string()).fill_null(""), faults


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
