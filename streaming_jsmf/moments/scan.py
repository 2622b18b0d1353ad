"""Scans a corpus into a moments store, or finishes an interrupted scan."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import list_units
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.integrity import require_intact
from streaming_jsmf.moments.manifest import Manifest, new_manifest, relocate, with_third_moment
from streaming_jsmf.moments.memory import fitting_settings, require_scan_memory
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.run import run_missing_stages
from streaming_jsmf.moments.store import (
    MomentsStore,
    create_store,
    read_store,
    replace_manifest,
    resume_store,
    words_digest,
)
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath, node_exists

logger = logging.getLogger(__name__)


def scan_corpus(
    corpus: Corpus,
    path: StorePath,
    settings: ScanSettings,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    keep_partitions: bool = False,
) -> MomentsStore:
    """Scan ``corpus`` into the moments store at ``path``, or finish what an earlier run left there.

    Makes ``settings.scans`` passes over the data. The same corpus and settings give the same bits on every scheduler
    and number of workers. If the store contains further corpora, the whole store is finished. With a memory budget
    and no partition size, a new store gets a size that fits (see ``fitting_settings``), and an existing store keeps
    its own. ``keep_partitions`` keeps the result of each partition (a factor of N x L x 4 bytes), so that partitions
    can be removed or selected later.

    Raises
    ------
    InputError
        If the corpus has a bad record, the settings differ from those of an existing store, the memory budget is too
        small, or another process is writing the store. A store that contains only a bad corpus is removed.
    StoreError
        If a shard or the store is damaged. Everything committed is verified first.
    """
    execution = execution or Execution()
    words = corpus.vocabulary().words
    settings = _resolved(settings, corpus, path, keep_partitions=keep_partitions)
    if execution.memory is not None and settings.partition_nonzeros is None:
        settings = _sized(settings, corpus, path, execution)
    manifest = new_manifest(corpus, settings, words_digest(words), keep_partitions=keep_partitions)
    existing = resume_store(path, manifest)
    if existing is not None:
        _tell_what_else(existing, corpus)
        if not existing.missing_stages and _asked(existing, corpus, settings) == existing.manifest:
            clear_leftovers(existing)
            require_intact(existing)
            return existing
    planned = _asked(existing, corpus, settings) if existing else manifest
    require_scan_memory(planned, path, execution, [corpus])
    with sole_writer(path):
        return _scan_alone(path, manifest, words, corpus, execution, listener)


def _scan_alone(
    path: StorePath,
    manifest: Manifest,
    words: Sequence[str],
    corpus: Corpus,
    execution: Execution,
    listener: Listener,
) -> MomentsStore:
    # Read the store again: another process may have changed it before the lock was taken.
    existing = resume_store(path, manifest)
    if existing is not None:
        require_intact(existing)
    # Connect to the scheduler first: if it does not respond, no store is created or changed.
    with execution.executor(listener) as executor:
        if existing is None:
            store = create_store(path, manifest, words)
        else:
            store = _followed(existing, corpus, manifest.scan_settings)
        try:
            run_missing_stages(store, executor, [corpus])
            return store
        except InputError as error:
            bad_corpus = error
    if len(store.manifest.corpora) == 1 and store.outcome("range") is None:
        # Such a store can never be completed, since a corrected corpus has another fingerprint. No task is running.
        store.discard()
    raise bad_corpus


def _resolved(
    settings: ScanSettings, corpus: Corpus, path: StorePath, *, keep_partitions: bool
) -> ScanSettings:
    """As ``ScanSettings.resolved``, except that an existing store keeps its chosen values."""
    if node_exists(path):
        stored = read_store(path).settings
        if stored.range_finder == "sample" and settings.range_finder == "sample":
            return settings
        settings = settings.as_chosen_in(stored)
    size = (corpus.n_documents, corpus.n_words, corpus.nonzeros)
    return settings.resolved(*size, keep_partitions=keep_partitions)


def _sized(settings: ScanSettings, corpus: Corpus, path: StorePath, execution: Execution) -> ScanSettings:
    if node_exists(path):
        # The store may have been started with another budget or number of workers, which must not change its settings.
        return replace(settings, partition_nonzeros=read_store(path).settings.partition_nonzeros)
    return fitting_settings(settings, corpus.n_words, list_units(corpus), execution)


def clear_leftovers(store: MomentsStore) -> None:
    """Remove what a killed process left in or next to a complete store; leave the files of a running process."""
    if not store.is_cleared():
        # Clearing is optional: leftovers stay on a read-only medium.
        with suppress(InputError, OSError), sole_writer(store.path):
            found = read_store(store.path)
            if not found.missing_stages:
                found.clear()


def finish_store(
    path: StorePath, execution: Execution | None = None, listener: Listener = silent
) -> MomentsStore:
    """Finish the store at ``path`` after any interruption and clear leftovers; verify a complete one.

    Raises ``InputError`` and ``StoreError`` as ``run_missing_stages``, and if a complete store is damaged.
    """
    execution = execution or Execution()
    with sole_writer(path):
        store = read_store(path)
        if store.missing_stages:
            require_scan_memory(store.manifest, path, execution)
            with execution.executor(listener) as executor:
                run_missing_stages(store, executor)
        else:
            require_intact(store)
            store.clear()
    return store


def _asked(store: MomentsStore, corpus: Corpus, settings: ScanSettings) -> Manifest:
    """The manifest with the current location of the corpus, and with the third moment if requested."""
    manifest = relocate(store.manifest, corpus)
    return with_third_moment(manifest) if settings.third_moment else manifest


def _followed(store: MomentsStore, corpus: Corpus, settings: ScanSettings) -> MomentsStore:
    manifest = _asked(store, corpus, settings)
    if settings.third_moment and not store.settings.third_moment:
        # Detect a moved corpus before the store becomes incomplete.
        load_partitions(manifest, str(store.path), [corpus])
    return store if manifest == store.manifest else replace_manifest(store, manifest)


def _tell_what_else(store: MomentsStore, corpus: Corpus) -> None:
    """Warn if the store contains more or less than the corpus."""
    others = [e.path for e in store.manifest.corpora if e.fingerprint != corpus.fingerprint]
    if others:
        logger.warning("%s holds more than %s: %s", store.path, corpus.location, ", ".join(others))
    held = {digest for entry in store.manifest.corpora for digest in entry.shards.values()}
    gone = [shard.name for shard in corpus.shards if shard.rows and shard.sha256 not in held]
    if gone:
        logger.warning(
            "%s holds %s without what was removed: %s", store.path, corpus.location, ", ".join(gone)
        )
