"""Projects the memory of a scan, and finds the settings that would fit a budget, before anything is read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import LARGEST_SAMPLE
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, plan_partitions
from streaming_jsmf.errors import option
from streaming_jsmf.jobs.execution import Execution, Fits, Memory
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


def require_scan_memory(
    manifest: StoreManifest,
    path: StorePath,
    execution: Execution,
    corpora: Sequence[Corpus] = (),
    *,
    is_new: bool = False,
) -> None:
    """Raise ``InputError`` if a scan needs more memory than the budget; ``corpora`` as for ``load_partitions``.

    For a new store the message names settings with which the scan fits.
    """
    settings = manifest.scan_settings
    if settings.exact:
        require_matrix_memory(manifest.n_words, path, execution)
    if execution.memory is None and not is_limited():
        return
    partitions = load_partitions(manifest, path, corpora)
    memory = partial(scan_memory, manifest.n_words, settings, partitions, sample_share=manifest.sample_share)
    others = partial(_fitting, manifest, partitions, execution.concurrency) if is_new else None
    execution.require_memory(memory, "the scan", others)


def _fitting(manifest: StoreManifest, partitions: Sequence[Partition], workers: int, fits: Fits) -> list[str]:
    """The largest share of held documents and the largest partitions that fit, if need be with one worker."""
    held, rows = manifest.sample_share, sum(partition.rows for partition in partitions)
    shares = [] if held is None else _round_numbers(min(manifest.n_words / rows, LARGEST_SAMPLE), held)
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    sizes = [*map(int, _round_numbers(row_group, manifest.partition_budget))]

    def memory(**fields: Any) -> Memory:
        settings = replace(manifest.scan_settings, **fields)
        planned = [
            part
            for _, same in groupby(partitions, attrgetter("label"))
            for part in plan_partitions(
                [unit for partition in same for unit in partition.units],
                settings.partition_nonzeros or manifest.partition_budget,
            )
        ]
        share = settings.sample_share or held
        return partial(scan_memory, manifest.n_words, settings, tuple(planned), sample_share=share)

    # With fewer workers alone the result stays the same, so that nothing else goes with them.
    for tasks in (workers,) if fits(memory(), 1) else (workers, 1):
        found = []
        for name, numbers in (("sample_share", shares), ("partition_nonzeros", sizes)):
            count = bisect_left(numbers, True, key=lambda number: not fits(memory(**{name: number}), tasks))
            found += [str(getattr(option, name)(number)) for number in numbers[:count][-1:]]
        if found:
            return found if tasks == workers else [f"{option.workers(1)} with {each}" for each in found]
    return []


def _round_numbers(least: float, below: float) -> list[float]:
    """Numbers of two digits, ascending, from ``least`` to less than ``below``."""
    numbers = (float(f"{digits}e{power}") for power in range(-8, 12) for digits in range(10, 100))
    return [number for number in numbers if least <= number < below]
