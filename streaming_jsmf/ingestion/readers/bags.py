"""Documents as bags that exist: corpora and Parquet files of word ids and counts, and baskets of items."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import BagOptions, BasketOptions
from streaming_jsmf.config.reading import NONE
from streaming_jsmf.corpus.footer import check_columns, is_list, is_string, leaf_columns
from streaming_jsmf.corpus.format import find_shards, find_vocabulary, missing_source, open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.corpus.records import (
    BATCH_NONZEROS,
    Place,
    RecordError,
    checked_bags,
    document_ids,
    id_column,
    narrow_counts,
    without_views,
)
from streaming_jsmf.corpus.vocabulary import read_vocabulary
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import (
    BadRecords,
    Batch,
    Source,
    Unit,
    UnreadableError,
    group_units,
)
from streaming_jsmf.ingestion.readers.files import (
    TABLE_PATTERNS,
    compressed,
    is_archive,
    of_first_readable,
    open_parquet_source,
    size_of,
)
from streaming_jsmf.ingestion.readers.formats import line_records, parquet_batches, text_of
from streaming_jsmf.ingestion.readers.listing import is_parquet
from streaming_jsmf.ingestion.readers.records import RecordFiles, bags_of, numbered
from streaming_jsmf.ingestion.readers.values import (
    as_json,
    invalid_rows,
    list_as_json,
    require_columns,
    storable,
    value_type,
)
from streaming_jsmf.ingestion.tokens.split import TokenLists, given_tokens
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import exists, join, normalise

#: (document, word) pairs per unit.
UNIT_NONZEROS = 16_000_000


@dataclass(frozen=True, kw_only=True)
class BagSource(RecordFiles, Source):
    """Reader "bag-of-words-parquet": list columns ``ids`` and ``counts``; further columns are metadata.

    ``found_id`` is the column of the document ids. ``kinds`` has what the counts and named ids are in the first
    readable file ("integers", "floats" or "strings"), by column; it must be the same in all files. ``fingerprint`` is
    that of a corpus with a manifest, else None.
    """

    vocabulary_path: str
    found_id: str | None
    kinds: Mapping[str, str]
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

        ids = None if options.id == NONE else options.id

        def read(path: str) -> tuple[str | None, dict[str, str]]:
            with open_parquet_source(path) as file:
                names = file.schema_arrow.names
                found = ids if options.id else id_column(names)
                return found, _kinds(file.schema_arrow, found if options.id or fingerprint else None)

        found_id, kinds = of_first_readable(shards, read, "give Parquet files of bags of words")
        columns: dict[str, Any] = {"vocabulary_path": words, "found_id": found_id, "kinds": kinds}
        return cls(root, shards, options, tokenizer, **columns, fingerprint=fingerprint)

    @property
    def id_column(self) -> str | None:
        return self.found_id

    @property
    def id_was_named(self) -> bool:
        return self.options.id is not None or self.fingerprint is not None

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
        n_words, row = len(self.vocabulary), 0
        with bad.unreadable_file(), open_parquet_source(unit.path) as file:
            kinds = _kinds(file.schema_arrow, self._named_id)
            if kinds != self.kinds:
                ours, theirs = (
                    ", ".join(f"{name}: {kind}" for name, kind in each.items())
                    for each in (kinds, self.kinds)
                )
                raise UnreadableError(
                    f"its columns are {ours}, those of the first file {theirs}; make them the same"
                )
            for g in range(unit.start, unit.stop):
                for batch in _batches(file, g):
                    yield self._documents(batch, row, n_words, bad)
                    row += batch.num_rows

    @property
    def _named_id(self) -> str | None:
        return self.id_column if self.id_was_named else None

    def _documents(self, batch: Any, first: int, n_words: int, bad: BadRecords) -> Batch:
        """Return the good documents of a record batch that starts at row ``first``; the others go to ``bad``."""
        ids = self._named_id
        invalid = [] if ids is None else invalid_rows(batch.column(ids))
        reasons = dict.fromkeys(invalid, f"{ids} holds bytes that are not UTF-8")
        reasons |= dict(_bad_rows(batch, n_words, ids, 0))
        batch, rows = _good_rows(batch, reasons, first, bad)
        (indptr, codes, counts), identities = _bags(batch, n_words, ids)
        metadata, notes = {}, {}
        for name in batch.schema.names:
            if name not in ("ids", "counts", ids):
                metadata[name], notes[name] = storable(name, batch.column(name))
        if ids is None and self.id_column is not None:
            identities = metadata.pop(self.id_column, None)
        return Batch(
            indptr,
            codes.astype(np.int32, copy=False),
            narrow_counts(counts),
            rows,
            identities,
            {name: values for name, values in metadata.items() if values is not None},
            notes={name: note for name, note in notes.items() if note},
        )


def _kinds(schema: Any, ids: str | None) -> dict[str, str]:
    """Return the kinds of counts and of a column of ids (see ``BagSource``).

    Raises UnreadableError if columns are missing, or of other types.
    """
    try:
        check_columns(schema, "it")
    except InputError as error:
        raise UnreadableError(str(error).replace("it: column", "its column", 1)) from error
    require_columns(schema.names, schema.names)
    kinds = {
        "counts": "floats" if pa.types.is_floating(schema.field("counts").type.value_type) else "integers"
    }
    if ids is None:
        return kinds
    require_columns([ids], schema.names)
    kind = without_views(schema.field(ids).type)
    if not is_string(kind) and not pa.types.is_integer(kind):
        raise UnreadableError(f"its column {ids!r} is {kind}; document ids are strings or integers")
    return {**kinds, ids: "strings" if is_string(kind) else "integers"}


def _batches(file: Any, g: int) -> Iterator[Any]:
    group = file.metadata.row_group(g)
    values = max(group.column(i).num_values for i in range(group.num_columns))
    rows = max(1, int(BATCH_NONZEROS * group.num_rows / max(values, 1)))
    for batch in file.iter_batches(rows, row_groups=[g], use_threads=False):
        if batch.num_rows:
            yield batch


def _bad_rows(batch: Any, n_words: int, ids: str | None, start: int) -> Iterator[tuple[int, str]]:
    """Yield row and reason of each bad record, found by bisection because most batches have none."""
    try:
        _bags(batch, n_words, ids)
    except RecordError as error:
        if batch.num_rows == 1:
            yield start, error.reason
            return
        half = batch.num_rows // 2
        yield from _bad_rows(batch.slice(0, half), n_words, ids, start)
        yield from _bad_rows(batch.slice(half), n_words, ids, start + half)


def _bags(batch: Any, n_words: int, ids: str | None) -> tuple[tuple[NDArray[Any], ...], Any]:
    """Return indptr, ids and counts, and document ids (None without); RecordError for the first bad record."""
    where = Place("", 0)
    bags = checked_bags(batch.column("ids"), batch.column("counts"), n_words, where)
    if ids is None:
        return bags, None
    try:
        return bags, document_ids(batch.column(ids), ids, where)
    except pa.ArrowInvalid as error:
        raise where.refuse(0, f"{ids} is not a signed 64-bit integer") from error


def _good_rows(
    batch: Any,
    reasons: Mapping[int, str],
    first: int,
    bad: BadRecords,
    as_record: Callable[[Any, int], bytes | None] = as_json,
) -> tuple[Any, NDArray[np.int64]]:
    """Return the good rows of a batch and their numbers from ``first``; the others go to ``bad`` in order."""
    rows = np.arange(first, first + batch.num_rows)
    if not reasons:
        return batch, rows
    for row in sorted(reasons):
        bad.refuse(first + row, reasons[row], as_record(batch, row))
    keep = np.ones(batch.num_rows, bool)
    keep[list(reasons)] = False
    return batch.filter(pa.array(keep)), rows[keep]


class BasketSource(RecordFiles, Source):
    """Reader "baskets": documents of items, such as playlists or click paths, which are counted as written.

    Each document is a line of UTF-8, or a list of strings or integers in Parquet.
    """

    reader = "baskets"
    options_type = BasketOptions
    patterns = (*TABLE_PATTERNS, *compressed("*.baskets"))

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[Batch]:
        with bad.unreadable_file():
            if is_parquet(unit.path):
                yield from _read_lists(unit, self.options.items, bad)
            else:
                lines = line_records(unit, text_of, bad)
                yield from numbered(
                    (bags_of(self._split(each.columns["text"]), each.rows) for each in lines), bad
                )

    def _split(self, lines: Any) -> TokenLists:
        separator = self.options.separator
        lists = pc.utf8_split_whitespace(lines) if separator is None else pc.split_pattern(lines, separator)
        return given_tokens(pa.ListArray.from_arrays(lists.offsets, pc.utf8_trim_whitespace(lists.flatten())))


def _read_lists(unit: Unit, column: str, bad: BadRecords) -> Iterator[Batch]:
    with open_parquet_source(unit.path) as file:
        _require_items(file.schema_arrow, column)
        for first, batch in parquet_batches(file, unit, [column]):
            good, rows = _good_rows(batch, _bad_lists(batch.column(column)), first, bad, list_as_json)
            if len(rows):
                yield bags_of(given_tokens(good.column(column)), rows)


def _require_items(schema: Any, column: str) -> None:
    """Raise UnreadableError unless a column holds lists of strings or integers."""
    hint = f"name the column with {option.read({'items': 'NAME'})}"
    try:
        require_columns([column], schema.names)
    except UnreadableError as error:
        raise UnreadableError(f"{error}; {hint}") from error
    kind = schema.field(column).type
    if not is_list(kind):
        raise UnreadableError(f"column {column!r} is {kind}; it must hold lists of items; {hint}")
    item = value_type(kind.value_type)
    if not (is_string(item) or pa.types.is_integer(item)):
        raise UnreadableError(f"column {column!r} holds {item}; items are strings or integers; {hint}")


def _bad_lists(lists: Any) -> dict[int, str]:
    """Return the reason to refuse each bad list."""
    items, rows = lists.flatten(), pc.list_parent_indices(lists)
    return {
        **dict.fromkeys(
            rows.take(pa.array(invalid_rows(items), pa.int64())).to_pylist(),
            "the list holds bytes that are not UTF-8",
        ),
        **dict.fromkeys(rows.filter(items.is_null()).to_pylist(), "the list holds a null"),
        **dict.fromkeys(np.flatnonzero(np.asarray(lists.is_null())).tolist(), "the list is null"),
    }
