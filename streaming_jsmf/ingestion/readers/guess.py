"""Which reader a source is for, and which columns it wants, by names and columns. The rest is asked for.

``guess_source`` is what a verb calls. What is guessed becomes options as a user would give them, so that readers know
of no guesses.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming_jsmf.config import ReaderName
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.columns import (
    ITEM_NAMES,
    RATING_NAMES,
    TITLE_NAMES,
    USER_NAMES,
    Layout,
    by_name,
    csv_header,
    found_delimiter,
    long_column,
    sampled_columns,
    text_by_name,
)
from streaming_jsmf.ingestion.readers.listing import list_files
from streaming_jsmf.ingestion.readers.parquet import is_parquet
from streaming_jsmf.ingestion.readers.records import listed
from streaming_jsmf.ingestion.readers.registry import READERS
from streaming_jsmf.ingestion.readers.streams import UnreadableError, bare_suffix, open_parquet_source
from streaming_jsmf.ingestion.readers.tables.ratings import names_path
from streaming_jsmf.ingestion.readers.text.folder import is_archive
from streaming_jsmf.ingestion.readers.text.reader import CSV_SUFFIXES, JSON_SUFFIXES
from streaming_jsmf.storage.paths import AnyPath, exists, is_file, join, normalise

_BY_SUFFIX: dict[str, ReaderName] = {".npz": "npz", ".mtx": "matrix-market", ".h5ad": "h5ad"}
#: Files with a row for each document or entry; a folder of anything else is one of documents.
_TABLES = {
    *_BY_SUFFIX,
    *JSON_SUFFIXES,
    *CSV_SUFFIXES,
    ".parquet",
    ".pq",
    ".parq",
    ".dat",
    ".data",
    ".baskets",
}
#: What office programs write, and what to do about it.
_FOREIGN = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "save the sheet as CSV"),
    **dict.fromkeys(
        (".pdf", ".docx", ".doc", ".odt", ".rtf", ".epub"), "export them as plain text, a file each"
    ),
}
#: Readers of tables, in the order in which options on the command line speak for one.
_OF_TABLES: tuple[ReaderName, ...] = ("text", "ratings", "triples", "baskets")
_RATINGS, _TITLES = "ratings.csv", "movies.csv"
_ASK = "say which reader with --reader"


@dataclass(frozen=True)
class Guess:
    """A reader, the options that were guessed for it, and a line about them ("" if there is nothing to say)."""

    reader: ReaderName
    read: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def guess_source(
    location: AnyPath, reader: ReaderName | None = None, read: Mapping[str, Any] | None = None
) -> Guess:
    """The reader of a source unless it is given, and the columns among its options that are not.

    Texts are in a column called text, body, content and the like, or in the one with the longest strings; ratings are
    in columns such as MovieLens' userId, movieId and rating, and the titles of films in a ``movies.csv`` beside them.
    Reads headers and a sample of the first file.

    Raises
    ------
    InputError
        If there is nothing, or it could be several things.
    """
    given = dict(read or {})
    root = normalise(location)
    folder = _is_folder(root) and "path" not in given and reader in (None, "ratings")
    if folder and exists(join(root, _RATINGS)) and exists(join(root, _TITLES)):
        reader, given["path"] = "ratings", _RATINGS
    if "path" in given and not root.lower().endswith(".zip"):
        root = join(root, str(given["path"]))
    chosen = reader or guess_reader(root, given)
    if chosen not in _OF_TABLES or _zipped(root):
        return Guess(chosen)
    files = [path for path in list_files(root) if bare_suffix(path) in _TABLES]
    layout = _layout(files, given)
    found: dict[str, str] = {}
    if layout is not None and "delimiter" not in given and layout.delimiter != _usual(files[0], chosen):
        found["delimiter"] = layout.delimiter
    if chosen == "text" and "text" not in given:
        return _guess_text(files, layout, found)
    if chosen == "ratings":
        added = {} if "path" in (read or {}) else {"path": given.get("path")}
        return _guess_ratings(files, given, layout, {**found, **added})
    return Guess(chosen, found, _told(found))


def _layout(files: Sequence[str], given: Mapping[str, Any]) -> Layout | None:
    """Of the first file, if it is a delimited one: as given, or as its first records tell."""
    if not files or is_parquet(files[0]) or bare_suffix(files[0]) in JSON_SUFFIXES:
        return None
    encoding = str(given.get("encoding", "utf-8"))
    for codec in encoding.split(","):
        try:
            codecs.lookup(codec.strip())
        except LookupError as error:
            raise InputError(f"there is no encoding {codec!r}; give one such as utf-8 or cp1252") from error
    if "delimiter" in given:
        return Layout(str(given["delimiter"]).replace("\\t", "\t"), encoding)
    usual = CSV_SUFFIXES.get(bare_suffix(files[0]))
    return Layout("," if usual is None else found_delimiter(files[0], usual, encoding), encoding)


def _usual(path: str, reader: ReaderName) -> str:
    """What a reader takes to be between the fields of a file when it is not told."""
    return CSV_SUFFIXES.get(bare_suffix(path), ",") if reader == "text" else ","


def guess_reader(location: AnyPath, read: Mapping[str, Any] | None = None) -> ReaderName:
    """The reader for a source; ``read`` are options that are known, which may speak for one.

    Raises
    ------
    InputError
        If there is nothing, or it could be several things.
    """
    root = normalise(location)
    if is_archive(root):
        return "text-files"
    if _is_folder(root) and exists(join(root, MANIFEST_NAME)):
        return "bag-of-words-parquet"
    files = [path for path in list_files(root) if not _name(path).startswith("vocab")]
    if any(_name(path).startswith("docword") for path in files):
        return "docword"
    suffixes = {bare_suffix(path) for path in files}
    if files and _is_folder(root) and not suffixes & (_TABLES | _FOREIGN.keys()):
        return "text-files"
    foreign = sorted(suffixes & _FOREIGN.keys())
    if foreign:
        raise InputError(f"{root}: {foreign[0]} files are not read; {_FOREIGN[foreign[0]]}")
    if len(suffixes) != 1:
        found = ", ".join(sorted(suffixes)) or "no files but a word list"
        raise InputError(f"{root} holds {found}; {_ASK}, or name the files")
    suffix = suffixes.pop()
    return _BY_SUFFIX.get(suffix) or _asked_for(read or {}) or _of_tables(files, suffix, read or {})


def _of_tables(files: Sequence[str], suffix: str, read: Mapping[str, Any]) -> ReaderName:
    """The reader of files of one suffix, by their columns."""
    if suffix in JSON_SUFFIXES:
        return "text"
    if is_parquet(files[0]):
        return _by_columns(files, _parquet_columns(files), None)
    layout = _layout(files, read)
    if suffix in CSV_SUFFIXES and layout is not None:
        return _by_columns(files, dict.fromkeys(csv_header(files[0], layout), pa.string()), layout)
    raise InputError(
        f"{files[0]} could be texts a line each, baskets or a table; {_ASK}, such as --reader lines (a text file for "
        "each document: give their folder)"
    )


def _is_folder(root: str) -> bool:
    return exists(root) and not is_file(root)


def _zipped(root: str) -> bool:
    return root.lower().endswith(".zip") or "::" in root


def _asked_for(read: Mapping[str, Any]) -> ReaderName | None:
    """The first reader of tables that knows all options given, if any of them names a column of its own."""
    keys = set(read) - {"path"}
    for reader in _OF_TABLES:
        known = set(READERS[reader].options.model_fields)
        if keys and keys <= known:
            return reader
    return None


def _by_columns(files: Sequence[str], columns: Mapping[str, Any], layout: Layout | None) -> ReaderName:
    names = set(columns)
    if {"ids", "counts"} <= names:
        return "bag-of-words-parquet"
    if text_by_name(columns):
        return "text"
    if all(by_name(names, known) for known in (USER_NAMES, ITEM_NAMES, RATING_NAMES)):
        return "ratings"
    if {"document", "word"} <= names:
        return "triples"
    if columns.get("items") is not None and _is_list(columns["items"]):
        return "baskets"
    if long_column(sampled_columns(files, layout)):
        return "text"
    raise InputError(
        f"{files[0]} has the columns {listed(columns)}; {_ASK} and which columns with --read, "
        "such as --read text=body, or --read user=who --read item=what --read rating=stars"
    )


def _guess_text(files: Sequence[str], layout: Layout | None, found: dict[str, str]) -> Guess:
    """The column of texts; none where the files tell of none, which reading them says."""
    sample = sampled_columns(files, layout)
    name = text_by_name(dict.fromkeys(sample, pa.string())) or long_column(sample)
    if name is None or name == "text":
        return Guess("text", found, _told(found))
    between = f" of fields separated by {found['delimiter']!r}" if found else ""
    note = f"the texts are taken from the column {name!r}{between}; --read text=NAME names another"
    return Guess("text", {**found, "text": name}, note)


def _told(found: Mapping[str, str]) -> str:
    """The line about options that were guessed."""
    told = ", ".join(f"{key}={value}" for key, value in found.items() if key != value)
    return f"the source is read with {told} (--read KEY=VALUE changes that)" if told else ""


def _guess_ratings(
    files: Sequence[str], given: Mapping[str, Any], layout: Layout | None, added: Mapping[str, str | None]
) -> Guess:
    names: Iterable[str] = ()
    if is_parquet(files[0]):
        names = _parquet_columns(files)
    elif layout is not None and given.get("header", "true") not in (False, "false"):
        names = csv_header(files[0], layout)
    found = {key: value for key, value in added.items() if value is not None}
    for key, known in (("user", USER_NAMES), ("item", ITEM_NAMES), ("rating", RATING_NAMES)):
        name = None if key in given else by_name(names, known)
        if name is not None:
            found[key] = name
        elif names and key not in given:
            raise InputError(
                f"{files[0]} has the columns {listed(names)}, none of which is known to hold a {key}; name it with "
                f"--read {key}=NAME"
            )
    found |= _guess_titles(files[0], given)
    return Guess("ratings", found, _told(found).replace("the source is", "the ratings are"))


def _guess_titles(path: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Names of items: from the file given, or MovieLens' titles beside its ratings."""
    found: dict[str, str] = {}
    if "names" not in given:
        if _name(path) != _RATINGS or not exists(join(path.rpartition("/")[0], _TITLES)):
            return {}
        found["names"] = _TITLES
    if "names_columns" in given or given.get("names_header", "true") in (False, "false"):
        return found
    file = names_path(path, str(found.get("names", given.get("names"))))
    between = str(given.get("names_delimiter", ",")).replace("\\t", "\t")
    header = csv_header(file, Layout(between, str(given.get("names_encoding", "utf-8"))))
    for key, known in (("names_item", ITEM_NAMES), ("names_name", TITLE_NAMES)):
        name = None if key in given else by_name(header, known)
        if name is not None:
            found[key] = name
    return found


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _parquet_columns(files: Sequence[str]) -> dict[str, Any]:
    """Of the first file that can be read."""
    reason = ""
    for path in files:
        try:
            with open_parquet_source(path) as file:
                return {field.name: field.type for field in file.schema_arrow}
        except UnreadableError as error:
            reason = reason or f"{path}: {error}"
    raise InputError(reason)


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1].lower()
