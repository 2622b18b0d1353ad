"""Simulate a corpus with known topics. Parts are drawn in parallel and committed at the end; runs can be resumed.

Until it is committed, a simulation is a directory with this layout::

    zarr.json                the arguments
    truth.zarr               the topics
    records/                 one group per completed part, with its shards
    simulate/00000/          shards and counts of part 0
    work/                    files that tasks are writing
    corpus/                  the corpus before it is renamed to the target
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.config import SimulationSettings, settings_of, takes
from streaming_jsmf.corpus.format import Corpus, open_corpus, read_manifest
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.corpus.shards import (
    CORPUS,
    LAYOUT,
    TOKENS_PER_SHARD,
    ShardLimits,
    ShardWriter,
    clear_attempts,
    link_shards,
    total_counts,
    write_task_shards,
)
from streaming_jsmf.corpus.write import Origin, corpus_target, finish_directory, wanted_corpus
from streaming_jsmf.errors import InputError, StreamingJSMFError, option
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.run import map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.simulation.documents import (
    batch_documents,
    forget_sampler,
    guide_cells,
    process_sampler,
    simulate_batch,
)
from streaming_jsmf.simulation.truth import (
    TRUTH_NAME,
    read_truth,
    truth_of,
    with_prior,
    word_names,
    write_truth,
)
from streaming_jsmf.storage.paths import AnyPath

#: Increased whenever the same arguments would give different documents.
ALGORITHM_VERSION = 1

#: Memory of a task for one batch and one row group, including their copies.
TASK_BYTES = 128 * 2**20

#: Memory of one word of the vocabulary, as a Python string and in the derived tables.
WORD_BYTES = 250

STEP = "simulate"

#: Key of the settings of a simulated corpus.
SIMULATED = "simulated"


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
    target : Local directory to create. If the same call has made it, it is verified and returned; another simulated
        corpus is only replaced with ``overwrite``.
    alpha : Dirichlet prior of the topic shares: one number for all topics, or K numbers; default 1/K.
    execution : How to run; ``memory`` is compared with ``simulation_memory``. Its fields are also keyword arguments.
    listener : Called with each committed part; sizes are in documents.

    Raises ``InputError`` if a size or parameter is out of range, the target exists, or the memory budget is too small;
    ``SettingsMismatchError`` if ``<target>.partial`` is from an interrupted simulation with other arguments, and
    ``StoreError`` if it is damaged.
    """
    settings = with_prior(SimulationSettings.of(options), alpha)
    execution = settings_of("execution", Execution, execution, options)
    path = corpus_target(target)
    simulation = plan(settings, Workspace.beside(path, "simulation"))
    if path.exists() and SIMULATED not in read_manifest(path).settings:
        raise InputError(f"{path}: simulate did not make this corpus; give another path, or remove it")
    execution.require_memory(
        simulation_memory(settings, execution),
        "the simulation",
        f"lower the vocabulary size, the topics or {option.workers}",
    )
    corpus = wanted_corpus(path, simulation.arguments, overwrite=overwrite)
    wanted = replace(corpus, is_intact=lambda: corpus.is_intact() and bool(read_truth(path)))
    with replace(simulation.folder, arguments=simulation.arguments).acquire(wanted) as commit:
        if commit is not None:
            checkpoints = simulation.folder.checkpoints(STEP)
            job = map_job(write_part, simulation, simulation.sizes, checkpoints, "documents")
            try:
                with execution.executor(listener) as executor:
                    _prepare(simulation)
                    run_job(job, executor)
                commit(_finish(simulation, job.records()))
            finally:
                forget_sampler()
    return open_corpus(path)


def simulation_memory(settings: SimulationSettings, execution: Execution) -> int:
    """Estimate the peak memory of a simulation in bytes, over all its processes.

    Counts the topic tables per process, and a batch and arrays of length N per worker; independent of ``n_documents``.
    """
    workers = execution.concurrency
    tables = 8 * settings.n_words * settings.n_topics
    guide = 4 * settings.n_topics * guide_cells(settings.n_words)
    task = TASK_BYTES + 8 * 6 * settings.n_words
    words = WORD_BYTES * settings.n_words
    if execution.scheduler in ("threads", "synchronous"):
        # The truth is drawn, transposed and written before the first task, the vocabulary after the last.
        return PROCESS_BYTES + max(2 * tables, tables + guide + workers * task) + words
    parent = PROCESS_BYTES + 2 * tables + words
    return parent + workers * (PROCESS_BYTES + tables + guide + task)


@dataclass(frozen=True)
class Simulation:
    """Everything that a task needs: the settings with the size of a shard, the parts (one per task), and the directory.

    ``shards_per_part`` exceeds 1 only if a shard is smaller than a batch, which would otherwise be drawn once per
    shard.
    """

    settings: SimulationSettings
    folder: Workspace
    documents_per_shard: int
    shards_per_part: int

    @property
    def sizes(self) -> list[int]:
        each, total = self.documents_per_shard * self.shards_per_part, self.settings.n_documents
        return [min(each, total - first) for first in range(0, total, each)]

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that determine the bytes of the corpus."""
        values = asdict(self.settings)
        alpha = list(values.pop("prior"))
        return {
            **values,
            "alpha": alpha[0] if len(set(alpha)) == 1 else alpha,
            "documents_per_shard": self.documents_per_shard,
            "layout": LAYOUT,
            "algorithm": ALGORITHM_VERSION,
            "numpy": np.__version__,
        }


def plan(settings: SimulationSettings, folder: Workspace) -> Simulation:
    """Divide the corpus into shards; by default shards of whole batches with about ``TOKENS_PER_SHARD`` tokens each."""
    batch, documents_per_shard = batch_documents(settings), settings.documents_per_shard
    if documents_per_shard is None:
        tokens = batch * max(settings.mean_length, 1.0)
        documents_per_shard = batch * max(1, round(TOKENS_PER_SHARD / tokens))
    return Simulation(settings, folder, documents_per_shard, -(-batch // documents_per_shard))


def _prepare(simulation: Simulation) -> None:
    """Write the truth if it is missing or damaged."""
    root = simulation.folder.directory
    clear_attempts(root)
    try:
        read_truth(root)
    except StreamingJSMFError:
        shutil.rmtree(root / TRUTH_NAME, ignore_errors=True)
        write_truth(root / TRUTH_NAME, truth_of(simulation.settings))


def write_part(simulation: Simulation, part: int) -> Record:
    """Task: draw and write the documents of one part; return the record to commit.

    Memory: the tables of ``process_sampler``, one batch, one row group, and six arrays of length N. Raises
    ``StoreError`` if the directory was removed in the meantime.
    """
    settings = simulation.settings
    sampler, size = process_sampler(settings), batch_documents(settings)
    first = part * simulation.shards_per_part * simulation.documents_per_shard
    stop = first + simulation.sizes[part]

    def fill(writer: ShardWriter) -> None:
        for number in range(first // size, -(-stop // size)):
            batch, start = simulate_batch(sampler, settings.n_documents, number), number * size
            writer.write(batch.take(max(first - start, 0), min(stop - start, batch.n_documents)))

    limits = ShardLimits(tokens_per_shard=np.inf, documents_per_shard=simulation.documents_per_shard)
    return write_task_shards(simulation.folder.directory, STEP, part, settings.n_words, limits, fill)


def _finish(simulation: Simulation, parts: Sequence[Record]) -> Path:
    """Assemble the corpus; return its directory."""
    root, settings = simulation.folder.directory, simulation.settings
    shards = link_shards(root, STEP, parts)
    (root / TRUTH_NAME).rename(root / CORPUS / TRUTH_NAME)
    totals = total_counts(root, STEP, len(parts), pa.array(word_names(settings.n_words), pa.string()))
    said: dict[str, Json] = {
        SIMULATED: "lda",
        "n_topics": settings.n_topics,
        "mean_length": settings.mean_length,
        "alpha": " ".join(map(repr, settings.prior)),
        "beta": settings.beta,
        "separable": settings.separable,
        "zipf": settings.zipf,
        "seed": settings.seed,
    }
    finish_directory(root / CORPUS, shards, totals, Origin(settings=said, request=simulation.arguments))
    return root / CORPUS
