"""Changes to a store: corpora and shards removed, corpora added, stores merged, the third moment added.

A change replaces the manifest atomically, then runs the stages that it makes stale, as after any interruption.
Finishing the store therefore also finishes an interrupted change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import Corpus, corpus_root
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, SettingsMismatchError, StoreError, option
from streaming_jsmf.fingerprint import differences
from streaming_jsmf.jobs.checkpoints import Checkpoints, key_of
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.linalg.typing import Integers
from streaming_jsmf.moments.integrity import is_cleared, remove_leftovers
from streaming_jsmf.moments.manifest import (
    PartitionEntry,
    StoreManifest,
    following,
    joined,
    read_manifest,
    refuse_known_shards,
    with_corpus,
    with_partitions,
    with_third_moment,
    words_digest,
    write_word_ids,
)
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import replace_manifest, run_stages, switch, write_empty_store
from streaming_jsmf.moments.stages.range import reindex
from streaming_jsmf.moments.store import Moments, read_store
from streaming_jsmf.storage.lock import recover, sole_writer
from streaming_jsmf.storage.paths import StorePath, join, normalize, store_path
from streaming_jsmf.storage.replace import store_written

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Changes:
    """Changes to a store: removals and additions in one step, then the merges in order, then the third moment.

    remove : Paths of corpora, names or hashes of shards.
    add : Paths or URLs of corpora with the same words.
    merge : Paths of moments stores.
    third_moment : With another change: add the third moment of the resulting store, if it has none.
    rebase : Recompute the basis from all documents of the store.
    """

    remove: Sequence[str] = ()
    add: Sequence[str] = ()
    merge: Sequence[str] = ()
    third_moment: bool = False
    rebase: bool = False

    @property
    def any(self) -> bool:
        """Whether there is something to change besides the third moment."""
        return bool(self.remove or self.add or self.merge or self.rebase)

    def steps(self, corpus: str) -> dict[str, Callable[..., Moments]]:
        """The steps of these changes by mark, in order: functions of store, execution, executor and ``mark``.

        Each is applied atomically and returns the changed store, whose manifest keeps the mark of its last step, so
        that a repeated request finds it.
        """
        of_corpora = self.remove or self.add or self.rebase
        applied: list[Callable[..., Moments]] = [partial(change_corpora, changes=self)] if of_corpora else []
        applied += [partial(merge_stores, other=other) for other in self.merge]
        asked = [corpus, *self.remove, "+", *self.add, "+", *self.merge]
        if self.rebase:
            asked.append("+ rebase")
        if self.third_moment:
            applied.append(add_third_moment)
            asked.append("+ third moment")
        return {key_of(*map(str, asked), str(i)): apply for i, apply in enumerate(applied)}


def steps_begun(stored: Moments | None, marks: Sequence[str], changes: Changes) -> int:
    """Number of steps of a request that the manifest contains, or 0 to start again.

    The mark of the last step stays in the manifest, so the same request again finds all its steps, unless the corpora
    have changed since.
    """
    if stored is None or stored.manifest.change not in marks:
        return 0
    begun = marks.index(stored.manifest.change) + 1
    if begun < len(marks) or not is_cleared(stored):
        return begun
    if _holds(stored, changes):
        logger.info("%s: was changed like this by an earlier run; there is nothing to do", stored.path)
        return begun
    return 0


def _holds(store: Moments, changes: Changes) -> bool:
    """Whether the store has the corpora that are to be added or merged."""
    merged = (read_manifest(store_path(other)).corpora for other in changes.merge)
    wanted = {entry.fingerprint for corpora in merged for entry in corpora}
    wanted |= {open_corpus(path).fingerprint for path in changes.add}
    return wanted <= {entry.fingerprint for entry in store.manifest.corpora}


def require_changeable(
    found: Moments, corpus: str | Path | Corpus, settings: ScanSettings | None, changes: Changes
) -> None:
    """Refuse to change a store with other settings or corpora, for example after a mistyped path."""
    # The third moment does not have to match: it is added on request, and never removed.
    ours = replace(found.settings, third_moment=False)
    if settings is not None and ours != replace(settings, third_moment=False):
        raise SettingsMismatchError(
            f"{found.path}: has settings of its own, which cannot change; omit the options of the scan, or scan "
            "into another path"
        )
    removed = {normalize(name) for name in changes.remove}
    place = corpus_root(corpus)
    fingerprints = {entry.fingerprint for entry in found.manifest.corpora}
    if place not in removed and open_corpus(corpus).fingerprint not in fingerprints:
        listed = ", ".join(found.manifest.paths)
        raise SettingsMismatchError(
            f"{found.path}: was not made of {place} but of {listed}; give one of these"
        )


def change_corpora(
    store: Moments, execution: Execution, executor: Executor, *, changes: Changes, mark: str
) -> Moments:
    """Remove corpora and shards, then add corpora, atomically.

    Added corpora have the words of the store. Scan 1 reads only the new corpora; after a removal the remaining parts
    are folded again. The basis is kept when documents are added, and every scan reads only the new corpora, unless
    these are larger than the others. After removals and with ``rebase``, the basis is recomputed, the other scans read
    all corpora, and the result has the bits of a store scanned from the same documents at once.

    Raises ``InputError`` if something is removed from a sketch, a name is unknown, a shard shares a partition with
    one that stays, the words differ (merge separate stores instead), a shard is already in the store, or a corpus is
    bad, and leaves the store unchanged; ``StoreError`` if the store or one of its corpora is damaged.
    """
    names, corpora = changes.remove, [open_corpus(path) for path in changes.add]
    if names and store.settings.range_finder == "halko":
        raise InputError(
            f"{store.path}: holds a sketch, from which nothing can be removed; scan what is to stay into another store"
        )
    after = _without(store.manifest, names) if names else store.manifest
    for corpus in corpora:
        if words_digest(corpus.vocabulary().words) != store.manifest.vocabulary:
            raise InputError(
                f"{corpus.root} has other words than {store.path}; scan it into a store of its own and merge the two "
                f"with {option.merge('MOMENTS')}"
            )
        after = with_corpus(after, corpus)
    if not after.partitions:
        raise InputError(f"{store.path}: nothing would be left of the store; delete it instead")
    if changes.rebase:
        after = after.with_new_basis()
    elif not names:
        after = after.on_basis_of(store.manifest)
    after = after.changed(change=mark)
    require_scan_memory(after, store.path, execution, corpora)
    if not store.is_complete():
        # Finish an earlier interruption first, so that a failed change can fall back on a complete store.
        run_stages(store, executor, corpora)
    before, store = store, switch(store, after, corpora)
    try:
        run_stages(store, executor, corpora)
    except (InputError, StoreError):
        # Once scan 1 is committed the input was good, and the change can only be completed.
        if before.has_outcome("range"):
            replace_manifest(before, before.manifest)
            # Folded parts have lost their arrays, which another folding order would need.
            remove_leftovers(before)
        raise
    return store


def follow_corpus(
    corpus: Corpus, path: StorePath, execution: Execution, listener: Listener = silent
) -> Moments:
    """Make the store at ``path`` hold exactly the documents of its corpus, whose shards have changed.

    Reads added shards and those that share a partition with a removed one; after a removal, the scans with the basis
    read all documents. A store with the same partitions from one scan has the same bits, unless the basis was kept,
    because documents were only added. An interrupted run is completed by the next, also of a later state of the corpus.

    Raises ``InputError`` if the corpus has other words or memory is too small; ``StoreError`` if a shard is damaged.
    """
    recover(path)
    store = read_store(path)
    if words_digest(corpus.vocabulary().words) != store.manifest.vocabulary:
        raise InputError(
            f"{corpus.root} has other words than {path}; fit a model of it, or ingest it with these words"
        )
    if following(store.manifest, corpus) == store.manifest and store.is_complete():
        return store
    with sole_writer(path), execution.executor(listener, target=path, sources=corpus.first_files) as executor:
        store = read_store(path)
        after = following(store.manifest, corpus)
        if not store.is_complete() and after.contents != store.manifest.contents:
            # The results that an earlier change was to extend may be missing.
            after = after.with_new_basis()
        require_scan_memory(after, path, execution, [corpus])
        run_stages(switch(store, after, [corpus]), executor, [corpus])
    return read_store(path)


def add_third_moment(store: Moments, execution: Execution, executor: Executor, *, mark: str) -> Moments:
    """Add the third moment to a complete store, in one pass over all its corpora, or none if it exists.

    The result has the bits of a store that was scanned with it. Raises ``InputError`` if a corpus has moved or the
    memory budget is too small (the store is then unchanged), and ``StoreError`` if the store or a corpus is damaged.
    """
    after = with_third_moment(store.manifest).changed(change=mark)
    require_scan_memory(after, store.path, execution)
    store = switch(store, after)
    run_stages(store, executor)
    return store


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
    manifest = joined(store.manifest, second.manifest, words, word_ids)
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
            f"{second.path}: holds a sketch, which cannot be merged; scan with "
            f"{option.range_finder('sample').alone} to merge"
        )
    if ours.sample_share != theirs.sample_share:
        raise InputError(
            f"{second.path}: holds a share of {theirs.sample_share:.3g} of its documents, and {store.path} of "
            f"{ours.sample_share:.3g}; scan both with the same {option.sample_share} to merge them"
        )
    for entry in theirs.corpora:
        refuse_known_shards(ours, entry, f"{second.path}: ")
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
        if not target.has("part", key):
            part = parts.read_part(known)
            part = part if rows is None else reindex(part, rows, n_words)
            target.commit_part(key, part, {"merged": str(source.path)})


def _without(manifest: StoreManifest, names: Sequence[str]) -> StoreManifest:
    """The manifest without the named corpora and shards (paths of corpora, names or hashes of shards).

    Raises ``InputError`` if a name is unknown, or a removed shard shares a partition with one that stays.
    """
    gone: set[tuple[int, str]] = set()
    for name in names:
        found = _shards_named(manifest, name)
        if not found:
            raise InputError(f"{name} is not in the store; it has {', '.join(manifest.paths)}")
        gone |= found
    staying = [not _is_gone(partition, gone, name=", ".join(names)) for partition in manifest.partitions]
    kept = tuple(p for p, stays in zip(manifest.partitions, staying, strict=True) if stays)
    return with_partitions(manifest.with_new_basis(), kept)


def _shards_named(manifest: StoreManifest, name: str) -> set[tuple[int, str]]:
    """(corpus index, shard) pairs that ``name`` matches. Raises ``InputError`` if it is ambiguous."""
    path = location(normalize(name))
    found, named = set(), []
    for number, entry in enumerate(manifest.corpora):
        whole = path == entry.path or name == entry.fingerprint
        for shard, digest in entry.shards.items():
            place = join(entry.path, shard)
            if whole or name == digest or path == place:
                found.add((number, shard))
            elif name in (shard, shard.rsplit("/", 1)[-1]):
                named.append((number, shard, place))
    places = dict.fromkeys(place for *_, place in named)
    if not found and len(places) > 1:
        raise InputError(f"{name} could be any of {', '.join(places)}; give the path of one")
    return found or {(number, shard) for number, shard, _ in named}


def _is_gone(partition: PartitionEntry, gone: set[tuple[int, str]], name: str) -> bool:
    shards = {shard for shard, _ in partition.units}
    leaving = {shard for shard in shards if (partition.corpus, shard) in gone}
    if leaving and leaving != shards:
        together = ", ".join(sorted(shards - leaving))
        raise InputError(
            f"{name}: {', '.join(sorted(leaving))} shares a partition with {together}; remove all of them, "
            "or scan again without"
        )
    return bool(leaving)
