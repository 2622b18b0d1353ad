"""Runs the stages of a store, from the partitions of its manifest to its final arrays. The bits are always the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.partition_jobs import run_on_partitions
from streaming_jsmf.corpus.units import Partition
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import (
    PARTIALS,
    RECORDS,
    Committed,
    Held,
    PartialResult,
    forget_record,
    write_record,
)
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.run import Job, Part
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.moments.integrity import discard_damaged_partials, remove_leftovers
from streaming_jsmf.moments.manifest import StoreManifest, read_manifest, root_attributes
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.records import WORDS, Records
from streaming_jsmf.moments.stages import stages_of
from streaming_jsmf.moments.stages.base import Stage
from streaming_jsmf.storage.arrays import Variable, create_group, replace_attributes, write_arrays
from streaming_jsmf.storage.large_arrays import large_arrays_in_files
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.results import package_versions, utc_now

#: Returns the partitions of a store; the first call locates them.
Partitions: TypeAlias = Callable[[], tuple[Partition, ...]]

VOCABULARY = {"word": Variable(("word",), "vocabulary")}


def write_empty_store(path: StorePath, manifest: StoreManifest, words: Sequence[str]) -> None:
    """Write vocabulary and manifest into an empty directory. The root group is written last and completes the store."""
    for part in (PARTIALS, RECORDS):
        create_group(path / part, {})
    write_words(Records(path, manifest), words)
    create_group(path, root_attributes(manifest))


def write_words(store: Records, words: Sequence[str]) -> None:
    """Write the vocabulary and its record."""
    commit(store, WORDS, PartialResult({"word": np.array(words, dtype=object)}), VOCABULARY)


def run_stages(store: Records, executor: Executor, corpus: Corpus) -> None:
    """Run the missing stages of a store, then clear leftovers.

    Each scan of a stage is one pass over the partitions that are not committed. If the manifest differs from that on
    disk, it is written when the first stage under it is about to be committed: bad input leaves the store as it was.

    Raises ``InputError`` if the corpus has a bad record, and ``StoreError`` if a shard is damaged.
    """
    load, before = cache(partial(load_partitions, store.manifest, corpus)), read_manifest(store.path)
    store = replace(store, recent=Held())
    try:
        stages = stages_of(store)
        for number, stage in enumerate(stages):
            _forget(store, stages[number:])
            if stage.name in store.missing_stages:
                made, history = _computed(store, stage, executor, load)
                if before != store.manifest:
                    replace_attributes(store.path, root_attributes(store.manifest))
                    before = store.manifest
                inputs = {name: store.array_digest(name).sha256 for name in stage.inputs}
                commit(store, stage.name, made, stage.variables, inputs, history, mixed=executor.mixed)
                if not store.checkpoints(stage.name).keep:
                    store.checkpoints(stage.name).clear()
                store = store.fresh()
        if before != store.manifest:  # with the same contents
            replace_attributes(store.path, root_attributes(store.manifest))
    except (InputError, StoreError):
        earlier = replace(store, manifest=before)
        if before != store.manifest and not earlier.missing_stages:
            remove_leftovers(earlier)
        raise
    remove_leftovers(store)


def _computed(
    store: Records, stage: Stage, executor: Executor, load: Partitions
) -> tuple[PartialResult, list[dict[str, Any]]]:
    """The final arrays of a stage, and the history of its parts."""
    checkpoints, scans = store.checkpoints(stage.name), stage.scans(store)
    history = list[dict[str, Any]]()
    for reduction, order in scans:
        known = discard_damaged_partials(checkpoints, order)
        parts = _parts(store, stage, order, known, load)
        made = run_on_partitions(Job(checkpoints, reduction, parts, order), executor, known)
        history += checkpoints.history(order.keys, made)
    with single_blas_thread(), panel_threads(executor.threads_here), large_arrays_in_files():
        final = stage.final(store, (checkpoints.read_fold(order.total) for _, order in scans))
    return final, history


def _forget(store: Records, stages: Sequence[Stage]) -> None:
    """Keep of what is ``recent`` only what these stages read again: the workers need the memory."""
    wanted = {name for stage in stages for name in (*stage.inputs, *stage.reads)}
    if store.recent is not None:
        for name in store.recent.keys() - wanted:
            del store.recent[name]


def commit(
    store: Records,
    stage: str,
    final: PartialResult,
    variables: Mapping[str, Variable],
    inputs: Mapping[str, str] | None = None,
    history: Sequence[Mapping[str, Any]] = (),
    *,
    mixed: bool = False,
) -> None:
    """Write the final arrays of a stage, then the record that commits them.

    The record of an earlier state is deleted first, since its arrays are overwritten.
    """
    forget_record(store.path, stage)
    record = {
        "covers": store.covers(stage),
        "inputs": dict(inputs or {}),
        "arrays": write_arrays(store.path, final.arrays, variables),
        "scalars": dict(final.scalars),
        "history": list(history),
        # Differs between runs, so it must not enter any digest or fingerprint.
        "made": {"committed": utc_now(), "versions": package_versions(mixed=mixed)},
    }
    write_record(store.path, stage, record)
    if store.recent is not None:
        store.recent.update(final.arrays)


def _parts(
    store: Records, stage: Stage, order: FoldOrder, committed: Committed, load: Partitions
) -> tuple[Part, ...]:
    """The parts of a scan, with their sources if some must be read."""
    partitions = store.manifest.partitions
    known, folds = committed
    held = order.covered(folds)
    complete = all(key in known or i in held for i, key in enumerate(order.keys))
    sources = [None] * len(partitions) if complete else stage.sources(store, load)
    return tuple(
        Part(key, each.nonzeros, source, each.model_dump(include={"nonzeros", "rows", "content"}))
        for key, each, source in zip(order.keys, partitions, sources, strict=True)
    )
