"""Runs the missing stages of a store, from the partitions of its manifest to its final arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import partition_part
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import Job, run_job
from streaming_jsmf.jobs.tasks import Part
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.moments.manifest import Manifest
from streaming_jsmf.moments.partition import Partitions, partitions_of
from streaming_jsmf.moments.stages.base import Scan, Stage
from streaming_jsmf.moments.store import MomentsStore
from streaming_jsmf.timing import span


def run_missing_stages(store: MomentsStore, executor: Executor, corpora: Sequence[Corpus] = ()) -> None:
    """Run the missing stages of a store, then clear leftovers.

    Corpora that are not in ``corpora`` are opened only if partitions must be read. Raises ``InputError`` if a corpus
    has a bad record or has moved, and ``StoreError`` if a shard or the store is damaged.
    """
    load = partitions_of(store.manifest, store.path, corpora)
    for stage in store.stages:
        run_stage_of(store, stage, executor, load)
    # Not earlier: until the last stage is committed, the store can fall back on its previous fold.
    store.clear()


def run_stage_of(store: MomentsStore, stage: Stage, executor: Executor, load: Partitions) -> None:
    """Run one stage if it is missing; all earlier stages must be committed. Errors as in ``run_missing_stages``.

    Each scan of the stage is one pass over the partitions that are not committed.
    """
    if store.outcome(stage.name) is not None:
        return
    with span("finish"):
        checkpoints, scans = store.checkpoints(stage.name), stage.scans(store)
        if stage.name == "range":
            checkpoints = replace(checkpoints, protected=store.covered_fold)
        for scan in scans:
            parts = _parts(store.manifest, scan, checkpoints, load)
            run_job(Job(checkpoints, scan.reduction, parts, scan.order), executor)
        with single_blas_thread(), panel_threads(executor.threads_here):
            final = stage.final(store, (checkpoints.read_fold(scan.order.total) for scan in scans))
        history = [note for scan in scans for note in checkpoints.history(scan.keys)]
        store.commit_stage(stage.name, final.arrays, final.scalars, history)
        if not stage.keeps_fold(store.settings):
            checkpoints.clear()


def _parts(manifest: Manifest, scan: Scan, checkpoints: Checkpoints, load: Partitions) -> tuple[Part, ...]:
    """The parts of a scan, with their partitions if some must be read."""
    starts = list(accumulate(scan.counts, initial=0))
    sizes = [sum(p.nonzeros for p in manifest.partitions[a:b]) for a, b in pairwise(starts)]
    known, held = checkpoints.parts(), scan.order.covered(checkpoints.folds())
    if all(key in known or i in held for i, key in enumerate(scan.keys)):
        return tuple(map(Part, scan.keys, sizes))
    partitions = load()
    return tuple(
        partition_part(key, partitions[start]) if count == 1 else Part(key, size)
        for key, size, start, count in zip(scan.keys, sizes, starts, scan.counts, strict=False)
    )
