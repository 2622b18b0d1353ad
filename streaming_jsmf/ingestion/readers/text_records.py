"""Texts with their ids and metadata: user options, source columns, and batches of records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streaming_jsmf.config import EXCERPT, LONGEST_EXCERPT
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, Batch, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import open_parquet_source
from streaming_jsmf.ingestion.readers.lines import read_lines
from streaming_jsmf.ingestion.readers.values import (
    as_texts,
    decoded,
    holds_strings,
    require_columns,
    require_few,
    value_type,
)
from streaming_jsmf.ingestion.tokens.split import TokenLists, count_codes
from streaming_jsmf.ingestion.tokens.tokenizer import LONGEST_NGRAM, BuiltIn
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.paths import is_chain
from streaming_jsmf.validation import Strict, is_utf8

_ID_NAMES = ("document_id", "doc_id", "id")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_RECORD_BYTES = 64  # estimated overhead per record, besides its strings


def check_codecs(names: str) -> str:
    """Return a comma-separated list of encodings without spaces. Raises ValueError if one cannot be used."""
    stripped = [name.strip() for name in names.split(",")]
    for name in stripped:
        try:
            holds_ascii = b"a,\n".decode(name) == "a,\n"
        except (LookupError, UnicodeDecodeError):
            holds_ascii = False
        if not holds_ascii:
            raise ValueError(
                "give an encoding that holds ASCII, such as cp1252 or gb18030, or several that are tried in turn: "
                "utf-8,cp1252"
            )
    return ",".join(stripped)


def _is_delimiter(value: str) -> str:
    value = value.replace("\\t", "\t")
    if len(value) != 1 or value in '"\r\n':
        raise ValueError("a delimiter is one character, such as ; or \\t for a tab")
    return value


def _number_in(given: Any) -> Any:
    """Unwrap a number from the command line, which arrives as a list of one string; ValueError if it is no NPMI.

    Also ValueError for a phrase that is not UTF-8.
    """
    number = given
    if isinstance(given, list) and len(given) == 1:
        with suppress(ValueError):
            number = float(given[0])
    if isinstance(number, int | float) and not 0 < number <= 1:
        raise ValueError("give an NPMI above 0 and at most 1, or a list of phrases")
    if isinstance(given, list | tuple) and not all(is_utf8(str(phrase)) for phrase in given):
        raise ValueError("give phrases of UTF-8 characters")
    return number


Encoding = Annotated[str, AfterValidator(check_codecs)]
#: Minimum NPMI of adjacent words that form a phrase, or a list of phrases.
Phrases = Annotated[float | tuple[str, ...] | None, BeforeValidator(_number_in)]


class TokenOptions(Strict):
    """Encoding and options of tokenization; see ``Tokenizer``. A spec can only name built-in tokenizers."""

    tokenizer: BuiltIn = "arrow"
    ngrams: Annotated[int, Field(ge=1, le=LONGEST_NGRAM)] = 1
    stemmer: str | None = None
    boilerplate: Literal["keep", "drop"] = "keep"
    phrases: Phrases = None
    excerpt: Annotated[int, Field(ge=0, le=LONGEST_EXCERPT)] = 0
    encoding: Encoding = "utf-8"

    @model_validator(mode="after")
    def _phrases_or_ngrams(self) -> Self:
        if self.phrases is not None and self.ngrams > 1:
            raise ValueError(
                "phrases joins some adjacent words, and ngrams counts all of them; give one of them"
            )
        return self


class TextOptions(TokenOptions):
    """Columns of the text, the id (default: the usual names) and the metadata to keep.

    Names such as ``content.body`` stand for values within the objects of JSON. ``encoding`` applies to JSON and CSV; of
    several, the first that decodes a JSON line or a whole CSV file is used. ``delimiter`` applies to CSV; by default
    the suffix determines it.
    """

    text: str = "text"
    id: str | None = None
    metadata: Literal["all"] | tuple[str, ...] = "all"
    delimiter: Annotated[str, AfterValidator(_is_delimiter)] | None = None

    def flattened(self, record: dict[str, Any]) -> dict[str, Any]:
        """Add the values that names such as ``content.body`` stand for, and leave out the objects that hold them."""
        kept = () if self.metadata == "all" else self.metadata
        nested = [name for name in (self.text, self.id, *kept) if name and "." in name]
        if not nested:
            return record
        found: dict[str, Any] = {}
        for name in nested:
            value: Any = record
            for key in name.split(".") if name not in record else ():
                value = value.get(key) if isinstance(value, dict) else None
            if value is not None and value is not record:
                found[name] = value
        parents = {name.partition(".")[0] for name in nested}
        return {**{key: value for key, value in record.items() if key not in parents}, **found}


@dataclass(frozen=True)
class TextColumns:
    """Columns of a source: text, id (or None), id type (int64 or string), and types of the metadata of all files.

    ``extensible`` says that names that the first records or the first file lack become columns of strings as well.
    """

    text: str
    id: str | None
    id_type: Any
    metadata: Mapping[str, Any]
    extensible: bool = False

    @property
    def names(self) -> list[str]:
        return [self.text, *([self.id] if self.id else []), *self.metadata]

    def __str__(self) -> str:
        kinds = {**({self.id: self.id_type} if self.id else {}), **self.metadata}
        return ", ".join(f"{name}: {kind}" for name, kind in kinds.items())

    def found_in(self, names: Sequence[str]) -> list[str]:
        """The columns that a file has; it may lack metadata. Raises UnreadableError for a missing or a repeated one."""
        found = [name for name in self.names if name in names or name not in self.metadata]
        require_columns(found, names)
        return found

    def keeps(self, name: str) -> bool:
        """Return whether a value is metadata. Raises BadValue if a later name cannot be that of a column."""
        if name in self.metadata:
            return True
        if not self.extensible or name in (self.text, self.id):
            return False
        if not is_utf8(name):
            raise BadValue(f"the name {name!a} is not UTF-8")
        return True


def choose_columns(names: Sequence[str], options: TextOptions) -> tuple[str | None, list[str]]:
    """Return the id and metadata columns; UnreadableError if a name is missing, duplicated or not UTF-8."""
    asked = () if options.metadata == "all" else options.metadata
    require_columns([options.text, *([options.id] if options.id else []), *asked], names)
    id_name = options.id or next((name for name in _ID_NAMES if name in names), None)
    used = [options.text, *([id_name] if id_name else [])]
    kept = [name for name in names if (options.metadata == "all" or name in asked) and name not in used]
    for name in dict.fromkeys([*used, *kept]):
        problem = "" if is_utf8(name) else f"the name {name!a} is not UTF-8; rename it"
        if names.count(name) > 1:
            problem = f"it has {names.count(name)} columns {name!r}; rename all but one"
        if problem:
            raise UnreadableError(f"{problem}, or choose others with {option.metadata('COLUMNS')}")
    return id_name, kept


@dataclass(frozen=True)
class FolderColumns:
    """Columns of metadata in the names of folders below the source, such as year=1999 as Hive and Spark write them."""

    root: str
    options: TextOptions

    def of(self, path: str) -> dict[str, str | None]:
        """The columns of a file that the options keep."""
        asked, source = self.options.metadata, re.sub(r"/[^/]*[*?[].*", "", self.root)
        below = path.removeprefix(source) if path.startswith(source) else ""
        if is_chain(path) and not is_chain(self.root):
            member, _, archive = path.partition("::")
            below = f"{archive.removeprefix(source)}/{member.partition('://')[2]}"
        pairs = (folder.partition("=") for folder in below.split("/")[:-1])
        values = {name: unquote(value) for name, equals, value in pairs if equals}
        kept = {name: value for name, value in values.items() if name and (asked == "all" or name in asked)}
        return {name: None if value == _NO_VALUE else value for name, value in kept.items()}

    def left_to(self, files: Iterable[str]) -> TextOptions:
        """The options without the metadata that only names of folders have."""
        if self.options.metadata == "all":
            return self.options
        names = {name for path in files for name in self.of(path)}
        left = tuple(name for name in self.options.metadata if name not in names)
        return self.options.model_copy(update={"metadata": left})

    def added(self, batches: Iterable[Batch], path: str) -> Iterator[Batch]:
        """The batches of a file with its columns, unless they have a column of that name."""
        columns = self.of(path)
        for batch in batches:
            added = {
                name: pa.array([value] * batch.n_documents, pa.string()) for name, value in columns.items()
            }
            yield replace(batch, metadata={**added, **batch.metadata})


def fits(found: Any, wanted: Any) -> bool:
    """Whether the values of a column of a file can have the type of the source: numbers and times can be strings."""
    types = pa.types
    simple = (types.is_integer, types.is_floating, types.is_boolean, types.is_temporal, types.is_null)
    strings = holds_strings(wanted) and (holds_strings(found) or any(is_kind(found) for is_kind in simple))
    return bool(found == wanted or strings)


def as_type(values: Any, wanted: Any) -> tuple[Any, list[str] | None]:
    """Convert a column as ``fits`` allows; see ``as_texts``."""
    if values.type == wanted or holds_strings(values.type):
        return values.cast(wanted), None
    texts, kinds = as_texts(values.to_pylist())
    return texts.cast(wanted), kinds


def conformed(batch: Any, kinds: Mapping[str, Any]) -> dict[str, Column]:
    """The columns of a batch with these types, if ``fits`` allows them; null where the batch lacks a column."""
    return {
        name: as_type(decoded(batch.column(name)), kind)
        if name in batch.schema.names
        else (pa.nulls(batch.num_rows, kind), None)
        for name, kind in kinds.items()
    }


def common_kinds(kinds: Mapping[str, Any], files: Sequence[str]) -> dict[str, Any]:
    """Types of metadata columns for other Parquet files as well: strings where types differ, if all can be strings."""
    others = in_threads(partial(_kinds_of, names=list(kinds)), files)
    strings = {
        name
        for name, kind in kinds.items()
        if any(each.get(name, kind) != kind for each in others)
        and all(fits(each.get(name, kind), pa.string()) for each in [*others, kinds])
    }
    return {**kinds, **dict.fromkeys(strings, pa.string())}


def _kinds_of(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Types of the columns of a Parquet file; none if it cannot be read, which reading reports."""
    try:
        with open_parquet_source(path) as file:
            schema = file.schema_arrow
    except (UnreadableError, InputError):
        return {}
    return {name: value_type(schema.field(name).type) for name in names if schema.names.count(name) == 1}


#: An Arrow array and its kinds (``values.KINDS``); the kinds are None if they have to be found.
Column = tuple[Any, Sequence[str] | None]
#: Converts an Arrow array of texts to their words.
Tokenize = Callable[[Any], TokenLists]


def bag_tokens(
    tokens: TokenLists, rows: NDArray[np.int64], ids: Any = None, metadata: Mapping[str, Column] | None = None
) -> Batch:
    """Return the bags of words of m documents; ``rows`` (m,), Arrow array of ids, and columns of metadata."""
    indptr, codes, counts = count_codes(tokens)
    found = metadata or {}
    columns = {name: values for name, (values, _) in found.items()}
    if tokens.excerpts is not None:
        given = columns.get(EXCERPT, pa.nulls(len(rows), pa.string()))
        # A column of the source with this name stays.
        columns[EXCERPT] = pc.coalesce(given, tokens.excerpts) if given.type == pa.string() else given
    kinds = {name: kinds for name, (_, kinds) in found.items() if kinds is not None}
    return Batch(indptr, codes, counts, rows, ids, columns, tokens.dictionary, kinds)


#: Row, text, id, and metadata by name (values of JSON, which become strings).
Record = tuple[int, str, Any, Mapping[str, Any]]


def bag_records(
    records: Iterable[Record], columns: TextColumns, tokenize: Tokenize, bad: BadRecords
) -> Iterator[Batch]:
    """Collect single records into batches of about ``BATCH_BYTES`` of text; missing metadata are null.

    Columns that ``columns`` lacks follow in order of appearance. Without ids, records are counted, with those that the
    iterator has added to ``bad``. Raises InputError if there are too many columns.
    """
    # Values by column, because a list of many records slows the garbage collector.
    rows: list[int] = []
    texts: list[str] = []
    ids: list[Any] = []
    held: dict[str, list[Any]] = {name: [] for name in columns.metadata}
    size = 0

    def batch() -> Batch:
        for values in held.values():
            values += [None] * (len(rows) - len(values))
        return bag_tokens(
            tokenize(pa.array(texts, pa.string())),
            np.array(rows, np.int64),
            pa.array(ids, columns.id_type) if columns.id else None,
            {name: as_texts(values) for name, values in held.items()},
        )

    for n_before, (row, text, identity, metadata) in enumerate(records):
        for name, value in metadata.items():
            if name not in held:
                held[name] = []
                require_few([*held][len(columns.metadata) :])
            held[name] += [None] * (len(rows) - len(held[name]))
            held[name].append(value)
            size += len(value) if isinstance(value, str) else 0
        rows.append(row if columns.id else n_before + len(bad.records))
        texts.append(text)
        ids.append(identity)
        size += len(text) + _RECORD_BYTES
        if size >= limits.BATCH_BYTES:
            yield batch()
            rows, texts, ids, held, size = [], [], [], {name: [] for name in columns.metadata}, 0
    if rows:
        yield batch()


def bag_lines(
    unit: Unit, parse: Callable[[bytes], str | None], bad: BadRecords, tokenize: Tokenize
) -> Iterator[Batch]:
    """Read lines as texts without ids and metadata; see ``lines.read_lines``."""
    records: Iterator[Record] = ((row, text, None, {}) for row, text in read_lines(unit, parse, bad))
    return bag_records(records, TextColumns("text", None, None, {}), tokenize, bad)
