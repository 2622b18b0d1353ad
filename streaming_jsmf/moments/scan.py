"""Scan a corpus into a moments store: range, basis, projection, each committed before the next."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from streaming_jsmf.blocks.units import Partition, list_units, plan_partitions
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.linalg.eigen import Eigenpairs, factor_eigenpairs, single_view_eigenpairs
from streaming_jsmf.linalg.factor import ROW_BLOCK_BYTES
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.moments.engine import Crew, Job, run_stage
from streaming_jsmf.moments.ledger import Partial
from streaming_jsmf.moments.stages import SHARED_PROBES, SUM_ARRAYS, ProjectionStage, RangeStage
from streaming_jsmf.moments.store import MomentsStore, create_store, make_manifest, resume_store
from streaming_jsmf.runtime.blas import single_blas_thread
from streaming_jsmf.runtime.events import Listener, silent
from streaming_jsmf.runtime.memory import require_memory
from streaming_jsmf.runtime.schedulers import Execution

logger = logging.getLogger(__name__)

#: Bytes that a nonzero of a partition takes in memory: a float32 value, an int32 index.
BYTES_PER_NONZERO = 8

#: Bytes that a nonzero of the one row group being read takes besides: Arrow's values, float64 copies.
BYTES_PER_NONZERO_READ = 32

#: Interpreter and libraries of a worker.
PROCESS_BYTES = 250 * 2**20


def scan_memory(n_words: int, settings: ScanSettings, partitions: tuple[Partition, ...], workers: int) -> int:
    """Projected peak memory of a scan in bytes: one partition and four N x L arrays for each worker.

    It depends on the vocabulary, the widths and the partition size, not on the number of documents.
    """
    width = min(settings.factor_width, n_words)
    block = max(partition.nonzeros for partition in partitions) * BYTES_PER_NONZERO
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    tall = 4 * 4 * n_words * width
    each = block + row_group * BYTES_PER_NONZERO_READ + tall + ROW_BLOCK_BYTES
    return PROCESS_BYTES + each * min(workers, len(partitions))


def scan_corpus(
    corpus: Corpus,
    path: Path,
    settings: ScanSettings,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> MomentsStore:
    """Scan ``corpus`` into the moments store at ``path``, or finish what an earlier run left there.

    ``settings.scans`` passes over the data. The same corpus and settings give the same bits on every
    scheduler and number of workers.

    Raises
    ------
    InputError
        If the corpus holds a bad record, the settings differ from those of an existing store, or the
        memory budget is too small. A store that holds no more than a bad corpus is removed again.
    StoreError
        If a shard or the store is damaged.
    """
    execution = execution or Execution()
    partitions = plan_partitions(list_units(corpus), settings.partition_budget(corpus.nonzeros))
    require_memory(
        scan_memory(corpus.n_words, settings, partitions, execution.concurrency),
        execution.memory,
        "the scan",
        "lower --partition-nonzeros, --max-topics or --workers, or raise --memory",
    )
    manifest = make_manifest(corpus, settings, partitions)
    existing = resume_store(path, manifest)
    if existing is not None and not existing.missing_stages:
        return existing
    words = corpus.vocabulary().words
    # The scheduler comes first: if it does not answer, no store is made or touched.
    with execution.runner() as arguments:
        crew = Crew(arguments, execution.tasks_at_once(arguments), listener)
        store = existing or create_store(path, manifest, words)
        bad_corpus = _finish(store, partitions, crew)
    if bad_corpus is not None:
        # Such a store can never be completed: mending the corpus makes it another one. No task runs any more.
        store.discard()
        raise bad_corpus
    return store


def _finish(store: MomentsStore, partitions: tuple[Partition, ...], crew: Crew) -> InputError | None:
    """Run the missing stages; return what a task found wrong with the corpus, if anything."""
    try:
        for stage in store.missing_stages:
            _STEPS[stage](store, partitions, crew)
    except InputError as error:
        return error
    return None


def _range(store: MomentsStore, partitions: tuple[Partition, ...], crew: Crew) -> None:
    ledger = store.ledger("range")
    run_stage(Job(ledger, RangeStage(store.n_words, store.settings)), partitions, crew)
    folded = ledger.read_fold(len(partitions) - 1)
    total = folded.scalars["total_weight"]
    if not total > 0:
        raise InputError(
            f"{store.manifest['corpus']}: no document has two tokens or more, so there are no co-occurrences; "
            "ingest longer documents"
        )
    arrays = {name: folded.arrays[name] for name in SUM_ARRAYS}
    arrays["row_sum"] = arrays["row_sum"] / total
    arrays["diagonal"] = arrays["diagonal"] / total
    if "factor" in folded.arrays:
        arrays["factor"] = (folded.arrays["factor"] / np.sqrt(total)).astype(np.float32)
    else:
        arrays["sketch"] = folded.arrays["sketch"] / total
    store.commit_stage("range", arrays, folded.scalars, ledger.history())
    ledger.clear()


def _basis(store: MomentsStore, partitions: tuple[Partition, ...], crew: Crew) -> None:
    del partitions, crew
    with single_blas_thread():
        pairs = _first_eigenpairs(store)
    store.commit_stage("basis", {"basis": pairs.vectors, "basis_eigenvalues": pairs.values}, {})


def _first_eigenpairs(store: MomentsStore) -> Eigenpairs:
    diagonal, settings = store.read("diagonal"), store.settings
    width = min(settings.basis_width, store.n_words)
    if settings.range_finder == "factors":
        return factor_eigenpairs(store.read("factor"), diagonal, width)
    sketch = store.read("sketch")
    probes = gaussian_probes(store.n_words, sketch.shape[1], settings.seed, SHARED_PROBES)
    return single_view_eigenpairs(sketch - diagonal[:, None] * probes, probes, min(width, sketch.shape[1]))


def _projection(store: MomentsStore, partitions: tuple[Partition, ...], crew: Crew) -> None:
    ledger = store.ledger("projection")
    stage = ProjectionStage(store.n_words, store.settings, store.path, store.array_digest("basis"))
    run_stage(Job(ledger, stage), partitions, crew)
    folded: Partial = ledger.read_fold(len(partitions) - 1)
    record = store.outcome("range")
    assert record is not None, "stages run in order"
    basis = store.read("basis")
    product = folded.arrays["projection"] / record["scalars"]["total_weight"]
    product -= store.read("diagonal")[:, None] * basis
    store.commit_stage("projection", {"projection": product}, {}, ledger.history())
    ledger.clear()


_STEPS = {"range": _range, "basis": _basis, "projection": _projection}
