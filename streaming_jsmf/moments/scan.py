"""The ``scan`` function: creates, finishes or repairs a moments store, or lets it follow its corpus."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from streaming_jsmf.config import ScanSettings, fields_given, settings_of, takes
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, SettingsMismatchError, option
from streaming_jsmf.jobs.checkpoints import RECORDS
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.integrity import (
    damage,
    damage_of_record,
    discard_damage,
    is_cleared,
    remove_leftovers,
)
from streaming_jsmf.moments.manifest import (
    KIND,
    StoreManifest,
    following,
    moved,
    new_manifest,
    refuse_lost_root,
    root_attributes,
    with_third_moment,
)
from streaming_jsmf.moments.needs import require_scan_disk, require_scan_memory
from streaming_jsmf.moments.records import SUMS, WORDS
from streaming_jsmf.moments.run import run_stages, write_empty_store, write_words
from streaming_jsmf.moments.store import Moments, open_moments, read_store
from streaming_jsmf.storage.arrays import read_attributes, replace_attributes
from streaming_jsmf.storage.kinds import MOMENTS, taken
from streaming_jsmf.storage.lock import recover, sole_writer
from streaming_jsmf.storage.paths import StorePath, node_exists, store_path
from streaming_jsmf.storage.replace import remove_store, require_replaceable, store_written
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
    follow: bool = False,
    overwrite: bool = False,
    **options: Any,
) -> Moments:
    """Scan a corpus into the store ``moments``, or finish an interrupted scan. Both are paths or URLs.

    Makes one pass over the corpus, two or three with a sample, none if the store is complete. Everything committed is
    verified, and what is damaged is computed again. The same corpus and settings give the same bits on every scheduler
    and number of workers. A store scanned for more topics than requested is used as it is. The fields of
    ``ScanSettings`` and ``Execution`` are also keyword arguments.

    With ``follow`` an existing store is made to hold exactly the documents of its corpus, whose shards have changed:
    the first pass reads new and changed partitions, the others all documents. Its settings are kept. The result has the
    bits of a new scan of the same partitions. Without a store, ``follow`` changes nothing.

    With ``overwrite`` a store of another corpus or with other settings is removed and made again.

    Raises
    ------
    InputError
        If the corpus has a bad record, the settings or the corpus differ from those of an existing store, the memory
        budget is too small, or another process is writing the store. A new store of a bad corpus is removed; one that
        was to follow its corpus stays as it was.
    StoreError
        If a shard is damaged, or something in the store that cannot be computed again.
    """
    # Workers may run in other directories.
    path = store_path(moments, "a moments store").absolute()
    if not node_exists(path):
        recover(path)
    is_node = node_exists(path)
    if is_node and read_attributes(path).get("kind") != KIND:
        raise taken(path, MOMENTS)
    stored = _stored(path, overwrite) if is_node else None
    if follow and stored is not None and settings is None:
        settings = replace(stored.settings, **fields_given(ScanSettings, options))
    settings = settings_of("settings", ScanSettings, settings, options)
    execution = settings_of("execution", Execution, execution, options)
    whole = open_corpus(corpus)
    planned = _planned(whole, settings, stored, follow)
    if follow and not overwrite and stored is not None and planned.vocabulary != stored.manifest.vocabulary:
        raise SettingsMismatchError(
            f"{whole.root} has other words than {path}; ingest it with these words, give another path, or "
            f"{option.overwrite(True)} to replace the store"
        )
    found = _found(path, planned, stored, follow, overwrite)
    if found is Found.MADE:
        _clear_leftovers(read_store(path))
        return open_moments(path)
    if found is Found.OTHER:
        planned = new_manifest(whole, settings)
    is_new = stored is None or found is Found.OTHER
    require_scan_memory(planned, path, execution, whole, is_new=is_new)
    require_scan_disk(planned, path, execution, whole, None if is_new or stored is None else stored.manifest)
    with sole_writer(path):
        unusable = overwrite or not node_exists(path / RECORDS / SUMS)
        bad_input = partial(_discard_unusable, path) if unusable else None
        # Connect to the scheduler first: if it does not respond, no store is created or changed.
        with execution.executor(
            listener, target=path, sources=whole.first_files, on_bad_input=bad_input
        ) as executor:
            if found is Found.OTHER:
                remove_store(path)
            # Compare again: another process may have changed the store before the lock was taken.
            if _wanted_store(path, planned, stored, follow).find() is Found.NOTHING:
                with store_written(path) as beside:
                    write_empty_store(beside, planned, whole.vocabulary().words)
            else:
                stored = read_store(path)
                planned = _planned(whole, settings, stored, follow)
                discard_damage(replace(stored, manifest=planned))
                for _ in damage_of_record(stored, WORDS):
                    write_words(stored, whole.vocabulary().words)
            run_stages(Moments(path, planned), executor, whole)
    return open_moments(path)


def _stored(path: StorePath, overwrite: bool) -> Moments | None:
    """The store that is there, or None if it has another format and is to be replaced."""
    try:
        return read_store(path)
    except InputError:
        if overwrite:
            return None
        raise


def _found(
    path: StorePath, planned: StoreManifest, stored: Moments | None, follow: bool, overwrite: bool
) -> Found:
    """What is at the path of a store; one of another format is ``Found.OTHER`` (see ``_stored``)."""
    if stored is None and node_exists(path):
        require_replaceable(path)
        return Found.OTHER
    return _wanted_store(path, planned, stored, follow, overwrite).find()


def relocate(store: Moments, corpus: Corpus) -> None:
    """Note that the corpus of a store is now at another path, where it may have changed."""
    entry = store.manifest.corpus.model_copy(update={"path": corpus.location})
    with sole_writer(store.path):
        replace_attributes(store.path, root_attributes(store.manifest.changed(corpus=entry)))


def _planned(corpus: Corpus, settings: ScanSettings, stored: Moments | None, follow: bool) -> StoreManifest:
    """The manifest that the store is to have, that of a new store if its corpus or settings are others."""
    if stored is None:
        return new_manifest(corpus, settings)
    wanted, before = _as_stored(stored, settings), stored.manifest
    fresh = new_manifest(corpus, wanted)
    if before.range_key != fresh.range_key:  # other settings, or an earlier algorithm
        return fresh
    if before.corpus.fingerprint == corpus.fingerprint:
        planned = moved(before, fresh.corpus)
    elif follow and _follows(before, fresh):
        planned = following(before, corpus, fresh)
    else:
        return fresh
    return with_third_moment(planned) if wanted.third_moment or stored.settings.third_moment else planned


def _follows(before: StoreManifest, now: StoreManifest) -> bool:
    """Whether this is the corpus of a store in another state, with its settings.

    That corpus has the same words, and the same place or a shard in common.
    """
    same = before.corpus.path == now.corpus.path
    shared = set(before.corpus.shards.values()) & set(now.corpus.shards.values())
    is_alike = (before.vocabulary, before.range_key) == (now.vocabulary, now.range_key)
    return is_alike and (same or bool(shared))


def _wanted_store(
    path: StorePath, asked: StoreManifest, before: Moments | None, follow: bool, overwrite: bool = False
) -> Wanted:
    """The store that is asked for: one of the corpus with the settings, and possibly the third moment."""

    def identity(manifest: StoreManifest) -> dict[str, Any]:
        # Stores of the same request may differ in the third moment, which can be added later.
        settings, wanted = ({**m.settings, "third_moment": None} for m in (manifest, asked))
        of = asked.corpus if follow and _follows(manifest, asked) else manifest.corpus
        return {
            **settings,
            "algorithm version": (manifest if settings == wanted else asked).range_key,
            "corpus": of.fingerprint[:12],
        }

    def stored() -> dict[str, Any]:
        if not node_exists(path):
            refuse_lost_root(path)
            raise taken(path, MOMENTS)
        return identity(read_store(path).manifest)

    def is_intact() -> bool:
        store = read_store(path)
        return store.manifest == asked and not store.missing_stages and next(damage(store), None) is None

    changed = before is not None and not follow and _follows(before.manifest, asked)
    how = f"{option.follow(True)}, since its corpus has changed, another path" if changed else "another path"
    advice = f"give {how}, or {option.overwrite(True)} to replace the store"
    return Wanted(path, identity(asked), stored, is_intact, overwrite, advice)


def _discard_unusable(path: StorePath) -> None:
    """Remove a store of a bad corpus, which can never be completed: corrected, it has another fingerprint."""
    if node_exists(path) and read_store(path).outcome(SUMS) is None:
        remove_store(path)


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
            if not found.missing_stages:
                remove_leftovers(found)
