"""The readers by name, which one a source is for, and the options users give them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError

from streaming_jsmf.config import Curation, Preset, ReaderName
from streaming_jsmf.corpus.curation import TEXT_CURATION
from streaming_jsmf.corpus.format import PARQUET_SUFFIXES
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.readers.base import Source
from streaming_jsmf.ingestion.readers.counts.bags import BagOptions, BagSource
from streaming_jsmf.ingestion.readers.counts.docword import DocwordOptions, DocwordSource
from streaming_jsmf.ingestion.readers.counts.h5ad import H5adOptions, H5adSource
from streaming_jsmf.ingestion.readers.counts.matrix_market import MatrixMarketOptions, MatrixMarketSource
from streaming_jsmf.ingestion.readers.counts.npz import NpzOptions, NpzSource
from streaming_jsmf.ingestion.readers.listing import list_files
from streaming_jsmf.ingestion.readers.tables.baskets import BasketOptions, BasketSource
from streaming_jsmf.ingestion.readers.tables.ratings import RatingsOptions, RatingsSource
from streaming_jsmf.ingestion.readers.tables.shuffle import ShuffledSource
from streaming_jsmf.ingestion.readers.tables.triples import TriplesOptions, TriplesSource
from streaming_jsmf.ingestion.readers.text.folder import TextFilesOptions, TextFilesSource, is_archive
from streaming_jsmf.ingestion.readers.text.line_texts import LineSource
from streaming_jsmf.ingestion.readers.text.options import LineOptions, TextOptions, TokenOptions
from streaming_jsmf.ingestion.readers.text.reader import CSV_SUFFIXES, JSON_SUFFIXES, TextSource
from streaming_jsmf.ingestion.tokens.stop_words import ENGLISH, NONE
from streaming_jsmf.ingestion.tokens.tokenizer import Tokenizer
from streaming_jsmf.storage.paths import AnyPath, is_chain, is_file, is_url, join, normalise
from streaming_jsmf.validation import Strict, explain

#: Options that name a file; the settings of a corpus do not include them.
PATH_OPTIONS = ("vocabulary", "names")


@dataclass(frozen=True)
class Found:
    """What a reader is opened on: where, which files there, and how texts become words."""

    root: str
    files: tuple[str, ...]
    tokenizer: Tokenizer


@dataclass(frozen=True)
class Reader:
    """What a reader needs to be opened.

    Attributes
    ----------
    options
        Its keys.
    open
        Makes the source of what was found and the options.
    files
        Globs on the names of the files it takes from a directory; empty where it takes the directory itself.
    stop_words
        The list that is left out when none is named: items and genes are no English.
    """

    options: type[Strict]
    open: Callable[[Found, Any], Any]
    files: tuple[str, ...]
    stop_words: str = NONE


_PACKED = ("", ".gz", ".bz2", ".xz", ".zst")


def _packed(*patterns: str) -> tuple[str, ...]:
    return tuple(f"{pattern}{suffix}" for pattern in patterns for suffix in _PACKED)


def _on_files(source: Callable[[tuple[str, ...], Any], Any]) -> Callable[[Found, Any], Any]:
    return lambda at, options: source(at.files, options)


_PARQUET = tuple(f"*{suffix}" for suffix in PARQUET_SUFFIXES)
_TABLES = (*_PARQUET, *_packed("*.csv", "*.tsv", "*.dat", "*.txt"))

READERS: dict[ReaderName, Reader] = {
    "text": Reader(
        TextOptions,
        lambda at, options: TextSource.open(at.files, options, at.tokenizer),
        (*_PARQUET, *_packed(*(f"*{suffix}" for suffix in (*JSON_SUFFIXES, *CSV_SUFFIXES)))),
        ENGLISH,
    ),
    "text-files": Reader(
        TextFilesOptions, lambda at, options: TextFilesSource(at.root, options, at.tokenizer), (), ENGLISH
    ),
    "lines": Reader(
        LineOptions,
        lambda at, options: LineSource(at.files, options, at.tokenizer),
        _packed("*.txt", "*.text"),
        ENGLISH,
    ),
    "docword": Reader(DocwordOptions, _on_files(DocwordSource), _packed("docword*.txt"), ENGLISH),
    "triples": Reader(TriplesOptions, _on_files(TriplesSource), _TABLES),
    "ratings": Reader(RatingsOptions, _on_files(RatingsSource), _TABLES),
    "baskets": Reader(BasketOptions, _on_files(BasketSource), (*_TABLES, *_packed("*.baskets"))),
    "npz": Reader(NpzOptions, _on_files(NpzSource), ("*.npz",)),
    "matrix-market": Reader(MatrixMarketOptions, _on_files(MatrixMarketSource), _packed("*.mtx")),
    "h5ad": Reader(H5adOptions, _on_files(H5adSource), ("*.h5ad",)),
    "bag-of-words-parquet": Reader(
        BagOptions, lambda at, options: BagSource.open(at.root, options, at.files), (), ENGLISH
    ),
}


@dataclass(frozen=True)
class OpenedSource:
    """A source ready to be ingested.

    Attributes
    ----------
    source
        Units and documents.
    settings
        Reader and options for the manifest, without paths.
    ngrams
        Whether words may be runs of words.
    phrases
        Least NPMI of neighbours that are to be one word; None: they are not looked for.
    """

    source: Source | ShuffledSource
    settings: Mapping[str, Json]
    ngrams: bool
    phrases: float | None = None


def reads_texts(reader: ReaderName) -> bool:
    """Whether the words are found in texts, rather than named by the source."""
    return issubclass(READERS[reader].options, TokenOptions)


def default_curation(reader: ReaderName, preset: Preset | None = None) -> Curation:
    """What stays when the user says nothing: as in the papers, but of texts what gives topics that can be read."""
    if reads_texts(reader) and preset != "papers":
        return TEXT_CURATION
    return Curation(stop_words=READERS[reader].stop_words)


def check_options(reader: ReaderName, given: Mapping[str, Any], where: str) -> Strict:
    """The options of a reader; a list may be given as text with commas.

    Raises
    ------
    InputError
        Names the key and what is allowed; ``where`` says whose options they are.
    """
    model = READERS[reader].options
    values = {
        key: _as_list(value) if _is_list(model, key) and isinstance(value, str) and value != "all" else value
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
) -> OpenedSource:
    """Find the files and open the reader on them.

    Parameters
    ----------
    location
        File, directory or glob; local or a URL.
    reader
        Name of the reader.
    options
        Of ``check_options``.
    path
        A file in the directory or zip archive ``location``, if not all of it is meant.
    files
        Names of the files that may be read from the directory; None for all.
    tokenizer
        A callable of the user's own as MODULE:FUNCTION, in place of the one in the options.
    stop_words
        Words that are spared by a stemmer.

    Raises
    ------
    InputError
        If there is nothing to read, or it has not the columns.
    """
    kind = READERS[reader]
    beside = [str(getattr(options, key)) for key in PATH_OPTIONS if getattr(options, key, None) is not None]
    root, found = _find(normalise(location), kind, path, files, beside)
    words, least = Tokenizer(), None
    if isinstance(options, TokenOptions):
        spared = NONE if options.stemmer is None else stop_words
        listed = options.phrases if isinstance(options.phrases, tuple) else ()
        least = None if isinstance(options.phrases, tuple) else options.phrases
        words = Tokenizer(
            tokenizer or options.tokenizer,
            options.ngrams,
            options.stemmer,
            spared,
            options.boilerplate,
            listed,
        )
    elif tokenizer is not None:
        raise InputError(f"the reader {reader} takes words as they are; leave --tokenizer out")
    source = kind.open(Found(root, found, words), options)
    settings: dict[str, Json] = {"reader": reader}
    for key, value in options.model_dump().items():
        # Boilerplate that is kept is not told: corpora made before it could be dropped are the same.
        # A list of phrases is told with those that are found.
        if (key, value) == ("boilerplate", "keep") or (key == "phrases" and isinstance(value, tuple)):
            continue
        if key not in PATH_OPTIONS and value is not None:
            settings[f"read_{key}"] = ",".join(map(str, value)) if isinstance(value, tuple | list) else value
    if tokenizer is not None:
        settings["read_tokenizer"] = tokenizer
    if getattr(source, "fingerprint", None) is not None:
        settings["source_fingerprint"] = source.fingerprint
    return OpenedSource(source, settings, words.ngrams > 1, least)


def _find(
    root: str, kind: Reader, path: str | None, names: Sequence[str] | None, beside: Sequence[str]
) -> tuple[str, tuple[str, ...]]:
    """Where to read, and the files there that the reader takes; those ``beside`` are its word list and the like."""
    if path is not None:
        zipped = root.lower().endswith(".zip")
        if zipped and not is_url(root) and "::" in root:
            raise InputError(
                f"{root}: a file within an archive cannot be read where the path has ::; move the archive"
            )
        root = f"zip://{path}::{root}" if zipped else join(root, path)
    if not kind.files:
        return _archive_in(root, names), tuple(join(root, name) for name in names or ())
    if path is not None or (not is_chain(root) and is_file(root)):
        return root, (root,)
    listed = list_files(root)
    if names is not None:
        listed = tuple(join(root, name) for name in sorted(names))
    taken = tuple(
        name
        for name in listed
        if _matches(name, kind.files) and not name.endswith(tuple(f"/{b}" for b in beside))
    )
    if not taken:
        raise InputError(
            f"none of the {len(listed)} files at {root} is {' or '.join(kind.files[:4])}; "
            "name the files or choose another reader with --reader"
        )
    return root, taken


def _archive_in(root: str, names: Sequence[str] | None) -> str:
    """Of a directory that a spec has filled with one archive, the archive; else the directory."""
    archives = [name for name in names or () if is_archive(name)]
    return join(root, archives[0]) if len(archives) == 1 and not is_archive(root) else root


def _matches(path: str, patterns: Sequence[str]) -> bool:
    name = path.rsplit("/", 1)[-1].lower()
    if name.startswith("vocab"):
        return False
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _is_list(model: type[Strict], key: str) -> bool:
    field = model.model_fields.get(key)
    return field is not None and "tuple" in str(field.annotation)


def _as_list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


assert set(READERS) == set(get_args(ReaderName))
