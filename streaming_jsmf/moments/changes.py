"""Changes to a store: corpora and shards removed, corpora added, the third moment added.

A change replaces the manifest atomically, then runs the stages that it makes stale, as after any interruption.
Finishing the store therefore also finishes an interrupted change.
"""

from __future__ import annotations

from collections.abc import Sequence

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.moments.manifest import Manifest, with_corpus, with_third_moment, without
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import run_stages
from streaming_jsmf.moments.store import MomentsStore, replace_manifest, words_digest


def change_corpora(
    store: MomentsStore,
    names: Sequence[str],
    corpora: Sequence[Corpus],
    execution: Execution,
    executor: Executor,
    *,
    mark: str,
    rebase: bool = False,
) -> MomentsStore:
    """Remove what ``names`` lists, then add ``corpora``, atomically. The caller holds the lock of the store.

    ``names`` are paths of corpora, or paths, names or hashes of shards, of a store that keeps its partitions;
    ``corpora`` have the words of the store. Scan 1 reads only the new corpora; after a removal the kept results of
    the remaining parts are folded again. Scan 2 reads all corpora, since the basis has changed. The result has the
    bits of a store scanned from the same documents at once. A store with a sample keeps its basis when documents are
    added, and every scan reads only the new corpora, unless ``rebase`` recomputes the basis from all documents.
    ``mark`` is written to the manifest and identifies the change after an interruption.

    Raises
    ------
    InputError
        If the store does not keep its partitions, a name is unknown, a shard shares a partition with one that stays,
        the words differ (merge separate stores instead), a shard is already in the store, or a corpus is bad. The
        store is then unchanged.
    StoreError
        If the store or one of its corpora is damaged.
    """
    if names and not store.manifest.keep_partitions:
        raise InputError(
            f"{store.path}: does not keep its partitions, so nothing can be taken out; scan what is to stay into "
            "another store (with --keep-partitions, to remove from that one later)"
        )
    after = without(store.manifest, names) if names else store.manifest
    for corpus in corpora:
        if words_digest(corpus.vocabulary().words) != store.manifest.vocabulary:
            raise InputError(
                f"{corpus.root} has other words than {store.path}; scan it into a store of its own and merge the two "
                "with --merge"
            )
        after = with_corpus(after, corpus)
    if not after.partitions:
        raise InputError(f"{store.path}: nothing would be left of the store; delete it instead")
    if rebase:
        after = after.with_new_basis()
    elif not names:
        after = after.on_basis_of(store.manifest)
    after = after.changed(change=mark)
    require_scan_memory(after, store.path, execution, corpora)
    if not store.is_complete():
        # Finish an earlier interruption first, so that a failed change can fall back on a complete store.
        run_stages(store, executor, corpora)
    return _switched(store, after, executor, corpora)


def _switched(
    store: MomentsStore, after: Manifest, executor: Executor, corpora: Sequence[Corpus]
) -> MomentsStore:
    """Replace the manifest and run the missing stages; restore the old manifest if the input is bad."""
    if store.reads_twice:
        # Detect a moved corpus now, not after scan 1.
        load_partitions(after, str(store.path), corpora)
    before, store = store, replace_manifest(store, after)
    try:
        run_stages(store, executor, corpora)
    except (InputError, StoreError):
        # Once scan 1 is committed the input was good, and the change can only be completed.
        if before.has_outcome("range"):
            replace_manifest(before, before.manifest)
            # Folded parts have lost their arrays, which another folding order would need.
            before.clear()
        raise
    return store


def add_third_moment(
    store: MomentsStore, execution: Execution, executor: Executor, *, mark: str
) -> MomentsStore:
    """Add the third moment to a complete store, in one pass over all its corpora, or none if it exists.

    The caller holds the lock of the store. The result has the bits of a store that was scanned with it. ``mark`` is
    written to the manifest and identifies the step after an interruption. Raises ``InputError`` if a corpus has moved
    or the memory budget is too small (the store is then unchanged), and ``StoreError`` if the store or one of its
    corpora is damaged.
    """
    after = with_third_moment(store.manifest).changed(change=mark)
    require_scan_memory(after, store.path, execution)
    if not store.settings.third_moment:
        # Detect a moved corpus before the store becomes incomplete.
        load_partitions(after, str(store.path))
    store = replace_manifest(store, after)
    run_stages(store, executor)
    return store


def is_part(store: MomentsStore, corpus: Corpus) -> bool:
    """Whether a corpus with this fingerprint is in the store."""
    return any(entry.fingerprint == corpus.fingerprint for entry in store.manifest.corpora)
