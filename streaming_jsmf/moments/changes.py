"""A store that grows and shrinks: corpora and shards removed, corpora added.

A change is a new manifest, put in place in one step; the stages that it makes stale are then run as after any
interruption. So an interrupted change is finished by finishing the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.moments.integrity import require_intact
from streaming_jsmf.moments.manifest import Manifest, with_corpus, with_third_moment, without
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import run_missing_stages
from streaming_jsmf.moments.store import MomentsStore, read_store, replace_manifest
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath


def change_store(
    path: StorePath,
    names: Sequence[str],
    corpora: Sequence[Corpus],
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    mark: str | None = None,
    rebase: bool = False,
) -> MomentsStore:
    """Remove what ``names`` name, then add ``corpora``; all of it or nothing.

    Scan 1 reads the new corpora only; what stays is folded again from the kept results where something was removed.
    Scan 2 reads all that the store is then made of, since the basis has changed. The result has the bits of a store
    that never had the one and was scanned with the other.

    A store with a sample keeps its basis when documents are added, and every scan reads the new corpora only.

    Parameters
    ----------
    names
        Paths of corpora; paths, names or hashes of shards. Only of a store that keeps its partitions.
    corpora
        With the words of the store.
    mark
        Put into the manifest with the change, so that the caller knows it again after an interruption.
    rebase
        Make the basis of all that the store is then made of, as if it had been scanned at once.

    Raises
    ------
    InputError
        If the store does not keep its partitions, a name is unknown, a shard shares a partition with one that stays,
        the words differ (merge stores of their own then), a shard is in the store already, or a corpus is bad: the
        store is then as it was.
    StoreError
        If the store, or a corpus that it was made of, is damaged.
    """
    with sole_writer(path):
        return _change_alone(path, names, corpora, execution or Execution(), listener, mark, rebase)


def _change_alone(
    path: StorePath,
    names: Sequence[str],
    corpora: Sequence[Corpus],
    execution: Execution,
    listener: Listener,
    mark: str | None,
    rebase: bool,
) -> MomentsStore:
    store = read_store(path)
    require_intact(store, folded=False)
    if names and not store.manifest.keep_partitions:
        raise InputError(
            f"{path}: does not keep its partitions, so nothing can be taken out; scan what is to stay into another "
            "store (with --keep-partitions, to remove from that one later)"
        )
    after = without(store.manifest, names) if names else store.manifest
    for corpus in corpora:
        after = _added(store, after, corpus)
    if not after.partitions:
        raise InputError(f"{path}: nothing would be left of the store; delete it instead")
    if rebase:
        after = after.with_new_basis()
    elif not names:
        after = after.on_basis_of(store.manifest)
    after = after.changed(change=mark)
    require_scan_memory(after, store.path, execution, corpora)
    with execution.executor(listener) as executor:
        # What was interrupted before is finished first: a change that fails falls back on a complete store.
        run_missing_stages(store, executor, corpora)
        return _switched(store, after, executor, corpora)


def _switched(
    store: MomentsStore, after: Manifest, executor: Executor, corpora: Sequence[Corpus]
) -> MomentsStore:
    """Put the manifest in place and run what it lacks; the old one again if the input turns out to be bad."""
    if store.reads_twice:
        # A corpus that is not where it was is better found now than when scan 1 is done.
        load_partitions(after, str(store.path), corpora)
    before, store = store, replace_manifest(store, after)
    try:
        run_missing_stages(store, executor, corpora)
    except (InputError, StoreError):
        # Once scan 1 is committed its input was good, and only the change itself can be gone on with.
        if before.outcome("range") is not None:
            replace_manifest(before, before.manifest)
            # Parts that are folded have lost their arrays, and would be missed in another order.
            before.clear()
        raise
    return store


def add_third_moment(
    path: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    mark: str | None = None,
) -> MomentsStore:
    """Give a store the third moment of all that it is made of, in one pass; none if it is there.

    The result has the bits of a store that was scanned with it.

    Parameters
    ----------
    mark
        Put into the manifest, so that the caller knows the step again after an interruption.

    Raises
    ------
    InputError
        If a corpus is not where it was, or the memory budget is too small: the store is then as it was.
    StoreError
        If the store, or a corpus that it was made of, is damaged.
    """
    execution = execution or Execution()
    with sole_writer(path):
        store = read_store(path)
        require_intact(store, folded=False)
        after = with_third_moment(store.manifest).changed(change=mark)
        require_scan_memory(after, path, execution)
        with execution.executor(listener) as executor:
            run_missing_stages(store, executor)
            if not store.settings.third_moment:
                # A corpus that is not where it was is better found before the store lacks anything.
                load_partitions(after, str(path))
            store = replace_manifest(store, after)
            run_missing_stages(store, executor)
        return store


def _added(store: MomentsStore, manifest: Manifest, corpus: Corpus) -> Manifest:
    if corpus.vocabulary().words != tuple(map(str, store.read("word"))):
        raise InputError(
            f"{corpus.root} has other words than {store.path}; scan it into a store of its own and merge the two "
            "with --merge"
        )
    return with_corpus(manifest, corpus)


def is_part(store: MomentsStore, corpus: Corpus) -> bool:
    """Whether a corpus, as it is, is one that the store was made of."""
    return any(entry.fingerprint == corpus.fingerprint for entry in store.manifest.corpora)
