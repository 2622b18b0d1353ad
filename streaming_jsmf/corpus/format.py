"""The on-disk corpus format: Parquet shards of bags of words, a vocabulary, and usually a manifest.

``open_corpus`` validates footers and metadata; later stages rely on these checks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from streaming_jsmf.corpus.footer import (
    RowGroup,
    Shard,
    open_parquet,
    read_footer,
    require_hash,
    require_size,
)
from streaming_jsmf.corpus.manifest import (
    LOSSES,
    MANIFEST_NAME,
    Json,
    Manifest,
    ShardEntry,
    fingerprint_of,
    losses,
    parse_manifest,
    token_settings,
)
from streaming_jsmf.corpus.vocabulary import TEXT_NAMES, VOCABULARY_NAME, Vocabulary, read_vocabulary
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage.kinds import (
    CORPUS,
    MODEL,
    MODELS,
    MOMENTS,
    SHARES,
    SOURCE,
    is_at,
    taken,
    unsuitable,
)
from streaming_jsmf.storage.objects import State, in_threads
from streaming_jsmf.storage.paths import (
    MARK,
    AnyPath,
    exists,
    file_names,
    file_states,
    is_file,
    is_url,
    join,
    normalize,
    read_bytes,
    sha256_of,
)

if TYPE_CHECKING:
    import pandas as pd

DOCUMENTS = "documents"
QUARANTINE_NAME = "quarantine.parquet"
PARQUET_SUFFIXES = (".parquet", ".pq", ".parq")  # ours are .parquet


@dataclass(frozen=True)
class Corpus:
    """An open corpus: file locations and sizes. Documents are not loaded into memory.

    Attributes
    ----------
    root, vocabulary_path : Absolute local path or URL of the directory and of the vocabulary file.
    shards : Sorted by name.
    n_words : Number of words N.
    vocabulary_sha256 : Hex hash of the vocabulary file.
    tokens : Tokenizer settings (``manifest.token_settings``); None if they are unknown or the source was not text.
    """

    root: str = field(repr=False)
    shards: tuple[Shard, ...] = field(repr=False)
    n_words: int
    vocabulary_sha256: str
    vocabulary_path: str = field(repr=False)
    tokens: Mapping[str, Json] | None = field(default=None, compare=False)

    def __fspath__(self) -> str:
        return self.root

    @property
    def location(self) -> str:
        """The root without credentials, safe to print and store (``display.location``)."""
        return location(self.root)

    @property
    def first_files(self) -> tuple[str, ...]:
        """The first shard, which shows whether a process can read the corpus; empty without shards."""
        return tuple(join(self.root, shard.name) for shard in self.shards[:1])

    @property
    def n_documents(self) -> int:
        """Number of documents M, including empty ones."""
        return sum(shard.rows for shard in self.shards)

    @property
    def nonzeros(self) -> int:
        """Number of (document, word) pairs in all shards."""
        return sum(shard.nonzeros for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the hashes of the vocabulary and the shards, sorted by name; independent of the path."""
        return fingerprint_of(self.vocabulary_sha256, self.shards)

    @property
    def ingest_report(self) -> pd.DataFrame | None:
        """What ``ingest`` read, dropped in each step, and kept; None for a corpus that it did not make."""
        import pandas as pd

        manifest = read_manifest(self.root) if exists(join(self.root, MANIFEST_NAME)) else None
        if manifest is None or "documents_read" not in manifest.settings:
            return None
        index, *rows = zip(*losses(manifest.settings, manifest.dropped, manifest.totals), strict=True)
        return pd.DataFrame(
            {name: [each or 0 for each in row] for name, row in zip(LOSSES, rows, strict=True)}, index
        )

    def shard_path(self, shard: Shard) -> str:
        return join(self.root, shard.name)

    def schema(self) -> Any:
        """The Arrow schema of the first shard."""
        with open_parquet(self.shard_path(self.shards[0])) as file:
            return file.schema_arrow

    def vocabulary(self) -> Vocabulary:
        """Read the vocabulary; ``StoreError`` if the file has changed since the corpus was opened."""
        return read_vocabulary(self.vocabulary_path, self.vocabulary_sha256)[0]


def open_corpus(path: AnyPath | Corpus, vocabulary: AnyPath | None = None) -> Corpus:
    """Open a corpus directory, or any directory of bag-of-words Parquet files, in place.

    With a ``manifest.json``, it is read, and the names and sizes of the shards are listed and compared with it; hashes
    are verified when the shards are read and by ``verify_corpus``. The footers are read if the manifest, of an earlier
    version, does not have their numbers. Without one, the shards are the ``*.parquet`` files in the directory and
    in its ``documents/``, and every file is read once to compute its hash.

    Parameters
    ----------
    path
        Local directory or fsspec URL; an open corpus is returned as it is.
    vocabulary
        Vocabulary file of a directory without a manifest; by default vocabulary.parquet, vocab.txt or vocabulary.txt in
        it.

    Raises
    ------
    InputError
        If the path is not a corpus, has an unknown format version or no documents, or columns, ids or counts are
        invalid.
    StoreError
        If a file in the manifest is missing, damaged or has the wrong size.
    """
    if isinstance(path, Corpus) and vocabulary is None:
        return path
    root = corpus_root(path)
    require_no_store(root, CORPUS)
    if not exists(join(root, MANIFEST_NAME)):
        if is_url(root) and exists(join(root, MARK)):
            raise StoreError(f"{root}: the corpus is not finished; run the command that makes it again")
        return _open_in_place(root, None if vocabulary is None else normalize(vocabulary))
    if vocabulary is not None:
        raise InputError(
            f"{root} has a manifest, which names its vocabulary; leave the vocabulary argument out"
        )
    return _open_committed(root, read_manifest(root))


def corpus_root(path: AnyPath) -> str:
    """Return the absolute path or URL of a corpus; ``InputError`` if ``path`` is not a path."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"a corpus is given as a path, not as a {type(path).__name__}; make a corpus of it with "
            "ingest(source, path), or give it to fit"
        )
    return normalize(path)


def require_no_store(root: str, wanted: str = SOURCE) -> None:
    """Raise ``InputError`` if a moments store, a model or topic shares are at a local path."""
    # Of a URL, this would be another request.
    if not is_url(root) and (there := is_at(root)).startswith((MOMENTS, MODEL, MODELS, SHARES)):
        raise unsuitable(root, wanted, there)


def read_manifest(path: AnyPath) -> Manifest:
    """Read and check the manifest of a corpus directory; ``InputError`` if something else is there."""
    root = normalize(path)
    where = join(root, MANIFEST_NAME)
    if not exists(where):
        raise taken(root, CORPUS)
    return parse_manifest(read_bytes(where), where)


def verify_corpus(corpus: Corpus) -> None:
    """Compare every file with its hash, in one pass; ``StoreError`` names the first shard that differs."""
    corpus.vocabulary()
    hashes = in_threads(lambda shard: sha256_of(corpus.shard_path(shard)), corpus.shards)
    for shard, found in zip(corpus.shards, hashes, strict=True):
        require_hash(corpus.shard_path(shard), found, shard.sha256)


def _open_committed(root: str, manifest: Manifest) -> Corpus:
    entries = sorted(manifest.shards, key=lambda entry: entry.name)
    n_words = manifest.vocabulary.words
    if not entries:
        raise InputError(f"{root} is an empty corpus: its manifest names no shards")
    states = require_no_other_shards(root, manifest)
    vocabulary_path = join(root, VOCABULARY_NAME)
    if not exists(vocabulary_path):
        raise StoreError(f"{vocabulary_path} is missing; restore it or build the corpus again")
    listed = {entry.name: _listed_shard(root, entry, states.get(entry.name)) for entry in entries}
    others = [entry for entry in entries if listed[entry.name] is None]
    listed |= {shard.name: shard for shard in in_threads(partial(_checked_shard, root, n_words), others)}
    shards = tuple(filter(None, listed.values()))
    sha256, tokens = manifest.vocabulary.sha256, token_settings(manifest.settings)
    return Corpus(root, shards, n_words, sha256, vocabulary_path, tokens)


def require_no_other_shards(root: str, manifest: Manifest) -> dict[str, State]:
    """Raise ``StoreError`` for a shard that was copied into the directory: it would be ignored, or deleted with it.

    Returns the states of the shards there.
    """
    names, states = {entry.name for entry in manifest.shards}, _parquet_files(root, f"{DOCUMENTS}/")
    for name in states:
        if name not in names:
            raise StoreError(
                f"{join(root, name)} is not in {MANIFEST_NAME}; move it away "
                f"(or remove {MANIFEST_NAME} to use the directory as it is)"
            )
    return states


def _listed_shard(root: str, entry: ShardEntry, state: State) -> Shard | None:
    """A shard whose file is listed, with the numbers of the manifest; None if its footer must be read."""
    if entry.row_groups is None or state is None or state[0] is None:
        return None
    require_size(join(root, entry.name), int(state[0]), entry.bytes)
    groups = tuple(RowGroup(*group) for group in entry.row_groups)
    return Shard(entry.name, entry.rows, entry.nonzeros, entry.bytes, entry.sha256, groups, state)


def _checked_shard(root: str, n_words: int, entry: ShardEntry) -> Shard:
    path = join(root, entry.name)
    found = read_footer(path, n_words, entry.bytes)
    if found.rows != entry.rows or found.nonzeros != entry.nonzeros:
        raise StoreError(
            f"{path} has {found.rows} documents and {found.nonzeros} nonzeros, its manifest says "
            f"{entry.rows} and {entry.nonzeros}; build the corpus again"
        )
    return replace(found, name=entry.name, nonzeros=entry.nonzeros, sha256=entry.sha256)


def _open_in_place(root: str, vocabulary: str | None) -> Corpus:
    names = sorted(find_shards(root, vocabulary))
    vocabulary_path = vocabulary if vocabulary is not None else find_vocabulary(root)
    if not exists(vocabulary_path):
        raise InputError(f"there is no vocabulary at {vocabulary_path}; check the path")
    words, vocabulary_sha256 = read_vocabulary(vocabulary_path)
    n_words = len(words.words)
    found = in_threads(lambda name: read_footer(join(root, name), n_words, hashing=True), names)
    shards = tuple(replace(shard, name=name) for name, shard in zip(names, found, strict=True))
    if not sum(shard.rows for shard in shards):
        raise InputError(f"{root} is an empty corpus: its {len(shards)} Parquet files hold no documents")
    if not sum(shard.nonzeros for shard in shards):
        raise InputError(f"{root} is an empty corpus: none of its documents has a word")
    return Corpus(root, shards, n_words, vocabulary_sha256, vocabulary_path)


def is_corpus(path: AnyPath, wanted: str = SOURCE) -> bool:
    """Whether a path is a corpus: a directory with a manifest, or with Parquet files and a vocabulary."""
    root = normalize(path)
    require_no_store(root, wanted)
    if is_file(root):
        return False
    if exists(join(root, MANIFEST_NAME)):
        return True
    if not {VOCABULARY_NAME, *TEXT_NAMES} & {*file_names(root)}:
        return False
    return bool(_parquet_files(root, f"{DOCUMENTS}/") or _parquet_files(root, ""))


def find_shards(root: str, vocabulary: str | None = None) -> list[str]:
    """Names of the Parquet files in a directory and its ``documents/`` (not the vocabulary); ``InputError`` if none."""
    found = [*_parquet_files(root, f"{DOCUMENTS}/"), *_parquet_files(root, "")]
    names = [name for name in found if join(root, name) != vocabulary]
    if not names:
        raise unsuitable(root, CORPUS)
    return names


def find_vocabulary(root: str) -> str:
    """Path of the vocabulary file, found by its usual names; ``InputError`` if it is missing."""
    names, here = (VOCABULARY_NAME, *TEXT_NAMES), set(file_names(root))
    found = next((name for name in names if name in here), None)
    if found is None:
        there = is_at(root)
        without = f" without a vocabulary ({', '.join(names)})" if there == "a folder" else ""
        raise unsuitable(root, CORPUS, there + without)
    return join(root, found)


def _parquet_files(root: str, folder: str) -> dict[str, State]:
    """Parquet files in a folder of ``root`` that may be shards, and their states; skips hidden and marker files."""
    reserved, place = {VOCABULARY_NAME, QUARANTINE_NAME}, join(root, folder.rstrip("/")) if folder else root
    return {
        f"{folder}{name}": state
        for name, state in file_states(place).items()
        if name.endswith(PARQUET_SUFFIXES) and name not in reserved and name[0] not in "._"
    }
