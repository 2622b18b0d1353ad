"""Projects the memory and disk that a scan needs, and finds settings that would fit, before anything is read."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from dask.utils import format_bytes

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.config.scan import LARGEST_SAMPLE
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, plan_partitions
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.jobs.execution import Execution, Fits, Memory
from streaming_jsmf.jobs.order import FAN_IN
from streaming_jsmf.linalg.csr import PAIRS_AT_ONCE, ROW_BLOCK_BYTES
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.sampled import OUTSIDE_STEPS
from streaming_jsmf.linalg.tensor import DOCUMENT_BLOCK, NONZERO_BLOCK
from streaming_jsmf.moments.manifest import StoreManifest
from streaming_jsmf.moments.partition import load_partitions
from streaming_jsmf.moments.records import is_made
from streaming_jsmf.moments.stages.cooccurrence import PANEL_BYTES
from streaming_jsmf.moments.stages.eigenpairs import column_panels
from streaming_jsmf.moments.stages.sums import SUMS_OF_WORDS
from streaming_jsmf.process_limits import PROCESS_BYTES, is_limited, machine_memory
from streaming_jsmf.storage.arrays import CHUNK_BYTES
from streaming_jsmf.storage.large_arrays import bytes_in_memory
from streaming_jsmf.storage.local import bytes_in, require_disk
from streaming_jsmf.storage.paths import StorePath

#: Bytes of a nonzero in memory of those documents of a partition that a task holds: a float32 value and an int32 index.
BYTES_PER_NONZERO = 8

#: Bytes per pair of words while a chunk of documents is multiplied: product, positions and sorted copies.
BYTES_PER_PAIR = 40

#: Additional bytes of a nonzero of the row group being read: Arrow's values, float64 copies.
BYTES_PER_NONZERO_READ = 32


class Pass(NamedTuple):
    """Peak bytes of a pass: of a task besides its documents, and of its final arrays if they can exceed the tasks'."""

    task: int
    final: int = 0


def passes(n_words: int, settings: ScanSettings) -> dict[str, Pass]:
    """The memory of each pass over a corpus, by stage (``records.STAGES``); settings decide which are made."""
    basis = min(settings.basis_width, n_words)
    block = block_width(settings.max_topics + GUARD_VECTORS)
    guarded = settings.max_topics + GUARD_VECTORS
    sketch = min(settings.sketch_width, n_words) if settings.range_finder == "halko" else 0
    single = 4 * n_words * min(block_width(settings.basis_width + GUARD_VECTORS), n_words)
    # The sketch and its SVD; or the vectors and products of block Davidson, probes, and a product and its parts.
    found = 8 * n_words * 6 * sketch or bytes_in_memory([*[2 * single] * 2, *[single] * 5])

    def product(width: int) -> int:
        """Two sums of a panel when it is folded."""
        return 16 * n_words * int(next(column_panels(n_words, min(width, n_words))).stop)

    def eigenpairs(width: int) -> int:
        """Q and C Q in float64, blocks outside Q and their products, and one of them with the parts of its product."""
        outside = 4 * n_words * min(block, n_words)
        return bytes_in_memory(
            [*[8 * n_words * min(width, n_words)] * 2, *[OUTSIDE_STEPS * outside] * 2, *[outside] * 3]
        )

    return {
        # Sums when they are folded, and with ``halko`` the probes and sums of their products.
        "sums": Pass(n_words * (3 * 8 * SUMS_OF_WORDS + 20 * sketch), found),
        "cooccurrence": Pass(_panel_bytes(n_words)),
        "projection": Pass(product(settings.basis_width), eigenpairs(settings.basis_width)),
        # The columns of Q and W are also held separately while they are joined.
        "refinement": Pass(product(guarded), eigenpairs(settings.basis_width + guarded)),
        "third_moment": Pass(tensor_bytes(n_words, basis)),
    }


def tensor_bytes(n_words: int, width: int) -> int:
    """Sums of the third moment, the basis, and the products of a block of documents.

    Excludes nonzeros sorted by word: 8 bytes for each of ``linalg.tensor.NONZERO_BLOCK``.
    """
    # Folding groups holds two float64 copies of both wide sums; the tensor is held in slabs and packed.
    return 32 * n_words * width + 4 * width**3 + 16 * DOCUMENT_BLOCK * width


def matrix_bytes(n_words: int) -> int:
    """C in float64."""
    return 8 * n_words**2


def _panel_bytes(n_words: int) -> int:
    """Two panels of C and the product of a chunk of documents."""
    return 2 * min(PANEL_BYTES, matrix_bytes(n_words)) + BYTES_PER_PAIR * min(PAIRS_AT_ONCE, n_words**2)


def held_bytes(share: float | None, nonzeros: int) -> int:
    """Bytes of the documents that a store holds, which are read, joined and scaled in two copies of 8 bytes each."""
    return int(2 * 8 * (share or 0.0) * nonzeros)


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
    row_group = max(
        unit.only.read if unit.only else unit.nonzeros for partition in partitions for unit in partition.units
    )
    sizes = [partition.nonzeros for partition in partitions]
    return scan_peak(n_words, settings, sizes, row_group, workers, sample_share)


def scan_peak(
    n_words: int,
    settings: ScanSettings,
    partitions: Sequence[int],
    row_group: int,
    workers: int,
    sample_share: float | None = None,
) -> int:
    """``scan_memory`` of partitions with these nonzeros, the largest row group of which has ``row_group``."""
    made = [each for name, each in passes(n_words, settings).items() if is_made(name, settings)]
    # The documents of a partition that a task holds; the others are in memory one row group at a time.
    held = int(max(partitions) * BYTES_PER_NONZERO * (1.0 if settings.exact else sample_share or 0.0))
    # A block of rows in products, or of nonzeros sorted by word in the tensor's.
    block = max(ROW_BLOCK_BYTES, 8 * NONZERO_BLOCK)
    task = held + row_group * BYTES_PER_NONZERO_READ + max(each.task for each in made) + block
    tasks = task * min(workers, len(partitions))
    final = max(each.final for each in made)
    return PROCESS_BYTES + max(tasks, final) + held_bytes(sample_share, sum(partitions))


def require_matrix_memory(n_words: int, path: StorePath, execution: Execution) -> None:
    """Raise ``InputError`` if C does not fit the budget or, without one, the machine."""
    needed = PROCESS_BYTES + matrix_bytes(n_words) + execution.concurrency * _panel_bytes(n_words)
    budget, who = execution.memory, f"{option.memory} allows"
    if budget is None:
        budget, who = machine_memory(), "this machine has"
    if budget is not None and needed > budget:
        raise InputError(
            f"{path}: {option.exact(True)} needs about {format_bytes(needed)} for {n_words:,} x {n_words:,} "
            f"co-occurrences and {who} {format_bytes(budget)}; scan without {option.exact(True).alone}, which is "
            f"enough for {option.rectify('enn')} and palm"
        )


def require_scan_memory(
    manifest: StoreManifest,
    path: StorePath,
    execution: Execution,
    corpus: Corpus,
    *,
    is_new: bool = False,
) -> None:
    """Raise ``InputError`` if a scan of the corpus needs more memory than the budget.

    For a new store the message names settings with which the scan fits.
    """
    settings = manifest.scan_settings
    if settings.exact:
        require_matrix_memory(manifest.n_words, path, execution)
    if execution.memory is None and not is_limited():
        return
    partitions = load_partitions(manifest, corpus)
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


#: Bytes of the documents that a store holds relative to those of the shards that they come from, at most (measured).
HELD_BYTES = 1.2


def arrays_bytes(n_words: int, settings: ScanSettings, *, sampled: bool) -> int:
    """Bytes of the final arrays of a store, which depend on the number of documents only by whether it is a sample."""
    basis = min(settings.basis_width, n_words)
    block = min(block_width(settings.max_topics + GUARD_VECTORS), n_words)
    # The words take about two numbers each.
    widths = [1] * (SUMS_OF_WORDS + 2) + [basis]
    if settings.range_finder == "halko":
        widths.append(min(settings.sketch_width, n_words))
    if settings.has_projection:  # C Q, the eigenvectors, and of a sample W and C W
        widths += [basis, block, *([block, block] if sampled else [])]
    if settings.third_moment:
        widths += [1, basis]
    tensor = 8 * basis**3 // 6 if settings.third_moment else 0
    return (
        sum(_array_bytes(n_words, width) for width in widths)
        + tensor
        + (matrix_bytes(n_words) if settings.exact else 0)
    )


def _array_bytes(rows: int, width: int) -> int:
    """Bytes of an array, whose last chunk is as long as the others."""
    chunk = min(max(1, CHUNK_BYTES // (8 * width)), rows)
    return 8 * width * chunk * math.ceil(rows / chunk)


def scan_disk(
    n_words: int,
    settings: ScanSettings,
    shard_bytes: int,
    share: float | None,
    n_partitions: int,
    workers: int,
) -> tuple[int, int]:
    """Bytes that a scan needs at its peak, and those of the finished store.

    ``shard_bytes`` are those of the corpus, of which the store holds a ``share`` (None: none). Beside the final arrays
    there are results of partitions that are not folded yet: those of the workers, and less than ``FAN_IN`` of each
    level of the tree.
    """
    arrays = arrays_bytes(n_words, settings, sampled=share is not None and share < 1)
    store = arrays
    if share is not None:  # the parts of pass 1 are kept, with their documents and sums
        store += int(HELD_BYTES * shard_bytes * share) + n_partitions * 8 * SUMS_OF_WORDS * n_words
    levels = max(1, math.ceil(math.log(n_partitions, FAN_IN))) if n_partitions > 1 else 1
    waiting = min(n_partitions, workers + (FAN_IN - 1) * levels)
    width = settings.sketch_width if settings.range_finder == "halko" else settings.basis_width
    partial = 8 * n_words * min(width, n_words)
    return store + (waiting + 1) * partial, store


def require_scan_disk(
    manifest: StoreManifest,
    path: StorePath,
    execution: Execution,
    corpus: Corpus,
    before: StoreManifest | None = None,
) -> None:
    """Log what a scan has to write, beside the store ``before`` it; raise ``InputError`` if the disk lacks it."""
    sizes = (manifest.sample_share, len(manifest.partitions), execution.concurrency)
    shard_bytes = sum(shard.bytes for shard in corpus.shards)
    needed, _ = scan_disk(manifest.n_words, manifest.scan_settings, shard_bytes, *sizes)
    require_disk(path, needed - (0 if before is None else _staying_bytes(path, manifest, before)), "the scan")


def _staying_bytes(path: StorePath, manifest: StoreManifest, before: StoreManifest) -> int:
    """Bytes of a store that stay when it follows its corpus: its share of the partitions that the corpus still has."""
    wanted = set(manifest.contents)
    staying = [part.nonzeros for part in before.partitions if part.content in wanted]
    return int(bytes_in(path) * sum(staying) / max(sum(part.nonzeros for part in before.partitions), 1))
