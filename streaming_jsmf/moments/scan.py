"""Scan a corpus into a moments store, or finish a scan that was interrupted."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from streaming_jsmf.blocks.units import Partition, WorkUnit, list_units
from streaming_jsmf.config import ScanSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.lock import sole_writer
from streaming_jsmf.jobs.memory import PROCESS_BYTES, require_memory
from streaming_jsmf.linalg.document_tensor import NONZERO_BLOCK
from streaming_jsmf.linalg.eigen import GUARD_VECTORS
from streaming_jsmf.linalg.factor import ROW_BLOCK_BYTES
from streaming_jsmf.moments.checks import require_sound
from streaming_jsmf.moments.cooccurrence import counting_bytes, require_exact_memory
from streaming_jsmf.moments.finish import finish_stages
from streaming_jsmf.moments.manifest import load_partitions, moved, new_manifest, with_third_moment
from streaming_jsmf.moments.store import (
    MomentsStore,
    create_store,
    read_store,
    replace_manifest,
    resume_store,
    words_digest,
)
from streaming_jsmf.moments.third_moment import tensor_memory
from streaming_jsmf.storage.paths import StorePath, node_exists

logger = logging.getLogger(__name__)

#: Bytes that a nonzero of a partition takes in memory: a float32 value, an int32 index.
BYTES_PER_NONZERO = 8

#: Bytes that a nonzero of the one row group being read takes besides: Arrow's values, float64 copies.
BYTES_PER_NONZERO_READ = 32

#: Partition sizes chosen to fit a memory budget are multiples of this.
PARTITION_STEP = 1_000_000


def scan_memory(n_words: int, settings: ScanSettings, partitions: tuple[Partition, ...], workers: int) -> int:
    """Projected peak memory of a scan in bytes: one partition and three N x L arrays for each worker, or the basis.

    It depends on the vocabulary, the widths and the partition size, not on the number of documents.
    """
    largest = max(partition.nonzeros for partition in partitions)
    row_group = max(
        unit.only.read if unit.only else unit.nonzeros for partition in partitions for unit in partition.units
    )
    each = largest * BYTES_PER_NONZERO + _fixed_bytes(n_words, settings, row_group)
    return PROCESS_BYTES + max(each * min(workers, len(partitions)), _basis_bytes(n_words, settings))


def _basis_bytes(n_words: int, settings: ScanSettings) -> int:
    """The factor, two blocks of Davidson's in float32, and the eigenvectors thrice in float64 while they are sorted."""
    factor, basis = (min(width, n_words) for width in (settings.factor_width, settings.basis_width))
    block = max(factor, 2 * (basis + GUARD_VECTORS))
    return 4 * n_words * (factor + 2 * block) + 24 * n_words * basis


def _fixed_bytes(n_words: int, settings: ScanSettings, row_group: int) -> int:
    """What a worker holds besides its partition."""
    # When folding: both factors and the merged one; when multiplying, X and its product.
    tall = 3 * 4 * n_words * min(settings.factor_width, n_words)
    if settings.exact:
        tall = max(tall, counting_bytes(n_words))
    if settings.third_moment:
        tall = max(tall, tensor_memory(n_words, min(settings.basis_width, n_words)))
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


def scan_corpus(
    corpus: Corpus,
    path: StorePath,
    settings: ScanSettings,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    keep_partitions: bool = False,
) -> MomentsStore:
    """Scan ``corpus`` into the moments store at ``path``, or finish what an earlier run left there.

    ``settings.scans`` passes over the data. The same corpus and settings give the same bits on every
    scheduler and number of workers. A store that ``corpus`` is a part of is finished as a whole.

    Parameters
    ----------
    settings
        With a memory budget and no partition size, a new store gets one that fits (see ``fitting_settings``), and a
        store that is there keeps its own.
    keep_partitions
        Keep the result of each partition (its factor weighs N x L x 4 bytes), so that some can be removed or
        selected later.

    Raises
    ------
    InputError
        If the corpus holds a bad record, the settings differ from those of an existing store, or the
        memory budget is too small, or another process writes the store. A store that holds no more than a bad corpus
        is removed again.
    StoreError
        If a shard or the store is damaged; what is committed is read before anything is done, also if nothing is.
    """
    execution = execution or Execution()
    words = corpus.vocabulary().words
    if execution.memory is not None and settings.partition_nonzeros is None:
        settings = _sized(settings, corpus, path, execution)
    manifest = new_manifest(corpus, settings, words_digest(words), keep_partitions=keep_partitions)
    existing = resume_store(path, manifest)
    if existing is not None:
        _tell_what_else(existing, corpus)
        if not existing.missing_stages and _asked(existing, corpus, settings) == existing.manifest:
            require_sound(existing)
            return existing
    planned = _asked(existing, corpus, settings) if existing else manifest
    require_scan_memory(planned, path, execution, [corpus])
    with sole_writer(path):
        return _scan_alone(path, manifest, words, corpus, execution, listener)


def _scan_alone(
    path: StorePath,
    manifest: Mapping[str, Any],
    words: Sequence[str],
    corpus: Corpus,
    execution: Execution,
    listener: Listener,
) -> MomentsStore:
    # Looked at again: another process may have been at work until now.
    existing = resume_store(path, manifest)
    if existing is not None:
        require_sound(existing)
    # The scheduler comes first: if it does not answer, no store is made or touched.
    with execution.executor(listener) as executor:
        if existing is None:
            store = create_store(path, manifest, words)
        else:
            store = _followed(existing, corpus, ScanSettings(**manifest["settings"]))
        try:
            finish_stages(store, executor, [corpus])
            return store
        except InputError as error:
            bad_corpus = error
    if len(store.manifest["corpora"]) == 1 and store.outcome("range") is None:
        # Such a store can never be completed: mending the corpus makes it another one. No task runs any more.
        store.discard()
    raise bad_corpus


def _sized(settings: ScanSettings, corpus: Corpus, path: StorePath, execution: Execution) -> ScanSettings:
    if node_exists(path):
        # Begun with another budget or number of workers, perhaps: they must not make it another store.
        return replace(settings, partition_nonzeros=read_store(path).settings.partition_nonzeros)
    return fitting_settings(settings, corpus.n_words, list_units(corpus), execution)


def finish_store(
    path: StorePath, execution: Execution | None = None, listener: Listener = silent
) -> MomentsStore:
    """Finish the store at ``path``, whatever interrupted it; nothing if it is complete.

    Raises
    ------
    InputError, StoreError
        As ``finish_stages``.
    """
    execution = execution or Execution()
    with sole_writer(path):
        store = read_store(path)
        if store.missing_stages:
            require_scan_memory(store.manifest, path, execution)
            with execution.executor(listener) as executor:
                finish_stages(store, executor)
    return store


def _asked(store: MomentsStore, corpus: Corpus, settings: ScanSettings) -> Mapping[str, Any]:
    """The manifest of a store that looks for the corpus where it is now, and has the third moment if that is asked."""
    manifest = moved(store.manifest, corpus)
    return with_third_moment(manifest) if settings.third_moment else manifest


def _followed(store: MomentsStore, corpus: Corpus, settings: ScanSettings) -> MomentsStore:
    manifest = _asked(store, corpus, settings)
    if settings.third_moment and not store.settings.third_moment:
        # A corpus that is not where it was is better found before the store lacks anything.
        load_partitions(manifest, str(store.path), [corpus])
    return store if manifest == store.manifest else replace_manifest(store, manifest)


def _tell_what_else(store: MomentsStore, corpus: Corpus) -> None:
    """Whoever scans a corpus into a store that has changed since must not take it for that corpus alone."""
    others = [e["path"] for e in store.manifest["corpora"] if e["fingerprint"] != corpus.fingerprint]
    if others:
        logger.warning("%s holds more than %s: %s", store.path, corpus.root, ", ".join(others))
    held = {digest for entry in store.manifest["corpora"] for digest in entry["shards"].values()}
    gone = [shard.name for shard in corpus.shards if shard.rows and shard.sha256 not in held]
    if gone:
        logger.warning("%s holds %s without what was removed: %s", store.path, corpus.root, ", ".join(gone))


def require_scan_memory(
    manifest: Mapping[str, Any], path: StorePath, execution: Execution, corpora: Sequence[Corpus] = ()
) -> None:
    """Refuse a scan that would need more memory than the budget; ``corpora`` as for ``load_partitions``.

    Raises
    ------
    InputError
        With both numbers and the settings to change.
    """
    settings = ScanSettings(**manifest["settings"])
    if settings.exact:
        require_exact_memory(int(manifest["n_words"]), path, execution)
    if execution.memory is None:
        return
    partitions = load_partitions(manifest, str(path), corpora)
    require_memory(
        scan_memory(int(manifest["n_words"]), settings, partitions, execution.concurrency),
        execution.memory,
        "the scan",
        "lower --partition-nonzeros, --max-topics or --workers, or raise --memory",
    )
