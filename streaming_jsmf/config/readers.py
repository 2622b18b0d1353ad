"""How a source is read: the options of each reader, by its name, and the checks of what is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from streaming_jsmf.config.fields import Field, declared, declared_in
from streaming_jsmf.config.reading import (
    NONE,
    DatedColumns,
    Delimited,
    FunctionOptions,
    Identified,
    ReadOptions,
    TextFilesOptions,
    TextOptions,
    TokenOptions,
    delimiter_key,
    encodings,
    read_key,
    reading,
)
from streaming_jsmf.errors import InputError, option

ReaderName = Literal[
    "text",
    "text-files",
    "mail",
    "lines",
    "docword",
    "triples",
    "ratings",
    "baskets",
    "npz",
    "matrix-market",
    "h5ad",
    "bag-of-words-parquet",
    "function",
]


@dataclass(frozen=True)
class WordListOptions(ReadOptions):
    """Options of readers of numbered words.

    Parameters
    ----------
    vocabulary
        Word list, relative to the file.
    """

    vocabulary: str | None = read_key(None, absent="vocab.txt and similar names")


@dataclass(frozen=True)
class MatrixMarketOptions(WordListOptions):
    """Options of the reader of Matrix Market files.

    Parameters
    ----------
    documents
        Whether the documents are rows or columns.
    """

    documents: Literal["rows", "columns"] = read_key("rows")


@dataclass(frozen=True)
class BagOptions(WordListOptions, DatedColumns, Identified):
    """Options of the reader of bags of words in Parquet."""


@dataclass(frozen=True)
class H5adOptions(DatedColumns):
    """Options of the reader of AnnData.

    Parameters
    ----------
    layer
        Layer with the counts.
    metadata
        Columns of obs to keep with the cells.
    """

    layer: str | None = read_key(None, absent="X")
    metadata: tuple[str, ...] = reading((), absent="none", metavar="COLUMNS")

    @property
    def matrix(self) -> str:
        return "X" if self.layer is None else f"layers/{self.layer}"


@dataclass(frozen=True)
class BasketOptions(ReadOptions):
    """Options of the reader of baskets.

    Parameters
    ----------
    separator
        Characters between the items of a line.
    items
        List column of items in Parquet or JSON.
    """

    separator: str | None = read_key(
        None, absent="white space", pattern=".+", wanted="one or more characters"
    )
    items: str = read_key("items")


@dataclass(frozen=True)
class TableOptions(Delimited):
    """Options of the readers of tables of counts.

    Parameters
    ----------
    integer_ids
        Whether document ids become integers rather than strings.
    """

    integer_ids: bool = read_key(False, absent="false; true for ratings")

    @property
    @abstractmethod
    def roles(self) -> list[str]:
        """Names of the columns of documents, words and counts, if there are any."""

    @property
    def text(self) -> list[str]:
        """The columns by which a header is recognized."""
        return self.roles

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.header == NONE and not self.columns:
            raise InputError(
                f"{option.header(NONE)} needs the names of the columns; give them with {option.columns}"
            )


@dataclass(frozen=True)
class TriplesOptions(TableOptions):
    """Options of the reader of triples. In Parquet, the types of the columns override those chosen here.

    Parameters
    ----------
    document
        Column of the documents.
    word
        Column of the words.
    count
        Column of the counts, or none: every row counts 1.
    count_type
        Whether counts are whole numbers (int), or fractions are kept (float).
    """

    document: str = read_key("document")
    word: str = read_key("word")
    count: str | None = read_key("count")
    count_type: Literal["int", "float"] = read_key("int")

    @property
    def roles(self) -> list[str]:
        return [self.document, self.word, *([self.count] if self.count not in (None, NONE) else [])]


@dataclass(frozen=True)
class RatingsOptions(TableOptions):
    """Options of the reader of ratings.

    Parameters
    ----------
    user
        Column of the users, who are documents.
    item
        Column of the items, which are words.
    rating
        Column of the ratings: 0.5, 1, ..., max_rating.
    max_rating
        Highest rating, a multiple of 0.5.
    names
        Delimited file of item names beside the ratings, or in the root of their archive.
    names_item
        Column of the items in this file.
    names_name
        Column of the names in this file.
    names_delimiter
        Characters between the fields of this file.
    names_header
        Whether this file has a header.
    names_columns
        The first fields of each line of a file of names without a header, separated by commas.
    names_encoding
        Text encoding of this file.
    """

    user: str = read_key("user")
    item: str = read_key("item")
    rating: str = read_key("rating")
    max_rating: float = read_key(5, gt=0, le=1_000_000)
    integer_ids: bool = read_key(True)
    names: str | None = read_key(None, absent="none: words are the items")
    names_item: str = read_key("item")
    names_name: str = read_key("name")
    names_delimiter: str = delimiter_key(",")
    names_header: bool = read_key(True)
    names_columns: tuple[str, ...] = read_key((), absent="none")
    names_encoding: str = read_key(
        "utf-8", parse=encodings, wanted="an encoding that holds ASCII, such as cp1252"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.max_rating % 1:
            shown = declared(RatingsOptions)["max_rating"].shown
            raise InputError(f"{shown} is {self.max_rating:g}; give a multiple of 0.5")
        if self.names is not None and self.names_header == bool(self.names_columns):
            raise InputError(
                "names_columns names the first fields of a file of names without a header, such as item,name; give "
                "it with names_header=false, and only then"
            )

    @property
    def names_layout(self) -> TextOptions:
        """How the file of names is read."""
        return TextOptions(
            text=(self.names_item, self.names_name),
            delimiter=self.names_delimiter,
            header="first" if self.names_header else "none",
            encoding=self.names_encoding,
        )

    @property
    def roles(self) -> list[str]:
        return [self.user, self.item, self.rating]


#: Options of each reader.
READER_OPTIONS: Mapping[ReaderName, type[ReadOptions]] = {
    "text": TextOptions,
    "text-files": TextFilesOptions,
    "mail": TextFilesOptions,
    "lines": TokenOptions,
    "docword": WordListOptions,
    "triples": TriplesOptions,
    "ratings": RatingsOptions,
    "baskets": BasketOptions,
    "npz": WordListOptions,
    "matrix-market": MatrixMarketOptions,
    "h5ad": H5adOptions,
    "bag-of-words-parquet": BagOptions,
    "function": FunctionOptions,
}


def readers_with(key: str) -> list[ReaderName]:
    """The readers that have an option."""
    return [reader for reader, kind in READER_OPTIONS.items() if key in declared(kind)]


def read_values(given: Mapping[str, Any], reader: ReaderName | None = None) -> dict[str, Any]:
    """Return the values of the keys of ``read`` that are not None, converted by type.

    Raises ``InputError`` for a value that is not allowed, for a key that no reader knows, with its neighbors, and for
    one that ``reader`` does not know, with the readers that do.
    """
    fields = declared_in(READER_OPTIONS.values())
    values = {key: value for key, value in given.items() if value is not None}
    for key in values:
        if key not in fields:
            raise InputError(
                f"{option.read} has the unknown key {key!r}; {_neighbors(str(key), fields, reader)}"
            )
        if reader is not None and reader not in readers_with(key):
            shown, (*some, last) = fields[key].shown, readers_with(key)
            others = " and ".join(filter(None, [", ".join(some), last]))
            raise InputError(
                f"the reader {reader} takes no {shown} ({others} do); leave {shown} out, or "
                f"choose another reader with {option.reader('NAME')}"
            )
    return {key: fields[key].read(value) for key, value in values.items()}


def _neighbors(key: str, fields: Mapping[str, Field], reader: ReaderName | None) -> str:
    known = fields if reader is None else declared(READER_OPTIONS[reader])
    near = get_close_matches(key, known, 3, 0.75) or get_close_matches(key, fields, 3, 0.75)
    if near:
        named = (f"{name} ({', '.join(readers_with(name))})" for name in near)
        return f"did you mean {' or '.join(named)}?"
    return f"give one of {', '.join(sorted(known))}"


def check_options(reader: ReaderName, given: Mapping[str, Any]) -> ReadOptions:
    """Return the options of a reader. Raises ``InputError`` as ``read_values``, and for options that exclude others."""
    return READER_OPTIONS[reader](**read_values(given, reader))
