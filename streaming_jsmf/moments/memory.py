"""Projects the memory of a scan, and the partition size that fits a budget, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import floor

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import default_sample
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, WorkUnit
from streaming_jsmf.errors import option
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.csr import ROW_BLOCK_BYTES
from streaming_jsmf.linalg.tensor import NONZERO_BLOCK
from streaming_jsmf.moments.manifest import StoreManifest
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.stages import stages_of
from streaming_jsmf.moments.stages.cooccurrence import require_matrix_memory
from streaming_jsmf.moments.stages.range import held_bytes
from streaming_jsmf.process_limits import PROCESS_BYTES, is_limited
from streaming_jsmf.storage.paths import StorePath

#: Bytes of a nonzero in memory of those documents of a partition that a task holds: a float32 value and an int32 index.
BYTES_PER_NONZERO = 8

#: Additional bytes of a nonzero of the row group being read: Arrow's values, float64 copies.
BYTES_PER_NONZERO_READ = 32

#: Partition sizes that are chosen to fit a memory budget are multiples of this.
PARTITION_STEP = 1_000_000


def scan_memory(
    n_words: int,
    settings: ScanSettings,
    partitions: tuple[Partition, ...],
    workers: int,
    sample_share: float | None = None,
) -> int:
    """Projected peak memory of a scan in bytes.

    The larger of the partitions and task arrays of all workers and the largest final arrays, plus the documents that
    the store holds, a share ``sample_share`` of all (None: none).
    """
    largest = max(partition.nonzeros for partition in partitions)
    row_group = max(
        unit.only.read if unit.only else unit.nonzeros for partition in partitions for unit in partition.units
    )
    each = int(largest * _bytes_held(settings, sample_share)) + _fixed_bytes(n_words, settings, row_group)
    nonzeros = sum(partition.nonzeros for partition in partitions)
    tasks = each * min(workers, len(partitions))
    return PROCESS_BYTES + max(tasks, _final_bytes(n_words, settings)) + held_bytes(sample_share, nonzeros)


def _bytes_held(settings: ScanSettings, sample_share: float | None) -> float:
    """Bytes of each nonzero of a partition that a task holds; the others are in memory one row group at a time."""
    return BYTES_PER_NONZERO * (1.0 if settings.exact else sample_share or 0.0)


def _final_bytes(n_words: int, settings: ScanSettings) -> int:
    return max(stage.final_memory(n_words, settings) for stage in stages_of(settings))


def _fixed_bytes(n_words: int, settings: ScanSettings, row_group: int) -> int:
    """Bytes that a worker holds in addition to its partition."""
    tall = max(stage.task_memory(n_words, settings) for stage in stages_of(settings))
    # A block of rows in products, or of nonzeros sorted by word in the tensor's.
    return row_group * BYTES_PER_NONZERO_READ + tall + max(ROW_BLOCK_BYTES, 8 * NONZERO_BLOCK)


def fitting_settings(
    settings: ScanSettings, n_words: int, units: Sequence[WorkUnit], execution: Execution
) -> ScanSettings:
    """Settings whose documents and partitions fit ``execution.memory``.

    The store holds a smaller share of the documents if all do not fit. Partition sizes are rounded down to millions of
    nonzeros. Both become part of the settings and their fingerprint. Settings are unchanged without a memory budget,
    where they are explicit or the defaults fit, and if nothing fits (the scan is then refused).
    """
    if execution.memory is None or not units:
        return settings
    rows, nonzeros = (sum(getattr(unit, name) for unit in units) for name in ("rows", "nonzeros"))
    row_group, workers = max(unit.nonzeros for unit in units), execution.concurrency
    fixed, budget = _fixed_bytes(n_words, settings, row_group), execution.memory - PROCESS_BYTES
    share: float | None = None
    if settings.range_finder == "sample":
        least = fixed + BYTES_PER_NONZERO * (row_group + PARTITION_STEP)
        room = budget - max(workers * least, _final_bytes(n_words, settings))
        most = floor(100 * room / held_bytes(1.0, max(nonzeros, 1))) / 100
        share = settings.held_share(rows, n_words, nonzeros)
        if settings.sample_share is None and 0 < most < share:
            share = min(most, default_sample(rows, n_words, nonzeros))
            settings = replace(settings, sample_share=share)
    room = (budget - held_bytes(share, nonzeros)) // workers - fixed
    size = int(min(room / max(_bytes_held(settings, share), 1 / nonzeros), nonzeros)) if room > 0 else 0
    # A partition ends with a row group, so it may exceed the requested size by one row group.
    size = (size - row_group) // PARTITION_STEP * PARTITION_STEP
    own, usual = settings.partition_nonzeros, settings.partition_budget(nonzeros, n_words)
    if own is not None or size < PARTITION_STEP or size >= usual:
        return settings
    return replace(settings, partition_nonzeros=size)


def require_scan_memory(
    manifest: StoreManifest, path: StorePath, execution: Execution, corpora: Sequence[Corpus] = ()
) -> None:
    """Raise ``InputError`` if a scan needs more memory than the budget; ``corpora`` as for ``load_partitions``."""
    settings = manifest.scan_settings
    if settings.exact:
        require_matrix_memory(manifest.n_words, path, execution)
    if execution.memory is None and not is_limited():
        return
    partitions = load_partitions(manifest, path, corpora)
    execution.require_memory(
        scan_memory(manifest.n_words, settings, partitions, execution.concurrency, manifest.sample_share),
        "the scan",
        f"lower {option.sample_share}, {option.partition_nonzeros}, {option.max_topics} or {option.workers}",
    )
