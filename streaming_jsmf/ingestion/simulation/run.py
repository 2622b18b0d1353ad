"""Simulated corpora on disk: parts in parallel, one commit at the end, and an interrupted run goes on.

Until it is committed, a simulation is a directory of this layout::

    simulation.json          the arguments
    corpus/documents/        shards of the parts that are done, under their final names
    corpus/truth.zarr
    records/00000.json       part 0 is done: its shards; 00000.npy are its counts
    work/                    what tasks are writing

A part writes in a directory of its own, moves the files to their places, and then its record is committed. Who comes
second with the same part puts the same bytes in the same places, so a lost worker that comes back harms nothing.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import DOCUMENTS, Corpus, open_corpus
from streaming_jsmf.corpus.manifest import ShardEntry
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD, ShardLimits, ShardWriter
from streaming_jsmf.corpus.write import Origin, WordTotals, finish_directory, free_target, in_documents
from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError
from streaming_jsmf.ingestion.simulation.documents import (
    batch_documents,
    forget_sampler,
    guide_cells,
    process_sampler,
    simulate_batch,
)
from streaming_jsmf.ingestion.simulation.law import Law, make_law, word_names
from streaming_jsmf.ingestion.simulation.truth import TRUTH_NAME, commit_truth, read_truth, truth_of
from streaming_jsmf.jobs.checkpoints import FILES, RECORDS, Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.run import Job, map_job, run_job
from streaming_jsmf.jobs.workspace import Commit, Workspace
from streaming_jsmf.storage.paths import AnyPath, file_hashes, fsync_directory, fsync_file, normalise

#: Changes with anything that gives the same arguments other documents.
ALGORITHM_VERSION = 1

#: One batch and one row group of a task, with the copies made of them on the way.
TASK_BYTES = 128 * 2**20

#: A word of the vocabulary as a Python string and in the tables made of it.
WORD_BYTES = 250

CORPUS, WORK, COUNTS_NAME = "corpus", "work", "counts.npy"


def simulate_lda(
    target: AnyPath,
    *,
    n_documents: int,
    n_words: int,
    n_topics: int,
    mean_length: float = 100,
    alpha: float | Sequence[float] | None = None,
    beta: float | None = None,
    separable: bool = False,
    zipf: float | None = None,
    seed: int,
    documents_per_shard: int | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> Corpus:
    """Draw a corpus and write it at ``target``, with its topics in ``truth.zarr`` (see ``read_truth``).

    The same arguments give the same bytes on every scheduler and number of workers. Words are named w0, w1, ...
    with leading zeros; words that no document uses stay in the vocabulary, so that word ids are rows of the
    truth. ``document_id`` counts from 0. An interrupted run is finished by the same call: work goes to
    ``<target>.partial`` and shards committed there are not made again.

    Memory: see ``simulation_memory``; it does not grow with the documents.

    Parameters
    ----------
    target
        Local directory to create; must not exist.
    n_documents
        M.
    n_words, n_topics, mean_length, alpha, beta, separable, zipf, seed
        See ``simulate_truth``.
    documents_per_shard
        Changes the files, never the documents; default about 20 million tokens a shard. Numbers far from a
        multiple of a batch (a million tokens) cost time: the batches at the ends of a part are drawn twice.
    execution
        How to run; ``memory`` is compared with ``simulation_memory``.
    listener
        Told of each part committed; sizes are documents.

    Raises
    ------
    InputError
        For sizes and parameters out of range, a target that exists, and a memory budget that is too small.
    SettingsMismatchError
        If ``<target>.partial`` is from an interrupted simulation with other arguments.
    StoreError
        If ``<target>.partial`` is damaged.
    """
    if n_documents < 1 or (documents_per_shard is not None and documents_per_shard < 1):
        raise InputError("n_documents and documents_per_shard must be at least 1")
    law = make_law(n_words, n_topics, mean_length, alpha, beta, separable, zipf, seed)
    cut = plan(law, n_documents, documents_per_shard)
    path = Path(normalise(target))
    simulation = Simulation(law, cut, Workspace.beside(path, "simulation"))
    free_target(target, resumed=True)
    execution = execution or Execution()
    execution.require_memory(
        simulation_memory(law, execution),
        "the simulation",
        "lower the vocabulary size, the topics or --workers",
    )
    with replace(simulation.folder, arguments=simulation.arguments).acquire() as commit:
        if commit is not None:
            try:
                with execution.executor(listener) as executor:
                    simulation.prepare()
                    run_job(simulation.job, executor)
                simulation.finish(path, commit)
            finally:
                forget_sampler()
    return open_corpus(path)


def simulation_memory(law: Law, execution: Execution) -> int:
    """Projected peak memory of a simulation in bytes, over all its processes.

    The tables of the topics once in every process, a batch and a few arrays of N for every worker. It depends on
    the vocabulary, the topics and the workers, not on the number of documents.
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
class Cut:
    """How documents are cut into shards, and shards into parts: one part for each task.

    Attributes
    ----------
    n_documents
        M.
    documents_per_shard
        All shards but the last have as many.
    shards_per_part
        Above 1 only where a shard is smaller than a batch, which would be drawn again for each of its shards.
    """

    n_documents: int
    documents_per_shard: int
    shards_per_part: int

    @property
    def sizes(self) -> list[int]:
        """Documents of each part."""
        each = self.documents_per_shard * self.shards_per_part
        return [min(each, self.n_documents - first) for first in range(0, self.n_documents, each)]

    def first_document(self, part: int) -> int:
        """Number of a part's first document in the corpus."""
        return part * self.shards_per_part * self.documents_per_shard

    def shard_name(self, part: int, number: int) -> str:
        """File name of the shard with this number in its part."""
        return f"part-{part * self.shards_per_part + number:05d}.parquet"


def plan(law: Law, n_documents: int, documents_per_shard: int | None) -> Cut:
    """The cut that is asked for; by default shards of whole batches, about ``TOKENS_PER_SHARD`` tokens each."""
    batch = batch_documents(law)
    if documents_per_shard is None:
        tokens = batch * max(law.mean_length, 1.0)
        documents_per_shard = batch * max(1, round(TOKENS_PER_SHARD / tokens))
    return Cut(n_documents, documents_per_shard, -(-batch // documents_per_shard))


@dataclass(frozen=True)
class Simulation:
    """What to draw, how it is cut, and where to write: what every task needs, in a few hundred bytes."""

    law: Law
    cut: Cut
    folder: Workspace

    @property
    def arguments(self) -> dict[str, Any]:
        """What decides the bytes of the corpus: JSON values."""
        alpha = list(self.law.alpha)
        return {
            **asdict(self.law),
            "alpha": alpha[0] if len(set(alpha)) == 1 else alpha,
            "n_documents": self.cut.n_documents,
            "documents_per_shard": self.cut.documents_per_shard,
            "algorithm": ALGORITHM_VERSION,
            "numpy": np.__version__,
        }

    @property
    def documents(self) -> Path:
        """Where the shards end."""
        return self.folder.directory / CORPUS / DOCUMENTS

    @property
    def job(self) -> Job:
        """The tasks, one for each part."""
        return map_job(write_part, self, self.cut.sizes, self.folder.checkpoints("simulate"), "documents")

    def prepare(self) -> None:
        """Clear what an interrupted run left half done, and write the truth if it is not there, or damaged."""
        work, truth = self.folder.directory / WORK, self.folder.directory / CORPUS / TRUTH_NAME
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        self.documents.mkdir(parents=True, exist_ok=True)
        try:
            read_truth(truth.parent)
        except StreamingJSMFError:
            shutil.rmtree(truth, ignore_errors=True)
            commit_truth(work, truth, truth_of(self.law))

    def counts(self, part: int) -> NDArray[np.float64]:
        """(2, N) float64; document frequencies and term counts of a part, whole numbers."""
        counts: NDArray[np.float64] = np.load(self._counts_path(part), allow_pickle=False)
        return counts

    def keep(self, part: int, attempt: Path, shards: tuple[ShardEntry, ...]) -> Record:
        """Move the files of ``attempt`` to their places; return the record that will make them count."""
        entries = []
        for number, shard in enumerate(shards):
            name = self.cut.shard_name(part, number)
            (attempt / shard.name).replace(self.documents / name)
            entries.append(shard.model_copy(update={"name": name}))
        counts = self._counts_path(part)
        (attempt / COUNTS_NAME).replace(counts)
        fsync_directory(self.documents)
        fsync_directory(counts.parent)
        known = {self.documents / shard.name: shard.sha256 for shard in entries}
        made = file_hashes(self.folder.directory, [*known, counts], known=known)
        return {"shards": [shard.model_dump(mode="json") for shard in entries], FILES: made}

    def finish(self, path: Path, commit: Commit) -> None:
        """Add up the counts, commit the corpus."""
        counts = np.zeros((2, self.law.n_words))
        entries = []
        for number, part in enumerate(self.job.records()):
            # Whole numbers far below 2^53: their sums are exact in any order.
            counts += self.counts(number)
            shards = map(ShardEntry.model_validate, part["shards"])
            entries += [in_documents(shard, shard.name) for shard in shards]
        totals = WordTotals(word_names(self.law.n_words), counts[0].astype(np.int64), counts[1])
        origin = Origin(settings=self.law.settings())
        corpus = self.folder.directory / CORPUS
        finish_directory(corpus, path, entries, totals, origin)
        commit(corpus, {corpus / entry.name: entry.sha256 for entry in entries})

    def _counts_path(self, part: int) -> Path:
        return self.folder.directory / RECORDS / f"{part:05d}.npy"


def write_part(simulation: Simulation, part: int) -> Record:
    """Task: draw the documents of one part and write them; returns the record to commit.

    Memory: the tables of ``process_sampler``, one batch, one row group, and six arrays of N.

    Raises
    ------
    StoreError
        If the directory was removed meanwhile.
    """
    attempt = simulation.folder.directory / WORK / f"{part:05d}-{uuid.uuid4().hex}"
    try:
        # Without parents: a worker that outlives its simulation must not bring the directory back.
        attempt.mkdir()
    except FileNotFoundError as error:
        raise StoreError(
            f"{simulation.folder.directory} was removed while documents were written to it"
        ) from error
    try:
        shards = _write_shards(simulation, part, attempt)
        return simulation.keep(part, attempt, shards)
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _write_shards(simulation: Simulation, part: int, attempt: Path) -> tuple[ShardEntry, ...]:
    """Write the shards of a part and its counts into ``attempt``; all files are on the disk when it returns."""
    sampler = process_sampler(simulation.law)
    limits = ShardLimits(tokens_per_shard=np.inf, documents_per_shard=simulation.cut.documents_per_shard)
    writer = ShardWriter(attempt, simulation.law.n_words, limits)
    size = batch_documents(simulation.law)
    first = simulation.cut.first_document(part)
    stop = first + simulation.cut.sizes[part]
    try:
        for number in range(first // size, -(-stop // size)):
            batch = simulate_batch(sampler, simulation.cut.n_documents, number)
            start = number * size
            writer.write(batch.take(max(first - start, 0), min(stop - start, batch.n_documents)))
        shards = writer.close()
    finally:
        writer.abort()
    np.save(attempt / COUNTS_NAME, np.stack([writer.document_frequency, writer.term_count]))
    for path in sorted(attempt.iterdir()):
        fsync_file(path)
    return shards
