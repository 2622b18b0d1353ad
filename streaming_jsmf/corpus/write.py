"""Write corpus directories atomically."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyarrow as pa

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
from streaming_jsmf.corpus.records import Documents
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import VOCABULARY_NAME, WordCounts, write_vocabulary
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.storage.lock import is_left
from streaming_jsmf.storage.paths import AnyPath, is_url, normalise, sha256_of, store_path, write_bytes
from streaming_jsmf.storage.replace import put_in_place, require_outside


@dataclass(frozen=True)
class Origin:
    """Provenance of a corpus, as recorded in its manifest.

    ``dropped`` has the curation steps, ``attribution`` the sentence required by the licence, ``source`` name, licence
    and URL, and ``settings`` how the corpus was made, without paths.
    """

    dropped: Sequence[Dropped] = ()
    attribution: str | None = None
    source: Mapping[str, Json] | None = None
    settings: Mapping[str, Json] | None = None


class CorpusWriter:
    """Write documents, in the given order, as shards, vocabulary and manifest. Makes one pass.

    Files are written to a sibling directory ``<target>.partial-<random>``; ``commit`` writes the manifest last and
    renames the directory to the target. Leaving the ``with`` block without a commit removes it; only a killed process
    leaves it behind, to be deleted manually. The same documents give the same bytes, however they are batched. Memory:
    one row group, one batch, and two arrays of length N.

    ``words`` are the N words by id. Raises ``InputError`` if the target exists or is a URL.
    """

    def __init__(self, target: AnyPath, words: Sequence[str], limits: ShardLimits | None = None) -> None:
        self._target = free_target(target)
        self._words = pa.array(words, pa.string())
        self._partial = self._target.with_name(f"{self._target.name}.partial-{secrets.token_hex(4)}")
        (self._partial / DOCUMENTS).mkdir(parents=True)
        self._shards = ShardWriter(self._partial / DOCUMENTS, len(self._words), limits or ShardLimits())

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shards.abort()
        shutil.rmtree(self._partial, ignore_errors=True)

    def write(self, documents: Documents) -> None:
        """Write checked documents; see ``ShardWriter.write``."""
        self._shards.write(documents)

    def commit(self, origin: Origin | None = None) -> Corpus:
        """Write the vocabulary and the manifest, rename the directory to the target, and open the result.

        Raises ``InputError`` if no document with a word was written, or the target was created in the meantime.
        """
        shards = self._shards.close()
        if not sum(shard.nonzeros for shard in shards):
            raise InputError(f"{self._target} would be an empty corpus: no document with a word was written")
        counts = WordCounts(self._words, self._shards.document_frequency, self._shards.term_count)
        finish_directory(self._partial, shards, counts, origin or Origin())
        free_target(self._target)
        put_in_place(self._partial, self._target)
        return open_corpus(self._target)


def finish_directory(
    directory: Path, shards: Sequence[ShardEntry], counts: WordCounts, origin: Origin
) -> dict[Path, str]:
    """Write the vocabulary, then the manifest, of a directory with shards in ``documents/``.

    Shards are named relative to ``documents/``. Returns their sha256 by path.
    """
    documents, n_words = sum(shard.rows for shard in shards), len(counts.words)
    vocabulary = directory / VOCABULARY_NAME
    write_vocabulary(counts, documents, vocabulary)
    entries = [shard.model_copy(update={"name": f"{DOCUMENTS}/{shard.name}"}) for shard in shards]
    manifest = Manifest(
        shards=tuple(entries),
        vocabulary=VocabularyEntry(words=n_words, sha256=sha256_of(vocabulary)),
        totals=Totals(
            documents=documents,
            words=n_words,
            nonzeros=sum(shard.nonzeros for shard in shards),
            tokens=as_number(sum(shard.tokens for shard in shards)),
        ),
        dropped=tuple(origin.dropped),
        attribution=origin.attribution,
        source=dict(origin.source or {}),
        settings=dict(origin.settings or {}),
    )
    write_bytes(directory / MANIFEST_NAME, dump_manifest(manifest))
    return {directory / entry.name: entry.sha256 for entry in entries}


def free_target(target: AnyPath, *, overwrite: bool = False, resumed: bool = False) -> Path:
    """Return the local path of a new corpus; ``resumed`` accepts one that a killed run may have put there.

    Raises ``InputError`` if the path is a URL, or exists and is not a corpus that may be overwritten.
    """
    path = normalise(target)
    if is_url(path):
        raise InputError(
            f"cannot write a corpus to {path}: a rename there is not atomic; write locally, then copy"
        )
    store_path(path, "a corpus")
    if overwrite and Path(path).exists():
        read_manifest(path)
        require_outside(Path(path))
    elif os.path.lexists(path) and not (resumed and is_left(Path(path))):
        raise InputError(
            f"{path} exists; remove it, replace a corpus with {option.overwrite(True)}, or choose another path"
        )
    return Path(path)
