"""Guess the columns of a table from its names and first records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import pyarrow as pa

from streaming_jsmf.config import Delimited, ReaderName, check_options, declared
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import BadRecords, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.delimited import DELIMITED, Part, layout_of
from streaming_jsmf.ingestion.readers.files import (
    file_name,
    of_first_readable,
    open_parquet_source,
    open_stream,
)
from streaming_jsmf.ingestion.readers.json_records import first_objects
from streaming_jsmf.ingestion.readers.listing import SAMPLE, format_of
from streaming_jsmf.ingestion.readers.spreadsheets import SPREADSHEET
from streaming_jsmf.ingestion.readers.triples import names_path
from streaming_jsmf.ingestion.readers.values import (
    as_bytes,
    decoded,
    from_python,
    holds_strings,
    is_text,
    listed,
)
from streaming_jsmf.storage.paths import exists, join

RATINGS, TITLES = "ratings.csv", "movies.csv"

# Column names in lower case without separators; the first one present is used.
_TEXT_NAMES = (
    "text fulltext rawtext body bodytext content contents article articletext articlebody abstract review reviewtext "
    "reviewbody comment commenttext message post posttext tweet tweettext speech speechtext transcript story "
    "description tokens"
)
_USER_NAMES = (
    "user userid username customer customerid reviewer reviewerid reader readerid listener listenerid"
)
_ITEM_NAMES = (
    "item itemid movie movieid film filmid product productid asin isbn book bookid artist artistid song songid track "
    "trackid game gameid business businessid anime animeid"
)
_RATING_NAMES = "rating ratings stars score overall bookrating"
_TITLE_NAMES = "name title itemname movietitle producttitle"

_SAMPLE = 100  # records of the first file that are sampled
_SEPARATORS = "\t;,|"  # of the items of a basket, other than white space
_TEXT_LENGTH = 20  # minimum average string length of a text column
_NO_VALUES = pa.array([], pa.string())


def ask() -> str:
    return f"say which reader with {option.reader('NAME')}"


@dataclass(frozen=True)
class Guess:
    """Reader, guessed options, and a message about them ("" if there is nothing to report)."""

    reader: ReaderName
    read: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


class Table:
    """The files of a source of records, and what the first one that can be read holds."""

    def __init__(self, files: Sequence[str], given: Mapping[str, Any]) -> None:
        self.files = files
        keys = {"sheet", *declared(Delimited)} - {"path"}
        self._options: Any = check_options("text", {key: given[key] for key in keys & given.keys()})
        self.is_delimited = bool(files) and format_of(files[0]) not in ("parquet", "json", "spreadsheet")

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Arrow arrays of the first records by column. Raises InputError if no file can be read."""
        return of_first_readable(self.files, self._first_records, f"give a file with a header, or {ask()}")

    def _first_records(self, path: str) -> dict[str, Any]:
        form, options = format_of(path), self._options
        if form == "parquet":
            with open_parquet_source(path) as file:
                rows = next(file.iter_batches(_SAMPLE, use_threads=False), file.schema_arrow.empty_table())
                return {name: decoded(rows.column(i)) for i, name in enumerate(rows.schema.names)}
        if form == "json":
            return _of_objects(path, options.encoding)
        if form == "spreadsheet":
            unit, records = Unit(path), SPREADSHEET.records
            names = SPREADSHEET.names(path, options)
        else:
            layout = layout_of(path, options)
            unit, records = Part(path, layout.start, layout.start + SAMPLE, layout=layout), DELIMITED.records
            names = [name for name in layout.names if name]
        first = next(records(unit, options, BadRecords("quarantine", unit, DELIMITED.place)), None)
        return {name: _NO_VALUES if first is None else first.columns[name] for name in names}


def _of_objects(path: str, encoding: str) -> dict[str, Any]:
    """Return the first values of JSON by name, also those within objects; others than texts and tokens are null."""
    columns: dict[str, list[Any]] = {}
    try:
        for record in islice(first_objects(path, encoding), _SAMPLE):
            for name, value in record.items() if isinstance(record, dict) else ():
                columns.setdefault(name, []).append(value)
                for key, inner in value.items() if isinstance(value, dict) else ():
                    columns.setdefault(f"{name}.{key}", []).append(inner)
    except UnreadableError:
        if not columns:
            raise
    return {name: _of_texts(values) for name, values in columns.items()}


def _of_texts(values: Sequence[Any]) -> Any:
    given = [value for value in values if value is not None]
    lists = bool(given) and all(isinstance(value, list) for value in given)
    if all(isinstance(item, str) for value in given for item in (value if lists else [value])):
        return from_python(values)
    return pa.nulls(len(values), pa.list_(pa.null()) if lists else None)


def reader_by_columns(table: Table) -> ReaderName:
    columns = table.columns
    if all(name in columns and is_list(columns[name].type) for name in ("ids", "counts")):
        return "bag-of-words-parquet"
    if _text_column(columns):
        return "text"
    if all(_column(columns, known) for known in (_USER_NAMES, _ITEM_NAMES, _RATING_NAMES)):
        return "ratings"
    if {"document", "word"} <= columns.keys():
        return "triples"
    items = columns.get("items")
    if items is not None and is_list(items.type):
        return "baskets"
    if _longest_column(table.columns):
        return "text"
    sheet = option.read({"sheet": "NAME"}) if format_of(table.files[0]) == "spreadsheet" else ""
    others = f" ({sheet} names another sheet)" if sheet else ""
    raise InputError(
        f"{table.files[0]} has the columns {listed(columns)}{others}; {ask()} and which columns with {option.read}, "
        f"such as {option.text('body')}, or {option.read({'user': 'who', 'item': 'what', 'rating': 'stars'})}"
    )


def guess_text(table: Table) -> Guess:
    """Guess the text column; the reader reports a missing one."""
    columns: Mapping[str, Any] = {}
    with suppress(InputError):
        columns = table.columns
    name = _text_column(columns) or _longest_column(columns)
    if name == "text" or not columns:
        return Guess("text")
    if name is not None:
        note = f"the texts are taken from the column {name!r}; {option.text('NAME')} names another"
        return Guess("text", {"text": name}, note)
    top = [name for name in columns if not _is_within(name, columns)]
    if all(len(columns[name]) == 1 and is_list(columns[name].type) for name in top):
        raise InputError(
            f"{table.files[0]} holds one object with the lists {listed(top)}, and no records; write an object for "
            "each record, one per line"
        )
    strings = [name for name, values in columns.items() if is_text(values.type)]
    raise InputError(
        f"{table.files[0]} has no column of texts among {listed(columns)}; name it with "
        f"{option.text((*strings, 'NAME')[0])}"
    )


def guess_ratings(table: Table, given: Mapping[str, Any], found: dict[str, str]) -> Guess:
    names: Iterable[str] = ()
    if not table.is_delimited or given.get("header") != "none" or given.get("columns"):
        names = table.columns
    for key, known in (("user", _USER_NAMES), ("item", _ITEM_NAMES), ("rating", _RATING_NAMES)):
        name = None if key in given else _column(names, known)
        if name is not None:
            found[key] = name
        elif names and key not in given:
            raise InputError(
                f"{table.files[0]} has the columns {listed(names)}, none of which is known to hold a {key}; name it "
                f"with {option.read({key: 'NAME'})}"
            )
    found |= _guess_titles(table.files[0], given)
    return Guess("ratings", found, describe(found).replace("the source is", "the ratings are"))


def _guess_titles(path: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Guess the columns of the item names, in the file given or in MovieLens' file of titles."""
    found: dict[str, str] = {}
    if "names" not in given:
        if file_name(path).name != RATINGS or not exists(join(path.rpartition("/")[0], TITLES)):
            return {}
        found["names"] = TITLES
    if "names_columns" in given or given.get("names_header") is False:
        return found
    file = names_path(path, str(found.get("names", given.get("names"))))
    layout = check_options("ratings", given).names_layout  # type: ignore[attr-defined]
    header = of_first_readable([file], lambda path: DELIMITED.names(path, layout), ask())
    for key, known in (("names_item", _ITEM_NAMES), ("names_name", _TITLE_NAMES)):
        name = None if key in given else _column(header, known)
        if name is not None:
            found[key] = name
    return found


def describe(found: Mapping[str, str]) -> str:
    told = ", ".join(f"{key}={value}" for key, value in found.items() if key != value)
    return f"the source is read with {told} ({option.read({'KEY': 'VALUE'})} changes that)" if told else ""


def _column(names: Iterable[str], known: str) -> str | None:
    """Return the column with the first of the known names, ignoring case and separators."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(re.sub(r"[\W_]+", "", name.lower()), name)
    return next((plain[name] for name in known.split() if name in plain), None)


def _text_column(columns: Mapping[str, Any]) -> str | None:
    """Return the column of strings or tokens with a common name for texts; ``columns`` maps names to Arrow arrays."""
    texts = [
        name
        for name, kind in ((name, values.type) for name, values in columns.items())
        if is_text(kind) or (is_list(kind) and holds_strings(kind.value_type))
    ]
    return "text" if "text" in columns else _column(texts, _TEXT_NAMES)


def _longest_column(columns: Mapping[str, Any]) -> str | None:
    """Return the column with the longest strings if they are long enough for texts; URLs do not count.

    Values within objects are taken if no others are long enough.
    """
    lengths: dict[str, float] = {}
    for name, values in columns.items():
        texts = as_bytes(values[:_SAMPLE]).drop_null().to_pylist() if is_text(values.type) else []
        length = sum(len(text) for text in texts if b"://" not in text[:8]) / max(len(texts), 1)
        if length >= _TEXT_LENGTH:
            lengths[name] = length
    return max(lengths, key=lambda name: (not _is_within(name, columns), lengths[name]), default=None)


def _is_within(name: str, columns: Mapping[str, Any]) -> bool:
    """Return whether a name stands for values within objects."""
    outer = columns.get(name.partition(".")[0])
    return "." in name and outer is not None and pa.types.is_null(outer.type)


def guess_separator(path: str) -> str | None:
    """Return the first separator that at least half of the first lines have, or None for white space."""
    with suppress(UnreadableError), open_stream(path) as stream:
        lines = [
            line for line in stream.read(SAMPLE).decode("utf-8", "replace").splitlines() if line.strip()
        ][:_SAMPLE]
        for separator in _SEPARATORS:
            if 2 * sum(separator in line for line in lines) >= max(len(lines), 1):
                return separator
    return None
