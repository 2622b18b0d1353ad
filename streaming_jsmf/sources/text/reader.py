"""Raw text in Parquet, JSON-lines or CSV files: one record a document, words by a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from streaming_jsmf.errors import InputError
from streaming_jsmf.sources.base import BadRecords, SourceBatch, Unit
from streaming_jsmf.sources.files import UnreadableError, bare_suffix
from streaming_jsmf.sources.text.lines import (
    LineFormat,
    csv_columns,
    json_columns,
    line_first_row,
    line_units,
    read_csv_texts,
    read_json_texts,
)
from streaming_jsmf.sources.text.parquet import (
    parquet_columns,
    parquet_first_row,
    parquet_place,
    parquet_units,
    read_parquet_texts,
)
from streaming_jsmf.sources.text.records import TextColumns, TextRecords
from streaming_jsmf.tokens.lists import count_codes
from streaming_jsmf.tokens.tokenizer import LONGEST_NGRAM, BuiltIn, Tokenizer
from streaming_jsmf.validation import Strict

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
CSV_SUFFIXES = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".parquet", *JSON_SUFFIXES, *CSV_SUFFIXES)


def _is_codec(name: str) -> str:
    try:
        plain = b"a,\n".decode(name) == "a,\n"
    except (LookupError, UnicodeDecodeError):
        plain = False
    if not plain:
        raise ValueError("give a text encoding of Python that holds ASCII, such as utf-8 or latin-1")
    return name


Encoding = Annotated[str, AfterValidator(_is_codec)]


class TokenOptions(Strict):
    """How texts become words; see ``Tokenizer``. A spec can name only what is built in."""

    tokenizer: BuiltIn = "arrow"
    ngrams: Annotated[int, Field(ge=1, le=LONGEST_NGRAM)] = 1
    stemmer: str | None = None


class TextOptions(TokenOptions):
    """Columns of texts: the text, the id (by its usual names when not given), and what else is kept.

    ``encoding`` is that of JSON lines and CSV, and must hold ASCII as it is.
    """

    text: str = "text"
    id: str | None = None
    metadata: Literal["all"] | tuple[str, ...] = "all"
    encoding: Encoding = "utf-8"


@dataclass(frozen=True)
class TextSource:
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

    def units(self) -> Sequence[Unit]:
        """Row groups of Parquet, byte ranges of JSON lines, whole CSV and compressed files."""
        units: list[Unit] = []
        for path in self.files:
            suffix = bare_suffix(path)
            if suffix == ".parquet":
                units.extend(parquet_units(path))
            else:
                units.extend(line_units(path, splittable=suffix in JSON_SUFFIXES))
        return units

    def first_row(self, unit: Unit) -> int:
        """Row (Parquet) or line of the file where the unit starts."""
        return parquet_first_row(unit) if bare_suffix(unit.path) == ".parquet" else line_first_row(unit)

    def place(self, unit: Unit, row: int) -> str:
        """File and row, or file and line from 1."""
        if bare_suffix(unit.path) == ".parquet":
            return parquet_place(unit, row)
        return f"{unit.path}, line {line_first_row(unit) + row + 1}"

    def read(self, unit: Unit, bad: BadRecords) -> Iterator[SourceBatch]:
        """One pass over the unit, in batches of about 8 MB of text."""
        suffix = bare_suffix(unit.path)
        if suffix == ".parquet":
            records = read_parquet_texts(unit, self.columns, bad)
        elif suffix in JSON_SUFFIXES:
            records = read_json_texts(unit, self.columns, bad, _layout(suffix, self.options))
        else:
            records = read_csv_texts(unit, self.columns, bad, _layout(suffix, self.options))
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
    if suffix == ".parquet":
        return parquet_columns(path, options.text, options.id, options.metadata)
    if suffix in JSON_SUFFIXES or suffix in CSV_SUFFIXES:
        find = json_columns if suffix in JSON_SUFFIXES else csv_columns
        return find(path, options.text, options.id, options.metadata, _layout(suffix, options))
    raise UnreadableError(f"its suffix is {suffix!r}; texts are read from {', '.join(SUFFIXES)}")


def _layout(suffix: str, options: TextOptions) -> LineFormat:
    return LineFormat(CSV_SUFFIXES.get(suffix, ","), options.encoding)
