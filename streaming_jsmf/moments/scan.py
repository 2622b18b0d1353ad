"""The ``scan`` function: creates, finishes, repairs or changes a moments store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from streaming_jsmf.config import ScanSettings, fields_given, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.format import corpus_root
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.jobs.checkpoints import RECORDS
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.moments.changes import Changes, require_changeable, steps_begun
from streaming_jsmf.moments.integrity import damage, is_cleared, remove_leftovers
from streaming_jsmf.moments.manifest import (
    KIND,
    StoreManifest,
    new_manifest,
    read_manifest,
    refuse_lost_root,
    relocate,
    with_third_moment,
)
from streaming_jsmf.moments.memory import require_scan_memory
from streaming_jsmf.moments.run import repair_words, run_stages, switch, write_empty_store
from streaming_jsmf.moments.store import Moments, open_moments, read_store
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.kinds import MOMENTS, taken
from streaming_jsmf.storage.lock import recover, sole_writer
from streaming_jsmf.storage.paths import StorePath, join, node_exists, store_path
from streaming_jsmf.storage.replace import remove_store, store_written
from streaming_jsmf.storage.results import Found, Wanted

logger = logging.getLogger(__name__)


@takes(ScanSettings, Execution)
def scan(
    corpus: str | Path | Corpus,
    moments: str | StorePath,
    settings: ScanSettings | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    changes: Changes | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Moments:
    """Scan a corpus into the store ``moments``, or finish an interrupted scan or change. Both are paths or URLs.

    Makes one pass over the corpus, two or three with a sample, none if the store is complete. Without
    ``changes`` everything committed is verified, and what is damaged is computed again. The same corpus and settings
    give the same bits on every scheduler and number of workers. A store scanned for more topics than requested is used
    as it is. With ``changes`` an existing store keeps its own settings, and ``corpus`` must be one of its corpora or
    one to be removed. ``corpus`` may be an open corpus. The fields of ``ScanSettings`` and ``Execution`` are also
    keyword arguments.

    With ``overwrite`` a store of another corpus or with other settings is removed and made again.

    Raises
    ------
    InputError
        If a corpus has a bad record, the settings differ from those of an existing store, the memory budget is too
        small, or another process is writing the store; see also ``change_corpora`` and ``merge_stores``. A new store
        that contains only a bad corpus is removed.
    StoreError
        If a shard is damaged, or something in the store that cannot be computed again.
    """
    # Workers may run in other directories.
    path, changes = store_path(moments, "a moments store").absolute(), changes or Changes()
    if overwrite and changes.any:
        raise InputError(
            f"{option.overwrite} replaces a store, and {option.add}, {option.remove}, {option.merge} and "
            f"{option.rebase} change it; give one of them"
        )
    if not node_exists(path):
        recover(path)
    is_node = node_exists(path)
    if is_node and read_attributes(path).get("kind") != KIND:
        raise taken(path, MOMENTS)
    stored = read_store(path) if is_node else None
    changes, settings = _wanted(stored, changes, settings, options)
    execution = settings_of("execution", Execution, execution, options)
    if settings is not None and settings.third_moment:
        changes = replace(changes, third_moment=changes.any)
    steps = changes.steps(corpus_root(corpus))
    begun = steps_begun(stored, list(steps), changes)
    of_corpus = stored is None or not changes.any
    if of_corpus:
        assert settings is not None, "only a change keeps the settings of the store"
        whole = open_corpus(corpus)
        sources = whole.first_files
        planned = _planned(whole, path, settings, stored, execution, overwrite)
        if planned is None:
            return open_moments(path)
        start = planned
    else:
        assert stored is not None
        if not begun:
            settings = None if settings is None else _as_stored(stored, settings)
            require_changeable(stored, corpus, settings, changes)
        start = partial(_continued, path, begun, execution)
        sources = () if begun else _sources(stored, changes)
    with sole_writer(path):
        is_new = of_corpus and (overwrite or not node_exists(path / RECORDS / "range"))
        bad_input = partial(_discard_unusable, path) if is_new else None
        # Connect to the scheduler first: if it does not respond, no store is created or changed.
        with execution.executor(listener, target=path, sources=sources, on_bad_input=bad_input) as executor:
            store = start(executor)
            for mark, apply in list(steps.items())[begun:]:
                store = apply(store, execution, executor, mark=mark)
    return open_moments(path)


def _sources(store: Moments, changes: Changes) -> tuple[str, ...]:
    """The first file of each corpus that a change reads and that may be new to the workers."""
    files = [file for path in changes.add for file in open_corpus(path).first_files]
    for other in changes.merge if store.reads_twice else ():
        entries = read_manifest(store_path(other, "a moments store")).corpora
        files += [join(entry.path, name) for entry in entries for name in sorted(entry.shards)[:1]]
    return tuple(files)


def _planned(
    corpus: Corpus,
    path: StorePath,
    settings: ScanSettings,
    stored: Moments | None,
    execution: Execution,
    overwrite: bool,
) -> Callable[[Executor], Moments] | None:
    """The scan of a corpus into a new store or one that contains it; None if the store is complete and intact."""
    # Another store is replaced with ``overwrite``.
    asked = new_manifest(corpus, settings if stored is None else _as_stored(stored, settings))
    found = _wanted_store(corpus, path, asked, overwrite).find()
    if found is Found.MADE:
        _clear_leftovers(read_store(path))
        return None
    if found is Found.OTHER:
        asked = new_manifest(corpus, settings)
    is_new = stored is None or found is Found.OTHER
    after = asked if stored is None or is_new else _completed(stored, corpus, asked)
    require_scan_memory(after, path, execution, [corpus], is_new=is_new)
    return partial(_scanned, corpus, path, asked, found is Found.OTHER)


def _scanned(
    corpus: Corpus, path: StorePath, asked: StoreManifest, replaces: bool, executor: Executor
) -> Moments:
    """Create, complete or repair the store."""
    if replaces:
        remove_store(path)
    # Compare again: another process may have changed the store before the lock was taken.
    if _wanted_store(corpus, path, asked).find() is Found.NOTHING:
        with store_written(path) as beside:
            write_empty_store(beside, asked, corpus.vocabulary().words)
        store = Moments(path, asked)
    else:
        store = read_store(path)
        store = switch(store, _completed(store, corpus, asked), [corpus])
        repair_words(store)
    run_stages(store, executor, [corpus])
    return store


def _completed(store: Moments, corpus: Corpus, asked: StoreManifest) -> StoreManifest:
    """The manifest of a store with the current location of a corpus, and with the third moment if requested."""
    manifest = relocate(store.manifest, corpus)
    return with_third_moment(manifest) if asked.scan_settings.third_moment else manifest


def _wanted_store(corpus: Corpus, path: StorePath, asked: StoreManifest, overwrite: bool = False) -> Wanted:
    """The store that is asked for: one that contains the corpus and has the settings, and possibly more."""

    def identity(manifest: StoreManifest) -> dict[str, Any]:
        # Stores of the same request may differ in the third moment, which can be added later.
        fingerprint = asked.corpora[0].fingerprint
        entry = next((e for e in manifest.corpora if e.fingerprint == fingerprint), manifest.corpora[0])
        settings, wanted = ({**m.settings, "third_moment": None} for m in (manifest, asked))
        return {
            **settings,
            "algorithm version": (manifest if settings == wanted else asked).range_key,
            "corpus": entry.fingerprint[:12],
        }

    def stored() -> dict[str, Any]:
        if not node_exists(path):
            refuse_lost_root(path)
            raise taken(path, MOMENTS)
        return identity(read_store(path).manifest)

    def is_intact() -> bool:
        store = read_store(path)
        _warn_of_other_contents(store, corpus)
        complete = _completed(store, corpus, asked) == store.manifest and store.is_complete()
        return complete and next(damage(store), None) is None

    advice = f"give another path, {option.overwrite(True)} to replace the store, or {option.add} to extend it"
    return Wanted(path, identity(asked), stored, is_intact, overwrite, advice)


def _continued(path: StorePath, begun: int, execution: Execution, executor: Executor) -> Moments:
    """A store to be changed; steps of the change that were begun are finished."""
    store = read_store(path)
    repair_words(store)
    if begun:
        if not store.is_complete():
            require_scan_memory(store.manifest, path, execution)
        run_stages(store, executor)
    return store


def _discard_unusable(path: StorePath) -> None:
    """Remove a store of a single bad corpus, which can never be completed: corrected, it has another fingerprint."""
    if node_exists(path):
        store = read_store(path)
        if len(store.manifest.whole_corpora) == 1 and store.outcome("range") is None:
            remove_store(path)


def _wanted(
    stored: Moments | None, changes: Changes, settings: ScanSettings | None, options: dict[str, Any]
) -> tuple[Changes, ScanSettings | None]:
    """The requested changes and settings; settings are None for an existing store that keeps its own."""
    if changes.any and settings is None and {*fields_given(ScanSettings, options)} == {"third_moment"}:
        # Treat the option as a change, not as a setting that must equal the store's.
        changes = replace(changes, third_moment=bool(options.pop("third_moment")))
    if settings is not None or fields_given(ScanSettings, options):
        return changes, settings_of("settings", ScanSettings, settings, options)
    if changes.any and stored is not None:
        return changes, None
    return changes, ScanSettings(third_moment=changes.third_moment)


def _as_stored(store: Moments, wanted: ScanSettings) -> ScanSettings:
    """The requested settings, or those of an existing store if they differ only by more topics."""
    stored = replace(store.settings, third_moment=wanted.third_moment)
    if stored.max_topics <= wanted.max_topics or replace(stored, max_topics=wanted.max_topics) != wanted:
        return wanted
    logger.info("%s: this scan supports up to %d topics and is used as it is", store.path, stored.max_topics)
    return stored


def _clear_leftovers(store: Moments) -> None:
    """Remove what a killed process left in or next to a complete store; leave the files of a running process."""
    if not is_cleared(store):
        # Clearing is optional: leftovers stay on a read-only medium.
        with suppress(InputError, OSError), sole_writer(store.path):
            found = read_store(store.path)
            if found.is_complete():
                remove_leftovers(found)


def _warn_of_other_contents(store: Moments, corpus: Corpus) -> None:
    """Warn if the store contains more or less than the corpus."""
    others = [e.path for e in store.manifest.whole_corpora if e.fingerprint != corpus.fingerprint]
    if others:
        logger.warning("%s holds more than %s: %s", store.path, corpus.location, ", ".join(others))
    held = {digest for entry in store.manifest.corpora for digest in entry.shards.values()}
    gone = [shard.name for shard in corpus.shards if shard.rows and shard.sha256 not in held]
    if gone:
        logger.warning(
            "%s holds %s without what was removed: %s", store.path, corpus.location, ", ".join(gone)
        )
