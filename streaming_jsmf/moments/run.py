"""Runs the stages of a store, from the partitions of its manifest to its final arrays.

What is missing is computed, and what is damaged is discarded first and computed again, from intact results or from the
corpora. The bits are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import compress
from typing import Any, TypeAlias

import numpy as np

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, checked, partition_part
from streaming_jsmf.errors import StoreError, finding
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import (
    PARTIALS,
    RECORDS,
    Committed,
    Held,
    PartialResult,
    forget_record,
    read_record,
    write_record,
)
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, Part, run_job
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.moments.integrity import (
    damage_of_groups,
    damage_of_outcome,
    damage_of_scan,
    damage_of_word_ids,
    remove_leftovers,
)
from streaming_jsmf.moments.manifest import StoreManifest, root_attributes, words_digest, write_word_ids
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.stages.base import Stage
from streaming_jsmf.moments.stages.range import SAMPLE
from streaming_jsmf.moments.store import WORDS, Moments
from streaming_jsmf.storage.arrays import create_group, replace_attributes, write_arrays
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.results import package_versions, utc_now
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

#: Returns the partitions of a store; the first call locates them.
Partitions: TypeAlias = Callable[[], tuple[Partition, ...]]


def write_empty_store(path: StorePath, manifest: StoreManifest, words: Sequence[str]) -> None:
    """Write vocabulary and manifest into an empty directory. The root group is written last and completes the store."""
    for part in (PARTIALS, RECORDS):
        create_group(path / part, {})
    commit(Moments(path, manifest), WORDS, PartialResult({"word": np.array(words, dtype=object)}))
    create_group(path, root_attributes(manifest))


def replace_manifest(store: Moments, manifest: StoreManifest) -> Moments:
    """Replace the manifest of a store atomically. Stages that cover another state become missing."""
    replace_attributes(store.path, root_attributes(manifest))
    return replace(store, manifest=manifest)


def switch(store: Moments, after: StoreManifest, corpora: Sequence[Corpus] = ()) -> Moments:
    """Replace the manifest of a store, and return the store; ``corpora`` as in ``run_stages``.

    If a stage will read all corpora, they are located first: a moved corpus is refused before anything changes.
    """
    before = store.manifest
    new_basis = (before.partitions, before.base) != (after.partitions, after.base)
    new_tensor = after.scan_settings.third_moment and not store.settings.third_moment
    if new_tensor or (store.reads_twice and new_basis):
        load_partitions(after, store.path, corpora)
    return store if after == before else replace_manifest(store, after)


def run_stages(store: Moments, executor: Executor, corpora: Sequence[Corpus] = ()) -> None:
    """Run the missing and damaged stages of a store, then clear leftovers.

    Each scan of a stage is one pass over the partitions that are not committed. Corpora that are not in ``corpora``
    are opened only if partitions must be read. The folds of finished stages are verified only in a store that is
    complete: a change reads those that it needs.

    Raises ``InputError`` if a corpus has a bad record or has moved, and ``StoreError`` if a shard is damaged.
    """
    load, complete = cache(partial(load_partitions, store.manifest, store.path, corpora)), store.is_complete()
    store = replace(store, recent=Held())
    for number, stage in enumerate(store.stages):
        keeps_parts = store.checkpoints(stage.name).keep
        if keeps_parts and not complete:
            _discard_damaged_parts(store, stage)
        if _discard_damage(store, stage, complete=complete):
            _run_stage(store, number, executor, load)
        else:
            store.forget(store.stages[number + 1 :])
        if keeps_parts:
            _compute_kept_parts(store, stage, executor, load)
    # Not earlier: until the last stage is committed, the store can fall back on its previous fold.
    remove_leftovers(store)


def _run_stage(store: Moments, number: int, executor: Executor, load: Partitions) -> None:
    stage = store.stages[number]
    with span("finish"):
        checkpoints, scans = store.checkpoints(stage.name), stage.scans(store)
        if stage.name == "range":
            # Until scan 1 is committed again, a failed change falls back on the fold of the earlier state.
            earlier = read_record(store.path, stage.name, store.hint)
            checkpoints = replace(checkpoints, protected=None if earlier is None else str(earlier["covers"]))
        history = list[dict[str, Any]]()
        for reduction, order in scans:
            known = checkpoints.committed()
            # The workers need the memory.
            store.forget(store.stages[number:])
            parts = _parts(store, stage, order, known, load)
            made = run_job(Job(checkpoints, reduction, parts, order), executor, known)
            history += checkpoints.history(order.keys, made)
        with single_blas_thread(), panel_threads(executor.threads_here):
            final = stage.final(store, (checkpoints.read_fold(order.total) for _, order in scans))
        commit(store, stage.name, final, history, mixed=executor.mixed)
        if not stage.keeps_fold(store.settings):
            checkpoints.clear()


def commit(
    store: Moments,
    stage: str,
    final: PartialResult,
    history: Sequence[Mapping[str, Any]] = (),
    *,
    mixed: bool = False,
) -> None:
    """Write the final arrays of a stage, then the record that commits them.

    The record of an earlier state is deleted first, since its arrays are overwritten. The record of the current
    state, whose arrays are damaged, stays until it is replaced. Its history is kept if it is longer: the records
    of the parts may be gone.
    """
    known = store.outcome(stage) if store.has_outcome(stage) else None
    if known is None:
        forget_record(store.path, stage)
    else:
        history = max(history, known["history"], key=len)
    record = {
        "covers": store.covers(stage),
        "arrays": write_arrays(store.path, final.arrays, store.variables(stage)),
        "scalars": dict(final.scalars),
        "history": list(history),
        # Differs between runs, so it must not enter any digest or fingerprint.
        "made": {"committed": utc_now(), "versions": package_versions(mixed=mixed)},
    }
    write_record(store.path, stage, record)
    if store.recent is not None:
        store.recent.update(final.arrays)


def _parts(
    store: Moments, stage: Stage, order: FoldOrder, committed: Committed, load: Partitions
) -> tuple[Part, ...]:
    """The parts of a scan, with their sources if some must be read."""
    partitions = store.manifest.partitions
    known, folds = committed
    held = order.covered(folds)
    complete = all(key in known or i in held for i, key in enumerate(order.keys))
    sources = [None] * len(partitions) if complete else stage.sources(store, load)
    return tuple(
        checked(Part(key, each.nonzeros, source, each.model_dump(include={"nonzeros", "rows", "content"})))
        for key, each, source in zip(order.keys, partitions, sources, strict=True)
    )


def _discard_damage(store: Moments, stage: Stage, *, complete: bool) -> bool:
    """Discard damaged results of a stage; return whether something is missing that running the stage computes."""
    # A readable record stays until it is replaced: it has the history, and its digests identify damaged arrays.
    damaged = _warn_each(damage_of_outcome(store, stage.name), "is computed again")
    if damaged and not store.has_outcome(stage.name):
        forget_record(store.path, stage.name)
    lost, kept = damaged or store.outcome(stage.name) is None, stage.keeps_fold(store.settings)
    if not lost and not (complete and kept):
        return False
    checkpoints = store.checkpoints(stage.name)
    for _, order in stage.scans(store):
        found = damage_of_scan(checkpoints, order, finished=complete and kept)
        for (kind, key), error in found.items():
            _warn_each([error], f"the {kind} is discarded")
            checkpoints.drop(kind, key)
        if complete and kept and ("fold", order.total) in found:
            lost = True
            consequence = "the kept parts are folded again" if checkpoints.keep else "its scan is repeated"
            logger.warning("repair: %s: the last fold of %s is lost; %s", store.path, stage.name, consequence)
    return lost


def _discard_damaged_parts(store: Moments, stage: Stage) -> None:
    """Discard the damaged parts of an unfinished store, whose later stages read all parts; hold the intact ones."""
    checkpoints = store.checkpoints(stage.name)
    known = checkpoints.committed().parts
    for _, order in stage.scans(store):
        for key in known.intersection(order.keys):
            try:
                store.once(f"{SAMPLE} {key}", partial(checkpoints.read_part, key))
            except StoreError as error:
                _warn_each([error], "the part is discarded")
                checkpoints.drop("part", key)


def _compute_kept_parts(store: Moments, stage: Stage, executor: Executor, load: Partitions) -> None:
    """Compute missing kept parts, which no stage needs since they are folded. One pass over their partitions."""
    checkpoints, ((reduction, order),) = store.checkpoints(stage.name), stage.scans(store)
    known = checkpoints.committed().parts
    missing = [key not in known for key in order.keys]
    if not any(missing):
        return
    logger.info(
        "repair: partitions computed again: %s", ", ".join(str(i) for i, lacks in enumerate(missing) if lacks)
    )
    parts = tuple(map(partition_part, compress(order.keys, missing), compress(load(), missing)))
    Job(checkpoints, reduction, parts).compute(executor, Committed())


def repair_words(store: Moments) -> None:
    """Recover damaged words and Zarr groups: the words from the corpora, and the word ids of each corpus from both.

    Raises ``InputError`` if a corpus has moved, and ``StoreError`` if the corpora have other words now.
    """
    for place, error in damage_of_groups(store).items():
        _warn_each([error], "is written again")
        place.mkdir(exist_ok=True)
        replace_attributes(place, {})
    if _warn_each(damage_of_outcome(store, WORDS), "the words are read from the corpora"):
        words = _words_of_corpora(store)
        commit(store, WORDS, PartialResult({"word": np.array(words, dtype=object)}))
    for number, error in damage_of_word_ids(store).items():
        _warn_each([error], "the words of the corpus are looked up again")
        ids_of_words = {str(word): i for i, word in enumerate(store.read("word"))}
        entry = store.manifest.corpora[number]
        own = open_corpus(entry.path).vocabulary().words
        write_word_ids(store.path, [np.array([ids_of_words.get(word, -1) for word in own], np.int64)])
        store.word_ids(entry)


def _words_of_corpora(store: Moments) -> list[str]:
    words = [""] * store.n_words
    for entry in store.manifest.corpora:
        own, ids = open_corpus(entry.path).vocabulary().words, store.word_ids(entry)
        ids_of_words = range(len(own)) if ids is None else ids.tolist()
        if len(ids_of_words) == len(own) <= store.n_words:
            for place, word in zip(ids_of_words, own, strict=True):
                words[place] = word
    if words_digest(words) != store.manifest.vocabulary:
        raise StoreError(
            f"{store.path}/word: the corpora have other words now; put them back as they were and scan again"
        )
    return words


def _warn_each(errors: Iterable[StoreError], what: str) -> bool:
    """Log each error with what is done about it; return whether there was any."""
    warned = False
    for error in errors:
        logger.warning("repair: %s; %s", finding(error), what)
        warned = True
    return warned
