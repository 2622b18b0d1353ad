"""Existing bags of words: a corpus, or Parquet files with list columns and a word list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.footer import check_columns, is_string, leaf_columns
from streaming_jsmf.corpus.format import find_shards, find_vocabulary, missing_source, open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.corpus.records import (
    BATCH_NONZEROS,
    Bags,
    Place,
    RecordError,
    checked_bags,
    document_ids,
    id_column,
    narrow_counts,
    without_views,
)
from streaming_jsmf.corpus.vocabulary import read_vocabulary
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Source, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import is_archive, of_first_readable, open_parquet_source, size_of
from streaming_jsmf.ingestion.readers.parquet_records import drop_bad_rows, group_units
from streaming_jsmf.ingestion.readers.records import RecordFiles
from streaming_jsmf.ingestion.readers.text_records import common_kinds, conformed, fits
from streaming_jsmf.ingestion.readers.values import require_columns, utf8_faults, value_type
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import exists, join, normalise
from streaming_jsmf.validation import Strict

#: (document, word) pairs per unit.
UNIT_NONZEROS = 16_000_000


class BagOptions(Strict):
    """``id`` is the column of document ids; ``vocabulary`` the word list, by default in the directory of the shards."""

    id: str | None = None
    vocabulary: str | None = None


@dataclass(frozen=True)
class BagColumns:
    """Columns of all files: name of the ids (or None), and Arrow types of the metadata.

    ``kinds`` are those of counts and ids, "integers", "floats" or "strings", which are the same in all files.
    """

    id: str | None
    kinds: Mapping[str, str]
    metadata: Mapping[str, Any]

    @classmethod
    def of(cls, schema: Any, wanted: str | None) -> BagColumns:
        """Read the columns of a schema, with ids in ``wanted`` or a usual name; UnreadableError if they are invalid."""
        try:
            check_columns(schema, "it")
        except InputError as error:
            raise UnreadableError(str(error).replace("it: column", "its column", 1)) from error
        require_columns(schema.names, schema.names)
        if wanted is not None and wanted not in schema.names:
            has = ", ".join(schema.names)
            raise UnreadableError(f"it has no column {wanted!r} for document ids; it has {has}")
        is_real = pa.types.is_floating(schema.field("counts").type.value_type)
        kinds = {"counts": "floats" if is_real else "integers"}
        ids = wanted or id_column(schema.names)
        if ids is not None:
            kind = without_views(schema.field(ids).type)
            if not is_string(kind) and not pa.types.is_integer(kind):
                raise UnreadableError(f"its column {ids!r} is {kind}; document ids are strings or integers")
            kinds[ids] = "strings" if is_string(kind) else "integers"
        more = {field.name: value_type(field.type) for field in schema if field.name not in ("ids", *kinds)}
        return cls(ids, kinds, more)

    def __str__(self) -> str:
        return ", ".join(f"{name}: {kind}" for name, kind in {**self.kinds, **self.metadata}.items())


@dataclass(frozen=True, kw_only=True)
class BagSource(RecordFiles, Source):
    """Reader "bag-of-words-parquet": list columns ``ids`` and ``counts``, with the columns of the first readable file.

    Other files may lack metadata, and their other columns become columns of strings. ``fingerprint`` is that of a
    corpus with a manifest, else None.
    """

    vocabulary_path: str
    columns: BagColumns
    fingerprint: str | None = None

    reader = "bag-of-words-parquet"
    options_type = BagOptions
    stop_words = ENGLISH
    rereads = True

    @classmethod
    def open(cls, root: str, files: tuple[str, ...], options: BagOptions, tokenizer: Tokenizer) -> Self:
        """Find shards and words; a corpus with a manifest is checked against it.

        Raises InputError if no shard has the columns, and StoreError if a corpus with a manifest is damaged.
        """
        root = normalise(root)
        if is_archive(root):
            raise InputError(f"{root}: bags of words are not read from archives; unpack it")
        if exists(join(root, MANIFEST_NAME)):
            corpus = open_corpus(root)
            shards = tuple(corpus.shard_path(shard) for shard in corpus.shards)
            words, fingerprint = corpus.vocabulary_path, corpus.fingerprint
        elif exists(root):
            words = join(root, options.vocabulary) if options.vocabulary else find_vocabulary(root)
            found = (join(root, name) for name in find_shards(root, words))
            shards, fingerprint = tuple(path for path in found if not files or path in files), None
        else:
            raise missing_source(root)
        columns = _columns(shards, options.id)
        return cls(
            root, shards, options, tokenizer, vocabulary_path=words, columns=columns, fingerprint=fingerprint
        )

    @property
    def vocabulary(self) -> Sequence[str]:
        return read_vocabulary(self.vocabulary_path)[0].words

    def parts(self, path: str) -> Sequence[Unit]:
        """Return runs of row groups of about ``UNIT_NONZEROS`` pairs."""
        with open_parquet_source(path) as file:
            metadata = file.metadata
            leaf = leaf_columns(metadata).get("ids", 0)
            pairs = [metadata.row_group(g).column(leaf).num_values for g in range(metadata.num_row_groups)]
        return group_units(path, pairs, UNIT_NONZEROS, size_of(path))

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        n_words, columns = len(self.vocabulary), self.columns
        row = 0
        with bad.unreadable_file(), open_parquet_source(unit.path) as file:
            found = BagColumns.of(file.schema_arrow, columns.id)
            if replace(found, metadata=columns.metadata) != columns or not all(
                fits(kind, columns.metadata.get(name, kind)) for name, kind in found.metadata.items()
            ):
                raise UnreadableError(
                    f"its columns are {found}, those of the first file {columns}; make them the same"
                )
            later = [name for name in found.metadata if name not in columns.metadata]
            metadata = {**columns.metadata, **dict.fromkeys(later, pa.string())}
            for g in range(unit.start, unit.stop):
                for batch in _batches(file, g):
                    reasons = utf8_faults(batch, [], filter(None, [columns.id, *found.metadata]))
                    reasons |= dict(_bad_rows(batch, n_words, columns, 0))
                    good, rows = drop_bad_rows(batch, reasons, row, bad)
                    yield _convert(good, n_words, replace(columns, metadata=metadata), rows)
                    row += batch.num_rows


def _columns(files: Sequence[str], wanted: str | None) -> BagColumns:
    def read(path: str) -> BagColumns:
        with open_parquet_source(path) as file:
            return BagColumns.of(file.schema_arrow, wanted)

    found = of_first_readable(files, read, "give Parquet files of bags of words")
    return replace(found, metadata=common_kinds(found.metadata, files))


def _batches(file: Any, g: int) -> Iterator[Any]:
    group = file.metadata.row_group(g)
    values = max(group.column(i).num_values for i in range(group.num_columns))
    rows = max(1, int(BATCH_NONZEROS * group.num_rows / max(values, 1)))
    for batch in file.iter_batches(rows, row_groups=[g], use_threads=False):
        if batch.num_rows:
            yield batch


def _bad_rows(batch: Any, n_words: int, columns: BagColumns, start: int) -> Iterator[tuple[int, str]]:
    """Yield row and reason of each bad record, found by bisection because most batches have none."""
    try:
        _bags(batch, n_words, columns)
    except RecordError as error:
        if batch.num_rows == 1:
            yield start, error.reason
            return
        half = batch.num_rows // 2
        yield from _bad_rows(batch.slice(0, half), n_words, columns, start)
        yield from _bad_rows(batch.slice(half), n_words, columns, start + half)


def _bags(batch: Any, n_words: int, columns: BagColumns) -> tuple[Bags, Any]:
    """Return checked bags and ids (None without ids); RecordError for the first bad record."""
    where = Place("", 0)
    bags = checked_bags(batch.column("ids"), batch.column("counts"), n_words, where)
    if columns.id is None:
        return bags, None
    try:
        return bags, document_ids(batch.column(columns.id), columns.id, where)
    except pa.ArrowInvalid as error:
        raise where.refuse(0, f"{columns.id} is not a signed 64-bit integer") from error


def _convert(batch: Any, n_words: int, columns: BagColumns, rows: NDArray[np.int64]) -> Batch:
    bags, ids = _bags(batch, n_words, columns)
    metadata = conformed(batch, columns.metadata)
    return Batch(
        bags.indptr,
        bags.ids.astype(np.int32, copy=False),
        narrow_counts(bags.counts),
        rows,
        ids,
        {name: values for name, (values, _) in metadata.items()},
        kinds={name: kinds for name, (_, kinds) in metadata.items() if kinds is not None},
    )
