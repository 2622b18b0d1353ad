"""How a source is read: the options of each reader, by its name, and the checks of what is given."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
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
    delimiting,
    encodings,
    rarely,
    reading,
)
from streaming_jsmf.errors import InputError, Option, option

_column = partial(rarely, metavar="COLUMN")
_integer_ids = partial(rarely, metavar="true|false", absent="false; true for ratings")

#: Readers that a spec may name.
SpecReader = Literal[
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
]
ReaderName = Literal[SpecReader, "function"]


@dataclass(frozen=True)
class WordListOptions(ReadOptions):
    """Options of readers of numbered words.

    Parameters
    ----------
    word_list
        File with the words that are numbered in the source, relative to it.
    """

    word_list: str | None = rarely(None, absent="vocab.txt and similar names", metavar="FILE")


@dataclass(frozen=True)
class MatrixMarketOptions(WordListOptions):
    """Options of the reader of Matrix Market files.

    Parameters
    ----------
    documents
        Whether the documents are rows or columns.
    """

    documents: Literal["rows", "columns"] = rarely("rows")


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

    layer: str | None = rarely(None, absent="X", metavar="NAME")
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

    separator: str | None = rarely(
        None, absent="white space", metavar="CHARACTERS", pattern=".+", wanted="one or more characters"
    )
    items: str = _column("items")


@dataclass(frozen=True)
class TableOptions(Delimited):
    """Options of the readers of tables of counts.

    Parameters
    ----------
    integer_ids
        Whether document ids become integers rather than strings.
    """

    integer_ids: bool = _integer_ids(False)

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

    document: str = _column("document")
    word: str = _column("word")
    count: str | None = _column("count", metavar="COLUMN|none")
    count_type: Literal["int", "float"] = rarely("int")

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
        Column of the ratings: 0.5, 1, ... up to the highest.
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

    user: str = _column("user")
    item: str = _column("item")
    rating: str = _column("rating")
    max_rating: float = rarely(5, gt=0, le=1_000_000)
    integer_ids: bool = _integer_ids(True)
    names: str | None = rarely(None, absent="none: words are the items", metavar="FILE")
    names_item: str = _column("item")
    names_name: str = _column("name")
    names_delimiter: str = delimiting(",")
    names_header: bool = rarely(True, metavar="true|false", absent="true")
    names_columns: tuple[str, ...] = rarely((), absent="none", metavar="NAMES")
    names_encoding: str = rarely(
        "utf-8", metavar="NAME", parse=encodings, wanted="an encoding that holds ASCII, such as cp1252"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.max_rating % 1:
            raise InputError(f"{option.max_rating} is {self.max_rating:g}; give a multiple of 0.5")
        if self.names is not None and self.names_header == bool(self.names_columns):
            raise InputError(
                f"{option.names_columns} names the first fields of a file of names without a header, such as "
                f"item,name; give it with {option.names_header(False)}, and only then"
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


#: Keys of ``[read]`` in specs that are not the names of their options.
IN_SPECS = {"path": "member", "vocabulary": "word_list"}


def in_place_of_read(read: Mapping[str, Any] | Iterable[str]) -> list[Option]:
    """The options to use instead of ``--read KEY=VALUE`` or ``read={KEY: VALUE}``, which were removed."""
    pairs = read.items() if isinstance(read, Mapping) else [each.partition("=")[::2] for each in read]
    names = {**IN_SPECS, "columns": "column_names", "function": "reader"}
    switches = {name for name, field in declared_in(READER_OPTIONS.values()).items() if field.is_switch}
    return [
        Option(names.get(key, key))(key in switches or ("VALUE" if value in ("", None) else value))
        for key, value in pairs
    ]


def readers_with(key: str) -> list[ReaderName]:
    """The readers that have an option."""
    return [reader for reader, kind in READER_OPTIONS.items() if key in declared(kind)]


def read_values(given: Mapping[str, Any], reader: ReaderName | None = None) -> dict[str, Any]:
    """Return the options of a reader that are not None, by name and converted by type.

    Raises ``InputError`` for a value that is not allowed, for a name that no reader knows, with its neighbors, and for
    one that ``reader`` does not know, with the readers that do.
    """
    fields = declared_in(READER_OPTIONS.values())
    values = {IN_SPECS.get(key, key): value for key, value in given.items() if value is not None}
    for key in values:
        if key not in fields:
            raise InputError(
                f"the options of the reader have the unknown key {key!r}; {_neighbors(str(key), fields, reader)}"
            )
        if reader is not None and reader not in readers_with(key):
            shown, (*some, last) = fields[key].shown, readers_with(key)
            others = " and ".join(filter(None, [", ".join(some), last]))
            raise InputError(
                f"the reader {reader} takes no {shown} ({others} do{'es' * (not some)}); leave {shown} out, or "
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
