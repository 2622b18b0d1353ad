"""Texts with their ids and metadata: user options, source columns, and batches of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from streaming_jsmf.config import LONGEST_EXCERPT
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import UnreadableError
from streaming_jsmf.ingestion.readers.files import open_parquet_source
from streaming_jsmf.ingestion.readers.values import (
    as_texts,
    decoded,
    holds_strings,
    value_type,
)
from streaming_jsmf.ingestion.tokens.tokenizer import LONGEST_NGRAM, BuiltIn
from streaming_jsmf.storage.objects import in_threads
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
    split: Annotated[int, Field(ge=1)] | None = None
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

    text: tuple[str, ...] = ("text",)
    id: str | None = None
    metadata: Literal["all"] | tuple[str, ...] = "all"
    delimiter: Annotated[str, AfterValidator(_is_delimiter)] | None = None


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
