"""Merges two stores: the parts of the second follow those of the first."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError, option
from streaming_jsmf.fingerprint import differences
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.moments.manifest import Manifest, WordIds, words_digest, write_word_ids
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import replace_manifest, run_stages, write_empty_store
from streaming_jsmf.moments.stages.range import reindex
from streaming_jsmf.moments.store import Moments, read_store
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.storage.replace import store_written

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Union:
    """Words of the first store, then those only in the second, and the ids of the second's words in this union."""

    words: tuple[str, ...]
    word_ids: NDArray[np.int64]

    @property
    def same(self) -> bool:
        return len(self.word_ids) == len(self.words) and bool((np.diff(self.word_ids) == 1).all())


def merge_stores(
    store: Moments, execution: Execution, executor: Executor, *, other: str, mark: str
) -> Moments:
    """Merge the complete store at ``other`` into ``store``, after its own parts. Rows are matched by word.

    Scan 1 reads no corpus: the parts of both stores are folded in order, and with the same words, the result has the
    bits of adding the corpora of the second store. A word missing in a store is a row of zeros; with other words, scan
    2 reads all corpora.

    Raises ``SettingsMismatchError`` if the settings differ; ``InputError`` if a shard is in both stores, a corpus has
    moved, the stores hold sketches, or the words differ and the store is at a URL; ``StoreError`` if a store is
    incomplete or damaged.
    """
    path, second = store.path, read_store(store_path(other, "a moments store"))
    if _is_merged(store, second):
        raise InputError(f"{second.path} is in {path} already; a document counts once: leave it out")
    _require_mergeable(store, second)
    _require_complete(store)
    _require_complete(second)
    union = _unite(store.words, second.words)
    if not union.same:
        _require_local(path)
    word_ids = _word_ids(second, union)
    described = [None if ids is None else WordIds.of(ids) for ids in word_ids]
    manifest = _merged_manifest(store.manifest, second.manifest, union, described).changed(change=mark)
    require_scan_memory(manifest, path, execution)
    if store.reads_twice:
        # Detect a moved corpus before anything changes.
        load_partitions(manifest, path)
    if union.same:
        write_word_ids(path, word_ids)
        _copy_parts(store, second, manifest)
        merged = replace_manifest(store, manifest)
    else:
        merged = _rebuilt(store, second, manifest, union, word_ids)
    run_stages(merged, executor)
    return merged


def _merged_manifest(
    first: Manifest, second: Manifest, union: Union, word_ids: Sequence[WordIds | None]
) -> Manifest:
    """The manifest of the first store with corpora and partitions of the second appended."""
    shift = len(first.corpora)
    theirs = (
        entry.model_copy(update={"word_ids": ids})
        for entry, ids in zip(second.corpora, word_ids, strict=True)
    )
    moved = (p.model_copy(update={"corpus": p.corpus + shift}) for p in second.partitions)
    merged = first.with_new_basis().changed(
        vocabulary=words_digest(union.words),
        n_words=len(union.words),
        corpora=(*first.corpora, *theirs),
        partitions=(*first.partitions, *moved),
    )
    return merged.on_basis_of(first) if union.same else merged


def _is_merged(store: Moments, second: Moments) -> bool:
    known = {partition.content for partition in store.manifest.partitions}
    return all(partition.content in known for partition in second.manifest.partitions)


def _require_mergeable(store: Moments, second: Moments) -> None:
    ours, theirs = store.manifest, second.manifest
    # The third moment may differ: it is recomputed for the merged store if requested.
    if ours.range_key != theirs.range_key:
        detail = differences(ours.settings, theirs.settings) or "algorithm version"
        raise SettingsMismatchError(
            f"{second.path}: was made with other settings than {store.path} ({detail}); scan one of them again"
        )
    if store.settings.range_finder == "halko":
        raise InputError(
            f"{second.path}: holds a sketch, which cannot be merged; scan with {option.range_finder('sample')} to merge"
        )
    if ours.sample_share != theirs.sample_share:
        raise InputError(
            f"{second.path}: holds a share of {theirs.sample_share:.3g} of its documents, and {store.path} of "
            f"{ours.sample_share:.3g}; scan both with the same {option.sample_share} to merge them"
        )
    known = {content for entry in ours.corpora for content in entry.shards.values()}
    for entry in theirs.corpora:
        for name, content in entry.shards.items():
            if content in known:
                raise InputError(
                    f"{entry.path}/{name} is in both stores; a document counts once: scan one of them without it"
                )


def _require_complete(store: Moments) -> None:
    if store.missing_stages:
        raise StoreError(
            f"{store.path}: incomplete, missing {', '.join(store.missing_stages)}; finish its scan, then merge"
        )


def _require_local(path: StorePath) -> Path:
    """Return a local path; a store with new words replaces the old one by a rename."""
    if not isinstance(path, Path):
        raise InputError(
            f"{path}: stores with different words are merged by a rename, which object stores do not support; merge "
            "them in a local directory, then copy the result"
        )
    return path


def _unite(first: tuple[str, ...], second: tuple[str, ...]) -> Union:
    ids = {word: i for i, word in enumerate(first)}
    words = list(first)
    for word in second:
        if word not in ids:
            ids[word] = len(words)
            words.append(word)
    return Union(tuple(words), np.array([ids[word] for word in second], np.int64))


def _copy_parts(store: Moments, second: Moments, manifest: Manifest) -> None:
    """Commit the second store's parts in the first; they have no effect until the manifest names them."""
    ours, theirs = store.checkpoints("range"), second.checkpoints("range")
    new = manifest.part_keys[len(store.manifest.partitions) :]
    for key, known in zip(new, second.manifest.part_keys, strict=True):
        if not ours.is_committed(key):
            ours.commit_part(key, theirs.read_part(known), {"merged": str(second.path)})


def _rebuilt(
    store: Moments,
    second: Moments,
    manifest: Manifest,
    union: Union,
    word_ids: Sequence[NDArray[np.int64] | None],
) -> Moments:
    """A store over the union of the words, written next to the first and then renamed over it."""
    with store_written(_require_local(store.path), overwrite=True) as beside:
        write_empty_store(beside, manifest, union.words)
        own_ids = (store.word_ids(entry) for entry in store.manifest.corpora)
        write_word_ids(beside, [*own_ids, *word_ids])
        checkpoints = Moments(beside, manifest).checkpoints("range")
        own, keys = np.arange(store.n_words), iter(manifest.part_keys)
        for source, rows in ((store, own), (second, union.word_ids)):
            parts = source.checkpoints("range")
            for known in source.manifest.part_keys:
                part = reindex(parts.read_part(known), rows, len(union.words))
                checkpoints.commit_part(next(keys), part, {"merged": str(source.path)})
    return read_store(store.path)


def _word_ids(second: Moments, union: Union) -> list[NDArray[np.int64] | None]:
    known = [second.word_ids(entry) for entry in second.manifest.corpora]
    return known if union.same else [union.word_ids if ids is None else union.word_ids[ids] for ids in known]
