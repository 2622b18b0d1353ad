"""The readers by name, guessing one and its columns from names and first records, and opening it on a source.

Guesses become ordinary options, so readers do not depend on this module.
"""

from __future__ import annotations

import csv
import fnmatch
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import IO, Any

import pyarrow as pa
from pydantic import ValidationError

from streaming_jsmf.config import Curation, Preset, ReaderName
from streaming_jsmf.corpus.curation import TEXT_CURATION
from streaming_jsmf.corpus.footer import is_list
from streaming_jsmf.corpus.format import require_no_store
from streaming_jsmf.corpus.manifest import MANIFEST_NAME, Json
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.bags import BagSource
from streaming_jsmf.ingestion.readers.base import BadRecords, BadValue, Reader, Source, Unit, UnreadableError
from streaming_jsmf.ingestion.readers.baskets import BasketSource
from streaming_jsmf.ingestion.readers.delimited import CSV_SUFFIXES
from streaming_jsmf.ingestion.readers.files import (
    FORMATS,
    SAMPLE,
    bare_suffix,
    contents,
    contents_of,
    file_name,
    format_of,
    is_archive,
    of_first_readable,
)
from streaming_jsmf.ingestion.readers.h5ad import H5adSource
from streaming_jsmf.ingestion.readers.lines import EMPTY, csv_records, open_text, split_fields
from streaming_jsmf.ingestion.readers.listing import in_zip, is_about, is_word_list, list_files, with_members
from streaming_jsmf.ingestion.readers.mail import MailSource
from streaming_jsmf.ingestion.readers.matrices import NpzSource
from streaming_jsmf.ingestion.readers.number_lines import DocwordSource, MatrixMarketSource
from streaming_jsmf.ingestion.readers.ratings import RatingsSource, names_path
from streaming_jsmf.ingestion.readers.records import LineSource, TextSource
from streaming_jsmf.ingestion.readers.text_files import File, TextFilesSource, files_in_archive
from streaming_jsmf.ingestion.readers.text_records import TokenOptions
from streaming_jsmf.ingestion.readers.triples import TriplesSource
from streaming_jsmf.ingestion.readers.values import as_bytes, is_text, listed
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import AnyPath, exists, is_chain, is_file, join, normalise
from streaming_jsmf.validation import Strict, explain

logger = logging.getLogger(__name__)

_BY_SUFFIX: dict[str, ReaderName] = {".npz": "npz", ".mtx": "matrix-market", ".h5ad": "h5ad"}
#: Suffixes of record files; a folder with other files has one document per file, unless their contents are records.
_RECORDS = {*_BY_SUFFIX, *FORMATS, ".dat", ".data", ".baskets"}
_MAIL = (".eml", ".mbox", ".mbx")
#: What files of other names must hold to be read if a folder has no file whose name suits the reader.
_CONTENTS: dict[ReaderName, tuple[str, ...]] = {"text": ("parquet", "json"), "lines": ("lines", "text")}
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
_RECORDS_CUT = 20  # records that must have equally many fields for a delimiter
_TEXT_LENGTH = 20  # minimum average string length of a text column


#: Options that name a file; they are not part of the settings of a corpus.
PATH_OPTIONS = ("vocabulary", "names")


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
    )
}


def reads_texts(reader: ReaderName) -> bool:
    """Return whether the reader tokenizes texts, rather than reading named words."""
    return issubclass(READERS[reader].options_type, TokenOptions)


def default_curation(reader: ReaderName, preset: Preset | None = None) -> Curation:
    """Return the default curation: as in the papers, except for texts, where it aims at readable topics."""
    if reads_texts(reader) and preset != "papers":
        return TEXT_CURATION
    return Curation(stop_words=READERS[reader].stop_words)


def check_options(reader: ReaderName, given: Mapping[str, Any], where: str) -> Strict:
    """Validate the options of a reader; a list may be comma-separated text.

    Raises InputError, which names the key and the allowed values; ``where`` names the origin of the options.
    """
    model = READERS[reader].options_type
    lists = {key for key, item in model.model_fields.items() if "tuple" in str(item.annotation)}
    values = {
        key: [part.strip() for part in value.split(",") if part.strip()]
        if key in lists and isinstance(value, str) and value != "all"
        else value
        for key, value in given.items()
    }
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{where}: {explain(error, model)}") from error


def open_source(
    location: AnyPath,
    reader: ReaderName,
    options: Strict,
    *,
    path: str | None = None,
    files: Sequence[str] | None = None,
    tokenizer: str | None = None,
    stop_words: str = NONE,
) -> Source | TriplesSource:
    """Find the files and open the reader on them. Raises InputError if there is nothing to read or a column is missing.

    Parameters
    ----------
    location : File, directory or glob; local or a URL.
    path : A file in the directory or zip archive ``location``; None for all.
    files : Names of the files that may be read from the directory; None for all.
    tokenizer : A callable MODULE:FUNCTION that replaces the tokenizer of the options.
    stop_words : Words that the stemmer leaves unchanged.
    """
    beside = [str(getattr(options, key)) for key in PATH_OPTIONS if getattr(options, key, None) is not None]
    root, found = _find(normalise(location), READERS[reader], path, files, beside)
    words = Tokenizer()
    if isinstance(options, TokenOptions):
        words = Tokenizer(
            tokenizer or options.tokenizer,
            options.ngrams,
            options.stemmer,
            NONE if options.stemmer is None else stop_words,
            options.boilerplate,
            options.phrases if isinstance(options.phrases, tuple) else (),
            options.excerpt,
            options.split,
        )
    elif tokenizer is not None:
        raise InputError(f"the reader {reader} takes words as they are; leave {option.tokenizer} out")
    return READERS[reader].open(root, found, options, words)


def source_settings(source: Reader) -> dict[str, Json]:
    """Return the reader, its options and the fingerprint of its corpus for the manifest, without paths."""
    settings: dict[str, Json] = {"reader": source.reader}
    for key, value in source.options.model_dump().items():
        # Omit defaults that older corpora do not have, and a list of phrases, which is stored with the phrases found.
        if (key, value) in (("boilerplate", "keep"), ("excerpt", 0)) or (
            key == "phrases" and isinstance(value, tuple)
        ):
            continue
        if key not in PATH_OPTIONS and value is not None:
            settings[f"read_{key}"] = ",".join(map(str, value)) if isinstance(value, tuple | list) else value
    if isinstance(source.options, TokenOptions):
        settings["read_tokenizer"] = source.tokenizer.name
    if isinstance(source, BagSource) and source.fingerprint is not None:
        settings["source_fingerprint"] = source.fingerprint
    return settings


def _find(
    root: str, reader: type[Reader], path: str | None, names: Sequence[str] | None, beside: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Return the root and the files that the reader reads there, except those in ``beside``, such as word lists."""
    if path is not None:
        root = in_zip(path, root) if root.lower().endswith(".zip") else join(root, path)
    if not reader.patterns:
        # The files of a spec may be a single archive.
        archives = [name for name in names or () if is_archive(name)]
        only_archive = len(archives) == 1 and not is_archive(root)
        return join(root, archives[0]) if only_archive else root, tuple(join(root, n) for n in names or ())
    if path is not None:
        return root, (root,)
    if names is not None:
        found = with_members(join(root, name) for name in sorted(names))
    else:
        found = list_files(root)
        if not is_chain(root) and is_file(root) and len(found) == 1:
            return root, found  # of any name, as the user named it
    excluded = tuple(f"/{name}" for name in beside)
    found = tuple(
        path for path in found if not (is_word_list(path) or is_about(path) or path.endswith(excluded))
    )
    taken = tuple(path for path in found if _matches(path, reader.patterns))
    if not taken:
        holding = _CONTENTS.get(reader.reader, ())
        taken = tuple(path for path in found if holding and contents_of(path) in holding)
    if not taken:
        raise InputError(
            f"none of the {len(found)} files at {root} is {' or '.join(reader.patterns[:4])}; "
            f"name the files or choose another reader with {option.reader('NAME')}"
        )
    if others := sorted({*found} - {*taken}):
        names_of_others = listed(file_name(path).name for path in others)
        logger.info("not read, because the reader %s takes other files: %s", reader.reader, names_of_others)
    return root, taken


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(file_name(path).name, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Guess:
    """Reader, guessed options, and a message about them ("" if there is nothing to report)."""

    reader: ReaderName
    read: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


def _ask() -> str:
    return f"say which reader with {option.reader('NAME')}"


class _Table:
    """The files of a source of records, and the columns and first records of the first one that can be read."""

    def __init__(self, files: Sequence[str], given: Mapping[str, Any]) -> None:
        self.files = files
        read = {key: given[key] for key in ("encoding", "delimiter") if key in given}
        if "delimiter" not in given and files and format_of(files[0]) not in ("parquet", "json"):
            options: Any = check_options("text", read, f"{option.read}")
            read["delimiter"] = _sniff_delimiter(files[0], self.usual, options.encoding)
        self.delimiter: str | None = read.get("delimiter")
        self._read = read

    @property
    def usual(self) -> str:
        """The delimiter that the suffix of the first file says."""
        return CSV_SUFFIXES.get(bare_suffix(self.files[0]), ",")

    @cached_property
    def columns(self) -> dict[str, Any]:
        """Arrow arrays of the first records by column. Raises InputError if no file can be read."""
        options: Any = check_options("text", self._read, f"{option.read}")
        source = TextSource("", (), options, Tokenizer())

        def read(path: str) -> dict[str, Any]:
            form = source.format(path)
            unit = form.units(path, options)[0] if format_of(path) == "parquet" else Unit(path)
            first = next(form.records(unit, options, BadRecords("quarantine", unit, form.place)), None)
            nothing = pa.array([], pa.string())
            return {
                name: nothing if first is None else first.columns.get(name, nothing)
                for name in form.names(path, options)
            }

        return of_first_readable(self.files, read, _ask())


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
    found: dict[str, str] = {}
    usual = table.usual if chosen == "text" else ","
    if "delimiter" not in given and table.delimiter not in (None, usual):
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
    if not suffixes & (_RECORDS | _OFFICE.keys()):
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
    if kinds in ({"json"}, {"parquet"}) or not (is_archive(root) or _is_folder(root)):
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
    keys = set(read) - {"path"}
    for reader in _OF_TABLES if keys else ():
        if keys <= set(READERS[reader].options_type.model_fields):
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
    raise InputError(
        f"{table.files[0]} has the columns {listed(columns)}; {_ask()} and which columns with {option.read}, "
        f"such as {option.text('body')}, or {option.read({'user': 'who', 'item': 'what', 'rating': 'stars'})}"
    )


def _guess_text(table: _Table, found: dict[str, str]) -> Guess:
    """Guess the text column; the reader reports a missing one."""
    name = None
    with suppress(InputError):
        name = _text_column(table.columns) or _longest_column(table.columns)
    if name is None or name == "text":
        return Guess("text", found, _describe(found))
    column = f"{name!r} of fields separated by {found['delimiter']!r}" if found else repr(name)
    note = f"the texts are taken from the column {column}; {option.text('NAME')} names another"
    return Guess("text", {**found, "text": name}, note)


def _guess_ratings(table: _Table, given: Mapping[str, Any], found: dict[str, str]) -> Guess:
    names: Iterable[str] = ()
    has_header = table.delimiter is not None and given.get("header", "true") not in (False, "false")
    if has_header or format_of(table.files[0]) == "parquet":
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
    if "names_columns" in given or given.get("names_header", "true") in (False, "false"):
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
            return split_fields(line.strip().encode(), delimiter, '"' if len(delimiter) == 1 else "")
        except BadValue as error:
            raise UnreadableError(f"line 1: {error}") from error

    header = of_first_readable(files, read, f"give a file with a header, or {_ask()}")
    return [name.strip() for name in header]
