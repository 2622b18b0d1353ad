"""The stages of a store, from the partitions of its manifest to its final arrays, each committed before the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.fold import FoldJob, Part
from streaming_jsmf.jobs.ledger import Partial, key_of
from streaming_jsmf.jobs.run import run_job
from streaming_jsmf.linalg.blas import single_blas_thread
from streaming_jsmf.linalg.dense import symmetric_eigenpairs
from streaming_jsmf.linalg.eigen import Eigenpairs, factor_eigenpairs, single_view_eigenpairs
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.moments.cooccurrence import count_cooccurrences
from streaming_jsmf.moments.manifest import distinct, load_partitions
from streaming_jsmf.moments.parts import fold_partitions, partition_part
from streaming_jsmf.moments.stages import SHARED_PROBES, SUM_ARRAYS, ProjectionStage, RangeStage, Stage
from streaming_jsmf.moments.store import MomentsStore
from streaming_jsmf.moments.third_moment import ThirdMomentStage, final_arrays
from streaming_jsmf.timing import span

#: Eigenvalues of C below this share of the first are rounding: documents are scaled in float32.
EXACT_FLOOR = 1e-7

#: Looks up the partitions of a store when they have to be read, and once.
Partitions = Callable[[], tuple[Partition, ...]]


def finish_stages(store: MomentsStore, executor: Executor, corpora: Sequence[Corpus] = ()) -> None:
    """Run the stages that a store lacks. Corpora are opened where partitions have to be read, and only then.

    Parameters
    ----------
    corpora
        Those that are open already.

    Raises
    ------
    InputError
        If a corpus holds a bad record or is not where it was.
    StoreError
        If a shard or the store is damaged.
    """
    load = partitions_of(store, corpora)
    missing = store.missing_stages
    for stage in missing:
        finish_stage(store, stage, executor, load)
    if missing:
        # Only now: until the last stage is committed, a store can fall back on the fold it had before.
        store.ledger("range").clear(store.folds[-1], store.part_keys)


def finish_stage(store: MomentsStore, stage: str, executor: Executor, load: Partitions) -> None:
    """Run one stage if the store lacks it and has those before it; errors as in ``finish_stages``."""
    if store.outcome(stage) is None:
        with span("finish"):
            _STEPS[stage](store, executor, load)


def partitions_of(store: MomentsStore, corpora: Sequence[Corpus] = ()) -> Partitions:
    """What looks up the partitions of a store when they are asked for; ``corpora`` are open already."""

    @cache
    def partitions() -> tuple[Partition, ...]:
        return load_partitions(store.manifest, str(store.path), corpora)

    return partitions


def projection_keys(store: MomentsStore) -> tuple[str, ...]:
    """Keys of the parts of a stage given the basis: the basis, so that another one gives others, and what they hold."""
    basis = store.array_digest("basis").sha256
    names = distinct([partition["content"] for partition in store.manifest["partitions"]])
    return tuple(key_of(name, basis) for name in names)


def _range_parts(store: MomentsStore, load: Partitions) -> tuple[Part, ...]:
    """Parts of the range stage; their partitions are looked up if some have to be read."""
    described, counts = store.manifest["partitions"], [count for _, count in store.manifest["parts"]]
    keys, starts = store.part_keys, np.concatenate([[0], np.cumsum(counts)]).tolist()
    sizes = [sum(p["nonzeros"] for p in described[a:b]) for a, b in pairwise(starts)]
    ledger = store.ledger("range")
    known, folded = ledger.parts(), ledger.folded(store.folds)
    if all(key in known or i < folded for i, key in enumerate(keys)):
        return tuple(map(Part, keys, sizes))
    partitions = load()
    return tuple(
        partition_part(key, partitions[start]) if count == 1 else Part(key, size)
        for key, size, start, count in zip(keys, sizes, starts, counts, strict=False)
    )


def _range(store: MomentsStore, executor: Executor, load: Partitions) -> None:
    ledger, keys = store.ledger("range"), store.part_keys
    stage = RangeStage(store.n_words, store.settings)
    job = FoldJob(ledger, stage, _range_parts(store, load), store.folds, store.covered_fold)
    run_job(job, executor)
    folded = job.result()
    total = folded.scalars["total_weight"]
    if not total > 0:
        where = ", ".join(entry["path"] for entry in store.manifest["corpora"])
        raise InputError(
            f"{where}: no document has two tokens or more, so there are no co-occurrences; ingest longer documents"
        )
    store.commit_stage("range", normalised(folded), folded.scalars, ledger.history(keys))


def normalised(folded: Partial) -> dict[str, NDArray[Any]]:
    """The final arrays of the range stage: sums and factor of a fold, divided by the total weight."""
    total = folded.scalars["total_weight"]
    arrays: dict[str, NDArray[Any]] = {name: folded.arrays[name] for name in SUM_ARRAYS}
    arrays["row_sum"] = arrays["row_sum"] / total
    arrays["diagonal"] = arrays["diagonal"] / total
    if "factor" in folded.arrays:
        # In float32 throughout: a scalar of float64 would make a copy of twice the size.
        arrays["factor"] = folded.arrays["factor"] * np.float32(1 / np.sqrt(total))
    else:
        arrays["sketch"] = folded.arrays["sketch"] / total
    return arrays


def _basis(store: MomentsStore, executor: Executor, load: Partitions) -> None:
    del executor, load
    with single_blas_thread(), span("basis"):
        pairs = _first_eigenpairs(store)
    store.commit_stage("basis", {"basis": pairs.vectors, "basis_eigenvalues": pairs.values}, {})


def _first_eigenpairs(store: MomentsStore) -> Eigenpairs:
    diagonal, settings = store.read("diagonal"), store.settings
    width = min(settings.basis_width, store.n_words)
    if settings.exact:
        pairs = symmetric_eigenpairs(store.read("cooccurrence"), width)
        # Eigenvalues at the level of the rounding of C would count as positive or not by chance.
        noise = np.abs(pairs.values) < EXACT_FLOOR * pairs.values[0]
        return Eigenpairs(np.where(noise, 0.0, pairs.values), pairs.vectors)
    if settings.range_finder == "factors":
        return factor_eigenpairs(store.read("factor"), diagonal, width)
    sketch = store.read("sketch")
    probes = gaussian_probes(store.n_words, sketch.shape[1], settings.seed, SHARED_PROBES)
    return single_view_eigenpairs(sketch - diagonal[:, None] * probes, probes, min(width, sketch.shape[1]))


def _summed(store: MomentsStore, stage: Stage, executor: Executor, load: Partitions) -> Partial:
    """The sum of a stage over all partitions, given the basis. One pass over the data."""
    keys = projection_keys(store)
    return fold_partitions(store.ledger(stage.name), stage, keys, load(), store.folds[-1], executor)


def _projection(store: MomentsStore, executor: Executor, load: Partitions) -> None:
    ledger, basis = store.ledger("projection"), store.array_digest("basis")
    stage = ProjectionStage(store.n_words, store.settings, store.path, basis)
    folded = _summed(store, stage, executor, load)
    record = store.outcome("range")
    assert record is not None, "stages run in order"
    product = folded.arrays["projection"] / record["scalars"]["total_weight"]
    product -= store.read("diagonal")[:, None] * store.read("basis")
    history = ledger.history(projection_keys(store))
    store.commit_stage("projection", {"projection": product}, {}, history)
    ledger.clear()


def _cooccurrence(store: MomentsStore, executor: Executor, load: Partitions) -> None:
    matrix, history = count_cooccurrences(store, load(), executor)
    store.commit_stage("cooccurrence", {"cooccurrence": matrix}, {}, history)
    store.ledger("cooccurrence").clear()


def _third_moment(store: MomentsStore, executor: Executor, load: Partitions) -> None:
    ledger, basis = store.ledger("third_moment"), store.array_digest("basis")
    stage = ThirdMomentStage(store.n_words, store.settings, store.path, basis)
    folded = _summed(store, stage, executor, load)
    with single_blas_thread():
        arrays = final_arrays(folded, store.read("basis"), str(store.path))
    store.commit_stage("third_moment", arrays, folded.scalars, ledger.history(projection_keys(store)))
    ledger.clear()


_STEPS = {
    "range": _range,
    "cooccurrence": _cooccurrence,
    "basis": _basis,
    "projection": _projection,
    "third_moment": _third_moment,
}
