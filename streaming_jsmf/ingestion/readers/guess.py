"""The readers by name, opening one on a source, and guessing the reader and columns that are not given.

Guesses become ordinary options, so readers do not depend on them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

import pyarrow as pa

from streaming_jsmf.config import (
    FIXED_BY_MODEL,
    READER_OPTIONS,
    TEXT_CURATION,
    Curation,
    Delimited,
    Preset,
    ReaderName,
    ReadOptions,
    TokenOptions,
    declared,
)
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.format import require_no_store
from streaming_jsmf.corpus.manifest import MANIFEST_NAME
from streaming_jsmf.errors import InputError, Option, option
from streaming_jsmf.ingestion.formats.delimited import DELIMITED
from streaming_jsmf.ingestion.formats.json_records import JSON
from streaming_jsmf.ingestion.readers.bag_of_words import BagSource, BasketSource
from streaming_jsmf.ingestion.readers.counted import DocwordSource, H5adSource, MatrixMarketSource, NpzSource
from streaming_jsmf.ingestion.readers.probe import (
    FORMATS,
    SAMPLE,
    Table,
    ask,
    contents,
    contents_of,
    format_of,
    suited,
)
from streaming_jsmf.ingestion.readers.record_files import FunctionSource, LineSource, TextSource
from streaming_jsmf.ingestion.readers.text_files import File, MailSource, TextFilesSource, files_in_tar
from streaming_jsmf.ingestion.readers.triples import RatingsSource, TriplesSource
from streaming_jsmf.ingestion.sources.listing import files_for, inside, is_about, is_word_list, list_files
from streaming_jsmf.ingestion.sources.protocol import PATH_OPTIONS, Source, UnreadableError
from streaming_jsmf.ingestion.sources.streams import bare_suffix, file_name, is_archive, is_tar
from streaming_jsmf.ingestion.sources.values import as_bytes, holds_strings, is_code, is_text, listed
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import AnyPath, exists, is_file, join, normalize

READERS: dict[ReaderName, type[Source] | type[TriplesSource]] = {
    source.reader: source
    for source in (
        TextSource,
        TextFilesSource,
        MailSource,
        LineSource,
        DocwordSource,
        TriplesSource,
        RatingsSource,
        BasketSource,
        NpzSource,
        MatrixMarketSource,
        H5adSource,
        BagSource,
        FunctionSource,
    )
}


def reads_texts(reader: ReaderName) -> bool:
    """Return whether the reader tokenizes texts, rather than reading named words."""
    return issubclass(READER_OPTIONS[reader], TokenOptions)


def default_curation(reader: ReaderName, preset: Preset | None = None) -> Curation:
    """Return the default curation: as in the papers, except for texts, where it aims at readable topics."""
    if reads_texts(reader) and preset != "papers":
        return TEXT_CURATION
    return Curation(stop_words=READERS[reader].stop_words)


def files_named(options: ReadOptions) -> list[str]:
    """Return the files beside those of a source that the options name."""
    return [str(name) for key in PATH_OPTIONS if (name := getattr(options, key, None)) is not None]


def open_source(
    location: AnyPath,
    reader: ReaderName,
    options: ReadOptions,
    *,
    files: Sequence[str] | None = None,
    stop_words: str = NONE,
) -> Source | TriplesSource:
    """Find the files and open the reader on them. Raises InputError if there is nothing to read or a column is missing.

    Parameters
    ----------
    location : File, directory or glob; local or a URL.
    files : Names of the files that may be read from the directory; None for all.
    stop_words : Words that the stemmer leaves unchanged.
    """
    root, found = files_for(
        reader,
        READERS[reader].patterns,
        normalize(location),
        options.member,
        files,
        files_named(options),
        suited,
    )
    words = Tokenizer()
    if isinstance(options, TokenOptions):
        phrases = options.phrases if isinstance(options.phrases, tuple) else ()
        unstemmed = NONE if options.stemmer is None else stop_words
        words = Tokenizer(options, unstemmed, phrases, of_mail=reader == MailSource.reader)
    return READERS[reader].open(root, found, options, words)


# Guessing

_BY_SUFFIX = {
    pattern.removeprefix("*"): source.reader
    for source in (NpzSource, MatrixMarketSource, H5adSource)
    for pattern in source.patterns
}
#: Suffixes of record files; a folder with other files has one document per file, unless their contents are records.
_RECORDS = {*_BY_SUFFIX, *FORMATS, ".dat", ".data", ".baskets"}
_MAIL = (".eml", ".emlx", ".mbox", ".mbx")
_OFFICE = {".pdf", ".docx", ".doc", ".odt", ".rtf", ".epub"}
_BINARY = {".avro", ".db", ".dta", ".orc", ".pickle", ".pkl", ".rds", ".sav", ".sqlite"}
_SAMPLED_FILES, _FEW_FILES = 5, 10  # with fewer files of lines, a folder may hold a document per line
_TEXT_LENGTH = 20  # minimum average string length of a text column
#: Readers of tables, in the order in which the options of a user select one.
_OF_TABLES: tuple[ReaderName, ...] = ("text", "ratings", "triples", "baskets")

# Column names in lower case without separators; the first one present is used.
_TEXT_NAMES = (
    "text fulltext rawtext body bodytext content contents article articletext articlebody abstract review reviewtext "
    "reviewbody comment commenttext message post posttext tweet tweettext speech speechtext transcript story "
    "description tokens"
)
_RATING_ROLES = {
    "user": "user userid username customer customerid reviewer reviewerid reader readerid listener listenerid",
    "item": "item itemid movie movieid film filmid product productid asin isbn book bookid artist artistid song songid "
    "track trackid game gameid business businessid anime animeid",
    "rating": "rating ratings stars score overall bookrating",
}
_RATINGS, _TITLES = "ratings.csv", "movies.csv"  # of MovieLens


@dataclass(frozen=True)
class Guess:
    """Reader, guessed options, and a message about them ("" if there is nothing to report)."""

    reader: ReaderName
    read: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


def guess_source(
    location: AnyPath, reader: ReaderName | None = None, read: Mapping[str, Any] | None = None
) -> Guess:
    """Guess the reader of a source, unless given, and the columns that the options do not name.

    Texts are in a column with a usual name (text, body, content) or with the longest strings; ratings are in columns
    such as MovieLens' userId, movieId and rating. Reads headers and a sample of the first file. Raises InputError if
    there is no source or several readers are possible.
    """
    given = dict(read or {})
    root = normalize(location)
    found: dict[str, str] = {}
    if "member" in given and "::" not in root:
        root = inside(root, str(given["member"]))
    chosen = reader or guess_reader(root, given)
    files = list_files(root) if chosen in _OF_TABLES else ()
    known = [path for path in files if bare_suffix(path) in _RECORDS and (path == root or not is_about(path))]
    table = Table(known or [path for path in files[:1] if format_of(path) or "delimiter" in given], given)
    if chosen == "text" and table.files:
        return Guess("text") if "text" in given else _guess_text(table)
    if chosen == "baskets" and table.form is DELIMITED:
        separator = None if "separator" in given else table.separator()
        found |= {} if separator is None else {"separator": separator}
    elif chosen == "baskets" and table.files and "items" not in given:
        lists = [name for name, values in table.columns.items() if is_list(values.type) and "." not in name]
        found |= {"items": lists[0]} if len(lists) == 1 else {}
    if chosen == "ratings" and table.files:
        found |= _guess_ratings(table, given)
    told = ", ".join(str(Option(key)(value)) for key, value in found.items() if key != value)
    return Guess(chosen, found, f"the source is read with {told}; other values change that" * bool(told))


def guess_reader(location: AnyPath, read: Mapping[str, Any] | None = None) -> ReaderName:
    """Guess the reader of a source; the known options ``read`` may select one. Raises as ``guess_source``."""
    root = normalize(location)
    if not is_archive(root) and exists(root) and not is_file(root) and exists(join(root, MANIFEST_NAME)):
        return "bag-of-words-parquet"
    require_no_store(root)
    in_tar = is_tar(root)
    found = _in_tar(root) if in_tar else list_files(root)
    files = [path for path in found if not is_word_list(path)]
    if any(file_name(path).name.startswith("docword") for path in files) and not in_tar:
        return "docword"
    if {bare_suffix(path) for path in files} & _RECORDS:
        files = [path for path in files if not is_about(path)]
    suffixes = {bare_suffix(path) for path in files}
    if (files or in_tar) and not suffixes & (_RECORDS | _OFFICE | _BINARY):
        kinds = [found[path] if isinstance(found, dict) else contents_of(path) for path in _some(files)]
        if chosen := _by_contents(root, files, {*kinds} - {""}):
            return chosen
        suffixes = {bare_suffix(path) for path in files[:1]}
    if in_tar and not suffixes & _OFFICE:
        raise InputError(f"{root} has {listed(files)}; tables are not read from tar archives: unpack it")
    _require_read(root, suffixes)
    if len(suffixes) != 1:
        names = {
            bare_suffix(path) or "files without a suffix": file_name(path).name for path in reversed(files)
        }
        shown = ", ".join(f"{kind} ({names[kind]})" for kind in sorted(names)) or "no files but a word list"
        by_name = f" with {option.member('NAME')}" * is_archive(root)
        raise InputError(f"{root} contains {shown}; {ask()}, or name the files{by_name}")
    return _BY_SUFFIX.get(suffixes.pop()) or _table_reader(files, read or {})


def _require_read(root: str, suffixes: set[str]) -> None:
    """Raise InputError, with a way out, for files that no reader reads."""
    if not (unread := sorted(suffixes & (_OFFICE | _BINARY), key=lambda suffix: (suffix in _BINARY, suffix))):
        return
    way_out = "export them as plain text, one file each"
    if unread[0] in _BINARY:
        way_out = "save their tables as Parquet or CSV"
    for other in sorted(suffixes - _OFFICE - _BINARY - {""})[:1]:
        members = f"{option.reader('text-files')} {option.members(f'*{other}')}"
        in_archive = option.member("FILE") if other in _RECORDS else members
        pattern = f"the pattern '{root}/**/*{other}'"
        way_out += f", or read the {other} files alone with {in_archive if is_archive(root) else pattern}"
    raise InputError(f"{root}: {unread[0]} files are not read; {way_out}")


def _by_contents(root: str, files: Sequence[str], kinds: set[str]) -> ReaderName | None:
    """Return the reader of files whose suffixes say nothing, given what some of them hold; None for a table."""
    if any(bare_suffix(path) in _MAIL for path in files) or kinds == {"mail"}:
        return "mail"
    if "marked" in kinds:
        raise InputError(
            f"{root} has files of several texts in tags such as <doc>; write them as JSON lines, which WikiExtractor "
            f"can do, or take a file as one text with {option.reader('text-files')}"
        )
    if kinds in ({"json"}, {"parquet"}, {"delimited"}) or (is_file(root) and not is_archive(root)):
        return None
    if kinds == {"lines"} and len(files) < _FEW_FILES:
        raise _unclear(files[0], f"one document per file: {option.reader('text-files')}")
    return "text-files"


def _unclear(path: str, advice: str) -> InputError:
    how = f"{option.reader('lines')}, or {option.delimiter('CHARACTER')} for a table ({advice})"
    return InputError(f"{path} could be one text per line, baskets or a table; {ask()}, such as {how}")


def _in_tar(path: str) -> dict[str, str]:
    """Return the contents of the files in a tar archive, those of the first ones only; reads it whole."""
    found: dict[str, Any] = {}

    def split(name: str, stream: IO[bytes]) -> Iterable[File]:
        yield name, contents(stream.read(SAMPLE)) if len(found) < _SAMPLED_FILES else ""

    with suppress(UnreadableError):
        found.update(files_in_tar(path, split))
    return found


def _some(files: Sequence[str]) -> Sequence[str]:
    return files[:: len(files) // _SAMPLED_FILES + 1]


def _table_reader(files: Sequence[str], read: Mapping[str, Any]) -> ReaderName:
    """Return the first reader that has all given options, or else one by the columns."""
    # Options of words, and of the layout of a table, do not tell what the table holds.
    keys = set(read) - {*FIXED_BY_MODEL, *declared(Delimited)}
    for reader in _OF_TABLES if keys else ():
        if keys <= declared(READER_OPTIONS[reader]).keys():
            return reader
    found = next(filter(None, map(format_of, _some(files))), None)  # files may be empty, as some of Spark's
    if found is None and "delimiter" not in read:
        raise _unclear(files[0], "a text file for each document: give their folder")
    return "text" if found is JSON else _reader_by_columns(Table(files, read))


def _reader_by_columns(table: Table) -> ReaderName:
    columns = table.columns
    if all(name in columns and is_list(columns[name].type) for name in ("ids", "counts")):
        return "bag-of-words-parquet"
    if _text_column(columns):
        return "text"
    if all(_column(columns, known) for known in _RATING_ROLES.values()):
        return "ratings"
    if {"document", "word"} <= columns.keys():
        return "triples"
    if "items" in columns and is_list(columns["items"].type):
        return "baskets"
    if _longest_column(columns):
        return "text"
    raise InputError(
        f"{table.files[0]} has the columns {table.listed()}; {ask()} and which columns, such as "
        f"{option.text('body')}, or {option.user('who')}, {option.item('what')} and {option.rating('stars')}"
    )


def _guess_text(table: Table) -> Guess:
    """Guess the text column; the reader reports a missing one."""
    columns: Mapping[str, Any] = {}
    with suppress(InputError):
        columns = table.columns
    name = _text_column(columns) or _longest_column(columns)
    if name == "text" or not columns:
        return Guess("text")
    if name is not None:
        note = f"the texts are taken from the column {name!r}; {option.text('NAME')} names another"
        return Guess("text", {"text": [name]}, note)  # commas would separate names
    strings = [name for name, values in columns.items() if _may_be_texts(values)]
    raise InputError(
        f"{table.files[0]} has no column of texts among {table.listed()}; name it with "
        f"{option.text((*strings, 'NAME')[0])}"
    )


def _guess_ratings(table: Table, given: Mapping[str, Any]) -> dict[str, str]:
    """Guess the columns of ratings, and MovieLens' file of the titles."""
    found: dict[str, str] = {}
    named = table.form is not DELIMITED or given.get("header") != "none" or given.get("columns")
    for key, known in _RATING_ROLES.items() if named else ():
        if key in given:
            continue
        if (name := _column(table.columns, known)) is None:
            raise InputError(
                f"{table.files[0]} has the columns {table.listed()}, none of which is known to hold a {key}; name it "
                f"with {Option(key)('NAME')}"
            )
        found[key] = name
    folder = table.files[0].rpartition("/")[0]
    if file_name(table.files[0]).name == _RATINGS and "names" not in given and exists(join(folder, _TITLES)):
        found |= {"names": _TITLES, "names_item": "movieId", "names_name": "title"}
    return found


def _column(names: Iterable[str], known: str) -> str | None:
    """Return the column with the first of the known names, ignoring case and separators."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(re.sub(r"[\W_]+", "", name.lower()), name)
    return next((plain[name] for name in known.split() if name in plain), None)


def _text_column(columns: Mapping[str, Any]) -> str | None:
    """Return the column of strings or tokens with a common name for texts; ``columns`` maps names to Arrow arrays."""
    kinds = {name: values.type for name, values in columns.items()}
    lists = [name for name, kind in kinds.items() if is_list(kind) and holds_strings(kind.value_type)]
    texts = [name for name in kinds if name in lists or _may_be_texts(columns[name])]
    return "text" if "text" in columns else _column(texts, _TEXT_NAMES)


def _may_be_texts(values: Any) -> bool:
    """Return whether a column holds strings other than JSON objects, which mappings in memory become."""
    texts = as_bytes(values).drop_null().to_pylist() if is_text(values.type) else [b"{}"]
    return not texts or not all(text.startswith((b'{"', b"{}")) for text in texts)


def _longest_column(columns: Mapping[str, Any]) -> str | None:
    """Return the column with the longest texts, if long enough; one within objects only if there is no other."""
    lengths: dict[str, float] = {}
    for name, values in columns.items():
        texts = as_bytes(values).drop_null().to_pylist() if _may_be_texts(values) else []
        length = sum(len(text) for text in texts if not is_code(text)) / max(len(texts), 1)
        if length >= _TEXT_LENGTH:
            lengths[name] = length
    return max(lengths, key=lambda name: (not _is_within(name, columns), lengths[name]), default=None)


def _is_within(name: str, columns: Mapping[str, Any]) -> bool:
    """Return whether a name stands for values within objects."""
    outer = columns.get(name.partition(".")[0])
    return "." in name and outer is not None and pa.types.is_null(outer.type)
