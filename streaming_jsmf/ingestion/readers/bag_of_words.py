"""Readers of bags of words in Parquet and in corpora, and of baskets of items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from streaming_jsmf.config import BagOptions
from streaming_jsmf.config.reading import NONE
from streaming_jsmf.corpus.bags import Bags, Place, RecordError, checked_bags
from streaming_jsmf.corpus.footer import check_columns, is_list, is_string
from streaming_jsmf.corpus.format import find_shards, find_vocabulary, open_corpus
from streaming_jsmf.corpus.manifest import MANIFEST_NAME, Json
from streaming_jsmf.corpus.metadata import id_column
from streaming_jsmf.corpus.vocabulary import read_vocabulary
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.formats.json_records import JSON, lists_of
from streaming_jsmf.ingestion.formats.lines import LINES, Gathered, gathered, line_records, text_of
from streaming_jsmf.ingestion.formats.parquet import PARQUET
from streaming_jsmf.ingestion.readers.probe import FORMATS, format_of
from streaming_jsmf.ingestion.sources.adapter import RecordFiles, RecordReader, TextReader
from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Batch,
    Format,
    Records,
    Unit,
    UnreadableError,
)
from streaming_jsmf.ingestion.sources.streams import (
    TABLE_PATTERNS,
    is_archive,
    of_first_readable,
    open_parquet_source,
)
from streaming_jsmf.ingestion.sources.values import require_columns, value_type
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH
from streaming_jsmf.ingestion.tokens.stop_words import NONE as NO_STOP_WORDS
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.kinds import SOURCE, unsuitable
from streaming_jsmf.storage.paths import exists, join, normalize


@dataclass(frozen=True, kw_only=True)
class BagSource(RecordFiles, RecordReader):
    """Reader "bag-of-words-parquet": list columns ``ids`` and ``counts``; further columns are metadata.

    ``found_id`` is the column of the ids. ``has_floats`` says whether counts are floating-point numbers in the first
    readable file; all files must have the same. ``fingerprint`` is that of a corpus, or None.
    """

    vocabulary_path: str
    found_id: str | None
    has_floats: bool
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

        def read(path: str) -> tuple[str | None, bool]:
            with open_parquet_source(path) as file:
                found = ids if options.id else id_column(file.schema_arrow.names)
                return found, _has_floats(file.schema_arrow, ids)

        found_id, has_floats = of_first_readable(shards, read, "give Parquet files of bags of words")
        known: dict[str, Any] = {"vocabulary_path": words, "found_id": found_id, "has_floats": has_floats}
        return cls(root, shards, options, tokenizer, **known, fingerprint=fingerprint)

    def format(self, path: str) -> Format:  # noqa: ARG002
        return PARQUET

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
                named = self.id_column if self.id_was_named else None
                if _has_floats(file.schema_arrow, named) != self.has_floats:
                    kinds = ("integers", "floating-point numbers")[:: -1 if self.has_floats else 1]
                    raise UnreadableError(
                        f"its counts are {kinds[1]}, those of the first file {kinds[0]}; make them the same"
                    )
            for records in PARQUET.records(unit, self.options, bad):
                found = records.columns
                good = self.usable(records, dict(_bad_rows(found["ids"], found["counts"], n_words, 0)), bad)
                bags = Bags.of_lists(good.columns["ids"], good.columns["counts"]).narrow()
                ids, metadata, notes = self.metadata(good.columns)
                yield Batch(bags, ids, metadata, rows=good.rows, notes=notes)


def _has_floats(schema: Any, ids: str | None) -> bool:
    """Return whether counts are floating-point. Raises UnreadableError if columns are missing or of other types."""
    try:
        check_columns(schema, "it")
    except InputError as error:
        raise UnreadableError(str(error).replace("it: column", "its column", 1)) from error
    require_columns([*schema.names, *([ids] if ids else [])], schema.names)
    return bool(pa.types.is_floating(schema.field("counts").type.value_type))


def _bad_rows(ids: Any, counts: Any, n_words: int, start: int) -> Iterator[tuple[int, str]]:
    """Yield row and reason of each bad record, found by bisection because most batches have none."""
    try:
        checked_bags(ids, counts, n_words, Place("", 0))
    except RecordError as error:
        if len(ids) == 1:
            yield start, error.reason
            return
        half = len(ids) // 2
        yield from _bad_rows(ids[:half], counts[:half], n_words, start)
        yield from _bad_rows(ids[half:], counts[half:], n_words, start + half)


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
        form = format_of(path)
        return form if form in (JSON, PARQUET) else LINES

    def records(self, unit: Unit, bad: BadRecords) -> Iterator[Records]:
        items, separator = self.options.items, self.options.separator
        if (form := self.format(unit.path)) is PARQUET:
            for records in PARQUET.records(unit, self.options, bad, [items]):
                yield replace(records, columns={items: _items(items, records.columns.get(items))})
            return
        if form is JSON:
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
