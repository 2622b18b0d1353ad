"""The readers by name, opening one on a source, and guessing the reader and columns that are not given.

Guesses become ordinary options, so readers do not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any

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
from streaming_jsmf.corpus.format import require_no_store
from streaming_jsmf.corpus.manifest import MANIFEST_NAME, Json
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.bags import BagSource, BasketSource
from streaming_jsmf.ingestion.readers.base import Reader, Source, UnreadableError
from streaming_jsmf.ingestion.readers.counts import DocwordSource, MatrixMarketSource
from streaming_jsmf.ingestion.readers.files import (
    bare_suffix,
    file_name,
    is_archive,
)
from streaming_jsmf.ingestion.readers.guess import (
    RATINGS,
    TITLES,
    Guess,
    Table,
    ask,
    describe,
    guess_ratings,
    guess_separator,
    guess_text,
    reader_by_columns,
)
from streaming_jsmf.ingestion.readers.h5ad import H5adSource
from streaming_jsmf.ingestion.readers.listing import (
    FORMATS,
    SAMPLE,
    contents,
    contents_of,
    files_for,
    format_of,
    in_zip,
    is_about,
    is_word_list,
    list_files,
)
from streaming_jsmf.ingestion.readers.matrices import NpzSource
from streaming_jsmf.ingestion.readers.records import LineSource, TextSource
from streaming_jsmf.ingestion.readers.text_files import File, MailSource, TextFilesSource, files_in_archive
from streaming_jsmf.ingestion.readers.triples import RatingsSource, TriplesSource
from streaming_jsmf.ingestion.readers.values import listed
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import AnyPath, exists, is_file, join, normalise

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
        reader, READERS[reader].patterns, normalise(location), options.path, files, files_named(options)
    )
    words = Tokenizer()
    if isinstance(options, TokenOptions):
        words = Tokenizer(
            options.tokenizer,
            options.ngrams,
            options.stemmer,
            NONE if options.stemmer is None else stop_words,
            options.boilerplate,
            options.phrases if isinstance(options.phrases, tuple) else (),
            options.excerpt,
            options.split,
            options.normalization,
        )
    return READERS[reader].open(root, found, options, words)


def source_settings(source: Reader) -> dict[str, Json]:
    """Return the reader, its options and the fingerprint of its corpus for the manifest, without paths."""
    settings: dict[str, Json] = {"reader": source.reader}
    for key, value in source.options.fields().items():
        # A list of phrases is stored with the phrases found.
        listed_phrases = key == "phrases" and source.phrases is None
        if key not in (*PATH_OPTIONS, "path") and value is not None and not listed_phrases:
            settings[f"read_{key}"] = ",".join(value) if isinstance(value, tuple) else value
    if isinstance(source, BagSource) and source.fingerprint is not None:
        settings["source_fingerprint"] = source.fingerprint
    return settings


# Guessing


_BY_SUFFIX: dict[str, ReaderName] = {".npz": "npz", ".mtx": "matrix-market", ".h5ad": "h5ad"}
#: Suffixes of record files; a folder with other files has one document per file, unless their contents are records.
_RECORDS = {*_BY_SUFFIX, *FORMATS, ".dat", ".data", ".baskets"}
_MAIL = (".eml", ".mbox", ".mbx")
_SAMPLED_FILES = 5
_FEW_FILES = 10  # that a folder must have for files of lines to be documents
_OFFICE = {".pdf", ".docx", ".doc", ".odt", ".rtf", ".epub"}
#: Readers of tables, in the order in which the options of a user select one.
_OF_TABLES: tuple[ReaderName, ...] = ("text", "ratings", "triples", "baskets")


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
    if folder and exists(join(root, RATINGS)) and exists(join(root, TITLES)):
        reader, given["path"] = "ratings", RATINGS
    if "path" in given and "::" not in root:
        path = str(given["path"])
        root = in_zip(path, root) if root.lower().endswith(".zip") else join(root, path)
    chosen = reader or guess_reader(root, given)
    files = list_files(root) if chosen in _OF_TABLES else ()
    known = [path for path in files if bare_suffix(path) in _RECORDS]
    table = Table(known or [path for path in files[:1] if format_of(path) or "delimiter" in given], given)
    if not table.files:
        return Guess(chosen)
    if chosen == "text":
        return Guess("text") if "text" in given else guess_text(table)
    found: dict[str, str] = {}
    if chosen == "baskets" and table.is_delimited:
        separator = None if "separator" in given else guess_separator(table.files[0])
        items = {} if separator is None else {"separator": separator}
        return Guess(chosen, items, describe(items))
    if chosen == "ratings":
        if "path" in given and "path" not in (read or {}):
            found["path"] = given["path"]
        return guess_ratings(table, given, found)
    return Guess(chosen, found, describe(found))


def guess_reader(location: AnyPath, read: Mapping[str, Any] | None = None) -> ReaderName:
    """Guess the reader of a source; the known options ``read`` may select one. Raises as ``guess_source``."""
    root = normalise(location)
    if not is_archive(root) and _is_folder(root) and exists(join(root, MANIFEST_NAME)):
        return "bag-of-words-parquet"
    require_no_store(root)
    in_tar = is_archive(root) and not root.lower().endswith(".zip")
    found = _in_tar(root) if in_tar else list_files(root)
    files = [path for path in found if not is_word_list(path)]
    if any(file_name(path).name.startswith("docword") for path in files) and not in_tar:
        return "docword"
    if {bare_suffix(path) for path in files} & _RECORDS:
        files = [path for path in files if not is_about(path)]
    suffixes = {bare_suffix(path) for path in files}
    if (files or in_tar) and not suffixes & (_RECORDS | _OFFICE):
        kinds = [found[path] if isinstance(found, dict) else contents_of(path) for path in _some(files)]
        chosen = _by_contents(root, files, {*kinds} - {""})
        if chosen is not None:
            return chosen
        suffixes = {bare_suffix(path) for path in files[:1]}
    if in_tar and not suffixes & _OFFICE:
        raise InputError(f"{root} has {listed(files)}; tables are not read from tar archives: unpack it")
    for suffix in sorted(suffixes & _OFFICE):
        raise InputError(f"{root}: {suffix} files are not read; export them as plain text, one file each")
    if len(suffixes) != 1:
        shown = ", ".join(_shown(files, suffix) for suffix in sorted(suffixes)) or "no files but a word list"
        by_name = f" with {option.read({'path': 'NAME'})}" * is_archive(root)
        raise InputError(f"{root} contains {shown}; {ask()}, or name the files{by_name}")
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
        f"{path} could be one text per line, baskets or a table; {ask()}, such as {option.reader('lines')} ({advice})"
    )


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


def _shown(files: Sequence[str], suffix: str) -> str:
    """Return a suffix and the files that have it, for messages."""
    names = [file_name(path).name for path in files if bare_suffix(path) == suffix]
    return f"{suffix or 'files without a suffix'} ({listed(names[:3])}{', ...' * (len(names) > 3)})"


def _some(files: Sequence[str]) -> Sequence[str]:
    return files[:: len(files) // _SAMPLED_FILES + 1]


def _table_reader(files: Sequence[str], read: Mapping[str, Any]) -> ReaderName:
    """Return the first reader that has all given options, or else one by the columns."""
    # Options of words, and of the layout of a table, do not tell what the table holds.
    keys = set(read) - {*FIXED_BY_MODEL, *declared(Delimited)}
    for reader in _OF_TABLES if keys else ():
        if keys <= declared(READER_OPTIONS[reader]).keys():
            return reader
    found = next(filter(None, map(format_of, _some(files))), "")  # files may be empty, as some of Spark's
    if not found and "delimiter" not in read:
        raise _unclear(files[0], "a text file for each document: give their folder")
    return "text" if found == "json" else reader_by_columns(Table(files, read))
