"""Simulated corpora on disk: parts in parallel, one commit at the end, and an interrupted run goes on."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from streaming_jsmf.config import differences
from streaming_jsmf.corpus.format import DOCUMENTS, Corpus, open_corpus
from streaming_jsmf.corpus.write import Origin, WordTotals, commit_directory, free_target, in_documents
from streaming_jsmf.errors import InputError, SettingsMismatchError
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.lock import sole_writer
from streaming_jsmf.jobs.memory import PROCESS_BYTES, require_memory
from streaming_jsmf.jobs.steps import run_step
from streaming_jsmf.simulation.documents import forget_sampler, guide_cells
from streaming_jsmf.simulation.parts import (
    CORPUS,
    RECORDS,
    WORK,
    Job,
    plan,
    read_arguments,
    write_arguments,
)
from streaming_jsmf.simulation.truth import Law, make_law, truth_of, word_names
from streaming_jsmf.simulation.truth_store import TRUTH_NAME, commit_truth
from streaming_jsmf.storage.paths import AnyPath, directory_written_beside, normalise

logger = logging.getLogger(__name__)

#: Changes with anything that gives the same arguments other documents.
ALGORITHM_VERSION = 1

#: One batch and one row group of a task, with the copies made of them on the way.
TASK_BYTES = 128 * 2**20

#: A word of the vocabulary as a Python string and in the tables made of it.
WORD_BYTES = 250


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
    job = Job(law, cut, path.parent / f"{path.name}.partial")
    if _is_committed(job, path):
        _remove(job)
        return open_corpus(path)
    free_target(target)
    execution = execution or Execution()
    require_memory(
        simulation_memory(law, execution),
        execution.memory,
        "the simulation",
        "lower the vocabulary size, the topics or --workers, or raise --memory",
    )
    return _run(job, path, execution, listener)


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


def _run(job: Job, path: Path, execution: Execution, listener: Listener) -> Corpus:
    with sole_writer(path):
        _start(job)
        try:
            with execution.runner() as arguments:
                _prepare(job)
                run_step(job.step, arguments, listener)
            return _finish(job, path)
        except BaseException:
            # The tasks have ended with their pool, so nothing is written behind the back of this.
            if not job.step.committed():
                _remove(job)
            raise
        finally:
            forget_sampler()


def _arguments(job: Job) -> dict[str, Any]:
    """What decides the bytes of a corpus, as it is kept for a run that goes on."""
    fields = asdict(job.law)
    alpha = list(job.law.alpha)
    return {
        **fields,
        "alpha": alpha[0] if len(set(alpha)) == 1 else alpha,
        "n_documents": job.cut.n_documents,
        "documents_per_shard": job.cut.documents_per_shard,
        "algorithm": ALGORITHM_VERSION,
        "numpy": np.__version__,
    }


def _is_committed(job: Job, path: Path) -> bool:
    """Whether an earlier run was cut off between its commit and the removal of its own directory."""
    moved = path.is_dir() and job.directory.is_dir() and not (job.directory / CORPUS).exists()
    return moved and read_arguments(job.directory) == _arguments(job)


def _start(job: Job) -> None:
    """Make the directory, or take over that of an interrupted simulation of the same arguments."""
    if not job.directory.exists():
        with directory_written_beside(job.directory) as beside:
            (beside / CORPUS / DOCUMENTS).mkdir(parents=True)
            (beside / RECORDS).mkdir()
            write_arguments(beside, _arguments(job))
        return
    stored = read_arguments(job.directory)
    if stored is None:
        raise InputError(
            f"{job.directory} exists and is no interrupted simulation; move it away or choose another target"
        )
    if differing := differences(stored, _arguments(job)):
        raise SettingsMismatchError(
            f"{job.directory}: an interrupted simulation with other arguments is here ({differing}); "
            "give the same arguments, or delete it to start again"
        )


def _prepare(job: Job) -> None:
    """Clear what an interrupted run left half done, and write the truth if it had not come to that."""
    shutil.rmtree(job.directory / WORK, ignore_errors=True)
    (job.directory / WORK).mkdir(exist_ok=True)
    job.drop_incomplete()
    truth = job.directory / CORPUS / TRUTH_NAME
    if not truth.exists():
        commit_truth(job.directory / WORK, truth, truth_of(job.law))
    done, parts = job.step.committed(), len(job.cut.sizes)
    if done:
        logger.info("%d of %d parts were written by an earlier run and are not made again", len(done), parts)


def _finish(job: Job, path: Path) -> Corpus:
    """Add up the counts, commit the corpus, remove what was only needed on the way."""
    counts = np.zeros((2, job.law.n_words))
    entries = []
    for part in range(len(job.cut.sizes)):
        # Whole numbers far below 2^53: their sums are exact in any order.
        counts += job.counts(part)
        entries += [in_documents(shard, shard.name) for shard in job.record(part).shards]
    totals = WordTotals(word_names(job.law.n_words), counts[0].astype(np.int64), counts[1])
    origin = Origin(settings=job.law.settings())
    corpus = commit_directory(job.directory / CORPUS, path, entries, totals, origin)
    _remove(job)
    return corpus


def _remove(job: Job) -> None:
    shutil.rmtree(job.directory, ignore_errors=True)
