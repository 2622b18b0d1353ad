"""How much memory a scan takes, and the partition size that fits a budget: computed before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, WorkUnit
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.linalg.document_tensor import NONZERO_BLOCK
from streaming_jsmf.linalg.factor import ROW_BLOCK_BYTES
from streaming_jsmf.moments.manifest import Manifest
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.stages.registry import stages_of
from streaming_jsmf.moments.stages.sample import BYTES_PER_NONZERO as SAMPLED_BYTES
from streaming_jsmf.process_limits import is_limited
from streaming_jsmf.storage.paths import StorePath

#: Bytes that a nonzero of a partition takes in memory: a float32 value, an int32 index.
BYTES_PER_NONZERO = 8

#: Bytes that a nonzero of the one row group being read takes besides: Arrow's values, float64 copies.
BYTES_PER_NONZERO_READ = 32

#: Partition sizes chosen to fit a memory budget are multiples of this.
PARTITION_STEP = 1_000_000


def scan_memory(
    n_words: int,
    settings: ScanSettings,
    partitions: tuple[Partition, ...],
    workers: int,
    sample_share: float | None = None,
) -> int:
    """Projected peak memory of a scan in bytes: a partition for each worker and what its tasks hold, or what the
    largest final arrays take; and the sample, where ``sample_share`` of the documents are one.

    It depends on the vocabulary, the widths, the partition size and the size of the sample, not on the number of
    documents.
    """
    largest = max(partition.nonzeros for partition in partitions)
    row_group = max(
        unit.only.read if unit.only else unit.nonzeros for partition in partitions for unit in partition.units
    )
    each = largest * BYTES_PER_NONZERO + _fixed_bytes(n_words, settings, row_group)
    final = max(stage.final_memory(n_words, settings) for stage in stages_of(settings))
    # Two samples and both in one, when folding; read and scaled, when multiplying.
    sample = (
        0.0 if sample_share is None else sample_share * sum(partition.nonzeros for partition in partitions)
    )
    return PROCESS_BYTES + max(each * min(workers, len(partitions)), final) + int(2 * SAMPLED_BYTES * sample)


def _fixed_bytes(n_words: int, settings: ScanSettings, row_group: int) -> int:
    """What a worker holds besides its partition."""
    tall = max(stage.task_memory(n_words, settings) for stage in stages_of(settings))
    # A block of rows in the factor's products, or of nonzeros sorted by word in the tensor's: as large as each other.
    return row_group * BYTES_PER_NONZERO_READ + tall + max(ROW_BLOCK_BYTES, 8 * NONZERO_BLOCK)


def fitting_settings(
    settings: ScanSettings, n_words: int, units: Sequence[WorkUnit], execution: Execution
) -> ScanSettings:
    """Settings whose partitions fit ``execution.memory``, where neither size nor memory leaves another choice.

    The size is rounded down to millions of nonzeros and becomes a setting like any other, so that it is in the
    fingerprint. Settings come back as they are without a memory budget, with a partition size of their own, or if the
    default size fits; and if none fits, so that the scan is refused with its numbers.
    """
    if execution.memory is None or settings.partition_nonzeros is not None or not units:
        return settings
    row_group = max(unit.nonzeros for unit in units)
    each = (execution.memory - PROCESS_BYTES) // execution.concurrency
    room = (each - _fixed_bytes(n_words, settings, row_group)) // BYTES_PER_NONZERO
    # A partition ends with a row group, so it may be larger than asked for by one.
    size = (room - row_group) // PARTITION_STEP * PARTITION_STEP
    default = settings.partition_budget(sum(unit.nonzeros for unit in units), n_words)
    if size < PARTITION_STEP or size >= default:
        return settings
    return replace(settings, partition_nonzeros=size)


def require_scan_memory(
    manifest: Manifest, path: StorePath, execution: Execution, corpora: Sequence[Corpus] = ()
) -> None:
    """Refuse a scan that would need more memory than the budget; ``corpora`` as for ``load_partitions``.

    Raises
    ------
    InputError
        With both numbers and the settings to change.
    """
    settings = manifest.scan_settings
    for stage in stages_of(settings):
        stage.require_memory(manifest.n_words, settings, path, execution)
    if execution.memory is None and not is_limited():
        return
    partitions = load_partitions(manifest, str(path), corpora)
    execution.require_memory(
        scan_memory(manifest.n_words, settings, partitions, execution.concurrency, manifest.sample_share),
        "the scan",
        "lower --partition-nonzeros, --max-topics or --workers",
    )
