"""Runs the stages of a store, from the partitions of its manifest to its final arrays.

What is missing is computed, and what is damaged is discarded first and computed again, from intact results or from the
corpora. The bits are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import compress
from typing import TypeVar

import numpy as np

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, partition_part
from streaming_jsmf.errors import StoreError, finding
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints, Held, forget_record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import Job, Part, run_job
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.moments.integrity import (
    damage_of_groups,
    damage_of_outcome,
    damage_of_scan,
    damage_of_word_ids,
)
from streaming_jsmf.moments.manifest import Manifest, words_digest, write_word_ids
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.store import WORDS, Scan, Stage, Store
from streaming_jsmf.storage.paths import write_json
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

AnyStore = TypeVar("AnyStore", bound=Store)

#: Returns the partitions of a store; the first call locates them.
Partitions = Callable[[], tuple[Partition, ...]]


def switch(store: AnyStore, after: Manifest, corpora: Sequence[Corpus] = ()) -> AnyStore:
    """Replace the manifest of a store, and return the store; ``corpora`` as in ``run_stages``.

    If a stage will read all corpora, they are located first: a moved corpus is refused before anything changes.
    """
    before = store.manifest
    new_basis = (before.partitions, before.base) != (after.partitions, after.base)
    new_tensor = after.scan_settings.third_moment and not store.settings.third_moment
    if new_tensor or (store.reads_twice and new_basis):
        load_partitions(after, store.path, corpora)
    return store if after == before else store.replace_manifest(after)


def run_stages(store: Store, executor: Executor, corpora: Sequence[Corpus] = ()) -> None:
    """Run the missing and damaged stages of a store, then clear leftovers.

    Each scan of a stage is one pass over the partitions that are not committed. Corpora that are not in ``corpora``
    are opened only if partitions must be read. The folds of finished stages are verified only in a store that is
    complete: a change reads those that it needs.

    Raises ``InputError`` if a corpus has a bad record or has moved, and ``StoreError`` if a shard is damaged.
    """
    load, complete = cache(partial(load_partitions, store.manifest, store.path, corpora)), store.is_complete()
    store = replace(store, recent=Held())
    for number, stage in enumerate(store.stages):
        if not complete and stage.keeps_parts(store.settings):
            _discard_damaged_parts(store, stage)
        if _discard_damage(store, stage, complete=complete):
            _run_stage(store, number, executor, load)
        else:
            store.forget(store.stages[number + 1 :])
        if stage.keeps_parts(store.settings):
            _compute_kept_parts(store, stage, executor, load)
    # Not earlier: until the last stage is committed, the store can fall back on its previous fold.
    store.remove_leftovers()


def _run_stage(store: Store, number: int, executor: Executor, load: Partitions) -> None:
    stage = store.stages[number]
    with span("finish"):
        checkpoints, scans = store.checkpoints(stage.name), stage.scans(store)
        if stage.name == "range":
            checkpoints = replace(checkpoints, protected=store.covered_fold)
        for scan in scans:
            # The workers need the memory.
            store.forget(store.stages[number:], fold=True)
            parts = _parts(store, stage, scan, checkpoints, load)
            run_job(Job(checkpoints, scan.reduction, parts, scan.order), executor)
        with single_blas_thread(), panel_threads(executor.threads_here):
            final = stage.final(store, (checkpoints.read_fold(scan.order.total) for scan in scans))
        history = [note for scan in scans for note in checkpoints.history(scan.keys)]
        store.commit(stage.name, final.arrays, final.scalars, history)
        if not stage.keeps_fold(store.settings):
            checkpoints.clear()


def _parts(
    store: Store, stage: Stage, scan: Scan, checkpoints: Checkpoints, load: Partitions
) -> tuple[Part, ...]:
    """The parts of a scan, with their sources if some must be read."""
    partitions = store.manifest.partitions
    known, held = checkpoints.parts(), scan.order.covered(checkpoints.folds())
    complete = all(key in known or i in held for i, key in enumerate(scan.keys))
    sources = [None] * len(partitions) if complete else stage.sources(store, load)
    return tuple(
        Part(key, each.nonzeros, source, each.model_dump(include={"nonzeros", "rows", "content"}))
        for key, each, source in zip(scan.keys, partitions, sources, strict=True)
    )


def _discard_damage(store: Store, stage: Stage, *, complete: bool) -> bool:
    """Discard damaged results of a stage; return whether something is missing that running the stage computes.

    A readable record stays until it is replaced: it has the history, and its digests identify damaged arrays.
    """
    damaged = _warn_each(damage_of_outcome(store, stage.name), "is computed again")
    if damaged and not store.has_outcome(stage.name):
        forget_record(store.path, stage.name)
    lost, kept = damaged or store.outcome(stage.name) is None, stage.keeps_fold(store.settings)
    if not lost and not (complete and kept):
        return False
    checkpoints = store.checkpoints(stage.name)
    for scan in stage.scans(store):
        found = damage_of_scan(checkpoints, scan, finished=complete and kept)
        for (kind, key), error in found.items():
            _warn_each([error], f"the {kind} is discarded")
            checkpoints.drop(kind, key)
        if complete and kept and ("fold", scan.order.total) in found:
            lost = True
            consequence = "the kept parts are folded again" if checkpoints.keep else "its scan is repeated"
            logger.warning("repair: %s: the last fold of %s is lost; %s", store.path, stage.name, consequence)
    return lost


def _discard_damaged_parts(store: Store, stage: Stage) -> None:
    """Discard the damaged parts of an unfinished store, whose later stages read all parts."""
    checkpoints = store.checkpoints(stage.name)
    known = checkpoints.parts()
    for scan in stage.scans(store):
        for key in known.intersection(scan.keys):
            if error := checkpoints.damage("part", key):
                _warn_each([error], "the part is discarded")
                checkpoints.drop("part", key)


def _compute_kept_parts(store: Store, stage: Stage, executor: Executor, load: Partitions) -> None:
    """Compute missing kept parts, which no stage needs since they are folded. One pass over their partitions."""
    checkpoints, (scan,) = store.checkpoints(stage.name), stage.scans(store)
    known = checkpoints.parts()
    missing = [key not in known for key in scan.keys]
    if not any(missing):
        return
    logger.info(
        "repair: partitions computed again: %s", ", ".join(str(i) for i, lacks in enumerate(missing) if lacks)
    )
    parts = tuple(map(partition_part, compress(scan.keys, missing), compress(load(), missing)))
    missing_parts = Job(checkpoints, scan.reduction, parts).graph(frozenset(), executor.tasks_at_once)
    if missing_parts is not None:
        executor.compute(missing_parts)


def repair_words(store: Store) -> None:
    """Recover damaged words and Zarr groups: the words from the corpora, and the word ids of each corpus from both.

    Raises ``InputError`` if a corpus has moved, and ``StoreError`` if the corpora have other words now.
    """
    for place, error in damage_of_groups(store).items():
        _warn_each([error], "is written again")
        place.mkdir(exist_ok=True)
        write_json(place / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": {}})
    if _warn_each(damage_of_outcome(store, WORDS), "the words are read from the corpora"):
        words = _words_of_corpora(store)
        store.commit(WORDS, {"word": np.array(words, dtype=object)}, {})
    for number, error in damage_of_word_ids(store).items():
        _warn_each([error], "the words of the corpus are looked up again")
        ids_of_words = {str(word): i for i, word in enumerate(store.read("word"))}
        entry = store.manifest.corpora[number]
        own = open_corpus(entry.path).vocabulary().words
        write_word_ids(store.path, [np.array([ids_of_words.get(word, -1) for word in own], np.int64)])
        store.word_ids(entry)


def _words_of_corpora(store: Store) -> list[str]:
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
