"""Write corpus directories atomically."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from streaming_jsmf.corpus.format import (
    DOCUMENTS,
    Corpus,
    open_corpus,
    read_manifest,
    require_no_other_shards,
    verify_corpus,
)
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
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import AnyPath, is_url, normalize, sha256_of, store_path, write_bytes
from streaming_jsmf.storage.replace import new_directory, put_in_place
from streaming_jsmf.storage.results import Found, Wanted

_ADVICE = "remove it, or choose another path"


@dataclass(frozen=True)
class Origin:
    """Provenance of a corpus, as recorded in its manifest.

    ``dropped`` has the curation steps, ``attribution`` the sentence required by the licence, ``source`` name, licence
    and URL, ``settings`` how the corpus was made, without paths, and ``request`` identifies the command.
    """

    dropped: Sequence[Dropped] = ()
    attribution: str | None = None
    source: Mapping[str, Json] | None = None
    settings: Mapping[str, Json] | None = None
    request: Mapping[str, Any] = field(default_factory=dict)


class CorpusWriter:
    """Write documents, in the given order, as shards, vocabulary and manifest. Makes one pass.

    Files are written to a sibling directory; ``commit`` writes the manifest last and renames the directory to the
    target, unless the same corpus is there already. Leaving the ``with`` block without a commit removes the directory,
    and the next writer of the target removes one that a killed process has left. The same documents give the same
    bytes, however they are batched. Memory: one row group, one batch, and two arrays of length N.

    ``words`` are the N words by id. Raises ``InputError`` if the target is a URL or not a corpus, or another process is
    writing it.
    """

    def __init__(self, target: AnyPath, words: Sequence[str], limits: ShardLimits | None = None) -> None:
        self._target = corpus_target(target)
        if self._target.exists():
            read_manifest(self._target)
        self._words = pa.array(words, pa.string())
        self._limits, self._held = limits or ShardLimits(), ExitStack()

    def __enter__(self) -> CorpusWriter:
        with ExitStack() as held:
            held.enter_context(sole_writer(self._target))
            self._new = new_directory(self._target)
            held.callback(shutil.rmtree, self._new, ignore_errors=True)
            (self._new / DOCUMENTS).mkdir()
            self._shards = ShardWriter(self._new / DOCUMENTS, len(self._words), self._limits)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shards.abort()
        self._held.close()

    def write(self, documents: Documents) -> None:
        """Write checked documents; see ``ShardWriter.write``."""
        self._shards.write(documents)

    def commit(self, origin: Origin | None = None) -> Corpus:
        """Write the vocabulary and the manifest, rename the directory to the target, and open the result.

        Raises ``InputError`` if no document with a word was written, or the target has another corpus.
        """
        shards = self._shards.close()
        if not sum(shard.nonzeros for shard in shards):
            raise InputError(f"{self._target} would be an empty corpus: no document with a word was written")
        counts = WordCounts(self._words, self._shards.document_frequency, self._shards.term_count)
        finish_directory(self._new, shards, counts, origin or Origin())
        made = open_corpus(self._new).fingerprint
        wanted = wanted_corpus(self._target, {"contents": made})
        same = replace(
            wanted, stored=lambda: {"contents": open_corpus(self._target).fingerprint}, advice=_ADVICE
        )
        if same.find() is not Found.MADE:
            put_in_place(self._new, self._target)
        return open_corpus(self._target)


def finish_directory(
    directory: Path, shards: Sequence[ShardEntry], counts: WordCounts, origin: Origin
) -> None:
    """Write the vocabulary, then the manifest, of a directory with shards in ``documents/``.

    Shards are named relative to ``documents/``.
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
        request=dict(origin.request),
    )
    write_bytes(directory / MANIFEST_NAME, dump_manifest(manifest))


def corpus_target(target: AnyPath) -> Path:
    """Return the local path of a corpus to be written; raise ``InputError`` for a URL."""
    path = normalize(target)
    if is_url(path):
        raise InputError(
            f"cannot write a corpus to {path}: a rename there is not atomic; write locally, then copy"
        )
    store_path(path, "a corpus")
    return Path(path)


def wanted_corpus(target: Path, request: Mapping[str, Any], *, overwrite: bool = False) -> Wanted:
    """Return the corpus that a request asks for, which verifies a corpus at ``target`` by the hashes of its files."""

    def stored() -> Mapping[str, Any]:
        manifest = read_manifest(target)
        try:
            require_no_other_shards(str(target), manifest)
        except StoreError as error:
            raise InputError(str(error)) from error  # a shard of the user is never replaced
        return manifest.request

    def is_intact() -> bool:
        verify_corpus(open_corpus(target))
        return True

    return Wanted(target, request, stored, is_intact, overwrite)
