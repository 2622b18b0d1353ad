"""Guess the reader and columns of a source from names, contents and first records.

Guesses become ordinary options, so readers do not depend on this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import IO, Any

import pyarrow as pa

from streaming_jsmf.config import (
    FIXED_BY_MODEL,
    READER_OPTIONS,
    Delimited,
    ReaderName,
    check_options,
    declared,
)
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.format import require_no_store
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.delimited import layout_of
from streaming_jsmf.ingestion.readers.files import bare_suffix, file_name, is_archive, of_first_readable
from streaming_jsmf.ingestion.readers.lines import open_text
from streaming_jsmf.ingestion.readers.listing import (
    FORMATS,
    SAMPLE,
    contents,
    contents_of,
    format_of,
    in_zip,
    is_about,
    is_word_list,
    list_files,
)
from streaming_jsmf.ingestion.readers.records import TextSource
from streaming_jsmf.ingestion.readers.tables import split_line
from streaming_jsmf.ingestion.readers.text_files import File, files_in_archive
from streaming_jsmf.ingestion.readers.triples import names_path
from streaming_jsmf.ingestion.readers.values import as_bytes, is_text, listed
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import AnyPath, exists, is_file, join, normalise

_BY_SUFFIX: dict[str, ReaderName] = {".npz": "npz", ".mtx": "matrix-market", ".h5ad": "h5ad"}
#: Suffixes of record files; a folder with other files has one document per file, unless their contents are records.
_RECORDS = {*_BY_SUFFIX, *FORMATS, ".dat", ".data", ".baskets"}
_MAIL = (".eml", ".mbox", ".mbx")
_SAMPLED_FILES = 5
_FEW_FILES = 10  # that a folder must have for files of lines to be documents
#: Suffixes of office documents, and what to do with them.
_OFFICE = {
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
    """The files of a source of records, and what the first one that can be read holds."""

    def __init__(self, files: Sequence[str], given: Mapping[str, Any]) -> None:
        self.files = files
        delimiter = str(given.get("delimiter", "")).replace("\\t", "\t")
        self._long = delimiter if len(delimiter) > 1 else None
        keys = {"encoding", "sheet", *declared(Delimited)} - {"path", "delimiter" if self._long else ""}
        self.options: Any = check_options("text", {key: given[key] for key in keys & given.keys()})
        self.is_delimited = bool(files) and format_of(files[0]) not in ("parquet", "json", "spreadsheet")

    @property
    def delimiter(self) -> str:
        """The delimiter of the first file that can be read."""
        with suppress(InputError):
            return of_first_readable(self.files, self._delimiter_of, _ask())
        return ","

    def _delimiter_of(self, path: str) -> str:
        return layout_of(path, self.options).dialect.delimiter

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Arrow arrays of the first records by column. Raises InputError if no file can be read."""
        nothing = pa.array([], pa.string())

        def read(path: str) -> dict[str, Any]:
            if self._long:
                return dict.fromkeys(_header(path, self._long, self.options.encoding), nothing)
            options = self.options
            if self.is_delimited:
                options = replace(options, delimiter=self._delimiter_of(path))  # files of any name
            form = TextSource("", (), options, Tokenizer()).format(path)
            names = form.names(path, options)
            unit = form.units(path, options)[0] if format_of(path) == "parquet" else Unit(path)
            first = next(form.records(unit, options, BadRecords("quarantine", unit, form.place)), None)
            return {name: nothing if first is None else first.columns.get(name, nothing) for name in names}

        return of_first_readable(self.files, read, f"give a file with a header, or {_ask()}")


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
    known = [path for path in files if bare_suffix(path) in _RECORDS]
    table = _Table(known or [path for path in files[:1] if format_of(path)], given)
    if not table.files:
        return Guess(chosen)
    if chosen == "text":
        return Guess("text") if "text" in given else _guess_text(table)
    found: dict[str, str] = {}
    if chosen == "baskets" and table.is_delimited:
        separator = None if "separator" in given else _separator(table.files[0])
        items = {} if separator is None else {"separator": separator}
        return Guess(chosen, items, _describe(items))
    if table.is_delimited and "delimiter" not in given and (delimiter := table.delimiter) != ",":
        found["delimiter"] = delimiter
    if chosen == "ratings":
        if "path" in given and "path" not in (read or {}):
            found["path"] = given["path"]
        return _guess_ratings(table, given, found)
    return Guess(chosen, found, _describe(found))


def guess_reader(location: AnyPath, read: Mapping[str, Any] | None = None) -> ReaderName:
    """Guess the reader of a source; the known options ``read`` may select one. Raises as ``guess_source``."""
    root = normalise(location)
    if not is_archive(root) and _is_folder(root) and exists(join(root, MANIFEST_NAME)):
        return "bag-of-words-parquet"
    require_no_store(root)
    in_tar = is_archive(root) and not root.lower().endswith(".zip")
    found = _in_tar(root) if in_tar else list_files(root)
    files = [path for path in found if not is_word_list(path)]
    if any(_name(path).startswith("docword") for path in files) and not in_tar:
        return "docword"
    if {bare_suffix(path) for path in files} & _RECORDS:
        files = [path for path in files if not is_about(path)]
    suffixes = {bare_suffix(path) for path in files}
    if files and not suffixes & (_RECORDS | _OFFICE.keys()):
        kinds = [found[path] if isinstance(found, dict) else contents_of(path) for path in _some(files)]
        chosen = _by_contents(root, files, {*kinds} - {""})
        if chosen is not None:
            return chosen
        suffixes = {bare_suffix(path) for path in files[:1]}
    if in_tar and not suffixes & _OFFICE.keys():
        raise InputError(f"{root} has {listed(files)}; tables are not read from tar archives: unpack it")
    for suffix in sorted(suffixes & _OFFICE.keys()):
        raise InputError(f"{root}: {suffix} files are not read; {_OFFICE[suffix]}")
    if len(suffixes) != 1:
        shown = ", ".join(_shown(files, suffix) for suffix in sorted(suffixes)) or "no files but a word list"
        by_name = f" with {option.read({'path': 'NAME'})}" * is_archive(root)
        raise InputError(f"{root} contains {shown}; {_ask()}, or name the files{by_name}")
    return _BY_SUFFIX.get(suffixes.pop()) or _table_reader(files, read or {})


def _by_contents(root: str, files: Sequence[str], kinds: set[str]) -> ReaderName | None:
    """Return the reader of files whose suffixes say nothing, given what some of them hold; None for a table."""
    if any(bare_suffix(path) in _MAIL for path in files) or (kinds and kinds <= {"mail", "mbox"}):
        return "mail"
    if kinds in ({"json"}, {"parquet"}) or (is_file(root) and not is_archive(root)):
        return None
    if kinds == {"lines"} and len(files) < _FEW_FILES:
        raise _unclear(files[0], f"one document per file: {option.reader('text-files')}")
    return "text-files"


def _unclear(path: str, advice: str) -> InputError:
    return InputError(
        f"{path} could be one text per line, baskets or a table; {_ask()}, such as {option.reader('lines')} ({advice})"
    )


def _some(files: Sequence[str]) -> Sequence[str]:
    return files[:: max(1, len(files) // _SAMPLED_FILES)][:_SAMPLED_FILES]


def _in_tar(path: str) -> dict[str, str]:
    """Return the contents of the files in a tar archive, those of the first ones only; reads it whole."""
    found: dict[str, str] = {}

    def split(name: str, stream: IO[bytes]) -> Iterable[File]:
        found[name] = contents(stream.read(SAMPLE)) if len(found) < _SAMPLED_FILES else ""
        return ()

    with suppress(UnreadableError):
        for _ in files_in_archive(path, split):
            pass
    return found


def _is_folder(root: str) -> bool:
    return exists(root) and not is_file(root)


def _name(path: str) -> str:
    return file_name(path).name


def _shown(files: Sequence[str], suffix: str) -> str:
    """Return a suffix and the files that have it, for messages."""
    names = [_name(path) for path in files if bare_suffix(path) == suffix]
    return f"{suffix or 'files without a suffix'} ({listed(names[:3])}{', ...' * (len(names) > 3)})"


def _table_reader(files: Sequence[str], read: Mapping[str, Any]) -> ReaderName:
    """Return the first reader that has all given options, or else one by the columns."""
    # Options of words, and of the layout of a table, do not tell what the table holds.
    keys = set(read) - {*FIXED_BY_MODEL, *declared(Delimited)}
    for reader in _OF_TABLES if keys else ():
        if keys <= declared(READER_OPTIONS[reader]).keys():
            return reader
    found = format_of(files[0])
    if not found:
        raise _unclear(files[0], "a text file for each document: give their folder")
    return "text" if found == "json" else _by_columns(_Table(files, read))


def _by_columns(table: _Table) -> ReaderName:
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
        f"{table.files[0]} has the columns {listed(columns)}{others}; {_ask()} and which columns with {option.read}, "
        f"such as {option.text('body')}, or {option.read({'user': 'who', 'item': 'what', 'rating': 'stars'})}"
    )


def _guess_text(table: _Table) -> Guess:
    """Guess the text column; the reader reports a missing one."""
    name = None
    with suppress(InputError):
        name = _text_column(table.columns) or _longest_column(table.columns)
    if name is None or name == "text":
        return Guess("text")
    note = f"the texts are taken from the column {name!r}; {option.text('NAME')} names another"
    return Guess("text", {"text": name}, note)


def _guess_ratings(table: _Table, given: Mapping[str, Any], found: dict[str, str]) -> Guess:
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
    encoding = str(given.get("names_encoding", "utf-8"))
    header = of_first_readable([file], lambda path: _header(path, delimiter, encoding), _ask())
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
    """Return the column of strings with a common name for texts; ``columns`` maps names to Arrow arrays."""
    strings = [name for name, values in columns.items() if is_text(values.type)]
    return "text" if "text" in columns else _column(strings, _TEXT_NAMES)


def _longest_column(columns: Mapping[str, Any]) -> str | None:
    """Return the column with the longest strings if they are long enough for texts; URLs do not count."""
    lengths: dict[str, float] = {}
    for name, values in columns.items():
        texts = as_bytes(values[:_SAMPLE]).drop_null().to_pylist() if is_text(values.type) else []
        if texts:
            lengths[name] = sum(len(text) for text in texts if b"://" not in text[:8]) / len(texts)
    longest = max(lengths, key=lambda name: lengths[name], default=None)
    return longest if longest is not None and lengths[longest] >= _TEXT_LENGTH else None


def _separator(path: str) -> str | None:
    """Return the first separator that at least half of the first lines have, or None for white space."""
    with suppress(UnreadableError), open_text(path, "utf-8", "replace") as text:
        lines = list(islice(filter(str.strip, text), _SAMPLE))
        for separator in _SEPARATORS:
            if 2 * sum(separator in line for line in lines) >= max(len(lines), 1):
                return separator
    return None


def _header(path: str, delimiter: str, encoding: str) -> list[str]:
    """Return the fields of the first line of a file. Raises UnreadableError."""
    with open_text(path, encoding, "replace") as text:
        line = text.readline(1 << 20).strip()
    try:
        return [name.strip() for name in split_line(Delimited(delimiter=delimiter), line.encode())]
    except BadValue as error:
        raise UnreadableError(f"line 1: {error}") from error
