"""Runs a stage over all partitions, on any Dask scheduler, doing only what is not committed yet.

The graph is a chain of folds with the partitions feeding it; tasks carry small arguments, commit what
they make and return a token. A partition waits for the fold a window before it, so that only a bounded
number of unfolded factors lies on the disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dask

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.moments.ledger import Ledger
from streaming_jsmf.moments.stages import Stage
from streaming_jsmf.runtime.blas import single_blas_thread
from streaming_jsmf.runtime.events import Listener, StageFinished, StageStarted, watch_commits
from streaming_jsmf.runtime.memory import peak_memory, release_unused_memory
from streaming_jsmf.runtime.task_graph import Key, TaskGraph

logger = logging.getLogger(__name__)

#: Unfolded partitions allowed for each worker, and one to spare for the fold itself.
WINDOW_PER_WORKER = 2


@dataclass(frozen=True)
class Job:
    """What every task of a stage needs: where to commit, and what to compute."""

    ledger: Ledger
    stage: Stage


def commit_partition(job: Job, partition: Partition, *after: str) -> str:
    """Task: compute one partition and commit it; nothing if it is committed. ``after`` only orders tasks."""
    del after
    token = f"{job.stage.name}-partition-{partition.index}"
    if partition.index in job.ledger.committed():
        return token
    started = time.perf_counter()
    with single_blas_thread():
        partial = job.stage.compute(partition)
    release_unused_memory()
    note = {
        "nonzeros": partition.nonzeros,
        "rows": partition.rows,
        "content": partition.content,
        "seconds": round(time.perf_counter() - started, 3),
        "peak_memory": peak_memory(),
    }
    job.ledger.commit_partition(partition.index, partial, note)
    return token


def commit_fold(job: Job, index: int, *after: str) -> str:
    """Task: fold partition ``index`` into those before it and commit; nothing if that is done."""
    del after
    token = f"{job.stage.name}-fold-{index}"
    if job.ledger.folded() > index:
        return token
    with single_blas_thread():
        before = job.ledger.read_fold(index - 1) if index else None
        job.ledger.commit_fold(index, job.stage.fold(before, job.ledger.read_partition(index)))
    return token


def build_graph(job: Job, partitions: Sequence[Partition], concurrency: int) -> Any:
    """Return the delayed token of the last fold. Only what the ledger lacks becomes a task."""
    committed, folded = job.ledger.committed(), job.ledger.folded()
    window = WINDOW_PER_WORKER * concurrency + 1
    graph = TaskGraph()
    folds: dict[int, Key] = {}
    for partition in partitions[folded:]:
        index = partition.index
        inputs = [folds[index - 1]] if index - 1 in folds else []
        if index not in committed:
            after = [folds[index - window]] if index - window in folds else []
            inputs.append(graph.add(commit_partition, job, partition, after=after))
        folds[index] = graph.add(commit_fold, job, index, after=inputs)
    return graph.delayed(folds[len(partitions) - 1]) if folds else None


@dataclass(frozen=True)
class Crew:
    """Who does the work: the arguments of ``dask.compute`` for a live scheduler, how many tasks it runs at once,
    and who is told."""

    arguments: Mapping[str, Any]
    concurrency: int
    listener: Listener


def run_stage(job: Job, partitions: Sequence[Partition], crew: Crew) -> None:
    """Run a stage to its last fold. One pass over the partitions that are not committed.

    Raises
    ------
    InputError, StoreError
        What a task met in the corpus or the store.
    """
    started = time.perf_counter()
    done = job.ledger.committed()
    if done:
        logger.info(
            "%s: %d of %d partitions were committed by an earlier run and are not done again: %s",
            job.stage.name,
            len(done),
            len(partitions),
            ", ".join(map(str, sorted(done))),
        )
    event = StageStarted(job.stage.name, [partition.nonzeros for partition in partitions], done)
    with watch_commits(job.ledger.committed, event, crew.listener):
        last = build_graph(job, partitions, crew.concurrency)
        if last is not None:
            # Order is the graph's own: fusing a chain would hide partitions from the other workers.
            dask.compute(last, optimize_graph=False, **crew.arguments)
    crew.listener(StageFinished(job.stage.name, time.perf_counter() - started))
