"""Counts selected words in one pass over a corpus, committed partition by partition in a directory of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from numpy.typing import NDArray

from streaming_jsmf.blocks.units import Partition, list_units, plan_partitions
from streaming_jsmf.config import ScanSettings, fingerprint
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, StreamingJSMFError
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES, require_memory
from streaming_jsmf.moments.engine import Crew, Job, Part, run_stage
from streaming_jsmf.moments.ledger import PARTIALS, RECORDS, Ledger, Partial, fold_keys, key_of
from streaming_jsmf.moments.manifest import distinct
from streaming_jsmf.moments.memory import BYTES_PER_NONZERO_READ
from streaming_jsmf.moments.stages.word_counts import CountReduction as CountStage
from streaming_jsmf.moments.stages.word_counts import SketchProbes, WordSelection
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    create_group,
    digest,
    read_attributes,
    write_array,
)
from streaming_jsmf.storage.paths import StorePath, node_exists, remove_tree, store_written

logger = logging.getLogger(__name__)

KIND = "streaming_jsmf.word_counts.unfinished"

#: Changes when the same request would give other bits.
ALGORITHM_VERSION = 1


@dataclass(frozen=True)
class CountRequest:
    """A scan for counts: of which corpus, of which words, with which probes.

    ``settings`` are those of a scan, of which document weights and size of partitions are taken, and nothing else.
    """

    corpus: Corpus
    selection: WordSelection
    probes: SketchProbes
    settings: ScanSettings

    @property
    def key(self) -> str:
        """Tells it from any request with other counts."""
        arrays = self.selection.arrays()
        return fingerprint(
            {
                "algorithm": ALGORITHM_VERSION,
                "corpus": self.corpus.fingerprint,
                "n_words": self.selection.n_words,
                "document_weights": self.settings.document_weights,
                "partition_budget": self.budget,
                "probes": asdict(self.probes),
                "arrays": {name: digest(values).sha256 for name, values in arrays.items()},
            }
        )

    @property
    def budget(self) -> int:
        """Nonzeros of a partition."""
        return self.settings.partition_budget(self.corpus.nonzeros, self.corpus.n_words)


def count_words(
    request: CountRequest,
    work: StorePath,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> Partial:
    """Count the selected words of a corpus: one pass over what an interrupted run has not committed in ``work``.

    The same request gives the same bits on every scheduler and number of workers. ``work`` stays; it is the
    caller's to remove once the counts are kept elsewhere.

    Returns
    -------
    Partial
        ``pairs`` (P, P) int64, documents with both words, on the diagonal with the one; float64 ``rows`` (R, N) of C,
        ``sketch`` (N, s), C G, and ``row_sum`` (N,), each times ``total_weight``; scalars ``n_documents``,
        ``total_weight``.

    Raises
    ------
    InputError
        If the corpus holds a bad record, in which case ``work`` is removed, or the memory budget is too small.
    StoreError
        If a shard or ``work`` is damaged.
    """
    execution = execution or Execution()
    partitions = plan_partitions(list_units(request.corpus), request.budget)
    require_memory(
        count_memory(request, partitions, execution.concurrency),
        execution.memory,
        "counting words",
        "lower --workers, or raise --memory",
    )
    parts, folds = _parts(request, partitions)
    # The scheduler comes first: if it does not answer, nothing is made.
    with execution.runner() as arguments:
        job = _job(request, work)
        try:
            run_stage(job, parts, folds, Crew(arguments, execution.tasks_at_once(arguments), listener))
        except InputError as error:
            bad_corpus = error
        else:
            return job.ledger.read_fold(folds[-1])
    # Mending the corpus makes it another one, so what is counted of this one is of no use.
    remove_tree(work, ignore_errors=True)
    raise bad_corpus


def count_memory(request: CountRequest, partitions: tuple[Partition, ...], workers: int) -> int:
    """Projected peak memory in bytes: for each worker a row group and twice its sums, whatever the documents."""
    selection = request.selection
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    # Rows and sketch twice, and the probes and a product of the sketch in float32.
    tall = (
        2 * 8 * (selection.row_words.size + request.probes.width) + 8 * request.probes.width
    ) * selection.n_words
    sums = 3 * 8 * selection.words.size**2 + tall
    # Beside what a read takes: entries chosen for pairs and for rows.
    each = 3 * row_group * BYTES_PER_NONZERO_READ + sums
    return PROCESS_BYTES + each * min(workers, len(partitions))


def _parts(
    request: CountRequest, partitions: tuple[Partition, ...]
) -> tuple[tuple[Part, ...], tuple[str, ...]]:
    names = distinct([partition.content for partition in partitions])
    keys = tuple(key_of(name) for name in names)
    parts = tuple(Part(key, p.nonzeros, p) for key, p in zip(keys, partitions, strict=True))
    return parts, fold_keys(keys, request.key)


def _job(request: CountRequest, work: StorePath) -> Job:
    """The job of a new directory, or of one that an interrupted run of the same request left."""
    arrays, remedy = request.selection.arrays(), f"remove {work} and run the same command again"
    if not _is_left_by(request, work):
        remove_tree(work, ignore_errors=True)
        _create(request, work, arrays)
    expected: Mapping[str, ArrayDigest] = {name: digest(values) for name, values in arrays.items()}
    scheme = request.settings.document_weights
    stage = CountStage(work, expected, request.selection.n_words, scheme, request.probes, remedy)
    return Job(Ledger(work, stage.name, remedy=remedy), stage)


def _create(request: CountRequest, work: StorePath, arrays: Mapping[str, NDArray[Any]]) -> None:
    with store_written(work) as beside:
        for name, values in arrays.items():
            write_array(beside, name, values, [name])
        for part in (PARTIALS, RECORDS):
            create_group(beside / part, {})
        create_group(beside, {"kind": KIND, "request": request.key})


def _is_left_by(request: CountRequest, work: StorePath) -> bool:
    if not node_exists(work):
        return False
    try:
        stored = read_attributes(work)
    except StreamingJSMFError:
        logger.warning("%s: cannot be read and is made again", work)
        return False
    return (stored.get("kind"), stored.get("request")) == (KIND, request.key)
