"""A corpus on disk: Parquet shards of bags of words, a vocabulary, and usually a manifest.

``open_corpus`` is the border: what it returns has been checked as far as footers tell, and the stages behind
it trust it. It also takes a directory without manifest in place, at the price of hashing its files once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from streaming_jsmf.corpus.footer import Footer, RowGroup, read_footer
from streaming_jsmf.corpus.hashes import hash_of_shard, require_same_hash
from streaming_jsmf.corpus.manifest import (
    MANIFEST_NAME,
    Json,
    Manifest,
    ShardEntry,
    parse_manifest,
    token_settings,
)
from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME, Vocabulary, read_vocabulary
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage.paths import (
    AnyPath,
    exists,
    file_names,
    file_size,
    in_threads,
    is_file,
    is_url,
    join,
    normalise,
    read_bytes,
    sha256_of,
)

DOCUMENTS = "documents"
QUARANTINE_NAME = "quarantine.parquet"
PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")  # of files that others wrote; ours are .parquet

#: Stores that people take for a corpus, and what they want instead.
_STORES = {
    "streaming_jsmf.moments": "a moments store, not a corpus; infer makes a model of it",
    "streaming_jsmf.model": "a model, not a corpus; give what it was made of",
}


@dataclass(frozen=True)
class Shard:
    """One Parquet file of documents.

    Attributes
    ----------
    name
        Posix path relative to the corpus, such as "documents/part-00000.parquet".
    rows
        Documents.
    nonzeros
        (document, word) pairs; for a corpus used in place ``footer.Footer`` says when it is a bound.
    bytes
        Size of the file.
    sha256
        Hex hash of the file.
    row_groups
        What its footer tells of each.
    """

    name: str
    rows: int
    nonzeros: int
    bytes: int
    sha256: str
    row_groups: tuple[RowGroup, ...] = field(repr=False)


@dataclass(frozen=True)
class Corpus:
    """An opened corpus: where its files are and what is known of them. Holds no documents.

    Attributes
    ----------
    root
        Absolute local path or URL of the directory.
    shards
        Sorted by name.
    n_words
        N.
    vocabulary_sha256
        Hex hash of the vocabulary file.
    vocabulary_path
        Absolute local path or URL of the vocabulary file.
    tokens
        How its texts became words (``manifest.token_settings``); None if it is not of texts or does not tell.
    """

    root: str = field(repr=False)
    shards: tuple[Shard, ...] = field(repr=False)
    n_words: int
    vocabulary_sha256: str
    vocabulary_path: str = field(repr=False)
    tokens: Mapping[str, Json] | None = field(default=None, compare=False)

    def __fspath__(self) -> str:
        """The root: an open corpus can stand where its path can."""
        return self.root

    @property
    def location(self) -> str:
        """The root as it may be said and kept: a URL without its secrets (``display.location``)."""
        return location(self.root)

    @property
    def n_documents(self) -> int:
        """M, empty documents included."""
        return sum(shard.rows for shard in self.shards)

    @property
    def nonzeros(self) -> int:
        """(document, word) pairs over all shards."""
        return sum(shard.nonzeros for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 over the hash of the vocabulary and the hashes of the shards in order of names.

        The same contents have the same fingerprint wherever the directory lies.
        """
        hashes = [self.vocabulary_sha256, *(shard.sha256 for shard in self.shards)]
        return hashlib.sha256("\n".join(hashes).encode()).hexdigest()

    def shard_path(self, shard: Shard) -> str:
        """Absolute local path or URL of a shard."""
        return join(self.root, shard.name)

    def vocabulary(self) -> Vocabulary:
        """Read the vocabulary file.

        Raises
        ------
        StoreError
            If it is not the one the corpus was opened with.
        """
        return read_vocabulary(self.vocabulary_path, self.vocabulary_sha256)[0]


def open_corpus(path: AnyPath, vocabulary: AnyPath | None = None) -> Corpus:
    """Open a corpus directory, or any directory of bag-of-words Parquet files, in place.

    With a ``manifest.json`` the footers of the shards are checked against it and no document is read: hashes are taken
    from it, and compared by whoever reads the shards (``verify_corpus`` does nothing else). Without one, the
    ``*.parquet`` files right in the directory and in its ``documents/`` are the shards, and every file is read once to
    hash it.

    Parameters
    ----------
    path
        Local directory or fsspec URL.
    vocabulary
        Vocabulary file of a directory without manifest; found beside the shards as vocabulary.parquet,
        vocab.txt or vocabulary.txt when not given.

    Raises
    ------
    InputError
        Not a corpus, an unknown format version, no documents, missing or mistyped columns, ids or counts out
        of range.
    StoreError
        A file of the manifest is missing, truncated, damaged or of another size.
    """
    root = corpus_root(path)
    if not exists(root):
        raise InputError(f"there is no corpus at {root}; check the path")
    if is_file(root):
        raise InputError(f"{root} is a file, no corpus; {_to_make_one(root)}")
    require_no_store(root)
    where = join(root, MANIFEST_NAME)
    if not exists(where):
        return _open_in_place(root, None if vocabulary is None else normalise(vocabulary))
    if vocabulary is not None:
        raise InputError(
            f"{root} has a manifest, which names its vocabulary; leave the vocabulary argument out"
        )
    return _open_committed(root, parse_manifest(read_bytes(where), where))


def corpus_root(path: AnyPath) -> str:
    """The absolute path or the URL of what is to be a corpus.

    Raises
    ------
    InputError
        If it is no path: says what makes a corpus of a table or of texts.
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"a corpus is named by its path, and a {type(path).__name__} was given; make a corpus of it with "
            "ingest(source, path), or give it to fit"
        )
    return normalise(path)


def require_no_store(root: str) -> None:
    """Refuse a store of ours on the local disk where a corpus or a source is wanted.

    Raises
    ------
    InputError
        If it is one: says what can be done with it.
    """
    if is_url(root):
        return  # it would be one more question to a server
    try:
        kind = json.loads(read_bytes(join(root, "zarr.json")))["attributes"]["kind"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if kind in _STORES:
        raise InputError(f"{root} is {_STORES[kind]}")


def read_manifest(path: AnyPath) -> Manifest:
    """The checked manifest of a corpus directory; ``InputError`` if it is missing."""
    where = join(normalise(path), MANIFEST_NAME)
    if not exists(where):
        raise InputError(f"there is no {where}; the directory was not written by this package")
    return parse_manifest(read_bytes(where), where)


def damage_of_corpus(path: AnyPath) -> StoreError | None:
    """The first damage of vocabulary and shards, if any; errors as ``read_manifest``. One pass over all bytes."""
    root, manifest = normalise(path), read_manifest(path)
    _check_unknown_files(root, {entry.name for entry in manifest.shards})
    hashes = {VOCABULARY_NAME: manifest.vocabulary.sha256}
    hashes |= {entry.name: entry.sha256 for entry in manifest.shards}
    for name, found in zip(hashes, in_threads(partial(_hash_of, root), tuple(hashes)), strict=True):
        if found != hashes[name]:
            return StoreError(f"{join(root, name)} is missing or damaged; build the corpus again")
    return None


def _hash_of(root: str, name: str) -> str | None:
    try:
        return sha256_of(join(root, name))
    except FileNotFoundError:
        return None


def verify_corpus(corpus: Corpus) -> None:
    """Compare the hash of every file with the one known of it. One pass over the bytes of the corpus.

    Raises
    ------
    StoreError
        If a file differs; of the shards the message names the first one in order of names.
    """
    corpus.vocabulary()
    hashes = in_threads(lambda shard: sha256_of(corpus.shard_path(shard)), corpus.shards)
    for shard, found in zip(corpus.shards, hashes, strict=True):
        require_same_hash(corpus.shard_path(shard), found, shard.sha256)


def _open_committed(root: str, manifest: Manifest) -> Corpus:
    entries = sorted(manifest.shards, key=lambda entry: entry.name)
    n_words = manifest.vocabulary.words
    if not entries:
        raise InputError(f"{root} is an empty corpus: its manifest names no shards")
    _check_unknown_files(root, {entry.name for entry in entries})
    vocabulary_path = join(root, VOCABULARY_NAME)
    if not exists(vocabulary_path):
        raise StoreError(f"{vocabulary_path} is missing; restore it or build the corpus again")
    footers = in_threads(lambda entry: _check_entry(root, entry, n_words), entries)
    shards = tuple(
        Shard(entry.name, entry.rows, entry.nonzeros, entry.bytes, entry.sha256, footer.row_groups)
        for entry, footer in zip(entries, footers, strict=True)
    )
    return Corpus(
        root, shards, n_words, manifest.vocabulary.sha256, vocabulary_path, token_settings(manifest.settings)
    )


def _check_unknown_files(root: str, known: set[str]) -> None:
    """A shard copied into a committed corpus would be passed over without a word."""
    extra = [name for name in _shard_names(join(root, DOCUMENTS), f"{DOCUMENTS}/") if name not in known]
    if extra:
        raise StoreError(
            f"{join(root, extra[0])} is not in {MANIFEST_NAME}; move it away "
            f"(or remove {MANIFEST_NAME} to use the directory as it is)"
        )


def _check_entry(root: str, entry: ShardEntry, n_words: int) -> Footer:
    path = join(root, entry.name)
    try:
        size = file_size(path)
    except FileNotFoundError as error:
        raise StoreError(f"{path} is missing; restore it or build the corpus again") from error
    if size != entry.bytes:
        raise StoreError(
            f"{path} has {size} bytes, its manifest says {entry.bytes}; restore it or build the corpus again"
        )
    footer = read_footer(path, path, n_words)
    if footer.rows != entry.rows or footer.nonzeros < entry.nonzeros:
        raise StoreError(
            f"{path} has {footer.rows} documents and {footer.nonzeros} nonzeros, its manifest says "
            f"{entry.rows} and {entry.nonzeros}; build the corpus again"
        )
    return footer


def _open_in_place(root: str, vocabulary: str | None) -> Corpus:
    names = find_shards(root, vocabulary)
    vocabulary_path = vocabulary if vocabulary is not None else find_vocabulary(root)
    if not exists(vocabulary_path):
        raise InputError(f"there is no vocabulary at {vocabulary_path}; check the path")
    words, vocabulary_sha256 = read_vocabulary(vocabulary_path)
    n_words = len(words.words)
    paths = {name: join(root, name) for name in sorted(names)}
    footers = in_threads(lambda path: read_footer(path, path, n_words), tuple(paths.values()))
    _check_not_empty(root, footers)
    sizes = in_threads(lambda path: (file_size(path), hash_of_shard(path)), tuple(paths.values()))
    shards = tuple(
        Shard(name, footer.rows, footer.nonzeros, size, digest, footer.row_groups)
        for name, footer, (size, digest) in zip(paths, footers, sizes, strict=True)
    )
    return Corpus(root, shards, n_words, vocabulary_sha256, vocabulary_path)


def find_shards(root: str, vocabulary: str | None = None) -> list[str]:
    """Names of the Parquet files in a directory and in its ``documents/`` that are not the vocabulary.

    Raises
    ------
    InputError
        If there are none.
    """
    names = [
        name
        for name in (*_shard_names(join(root, DOCUMENTS), f"{DOCUMENTS}/"), *_shard_names(root, ""))
        if join(root, name) != vocabulary
    ]
    if not names:
        raise InputError(
            f"no corpus in {root}: no *.parquet files in it or in its {DOCUMENTS}/; {_to_make_one(root)}"
        )
    return names


def _to_make_one(root: str) -> str:
    """How texts and tables become a corpus, or topics at once."""
    shown = location(root)
    return (
        f"make one of texts or tables with: streaming-jsmf ingest {shown} CORPUS, or topics at once with: "
        f"streaming-jsmf fit {shown} MODEL --topics 20"
    )


def _check_not_empty(root: str, footers: Sequence[Footer]) -> None:
    if not sum(footer.rows for footer in footers):
        raise InputError(f"{root} is an empty corpus: its {len(footers)} Parquet files hold no documents")
    if not sum(footer.nonzeros for footer in footers):
        raise InputError(f"{root} is an empty corpus: none of its documents has a word")


def _shard_names(directory: str, prefix: str) -> list[str]:
    """Parquet files right in a directory that may be shards; hidden and marker files are not."""
    reserved = {VOCABULARY_NAME, QUARANTINE_NAME}
    return [
        f"{prefix}{name}"
        for name in file_names(directory)
        if name.endswith(PARQUET_SUFFIXES) and name not in reserved and name[0] not in "._"
    ]


def find_vocabulary(root: str) -> str:
    """Path of the word list beside the shards, by its usual names.

    Raises
    ------
    InputError
        If there is none.
    """
    here = set(file_names(root))
    found = [name for name in (VOCABULARY_NAME, *TEXT_NAMES) if name in here]
    if not found:
        raise InputError(
            f"no corpus in {root}: it has no vocabulary ({', '.join((VOCABULARY_NAME, *TEXT_NAMES))}) beside its "
            f"Parquet files; {_to_make_one(root)}"
        )
    return join(root, found[0])
