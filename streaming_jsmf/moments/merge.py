"""Merges two stores: part by part if both keep their parts, otherwise with the second store's factor as one part."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import differences
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.moments.manifest import Manifest, MergePlan, merged_manifest
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import run_stages
from streaming_jsmf.moments.stages.range import reindex
from streaming_jsmf.moments.store import (
    MomentsStore,
    read_store,
    replace_manifest,
    words_digest,
    write_empty_store,
)
from streaming_jsmf.moments.word_ids import describe_word_ids, read_word_ids, write_word_ids
from streaming_jsmf.storage.paths import StorePath
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
    store: MomentsStore, other: StorePath, execution: Execution, executor: Executor, *, mark: str
) -> MomentsStore:
    """Merge a complete store into ``store``, after its own parts. Rows are matched by word.

    The caller holds the lock of ``store``. Scan 1 reads no corpus. If both stores keep their partitions and have the
    same words, the parts are folded in order, and the result has the bits of a single store; otherwise the second
    store's factor is merged as one part, and the result keeps no partitions. A word missing in a store is a row of
    zeros. Scan 2 reads all corpora. ``mark`` is written to the manifest and identifies the change after an
    interruption.

    Raises ``SettingsMismatchError`` if the settings differ; ``InputError`` if a shard is in both stores, a corpus has
    moved, sketches have different words, or the words differ and the store is at a URL; ``StoreError`` if a store is
    incomplete or damaged.
    """
    path, second = store.path, read_store(other)
    if _is_merged(store, second):
        raise InputError(f"{other} is in {path} already; a document counts once: leave it out")
    _require_mergeable(store, second)
    _require_complete(store)
    _require_complete(second)
    union = _unite(_words(store), _words(second))
    if not union.same:
        _require_local(path)
    _require_same_probes(store, second, union)
    word_ids = _word_ids(second, union)
    plan = MergePlan(
        vocabulary=words_digest(union.words),
        n_words=len(union.words),
        word_ids=[None if ids is None else describe_word_ids(ids) for ids in word_ids],
        in_parts=union.same and store.manifest.keep_partitions and second.manifest.keep_partitions,
        same_words=union.same,
    )
    if store.manifest.keep_partitions and not plan.in_parts:
        logger.warning("%s does not keep its partitions any more: %s is one part of it", path, other)
    manifest = merged_manifest(store.manifest, second.manifest, plan).changed(change=mark)
    require_scan_memory(manifest, path, execution)
    if store.reads_twice:
        # Detect a moved corpus before anything changes.
        load_partitions(manifest, str(path))
    build = _extended if union.same else _rebuilt
    merged = build(store, second, manifest, union, word_ids)
    run_stages(merged, executor)
    return merged


def _is_merged(store: MomentsStore, second: MomentsStore) -> bool:
    known = {partition.content for partition in store.manifest.partitions}
    return all(partition.content in known for partition in second.manifest.partitions)


def _require_mergeable(store: MomentsStore, second: MomentsStore) -> None:
    ours, theirs = store.manifest, second.manifest
    # The third moment may differ: it is recomputed for the merged store if requested.
    if ours.range_key != theirs.range_key:
        detail = differences(ours.settings, theirs.settings) or "algorithm version"
        raise SettingsMismatchError(
            f"{second.path}: was made with other settings than {store.path} ({detail}); scan one of them again"
        )
    known = {content for entry in ours.corpora for content in entry.shards.values()}
    for entry in theirs.corpora:
        for name, content in entry.shards.items():
            if content in known:
                raise InputError(
                    f"{entry.path}/{name} is in both stores; a document counts once: scan one of them without it"
                )


def _require_complete(store: MomentsStore) -> None:
    if store.missing_stages:
        raise StoreError(
            f"{store.path}: incomplete, missing {', '.join(store.missing_stages)}; finish its scan, then merge"
        )


def _require_same_probes(store: MomentsStore, second: MomentsStore, union: Union) -> None:
    shares = [made.manifest.sample_share for made in (store, second)]
    if shares[0] != shares[1]:
        raise InputError(
            f"{second.path}: a share of {shares[1]:.3g} of its documents is in the sample, and {shares[0]:.3g} in "
            f"{store.path}; scan both with the same --sample-share to merge them"
        )
    if store.settings.range_finder == "halko" and not union.same:
        raise InputError(
            f"{second.path}: has other words than {store.path}, and a sketch hangs on the places of the words; "
            "scan with --range factors to merge, or ingest both corpora with one vocabulary"
        )


def _require_local(path: StorePath) -> Path:
    """Return a local path; a store with new words replaces the old one by a rename."""
    if not isinstance(path, Path):
        raise InputError(
            f"{path}: stores with different words are merged by a rename, which object stores lack; merge them in a "
            "local directory, then copy that"
        )
    return path


def _words(store: MomentsStore) -> tuple[str, ...]:
    return tuple(str(word) for word in store.read("word"))


def _unite(first: tuple[str, ...], second: tuple[str, ...]) -> Union:
    places = {word: i for i, word in enumerate(first)}
    words = list(first)
    for word in second:
        if word not in places:
            places[word] = len(words)
            words.append(word)
    return Union(tuple(words), np.array([places[word] for word in second], np.int64))


def _extended(
    store: MomentsStore,
    second: MomentsStore,
    manifest: Manifest,
    union: Union,
    word_ids: Sequence[NDArray[np.int64] | None],
) -> MomentsStore:
    del union
    write_word_ids(store.path, word_ids)
    _copy_parts(store, second, manifest, in_parts=manifest.keep_partitions)
    return replace_manifest(store, manifest)


def _copy_parts(store: MomentsStore, second: MomentsStore, manifest: Manifest, *, in_parts: bool) -> None:
    """Commit the second store's parts in the first; they have no effect until the manifest names them."""
    ours, theirs = store.checkpoints("range"), second.checkpoints("range")
    keys = manifest.part_keys[len(store.manifest.parts) :]
    if not in_parts:
        ours.commit_part(keys[0], theirs.read_fold(second.total), {"merged": str(second.path)})
        return
    for key in keys:
        if not ours.is_committed(key):
            ours.commit_part(key, theirs.read_part(key), {"merged": str(second.path)})


def _rebuilt(
    store: MomentsStore,
    second: MomentsStore,
    manifest: Manifest,
    union: Union,
    word_ids: Sequence[NDArray[np.int64] | None],
) -> MomentsStore:
    """A store over the union of the words, written next to the first and then renamed over it."""
    with store_written(_require_local(store.path), overwrite=True) as beside:
        made = write_empty_store(beside, manifest, union.words)
        own_ids = (read_word_ids(store, entry) for entry in store.manifest.corpora)
        write_word_ids(beside, [*own_ids, *word_ids])
        checkpoints, keys = made.checkpoints("range"), manifest.part_keys
        own = np.arange(store.n_words)
        for key, source, rows in ((keys[0], store, own), (keys[1], second, union.word_ids)):
            fold = source.checkpoints("range").read_fold(source.total)
            checkpoints.commit_part(key, reindex(fold, rows, len(union.words)), {"merged": str(source.path)})
    return read_store(store.path)


def _word_ids(second: MomentsStore, union: Union) -> list[NDArray[np.int64] | None]:
    known = [read_word_ids(second, entry) for entry in second.manifest.corpora]
    return known if union.same else [union.word_ids if ids is None else union.word_ids[ids] for ids in known]
