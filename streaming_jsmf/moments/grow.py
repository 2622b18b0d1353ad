"""A store that grows and shrinks: corpora added, corpora and shards removed, stores merged.

Each change is a new manifest, put in place in one step; the stages that it makes stale are then run as after any
interruption. So an interrupted change is finished by the same call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.moments.engine import Crew
from streaming_jsmf.moments.finish import finish_stages
from streaming_jsmf.moments.manifest import shards_named, with_corpus, without
from streaming_jsmf.moments.scan import require_scan_memory
from streaming_jsmf.moments.store import MomentsStore, read_store, replace_manifest
from streaming_jsmf.runtime.events import Listener, silent
from streaming_jsmf.runtime.files import StorePath
from streaming_jsmf.runtime.lock import sole_writer
from streaming_jsmf.runtime.schedulers import Execution


def add_corpora(
    path: StorePath,
    corpora: Sequence[Corpus],
    execution: Execution | None = None,
    listener: Listener = silent,
) -> MomentsStore:
    """Add corpora with the same words to a store, behind what is there.

    Scan 1 reads the new corpora only; scan 2 all of them, since the basis has changed. The result has the bits of a
    store that all corpora were scanned into one after the other.

    Raises
    ------
    InputError
        If the words differ (merge stores of their own then), a shard is in the store already, or a corpus is bad: the
        store is then as it was.
    StoreError
        If the store, or a corpus that it was made of, is damaged or missing.
    """
    with sole_writer(path):
        store = read_store(path)
        unfinished = bool(store.missing_stages)

        def grown(manifest: Mapping[str, Any]) -> dict[str, Any]:
            for corpus in corpora:
                if not (unfinished and is_part(store, corpus)):
                    manifest = _added(store, manifest, corpus)
            return dict(manifest)

        return _change(store, grown, execution, listener)


def remove_from(
    path: StorePath, names: Sequence[str], execution: Execution | None = None, listener: Listener = silent
) -> MomentsStore:
    """Take corpora (by path) or shards (by name or hash) out of a store that keeps its partitions.

    Scan 1 is not repeated: the kept results are folded again. Scan 2 reads what stays. The result has the bits of a
    store that never had them.

    Raises
    ------
    InputError
        If the store does not keep its partitions, a name is unknown, or a shard shares a partition with one that stays.
    StoreError
        If the store, or a corpus that it was made of, is damaged or missing.
    """
    with sole_writer(path):
        store = read_store(path)
        if not store.keeps_partitions:
            raise InputError(
                f"{path}: does not keep its partitions, so nothing can be taken out; scan what is to stay into another "
                "store (with --keep-partitions, to remove from that one later)"
            )

        def shrunk(manifest: Mapping[str, Any]) -> dict[str, Any]:
            if store.missing_stages and not any(shards_named(manifest, name) for name in names):
                return dict(manifest)  # an interrupted removal of the same has got this far
            return without(manifest, names)

        return _change(store, shrunk, execution, listener)


def _change(
    store: MomentsStore,
    changed: Callable[[Mapping[str, Any]], dict[str, Any]],
    execution: Execution | None,
    listener: Listener,
) -> MomentsStore:
    """Finish the store as it is, then change its manifest and finish that. The caller holds the lock."""
    execution = execution or Execution()
    before = store.manifest
    after = changed(before)
    require_scan_memory(after, store.path, execution)
    with execution.runner() as arguments:
        crew = Crew(arguments, execution.tasks_at_once(arguments), listener)
        finish_stages(store, crew)
        if after == before:
            return store
        store = replace_manifest(store, after)
        try:
            finish_stages(store, crew)
        except InputError:
            # The input is bad: the store goes back to what it was, which is still there.
            restored = replace_manifest(store, before)
            restored.ledger("range").clear(restored.folds[-1], restored.part_keys)
            raise
    return store


def _added(store: MomentsStore, manifest: Mapping[str, Any], corpus: Corpus) -> dict[str, Any]:
    if tuple(corpus.vocabulary().words) != tuple(str(word) for word in store.read("word")):
        raise InputError(
            f"{corpus.root} has other words than {store.path}; scan it into a store of its own and merge the two "
            "with --merge"
        )
    return with_corpus(manifest, corpus)


def is_part(store: MomentsStore, corpus: Corpus) -> bool:
    """Whether a corpus, as it is, is in the store already."""
    return any(entry["fingerprint"] == corpus.fingerprint for entry in store.manifest["corpora"])
