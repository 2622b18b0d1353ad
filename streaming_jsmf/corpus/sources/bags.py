"""Bags of words that are bags already: an existing corpus, or Parquet files with list columns beside a word list."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streaming_jsmf.corpus.documents import BATCH_NONZEROS, ID_COLUMNS, document_ids, narrow_counts
from streaming_jsmf.corpus.footer import check_columns, leaf_columns
from streaming_jsmf.corpus.format import find_shards, find_vocabulary, open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.corpus.records import Bags, Place, RecordError, checked_bags
from streaming_jsmf.corpus.sources.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.corpus.sources.files import UnreadableError, open_parquet_source
from streaming_jsmf.corpus.sources.text_parquet import parquet_first_row, parquet_place
from streaming_jsmf.corpus.storage import exists, file_size, join, normalise
from streaming_jsmf.corpus.validation import Strict
from streaming_jsmf.corpus.vocabulary import read_vocabulary
from streaming_jsmf.errors import InputError

#: (document, word) pairs of a unit: enough that a task is worth it, few enough that many can share the work.
UNIT_NONZEROS = 16_000_000


class BagOptions(Strict):
    """``id``: column of document ids; ``vocabulary``: the word list, beside the shards when not given."""

    id: str | None = None
    vocabulary: str | None = None


@dataclass(frozen=True)
class BagSource:
    """Documents as list columns ``ids`` and ``counts`` over a vocabulary.

    Attributes
    ----------
    files
        Local paths or URLs of the shards.
    vocabulary_path
        Of the word list.
    id_column
        Name of the ids, or None for none.
    fingerprint
        Of a corpus with a manifest, else None.
    """

    files: tuple[str, ...]
    vocabulary_path: str
    id_column: str | None
    fingerprint: str | None = None
    reader: str = "bag-of-words-parquet"
    rereads: bool = True

    @classmethod
    def open(cls, root: str, options: BagOptions, only: tuple[str, ...] = ()) -> BagSource:
        """Find shards and words; of files without a manifest those in ``only``, if it names any.

        A corpus with a manifest is checked against it.

        Raises
        ------
        InputError
            If there are none, or the first shard has not the columns.
        StoreError
            If a corpus with a manifest is damaged.
        """
        root = normalise(root)
        if exists(join(root, MANIFEST_NAME)):
            corpus = open_corpus(root)
            shards = tuple(corpus.shard_path(shard) for shard in corpus.shards)
            return cls(shards, corpus.vocabulary_path, _id_column(shards, options.id), corpus.fingerprint)
        words = join(root, options.vocabulary) if options.vocabulary else find_vocabulary(root)
        files = tuple(join(root, name) for name in find_shards(root, words))
        files = tuple(path for path in files if not only or path in only)
        return cls(files, words, _id_column(files, options.id))

    @property
    def vocabulary(self) -> Sequence[str]:
        """The words; reads the list."""
        return read_vocabulary(self.vocabulary_path)[0].words

    def units(self) -> Sequence[Unit]:
        """Runs of row groups of about 16 M pairs."""
        return [unit for path in self.files for unit in _units(path)]

    def first_row(self, unit: Unit) -> int:
        """Rows of the file before the unit."""
        return parquet_first_row(unit)

    def place(self, unit: Unit, row: int) -> str:
        """File, row group and row."""
        return parquet_place(unit, row)

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """One pass over the unit in batches of about a million pairs."""
        n_words = len(self.vocabulary)
        row = 0
        try:
            with open_parquet_source(unit.path) as file:
                _check(file.schema_arrow, unit.path, self.id_column)
                for g in range(unit.start, unit.stop):
                    for batch in _batches(file, g):
                        yield from _checked(batch, n_words, self.id_column, row, bad)
                        row += batch.num_rows
        except UnreadableError as error:
            bad.refuse(None, str(error))


def _units(path: str) -> list[Unit]:
    try:
        with open_parquet_source(path) as file:
            metadata = file.metadata
            leaf = leaf_columns(metadata).get("ids", 0)
            pairs = [metadata.row_group(g).column(leaf).num_values for g in range(metadata.num_row_groups)]
            size = file_size(path)
    except UnreadableError:
        return [Unit(path)]
    units, start = [], 0
    for g in range(len(pairs)):
        held = sum(pairs[start : g + 1])
        if held >= UNIT_NONZEROS or g == len(pairs) - 1:
            units.append(Unit(path, start, g + 1, int(size * held / max(sum(pairs), 1))))
            start = g + 1
    return units or [Unit(path)]


def _batches(file: Any, g: int) -> Iterator[Any]:
    group = file.metadata.row_group(g)
    values = max(group.column(i).num_values for i in range(group.num_columns))
    rows = max(1, int(BATCH_NONZEROS * group.num_rows / max(values, 1)))
    for batch in file.iter_batches(rows, row_groups=[g], use_threads=False):
        if batch.num_rows:
            yield batch


def _checked(
    batch: Any, n_words: int, id_column: str | None, first: int, bad: BadRecords
) -> Iterator[SourceBatch]:
    """The batch whole if all its records are good; else its good records in runs, each bad one refused."""
    start = 0
    while start < batch.num_rows:
        rest = batch.slice(start)
        try:
            yield _convert(rest, n_words, id_column, first + start)
            return
        except RecordError as error:
            found = _first_bad(rest, n_words, id_column, error)
        if found.row:
            yield _convert(rest.slice(0, found.row), n_words, id_column, first + start)
        bad.refuse(first + start + found.row, found.reason, _as_json(rest, found.row))
        start += found.row + 1


def _first_bad(batch: Any, n_words: int, id_column: str | None, found: RecordError) -> RecordError:
    """The first bad record: each kind of fault is looked for on its own, so another may stand before the one found."""
    while True:
        try:
            _convert(batch.slice(0, found.row), n_words, id_column, 0)
        except RecordError as earlier:
            found = earlier
        else:
            return found


def _convert(batch: Any, n_words: int, id_column: str | None, first: int) -> SourceBatch:
    where = Place("", 0)
    bags: Bags = checked_bags(batch.column("ids"), batch.column("counts"), n_words, where)
    used = ("ids", "counts", id_column)
    return SourceBatch(
        bags.indptr,
        bags.ids.astype(np.int32, copy=False),
        narrow_counts(bags.counts),
        np.arange(first, first + batch.num_rows),
        None if id_column is None else document_ids(batch.column(id_column), id_column, where),
        {name: batch.column(name) for name in batch.schema.names if name not in used},
    )


def _id_column(files: Sequence[str], wanted: str | None) -> str | None:
    """By the first file whose footer can be read; reading tells of the others."""
    for path in files:
        try:
            with open_parquet_source(path) as file:
                names = file.schema_arrow.names
        except UnreadableError:
            continue
        if wanted is not None and wanted not in names:
            raise InputError(f"{path} has no column {wanted!r} for document ids; it has {', '.join(names)}")
        return wanted or next((name for name in ID_COLUMNS if name in names), None)
    return wanted


def _check(schema: Any, path: str, id_column: str | None) -> None:
    try:
        check_columns(schema, path)
    except InputError as error:
        raise UnreadableError(str(error).removeprefix(path).lstrip(": ")) from error
    if id_column is not None and id_column not in schema.names:
        raise UnreadableError(f"there is no column {id_column!r}; it has {', '.join(schema.names)}")


def _as_json(batch: Any, row: int) -> bytes:
    record = {name: batch.column(name)[row].as_py() for name in batch.schema.names}
    return json.dumps(record, ensure_ascii=False, default=str).encode()
