"""Simulate a corpus with known topics. Parts are drawn in parallel and committed at the end; runs can be resumed.

Until it is committed, a simulation is a directory with this layout::

    zarr.json                the arguments
    corpus/documents/        shards of completed parts, under their final names
    corpus/truth.zarr
    records/                 one group per completed part, with its shards; 00000.npy has the counts of part 0
    work/                    files that tasks are writing

Running a part twice writes the same bytes to the same places, so a lost worker that returns does no harm.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.config import SimulationSettings, settings_of, takes
from streaming_jsmf.corpus.format import DOCUMENTS, Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import ShardEntry
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD, ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.corpus.write import Origin, finish_directory, free_target
from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError
from streaming_jsmf.ingestion.simulation.documents import (
    batch_documents,
    forget_sampler,
    guide_cells,
    process_sampler,
    simulate_batch,
)
from streaming_jsmf.ingestion.simulation.law import SIMULATED, Law, law_of, word_names
from streaming_jsmf.ingestion.simulation.truth import TRUTH_NAME, commit_truth, read_truth, truth_of
from streaming_jsmf.jobs.checkpoints import FILES, RECORDS, Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.paths import AnyPath, file_hashes, fsync_directory, fsync_file, normalise

#: Increased whenever the same arguments would give different documents.
ALGORITHM_VERSION = 1

#: Memory of a task for one batch and one row group, including their copies.
TASK_BYTES = 128 * 2**20

#: Memory of one word of the vocabulary, as a Python string and in the derived tables.
WORD_BYTES = 250

CORPUS, WORK, COUNTS_NAME = "corpus", "work", "counts.npy"


@takes(SimulationSettings, Execution)
def simulate_lda(
    target: AnyPath,
    *,
    alpha: float | Sequence[float] | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    overwrite: bool = False,
    **options: Any,
) -> Corpus:
    """Simulate a corpus from latent Dirichlet allocation and write it to ``target``, with its topics in ``truth.zarr``.

    The same arguments give the same bytes with any scheduler and number of workers. Words are named w0, w1, ... with
    leading zeros; unused words stay in the vocabulary, so that word ids are row numbers of the truth (see
    ``read_truth``). ``document_id`` starts at 0. Work is done in ``<target>.partial``; the same call resumes an
    interrupted run. Memory does not depend on the number of documents (see ``simulation_memory``).

    Parameters
    ----------
    target
        Local directory to create; must not exist, unless ``overwrite`` and it is a simulated corpus.
    alpha
        One number for all topics, or K numbers; see ``simulate_truth``.
    execution
        How to run; ``memory`` is compared with ``simulation_memory``. Its fields are also keyword arguments.
    listener
        Called with each committed part; sizes are in documents.

    Raises
    ------
    InputError
        If a size or parameter is out of range, the target exists, or the memory budget is too small.
    SettingsMismatchError
        If ``<target>.partial`` is from an interrupted simulation with other arguments.
    StoreError
        If ``<target>.partial`` is damaged.
    """
    wanted = SimulationSettings.of(options)
    execution = settings_of("execution", Execution, execution, options)
    law = law_of(wanted, alpha)
    path = Path(normalise(target))
    simulation = plan(
        law, wanted.n_documents, wanted.documents_per_shard, Workspace.beside(path, "simulation")
    )
    free_target(target, overwrite=overwrite, resumed=True)
    if overwrite and path.exists() and SIMULATED not in read_manifest(path).settings:
        raise InputError(f"{path}: simulate did not make this corpus; give another path, or remove it")
    execution.require_memory(
        simulation_memory(law, execution),
        "the simulation",
        "lower the vocabulary size, the topics or --workers",
    )
    with replace(simulation.folder, arguments=simulation.arguments).acquire(replace=overwrite) as commit:
        if commit is not None:
            checkpoints = simulation.folder.checkpoints("simulate")
            job = map_job(write_part, simulation, simulation.sizes, checkpoints, "documents")
            try:
                with execution.executor(listener) as executor:
                    simulation.prepare()
                    run_job(job, executor)
                corpus = simulation.folder.directory / CORPUS
                commit(corpus, simulation.finish(path, job.records()))
            finally:
                forget_sampler()
    return open_corpus(path)


def simulation_memory(law: Law, execution: Execution) -> int:
    """Estimate the peak memory of a simulation in bytes, over all its processes.

    Counts the topic tables per process, and a batch and arrays of length N per worker; independent of ``n_documents``.
    """
    workers = execution.concurrency
    tables = 8 * law.n_words * law.n_topics
    guide = 4 * law.n_topics * guide_cells(law.n_words)
    task = TASK_BYTES + 8 * 6 * law.n_words
    words = WORD_BYTES * law.n_words
    if execution.scheduler in ("threads", "synchronous"):
        # The truth is drawn, transposed and written before the first task, the vocabulary after the last.
        return PROCESS_BYTES + max(2 * tables, tables + guide + workers * task) + words
    parent = PROCESS_BYTES + 2 * tables + words
    return parent + workers * (PROCESS_BYTES + tables + guide + task)


@dataclass(frozen=True)
class Simulation:
    """Everything that a task needs: the law, the division into shards and parts (one per task), and the directory.

    ``shards_per_part`` exceeds 1 only if a shard is smaller than a batch, which would otherwise be drawn once per
    shard.
    """

    law: Law
    folder: Workspace
    n_documents: int
    documents_per_shard: int
    shards_per_part: int

    @property
    def sizes(self) -> list[int]:
        each = self.documents_per_shard * self.shards_per_part
        return [min(each, self.n_documents - first) for first in range(0, self.n_documents, each)]

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that determine the bytes of the corpus."""
        alpha = list(self.law.alpha)
        return {
            **asdict(self.law),
            "alpha": alpha[0] if len(set(alpha)) == 1 else alpha,
            "n_documents": self.n_documents,
            "documents_per_shard": self.documents_per_shard,
            "algorithm": ALGORITHM_VERSION,
            "numpy": np.__version__,
        }

    @property
    def documents(self) -> Path:
        return self.folder.directory / CORPUS / DOCUMENTS

    def counts_path(self, part: int) -> Path:
        """Path of the counts of a part: (2, N) float64, document frequencies and term counts, whole numbers."""
        return self.folder.directory / RECORDS / f"{part:05d}.npy"

    def prepare(self) -> None:
        """Remove the work files of an interrupted run, and write the truth if it is missing or damaged."""
        work, truth = self.folder.directory / WORK, self.folder.directory / CORPUS / TRUTH_NAME
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        self.documents.mkdir(parents=True, exist_ok=True)
        try:
            read_truth(truth.parent)
        except StreamingJSMFError:
            shutil.rmtree(truth, ignore_errors=True)
            commit_truth(work, truth, truth_of(self.law))

    def keep(self, part: int, attempt: Path, shards: tuple[ShardEntry, ...]) -> Record:
        """Move the files of ``attempt`` into place; return the record to commit."""
        entries = []
        for number, shard in enumerate(shards, part * self.shards_per_part):
            name = f"part-{number:05d}.parquet"
            (attempt / shard.name).replace(self.documents / name)
            entries.append(shard.model_copy(update={"name": name}))
        counts = self.counts_path(part)
        (attempt / COUNTS_NAME).replace(counts)
        fsync_directory(self.documents)
        fsync_directory(counts.parent)
        known = {self.documents / shard.name: shard.sha256 for shard in entries}
        files = file_hashes(self.folder.directory, [*known, counts], known=known)
        return {"shards": [shard.model_dump(mode="json") for shard in entries], FILES: files}

    def finish(self, path: Path, parts: Sequence[Record]) -> dict[Path, str]:
        """Add up the counts and write vocabulary and manifest; return the hashes of the shards."""
        # Whole numbers far below 2^53, so sums are exact in any order.
        counts = np.zeros((2, self.law.n_words))
        for part in range(len(parts)):
            counts += np.load(self.counts_path(part), allow_pickle=False)
        shards = [ShardEntry.model_validate(shard) for part in parts for shard in part["shards"]]
        words = pa.array(word_names(self.law.n_words), pa.string())
        totals = WordCounts(words, counts[0].astype(np.int64), counts[1])
        origin = Origin(settings=self.law.settings())
        return finish_directory(self.folder.directory / CORPUS, path, shards, totals, origin)


def plan(law: Law, n_documents: int, documents_per_shard: int | None, folder: Workspace) -> Simulation:
    """Divide the corpus into shards; by default shards of whole batches with about ``TOKENS_PER_SHARD`` tokens each."""
    batch = batch_documents(law)
    if documents_per_shard is None:
        tokens = batch * max(law.mean_length, 1.0)
        documents_per_shard = batch * max(1, round(TOKENS_PER_SHARD / tokens))
    return Simulation(law, folder, n_documents, documents_per_shard, -(-batch // documents_per_shard))


def write_part(simulation: Simulation, part: int) -> Record:
    """Task: draw and write the documents of one part; return the record to commit.

    Memory: the tables of ``process_sampler``, one batch, one row group, and six arrays of length N. Raises
    ``StoreError`` if the directory was removed in the meantime.
    """
    attempt = simulation.folder.directory / WORK / f"{part:05d}-{uuid.uuid4().hex}"
    try:
        # No parents=True: a worker that outlives its simulation must not recreate the directory.
        attempt.mkdir()
    except FileNotFoundError as error:
        raise StoreError(
            f"{simulation.folder.directory} was removed while documents were written to it"
        ) from error
    try:
        return simulation.keep(part, attempt, _write_shards(simulation, part, attempt))
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _write_shards(simulation: Simulation, part: int, attempt: Path) -> tuple[ShardEntry, ...]:
    """Write and sync the shards of a part and its counts into ``attempt``."""
    sampler = process_sampler(simulation.law)
    limits = ShardLimits(tokens_per_shard=np.inf, documents_per_shard=simulation.documents_per_shard)
    writer = ShardWriter(attempt, simulation.law.n_words, limits)
    size = batch_documents(simulation.law)
    first = part * simulation.shards_per_part * simulation.documents_per_shard
    stop = first + simulation.sizes[part]
    try:
        for number in range(first // size, -(-stop // size)):
            batch = simulate_batch(sampler, simulation.n_documents, number)
            start = number * size
            writer.write(batch.take(max(first - start, 0), min(stop - start, batch.n_documents)))
        shards = writer.close()
    finally:
        writer.abort()
    np.save(attempt / COUNTS_NAME, np.stack([writer.document_frequency, writer.term_count]))
    for path in sorted(attempt.iterdir()):
        fsync_file(path)
    return shards
