"""Projects what a moments store and its scan need on disk, from sizes alone."""

from __future__ import annotations

import math

from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.order import FAN_IN
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.moments.manifest import StoreManifest
from streaming_jsmf.moments.memory import matrix_bytes
from streaming_jsmf.moments.stages.sums import SUMS_OF_WORDS
from streaming_jsmf.storage.arrays import CHUNK_BYTES
from streaming_jsmf.storage.local import bytes_in, require_disk
from streaming_jsmf.storage.paths import StorePath

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
