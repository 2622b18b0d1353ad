"""Guess the reader and columns of a source from names and the first records.

Guesses become ordinary options, so readers do not depend on this module.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import pyarrow as pa

from streaming_jsmf.config import FIXED_BY_MODEL, READER_OPTIONS, Delimited, ReaderName, declared
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.format import require_no_store
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import BadValue, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.files import (
    bare_suffix,
    file_name,
    in_zip,
    is_about,
    is_archive,
    is_parquet,
    is_word_list,
    list_files,
    of_first_readable,
    open_parquet_source,
    open_stream,
)
from streaming_jsmf.ingestion.readers.lines import EMPTY, csv_records, open_text, records_of
from streaming_jsmf.ingestion.readers.tables import split_line
from streaming_jsmf.ingestion.readers.text import CSV_SUFFIXES, JSON_SUFFIXES
from streaming_jsmf.ingestion.readers.text_files import names_in_archive
from streaming_jsmf.ingestion.readers.triples import names_path
from streaming_jsmf.ingestion.readers.values import is_text, listed, value_type
from streaming_jsmf.storage.paths import AnyPath, exists, is_file, join, normalise

_BY_SUFFIX: dict[str, ReaderName] = {".npz": "npz", ".mtx": "matrix-market", ".h5ad": "h5ad"}
#: Suffixes of record files; a folder with other files has one document per file.
_RECORDS = {
    *_BY_SUFFIX,
    *JSON_SUFFIXES,
    *CSV_SUFFIXES,
    *(".parquet", ".pq", ".parq", ".dat", ".data", ".baskets"),
}
#: Suffixes of office documents, and what to do with them.
_OFFICE = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as CSV"),
    **dict.fromkeys(
        (".pdf", ".docx", ".doc", ".odt", ".rtf", ".epub"), "export them as plain text, one file each"
    ),
}
#: Readers of tables, in the order in which the options of a user select one.
_OF_TABLES: tuple[ReaderName, ...] = ("text", "ratings", "triples", "baskets")
_RATINGS, _TITLES = "ratings.csv", "movies.csv"

# Column names in lower case without separators; the first one present is used.
_TEXT_NAMES = (
    "text fulltext rawtext body bodytext content contents article articletext articlebody abstract review reviewtext "
    "reviewbody comment commenttext message post posttext tweet tweettext speech speechtext transcript story "
    "description"
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
_RECORDS_CUT = 20  # records that must have equally many fields for a delimiter
_TEXT_LENGTH = 20  # minimum average string length of a text column


@dataclass(frozen=True)
class Guess:
    """Reader, guessed options, and a message about them ("" if there is nothing to report)."""

    reader: ReaderName
    read: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def _ask() -> str:
    return f"say which reader with {option.reader('NAME')}"


class _Table:
    """The files of a source of records, and the columns of the first one that can be read.

    ``delimiter`` and ``encoding`` (see ``lines.open_text``) are given or detected; the delimiter is None for Parquet
    and JSON lines.
    """

    def __init__(self, files: Sequence[str], given: Mapping[str, Any]) -> None:
        self.files = files
        self.encoding = str(given.get("encoding", "utf-8"))
        self.names: Sequence[str] = given.get("columns", ())
        self.delimiter: str | None = None
        if not files or is_parquet(files[0]) or bare_suffix(files[0]) in JSON_SUFFIXES:
            return
        if "delimiter" in given:
            self.delimiter = str(given["delimiter"]).replace("\\t", "\t")
        else:
            usual = CSV_SUFFIXES.get(bare_suffix(files[0]), ",")
            self.delimiter = _sniff_delimiter(files[0], usual, self.encoding)

    def columns(self) -> dict[str, Any]:
        """Return the Arrow types of the columns of a Parquet or delimited file by name."""
        if self.names:
            return dict.fromkeys(self.names, pa.string())
        if self.delimiter is not None:
            return dict.fromkeys(_csv_header(self.files, self.delimiter, self.encoding), pa.string())

        def read(path: str) -> dict[str, Any]:
            with open_parquet_source(path) as file:
                return {item.name: item.type for item in file.schema_arrow}

        return of_first_readable(self.files, read, _ask())

    def sample(self) -> dict[str, list[str]]:
        """Return the strings by column in the first hundred records of the first readable file."""
        for path in self.files:
            with suppress(UnreadableError, BadValue, csv.Error, ValueError):
                found: dict[str, list[str]] = {}
                for record in islice(self._records(path), _SAMPLE):
                    for name, value in record.items():
                        if isinstance(value, str):
                            found.setdefault(name, []).append(value)
                return found
        return {}

    def _records(self, path: str) -> Iterator[Mapping[str, Any]]:
        if is_parquet(path):
            with open_parquet_source(path) as file:
                names = [item.name for item in file.schema_arrow if is_text(value_type(item.type))]
                for batch in file.iter_batches(_SAMPLE, columns=names, use_threads=False):
                    for row in batch.to_pylist():
                        yield {name: str(value) for name, value in row.items() if value is not None}
        elif self.delimiter is not None:
            with open_text(path, self.encoding, "replace") as text:
                rows = csv_records(text, self.delimiter)
                header = self.names or next(rows, [])
                yield from (dict(zip(header, row, strict=False)) for row in rows)
        else:
            split = records_of(path)
            with open_stream(path) as stream:
                for line in split(stream, Unit(path)):
                    value = json.loads(line.decode("utf-8-sig", "replace"))
                    if isinstance(value, dict):
                        yield value


def guess_source(
    location: AnyPath, reader: ReaderName | None = None, read: Mapping[str, Any] | None = None
) -> Guess:
    """Guess the reader of a source, unless given, and the columns that the options do not name.

    Texts are in a column with a usual name (text, body, content) or with the longest strings; ratings are in columns
    such as MovieLens' userId, movieId and rating. Reads headers and a sample of the first file. Raises InputError if
    there is no source or several readers are possible.
    """
    given = dict(read or {})
    root = normalise(location)
    folder = _is_folder(root) and "path" not in given and reader in (None, "ratings")
    if folder and exists(join(root, _RATINGS)) and exists(join(root, _TITLES)):
        reader, given["path"] = "ratings", _RATINGS
    if "path" in given and "::" not in root:
        path = str(given["path"])
        root = in_zip(path, root) if root.lower().endswith(".zip") else join(root, path)
    chosen = reader or guess_reader(root, given)
    files = list_files(root) if chosen in _OF_TABLES else ()
    table = _Table([path for path in files if bare_suffix(path) in _RECORDS], given)
    if not table.files:
        return Guess(chosen)
    found: dict[str, str] = {}
    if table.delimiter is not None and "delimiter" not in given:
        usual = CSV_SUFFIXES.get(bare_suffix(table.files[0]), ",") if chosen == "text" else ","
        if table.delimiter != usual:
            found["delimiter"] = table.delimiter
    if chosen == "text" and "text" not in given:
        return _guess_text(table, found)
    if chosen == "baskets" and table.delimiter is not None:
        separator = None if "separator" in given else _separator(table.files[0])
        items = {} if separator is None else {"separator": separator}
        return Guess(chosen, items, _describe(items))
    if chosen == "ratings":
        if "path" in given and "path" not in (read or {}):
            found["path"] = given["path"]
        return _guess_ratings(table, given, found)
    return Guess(chosen, found, _describe(found))


def guess_reader(location: AnyPath, read: Mapping[str, Any] | None = None) -> ReaderName:
    """Guess the reader of a source; the known options ``read`` may select one. Raises as ``guess_source``."""
    root = normalise(location)
    if is_archive(root):
        names = names_in_archive(root)
        if not any(bare_suffix(name) in _RECORDS or _name(name).startswith("docword") for name in names):
            return "text-files"
        if not root.lower().endswith(".zip"):
            raise InputError(f"{root} has {listed(names)}; tables are not read from tar archives: unpack it")
    if _is_folder(root) and exists(join(root, MANIFEST_NAME)):
        return "bag-of-words-parquet"
    require_no_store(root)
    files = [path for path in list_files(root) if not is_word_list(path)]
    if any(_name(path).startswith("docword") for path in files):
        return "docword"
    if {bare_suffix(path) for path in files} & _RECORDS:
        files = [path for path in files if not is_about(path)]
    suffixes = {bare_suffix(path) for path in files}
    if files and _is_folder(root) and not suffixes & (_RECORDS | _OFFICE.keys()):
        return "text-files"
    for suffix in sorted(suffixes & _OFFICE.keys()):
        raise InputError(f"{root}: {suffix} files are not read; {_OFFICE[suffix]}")
    if len(suffixes) != 1:
        found = ", ".join(_shown(files, suffix) for suffix in sorted(suffixes)) or "no files but a word list"
        by_name = f" with {option.read({'path': 'NAME'})}" * is_archive(root)
        raise InputError(f"{root} contains {found}; {_ask()}, or name the files{by_name}")
    return _BY_SUFFIX.get(suffix := suffixes.pop()) or _table_reader(files, suffix, read or {})


def _is_folder(root: str) -> bool:
    return exists(root) and not is_file(root)


def _name(path: str) -> str:
    return file_name(path).name


def _shown(files: Sequence[str], suffix: str) -> str:
    """Return a suffix and the files that have it, for messages."""
    names = [_name(path) for path in files if bare_suffix(path) == suffix]
    return f"{suffix or 'files without a suffix'} ({listed(names[:3])}{', ...' * (len(names) > 3)})"


def _table_reader(files: Sequence[str], suffix: str, read: Mapping[str, Any]) -> ReaderName:
    """Return the first reader that has all given options, or else one by the columns."""
    # Options of words, and of the layout of a table, do not tell what the table holds.
    keys = set(read) - {*FIXED_BY_MODEL, *declared(Delimited)}
    for reader in _OF_TABLES if keys else ():
        if keys <= declared(READER_OPTIONS[reader]).keys():
            return reader
    if suffix in JSON_SUFFIXES:
        return "text"
    if is_parquet(files[0]) or suffix in CSV_SUFFIXES:
        return _by_columns(_Table(files, read))
    raise InputError(
        f"{files[0]} could be one text per line, baskets or a table; {_ask()}, such as {option.reader('lines')} (a "
        "text file for each document: give their folder)"
    )


def _by_columns(table: _Table) -> ReaderName:
    columns = table.columns()
    if all(is_list(columns.get(name, pa.null())) for name in ("ids", "counts")):
        return "bag-of-words-parquet"
    if _text_column(columns):
        return "text"
    if all(_column(columns, known) for known in (_USER_NAMES, _ITEM_NAMES, _RATING_NAMES)):
        return "ratings"
    if {"document", "word"} <= columns.keys():
        return "triples"
    items = columns.get("items")
    if items is not None and is_list(items):
        return "baskets"
    if _longest_column(table.sample()):
        return "text"
    raise InputError(
        f"{table.files[0]} has the columns {listed(columns)}; {_ask()} and which columns with {option.read}, "
        f"such as {option.text('body')}, or {option.read({'user': 'who', 'item': 'what', 'rating': 'stars'})}"
    )


def _guess_text(table: _Table, found: dict[str, str]) -> Guess:
    """Guess the text column; the reader reports a missing one."""
    sample = table.sample()
    name = _text_column(dict.fromkeys(sample, pa.string())) or _longest_column(sample)
    if name is None or name == "text":
        return Guess("text", found, _describe(found))
    column = f"{name!r} of fields separated by {found['delimiter']!r}" if found else repr(name)
    note = f"the texts are taken from the column {column}; {option.text('NAME')} names another"
    return Guess("text", {**found, "text": name}, note)


def _guess_ratings(table: _Table, given: Mapping[str, Any], found: dict[str, str]) -> Guess:
    names: Iterable[str] = ()
    has_names = table.names or (table.delimiter is not None and given.get("header") != "none")
    if has_names or is_parquet(table.files[0]):
        names = table.columns()
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
    return Guess("ratings", found, _describe(found).replace("the source is", "the ratings are"))


def _guess_titles(path: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Guess the columns of the item names, in the file given or in MovieLens' file of titles."""
    found: dict[str, str] = {}
    if "names" not in given:
        if _name(path) != _RATINGS or not exists(join(path.rpartition("/")[0], _TITLES)):
            return {}
        found["names"] = _TITLES
    if "names_columns" in given or given.get("names_header") is False:
        return found
    file = names_path(path, str(found.get("names", given.get("names"))))
    delimiter = str(given.get("names_delimiter", ",")).replace("\\t", "\t")
    header = _csv_header([file], delimiter, str(given.get("names_encoding", "utf-8")))
    for key, known in (("names_item", _ITEM_NAMES), ("names_name", _TITLE_NAMES)):
        name = None if key in given else _column(header, known)
        if name is not None:
            found[key] = name
    return found


def _describe(found: Mapping[str, str]) -> str:
    told = ", ".join(f"{key}={value}" for key, value in found.items() if key != value)
    return f"the source is read with {told} ({option.read({'KEY': 'VALUE'})} changes that)" if told else ""


def _column(names: Iterable[str], known: str) -> str | None:
    """Return the column with the first of the known names, ignoring case and separators."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(re.sub(r"[\W_]+", "", name.lower()), name)
    return next((plain[name] for name in known.split() if name in plain), None)


def _text_column(columns: Mapping[str, Any]) -> str | None:
    """Return the string column with a common name for texts; ``columns`` maps names to Arrow types."""
    strings = [name for name, kind in columns.items() if is_text(value_type(kind))]
    return "text" if "text" in columns else _column(strings, _TEXT_NAMES)


def _longest_column(sample: Mapping[str, Sequence[str]]) -> str | None:
    """Return the column with the longest strings if they are long enough for texts; URLs do not count."""
    lengths = {
        name: sum(len(value) for value in values if "://" not in value[:8]) / len(values)
        for name, values in sample.items()
        if values
    }
    longest = max(lengths, key=lambda name: lengths[name], default=None)
    return longest if longest is not None and lengths[longest] >= _TEXT_LENGTH else None


def _sniff_delimiter(path: str, usual: str, encoding: str) -> str:
    """Return the first delimiter that splits all first records into the same number of fields (2+), else ``usual``."""
    for delimiter in (usual, ";", "\t", "|", ","):
        with suppress(UnreadableError, csv.Error), open_text(path, encoding, "replace") as text:
            widths = {len(row) for row in islice(csv_records(text, delimiter), _RECORDS_CUT) if row}
            if len(widths) == 1 and max(widths) > 1:
                return delimiter
    return usual


def _separator(path: str) -> str | None:
    """Return the first separator that at least half of the first lines have, or None for white space."""
    with suppress(UnreadableError), open_text(path, "utf-8", "replace") as text:
        lines = list(islice(filter(str.strip, text), _SAMPLE))
        for separator in _SEPARATORS:
            if 2 * sum(separator in line for line in lines) >= max(len(lines), 1):
                return separator
    return None


def _csv_header(files: Sequence[str], delimiter: str, encoding: str) -> list[str]:
    """Return the header of the first file that has one."""

    def read(path: str) -> list[str]:
        with open_text(path, encoding, "replace") as text:
            line = text.readline(1 << 20)
        if not line.strip():
            raise UnreadableError(EMPTY)
        try:
            return split_line(Delimited(delimiter=delimiter), line.strip().encode())
        except BadValue as error:
            raise UnreadableError(f"line 1: {error}") from error

    header = of_first_readable(files, read, f"give a file with a header, or {_ask()}")
    return [name.strip() for name in header]
