"""Raw text in Parquet, JSON-lines or CSV files: one record a document, words by a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.parquet import is_parquet
from streaming_jsmf.ingestion.readers.record_files import RecordFiles
from streaming_jsmf.ingestion.readers.streams import UnreadableError, bare_suffix
from streaming_jsmf.ingestion.readers.text.batches import TextColumns, TextRecords
from streaming_jsmf.ingestion.readers.text.csv_texts import csv_columns, read_csv_texts
from streaming_jsmf.ingestion.readers.text.json_texts import json_columns, read_json_texts
from streaming_jsmf.ingestion.readers.text.options import TextOptions
from streaming_jsmf.ingestion.readers.text.parquet_texts import parquet_columns, read_parquet_texts
from streaming_jsmf.ingestion.tokens.lists import count_codes
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CSV_SUFFIXES = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class TextSource(RecordFiles):
    """Documents of raw text.

    Attributes
    ----------
    files
        Local paths or URLs; the suffix says the format.
    options
        Columns.
    tokenizer
        Texts to words.
    columns
        Found in the first file that can be read; all others must agree.
    """

    files: tuple[str, ...]
    options: TextOptions
    tokenizer: Tokenizer
    columns: TextColumns
    reader: str = "text"
    vocabulary: None = None

    @classmethod
    def open(cls, files: tuple[str, ...], options: TextOptions, tokenizer: Tokenizer) -> TextSource:
        """Find the columns.

        Raises
        ------
        InputError
            If no file has them; the message is about the first.
        """
        first: str | None = None
        for path in files:
            try:
                return cls(files, options, tokenizer, _columns_of(path, options))
            except UnreadableError as error:
                first = first or f"{path}: {error}"
        raise InputError(f"{first}; give a file of texts, and name the column with --read text=NAME")

    def splittable(self, path: str) -> bool:
        """JSON lines are; a record of CSV may span lines."""
        return bare_suffix(path) in JSON_SUFFIXES

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """One pass over the unit, in batches of about 8 MB of text."""
        suffix, encoding = bare_suffix(unit.path), self.options.encoding
        if is_parquet(unit.path):
            records = read_parquet_texts(unit, self.columns, bad)
        elif suffix in JSON_SUFFIXES:
            records = read_json_texts(unit, self.columns, bad, encoding)
        else:
            records = read_csv_texts(
                unit, self.columns, bad, delimiter_for(unit.path, self.options) or ",", encoding
            )
        for batch in records:
            yield words_of(batch, self.tokenizer)


def words_of(records: TextRecords, tokenizer: Callable[[Any], Any]) -> SourceBatch:
    """The bags of a batch of texts."""
    tokens = tokenizer(records.texts)
    bags = count_codes(tokens)
    return SourceBatch(
        bags.indptr, bags.codes, bags.counts, records.rows, records.ids, records.metadata, tokens.dictionary
    )


def _columns_of(path: str, options: TextOptions) -> TextColumns:
    suffix = bare_suffix(path)
    if is_parquet(path):
        return parquet_columns(path, options)
    if suffix in JSON_SUFFIXES:
        return json_columns(path, options)
    delimiter = delimiter_for(path, options)
    if delimiter is not None:
        return csv_columns(path, delimiter, options)
    known = ", ".join((".parquet", *JSON_SUFFIXES, *CSV_SUFFIXES))
    raise UnreadableError(
        f"its suffix is {suffix!r}; texts are read from {known}, and from delimited files of any name with --read "
        "delimiter=CHARACTER"
    )


def delimiter_for(path: str, options: TextOptions) -> str | None:
    """What is between the fields of a delimited file; None if it is of another kind."""
    return options.delimiter or CSV_SUFFIXES.get(bare_suffix(path))
