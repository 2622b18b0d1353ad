"""Bags of words: those in Parquet and in corpora, baskets of items, and the group-by that makes them of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import BagOptions
from streaming_jsmf.config.reading import NONE
from streaming_jsmf.corpus.footer import check_columns, is_list, is_string
from streaming_jsmf.corpus.format import find_shards, find_vocabulary, open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME, Json
from streaming_jsmf.corpus.records import (
    LARGEST_COUNT,
    Bags,
    Place,
    RecordError,
    checked_bags,
    id_column,
    narrow_counts,
    without_views,
)
from streaming_jsmf.corpus.vocabulary import read_vocabulary
from streaming_jsmf.errors import InputError, StoreError, option
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    Batch,
    Format,
    Records,
    Unit,
    UnreadableError,
    limits,
)
from streaming_jsmf.ingestion.readers.files import (
    TABLE_PATTERNS,
    is_archive,
    of_first_readable,
    open_parquet_source,
)
from streaming_jsmf.ingestion.readers.formats import Gathered, gathered, line_records, text_of
from streaming_jsmf.ingestion.readers.json_records import JSON, lists_of
from streaming_jsmf.ingestion.readers.listing import FORMATS, format_of, is_parquet
from streaming_jsmf.ingestion.readers.matrices import row_cuts, sums, too_large
from streaming_jsmf.ingestion.readers.records import RecordFiles, RecordReader, TextReader
from streaming_jsmf.ingestion.readers.tables import PARQUET
from streaming_jsmf.ingestion.readers.values import (
    listed,
    require_columns,
    value_type,
)
from streaming_jsmf.ingestion.repeats import hash_values
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.ingestion.tokens.stop_words import NONE as NO_STOP_WORDS
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.kinds import SOURCE, unsuitable
from streaming_jsmf.storage.paths import StorePath, exists, join, normalize
from streaming_jsmf.storage.replace import file_written
from streaming_jsmf.storage.tables import read_range, write_pieces

_WORD_BYTES = 64 << 20  # of the words of rows that are sorted together


@dataclass(frozen=True, kw_only=True)
class BagSource(RecordFiles, RecordReader):
    """Reader "bag-of-words-parquet": list columns ``ids`` and ``counts``; further columns are metadata.

    ``found_id`` is the column of the ids. ``kinds`` says what the counts and named ids are in the first readable file,
    such as "counts: floats, id: strings"; all files must have the same. ``fingerprint`` is that of a corpus, or None.
    """

    vocabulary_path: str
    found_id: str | None
    kinds: str
    fingerprint: str | None = None

    reader = "bag-of-words-parquet"
    stop_words = ENGLISH
    contents = ("ids", "counts")

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: BagOptions, tokenizer: Tokenizer) -> Self:
        """Find shards and words; a corpus with a manifest is checked against it.

        Raises InputError if no shard has the columns, and StoreError if a corpus with a manifest is damaged.
        """
        root = normalize(root)
        if is_archive(root):
            raise InputError(f"{root}: bags of words are not read from archives; unpack it")
        if exists(join(root, MANIFEST_NAME)):
            corpus = open_corpus(root)
            shards = tuple(corpus.shard_path(shard) for shard in corpus.shards)
            words, fingerprint = corpus.vocabulary_path, corpus.fingerprint
        elif exists(root):
            words = join(root, options.word_list) if options.word_list else find_vocabulary(root)
            found = (join(root, name) for name in find_shards(root, words))
            shards, fingerprint = tuple(path for path in found if not files or path in files), None
        else:
            raise unsuitable(root, SOURCE)

        ids = None if options.id == NONE else options.id

        def read(path: str) -> tuple[str | None, str]:
            with open_parquet_source(path) as file:
                names = file.schema_arrow.names
                found = ids if options.id else id_column(names)
                return found, _kinds(file.schema_arrow, found if options.id or fingerprint else None)

        found_id, kinds = of_first_readable(shards, read, "give Parquet files of bags of words")
        known: dict[str, Any] = {"vocabulary_path": words, "found_id": found_id, "kinds": kinds}
        return cls(root, shards, options, tokenizer, **known, fingerprint=fingerprint)

    @property
    def id_column(self) -> str | None:
        return self.found_id

    @property
    def id_was_named(self) -> bool:
        return self.options.id is not None or self.fingerprint is not None

    @property
    def vocabulary(self) -> Sequence[str]:
        return read_vocabulary(self.vocabulary_path)[0].words

    def settings(self) -> dict[str, Json]:
        known = {} if self.fingerprint is None else {"source_fingerprint": self.fingerprint}
        return {**super().settings(), **known}

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        n_words = len(self.vocabulary)
        with bad.unreadable_file():
            with open_parquet_source(unit.path) as file:
                kinds = _kinds(file.schema_arrow, self.id_column if self.id_was_named else None)
            if kinds != self.kinds:
                theirs = f"those of the first file {self.kinds}; make them the same"
                raise UnreadableError(f"its columns are {kinds}, {theirs}")
            for records in PARQUET.records(unit, self.options, bad):
                found = records.columns
                good = self.usable(records, dict(_bad_rows(found["ids"], found["counts"], n_words, 0)), bad)
                indptr, codes, counts = _bags(good.columns["ids"], good.columns["counts"], n_words)
                codes, counts = codes.astype(np.int32, copy=False), narrow_counts(counts)
                ids, metadata, notes = self.metadata(good.columns)
                yield Batch(indptr, codes, counts, good.rows, ids, metadata, notes=notes)


def _kinds(schema: Any, ids: str | None) -> str:
    """Return the kinds of counts and of a column of ids (see ``BagSource``)."""
    try:
        check_columns(schema, "it")
    except InputError as error:
        raise UnreadableError(str(error).replace("it: column", "its column", 1)) from error
    require_columns(schema.names, schema.names)
    is_float = pa.types.is_floating(schema.field("counts").type.value_type)
    kinds = f"counts: {'floats' if is_float else 'integers'}"
    if ids is None:
        return kinds
    require_columns([ids], schema.names)
    kind = without_views(schema.field(ids).type)
    if not is_string(kind) and not pa.types.is_integer(kind):
        raise UnreadableError(f"its column {ids!r} is {kind}; document ids are strings or integers")
    return f"{kinds}, {listed([ids])}: {'strings' if is_string(kind) else 'integers'}"


def _bad_rows(ids: Any, counts: Any, n_words: int, start: int) -> Iterator[tuple[int, str]]:
    """Yield row and reason of each bad record, found by bisection because most batches have none."""
    try:
        _bags(ids, counts, n_words)
    except RecordError as error:
        if len(ids) == 1:
            yield start, error.reason
            return
        half = len(ids) // 2
        yield from _bad_rows(ids[:half], counts[:half], n_words, start)
        yield from _bad_rows(ids[half:], counts[half:], n_words, start + half)


def _bags(ids: Any, counts: Any, n_words: int) -> Bags:
    """Return indptr, ids and counts; RecordError for the first bad record."""
    return checked_bags(ids, counts, n_words, Place("", 0))


class BasketSource(RecordFiles, TextReader):
    """Reader "baskets": documents of items, such as playlists or click paths, which are counted as written.

    Each document is a line of UTF-8, or a list of strings or integers in Parquet or JSON.
    """

    reader = "baskets"
    patterns = (
        *TABLE_PATTERNS,
        "*.baskets",
        *(f"*{suffix}" for suffix, form in FORMATS.items() if form is JSON),
    )
    stop_words = NO_STOP_WORDS

    @property
    def contents(self) -> tuple[str, ...]:
        return (self.options.items,)

    def format(self, path: str) -> Format:
        return JSON if format_of(path) is JSON else super().format(path)

    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        items, separator = self.options.items, self.options.separator
        if is_parquet(unit.path):
            for records in PARQUET.records(unit, self.options, bad, [items]):
                yield replace(records, columns={items: _items(items, records.columns.get(items))})
            return
        if self.format(unit.path) is JSON:
            yield from gathered(unit, lists_of(unit, items), bad, Gathered([items]))
            return
        split = partial(pc.split_pattern, pattern=separator) if separator else pc.utf8_split_whitespace
        for records in line_records(unit, text_of, bad):
            found = split(records.columns["text"])
            trimmed = pa.ListArray.from_arrays(found.offsets, pc.utf8_trim_whitespace(found.flatten()))
            yield replace(records, columns={items: trimmed})


def _items(name: str, lists: Any) -> Any:
    """Return a column as lists of strings. Raises UnreadableError if it holds no lists of strings or integers."""
    kind: Any = "missing" if lists is None else lists.type
    item = value_type(kind.value_type) if lists is not None and is_list(kind) else None
    if item is None or not (is_string(item) or pa.types.is_integer(item)):
        raise UnreadableError(
            f"column {name!r} is {kind}; it must hold lists of strings or integers; name the column with "
            f"{option.items('NAME')}"
        )
    return lists.cast(pa.list_(pa.string()))


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
    times the bucket. Raises StoreError for a file that is missing, damaged, or of another source.
    """
    parts = []
    for path in files:
        part = read_range(path, bucket, n_buckets)
        parts += [part] if len(part) else []
    if not parts:
        return
    if any(part.schema != parts[0].schema for part in parts):
        raise StoreError("the scattered files have different columns; remove them and run again")
    table = pa.concat_tables(parts)
    documents, document_ranks = _ranked(table.column("document"))
    words, word_ranks = _ranked(table.column("word"))
    keys = document_ranks.astype(np.int64) * len(words) + word_ranks
    counts = np.asarray(table.column("count"))
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
