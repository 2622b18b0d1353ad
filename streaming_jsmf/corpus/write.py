"""A corpus directory appears whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import DOCUMENTS, Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import (
    MANIFEST_NAME,
    Dropped,
    Json,
    Manifest,
    ShardEntry,
    Totals,
    VocabularyEntry,
    as_number,
    dump_manifest,
)
from streaming_jsmf.corpus.records import BATCH_NONZEROS, Documents, documents_from_batch
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD, ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import VOCABULARY_NAME, make_vocabulary, write_vocabulary
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import AnyPath, is_url, normalise, sha256_of, write_bytes
from streaming_jsmf.storage.replace import put_in_place, require_outside


@dataclass(frozen=True)
class Origin:
    """What a manifest says of where a corpus is from.

    Attributes
    ----------
    dropped
        Steps of the curation.
    attribution
        The sentence that the licence asks for.
    source
        Name, licence, address and the like.
    settings
        What made the corpus, without paths.
    """

    dropped: Sequence[Dropped] = ()
    attribution: str | None = None
    source: Mapping[str, Json] | None = None
    settings: Mapping[str, Json] | None = None


class CorpusWriter:
    """Writes documents, in the order given, as shards, vocabulary and manifest. One pass, bounded memory.

    All files go to a sibling directory ``<target>.partial-<random>``; ``commit`` writes the manifest last and
    renames it onto the target. Leaving the ``with`` block without a commit removes it; only a killed process
    leaves it behind, for the user to delete. The same documents give the same bytes, however they are batched.

    Memory: one row group, one batch, and two arrays of N.

    Parameters
    ----------
    target
        Local directory to create; must not exist.
    words
        The N words; row number = id.
    tokens_per_shard, documents_per_shard, nonzeros_per_row_group
        See ``ShardLimits``.

    Raises
    ------
    InputError
        If the target exists or is a URL, or a bound is not positive.
    """

    def __init__(
        self,
        target: AnyPath,
        words: Sequence[str],
        *,
        tokens_per_shard: float = TOKENS_PER_SHARD,
        documents_per_shard: int | None = None,
        nonzeros_per_row_group: int = BATCH_NONZEROS,
    ) -> None:
        limits = ShardLimits(tokens_per_shard, documents_per_shard, nonzeros_per_row_group)
        self._target = free_target(target)
        self._words = tuple(words)
        self._partial = self._target.with_name(f"{self._target.name}.partial-{secrets.token_hex(4)}")
        (self._partial / DOCUMENTS).mkdir(parents=True)
        self._shards = ShardWriter(self._partial / DOCUMENTS, len(self._words), limits)

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    @property
    def document_frequency(self) -> NDArray[np.int64]:
        """Documents each word is in so far; (N,) int64."""
        return self._shards.document_frequency.copy()

    def write_batch(self, batch: Any, id_column: str | None = None) -> None:
        """Write an Arrow record batch with list columns ``ids`` and ``counts``.

        Raises
        ------
        InputError
            For what ``documents_from_batch`` and ``write`` refuse.
        """
        self.write(documents_from_batch(batch, len(self._words), id_column))

    def write(self, documents: Documents) -> None:
        """Write checked documents (ids sorted, unique, below N; counts positive).

        Raises
        ------
        InputError
            If the columns or their types differ from those of the first batch.
        """
        self._shards.write(documents)

    def commit(
        self,
        *,
        dropped: Sequence[Dropped] = (),
        attribution: str | None = None,
        source: Mapping[str, Json] | None = None,
        settings: Mapping[str, Json] | None = None,
    ) -> Corpus:
        """Write vocabulary and manifest, rename onto the target, open the result.

        Raises
        ------
        InputError
            If no document with a word was written or the target has appeared meanwhile.
        """
        entries = [in_documents(entry, entry.name) for entry in self._shards.close()]
        counts = WordTotals(self._words, self._shards.document_frequency, self._shards.term_count)
        origin = Origin(dropped, attribution, source, settings)
        finish_directory(self._partial, self._target, entries, counts, origin)
        free_target(self._target)
        put_in_place(self._partial, self._target)
        return open_corpus(self._target)

    def abort(self) -> None:
        """Remove what was written, unless it has been committed. May be called again."""
        self._shards.abort()
        shutil.rmtree(self._partial, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class WordTotals:
    """The N words of a corpus with their document frequencies (int64) and term counts (float64)."""

    words: Sequence[str]
    document_frequency: NDArray[np.int64]
    term_count: NDArray[np.float64]


def in_documents(entry: ShardEntry, name: str) -> ShardEntry:
    """The entry of a shard for a manifest: named ``documents/<name>``."""
    return entry.model_copy(update={"name": f"{DOCUMENTS}/{name}"})


def finish_directory(
    partial: Path, target: Path, shards: Sequence[ShardEntry], counts: WordTotals, origin: Origin
) -> None:
    """Make ``partial``, which holds the shards already, a corpus that can be renamed to ``target``.

    Writes the vocabulary, and the manifest last.

    Raises
    ------
    InputError
        If there is no document with a word.
    """
    if not sum(shard.nonzeros for shard in shards):
        raise InputError(f"{target} would be an empty corpus: no document with a word was written")
    manifest = Manifest(
        shards=tuple(shards),
        vocabulary=_write_vocabulary(partial, counts, sum(shard.rows for shard in shards)),
        totals=_totals(shards, len(counts.words)),
        dropped=tuple(origin.dropped),
        attribution=origin.attribution,
        source=dict(origin.source or {}),
        settings=dict(origin.settings or {}),
    )
    write_bytes(partial / MANIFEST_NAME, dump_manifest(manifest))


def free_target(target: AnyPath, *, overwrite: bool = False, resumed: bool = False) -> Path:
    """The local path of a corpus to be written.

    Parameters
    ----------
    resumed
        Whether to let one pass that a killed run may have put there (``jobs.folder.Workspace.held`` finds out).

    Raises
    ------
    InputError
        If there is something already, but for a corpus that may be overwritten; or it is a URL.
    """
    path = normalise(target)
    if is_url(path):
        raise InputError(
            f"cannot write a corpus to {path}: a rename there is not atomic; write locally, then copy"
        )
    if overwrite and Path(path).exists():
        read_manifest(path)
        require_outside(Path(path))
    elif os.path.lexists(path) and not (resumed and is_left(Path(path))):
        raise InputError(
            f"{path} exists; remove it, replace a corpus with --overwrite, or choose another path"
        )
    return Path(path)


def _write_vocabulary(partial: Path, counts: WordTotals, n_documents: int) -> VocabularyEntry:
    vocabulary = make_vocabulary(counts.words, counts.document_frequency, counts.term_count, n_documents)
    path = str(partial / VOCABULARY_NAME)
    write_vocabulary(vocabulary, path)
    return VocabularyEntry(words=len(counts.words), sha256=sha256_of(path))


def _totals(shards: Sequence[ShardEntry], n_words: int) -> Totals:
    return Totals(
        documents=sum(shard.rows for shard in shards),
        words=n_words,
        nonzeros=sum(shard.nonzeros for shard in shards),
        tokens=as_number(sum(shard.tokens for shard in shards)),
    )
