"""The readers by name, and opening one on a source."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Sequence

from streaming_jsmf.config import (
    READER_OPTIONS,
    TEXT_CURATION,
    Curation,
    Preset,
    ReaderName,
    ReadOptions,
    TokenOptions,
)
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.readers.bags import BagSource, BasketSource
from streaming_jsmf.ingestion.readers.base import Reader, Source
from streaming_jsmf.ingestion.readers.counts import DocwordSource, MatrixMarketSource
from streaming_jsmf.ingestion.readers.files import file_name, is_archive
from streaming_jsmf.ingestion.readers.h5ad import H5adSource
from streaming_jsmf.ingestion.readers.listing import (
    contents_of,
    in_zip,
    is_about,
    is_word_list,
    list_files,
    with_members,
)
from streaming_jsmf.ingestion.readers.matrices import NpzSource
from streaming_jsmf.ingestion.readers.records import LineSource, TextSource
from streaming_jsmf.ingestion.readers.text_files import MailSource, TextFilesSource
from streaming_jsmf.ingestion.readers.triples import RatingsSource, TriplesSource
from streaming_jsmf.ingestion.readers.values import listed
from streaming_jsmf.ingestion.tokens.stop_words import NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import AnyPath, is_chain, is_file, join, normalise

logger = logging.getLogger(__name__)

#: What files of other names must hold to be read if a folder has no file whose name suits the reader.
_CONTENTS: dict[ReaderName, tuple[str, ...]] = {"text": ("parquet", "json"), "lines": ("lines", "text")}

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
    beside = [str(getattr(options, key)) for key in PATH_OPTIONS if getattr(options, key, None) is not None]
    root, found = _find(normalise(location), READERS[reader], options.path, files, beside)
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
