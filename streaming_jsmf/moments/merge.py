"""Merges two stores: the parts of the second follow those of the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError, option
from streaming_jsmf.fingerprint import differences
from streaming_jsmf.jobs.checkpoints import Checkpoints
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.linalg.typing import Integers
from streaming_jsmf.moments.manifest import StoreManifest, WordIds, words_digest, write_word_ids
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import replace_manifest, run_stages, write_empty_store
from streaming_jsmf.moments.stages.range import reindex
from streaming_jsmf.moments.store import Moments, read_store
from streaming_jsmf.storage.paths import store_path
from streaming_jsmf.storage.replace import store_written


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
    _require_mergeable(store, second)
    words, ids = _union(store.words, second.words)
    same = words == second.words == store.words
    if not (same or isinstance(path, Path)):
        raise InputError(
            f"{path}: stores with different words are merged by a rename, which object stores do not support; merge "
            "them in a local directory, then copy the result"
        )
    known = [second.word_ids(entry) for entry in second.manifest.corpora]
    word_ids = known if same else [ids if own is None else ids[own] for own in known]
    manifest = _merged_manifest(store.manifest, second.manifest, words, word_ids)
    manifest = (manifest.on_basis_of(store.manifest) if same else manifest).changed(change=mark)
    require_scan_memory(manifest, path, execution)
    if store.reads_twice:
        # Detect a moved corpus before anything changes.
        load_partitions(manifest, path)
    keys = (
        manifest.part_keys[: len(store.manifest.partitions)],
        manifest.part_keys[len(store.manifest.partitions) :],
    )
    if same:
        write_word_ids(path, word_ids)
        # The parts have no effect until the manifest names them.
        _copy_parts(second, store.checkpoints("range"), keys[1])
        merged = replace_manifest(store, manifest)
    else:
        with store_written(path, overwrite=True) as beside:
            write_empty_store(beside, manifest, words)
            write_word_ids(beside, [*map(store.word_ids, store.manifest.corpora), *word_ids])
            target = Moments(beside, manifest).checkpoints("range")
            _copy_parts(store, target, keys[0], np.arange(store.n_words), len(words))
            _copy_parts(second, target, keys[1], ids, len(words))
        merged = read_store(path)
    run_stages(merged, executor)
    return merged


def _merged_manifest(
    first: StoreManifest, second: StoreManifest, words: Sequence[str], word_ids: Sequence[Integers | None]
) -> StoreManifest:
    """The manifest of the first store with corpora and partitions of the second appended."""
    shift = len(first.corpora)
    theirs = (
        entry.model_copy(update={"word_ids": None if ids is None else WordIds.of(ids)})
        for entry, ids in zip(second.corpora, word_ids, strict=True)
    )
    moved = (p.model_copy(update={"corpus": p.corpus + shift}) for p in second.partitions)
    return first.with_new_basis().changed(
        vocabulary=words_digest(words),
        n_words=len(words),
        corpora=(*first.corpora, *theirs),
        partitions=(*first.partitions, *moved),
    )


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
                    f"{second.path}: {entry.path}/{name} is in {store.path} already; a document counts once: scan one "
                    "of them without it"
                )
    for each in (store, second):
        if each.missing_stages:
            raise StoreError(
                f"{each.path}: incomplete, missing {', '.join(each.missing_stages)}; finish its scan, then merge"
            )


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[tuple[str, ...], Integers]:
    """Words of the first store, then those only in the second, and the ids of the second's words in this union."""
    ids = {word: i for i, word in enumerate(dict.fromkeys((*first, *second)))}
    return tuple(ids), np.array([ids[word] for word in second], np.int64)


def _copy_parts(
    source: Moments, target: Checkpoints, keys: Sequence[str], rows: Integers | None = None, n_words: int = 0
) -> None:
    """Commit the parts of a store under other keys, with its words in other ``rows`` of ``n_words``."""
    parts = source.checkpoints("range")
    for known, key in zip(source.manifest.part_keys, keys, strict=True):
        if not target.is_committed(key):
            part = parts.read_part(known)
            part = part if rows is None else reindex(part, rows, n_words)
            target.commit_part(key, part, {"merged": str(source.path)})
