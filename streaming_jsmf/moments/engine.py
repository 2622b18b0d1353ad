"""Runs a stage over all partitions, on any Dask scheduler, doing only what is not committed yet.

The graph is a chain of folds with the partitions feeding it; tasks carry small arguments, commit what
they make and return a token. A partition waits for the fold a window before it, so that only a bounded
number of unfolded factors lies on the disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import dask

from streaming_jsmf.blocks.units import Partition
from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.events import Commits, Cost, Listener, StageFinished, StageStarted, watch_commits
from streaming_jsmf.jobs.graph import Key, TaskGraph
from streaming_jsmf.jobs.memory import peak_memory, release_unused_memory
from streaming_jsmf.linalg.blas import single_blas_thread
from streaming_jsmf.moments.ledger import Ledger, Partial
from streaming_jsmf.moments.stages.base import Reduction as Stage
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

#: Unfolded partitions allowed for each worker; beside them lie the fold and the one that takes its place.
WINDOW_PER_WORKER = 2


@dataclass(frozen=True)
class Job:
    """What every task of a stage needs: where to commit, what to compute, and the fold that must not be dropped,
    because the store as it was before hangs on it."""

    ledger: Ledger
    stage: Stage
    protected: str | None = None


@dataclass(frozen=True)
class Part:
    """What is folded at once: a partition, or several that another store has folded already.

    Attributes
    ----------
    key
        In the ledger.
    size
        Nonzeros.
    partition
        What a task reads; None where the result is committed before the stage runs.
    """

    key: str
    size: int
    partition: Partition | None


@dataclass(frozen=True)
class Link:
    """A place in the chain of folds: the key of the fold before it (None at its start) and its own."""

    before: str | None
    fold: str


def commit_part(job: Job, part: Part, link: Link | None, *after: str) -> str:
    """Task: compute one part and commit it, nothing if it is committed; folded at once where its turn has come.

    ``link`` is its place in the chain of folds, if it is to be folded; ``after`` only orders tasks.
    """
    del after
    token = f"{job.stage.name}-part-{part.key}"
    ledger = job.ledger
    if ledger.is_committed(part.key) or (link is not None and ledger.has_fold(link.fold)):
        return token
    partial, note = _computed(job, part)
    if link is not None and not ledger.keep and (link.before is None or ledger.has_fold(link.before)):
        # A factor weighs more than its Parquet: one that need not wait is neither written nor read again.
        with suppress(StoreError, OSError):
            _fold(job, part.key, partial, link, note)
            return token
        # What was computed is kept; the fold is tried again in its own task, and fails there.
    with span("commit"):
        ledger.commit_part(part.key, partial, note)
    return token


def _computed(job: Job, part: Part) -> tuple[Partial, dict[str, Any]]:
    """What a part contributes, and what the store keeps of how it was made."""
    partition = part.partition
    if partition is None:
        raise StoreError(f"{job.ledger.store}: the merged part {part.key} is missing; merge the stores again")
    started = time.perf_counter()
    with single_blas_thread():
        partial = job.stage.compute(partition)
    release_unused_memory()
    cost = Cost(round(time.perf_counter() - started, 3), peak_memory())
    note = {
        "nonzeros": partition.nonzeros,
        "rows": partition.rows,
        "content": partition.content,
        **cost.fields(),
    }
    return partial, note


def commit_fold(job: Job, part: str, link: Link, *after: str) -> str:
    """Task: fold a part into those before it and commit; nothing if that is done."""
    del after
    # What was folded at once may have gone into the next fold by now, which dropped this one.
    if not (job.ledger.has_fold(link.fold) or job.ledger.was_folded_at_once(part)):
        try:
            with span("commit"):
                partial = job.ledger.read_part(part)
            _fold(job, part, partial, link)
        except StoreError:
            # A worker that was given up for lost may have folded the same, and dropped what it was made from.
            if not job.ledger.has_fold(link.fold):
                raise
    return f"{job.stage.name}-fold-{link.fold}"


def _fold(job: Job, part: str, partial: Partial, link: Link, note: Mapping[str, Any] | None = None) -> None:
    """``note`` is that of a part which was not committed by itself."""
    with single_blas_thread():
        with span("commit"):
            folded = None if link.before is None else job.ledger.read_fold(link.before)
        result = job.stage.fold(folded, partial)
        with span("commit"):
            dropped = None if link.before == job.protected else link.before
            job.ledger.commit_fold(link.fold, result, part, dropped, note)


def build_graph(job: Job, parts: Sequence[Part], folds: Sequence[str], concurrency: int) -> Any:
    """Return the delayed token of the last fold. Only what the ledger lacks becomes a task."""
    committed, folded = job.ledger.parts(), job.ledger.folded(folds)
    window = WINDOW_PER_WORKER * concurrency
    graph = TaskGraph()
    made: dict[int, Key] = {}
    for index in range(folded, len(parts)):
        part, link = parts[index], Link(folds[index - 1] if index else None, folds[index])
        inputs = [made[index - 1]] if index - 1 in made else []
        if part.key not in committed:
            after = [made[index - window]] if index - window in made else []
            inputs.append(graph.add(commit_part, job, part, link, after=after))
        made[index] = graph.add(commit_fold, job, part.key, link, after=inputs)
    return graph.delayed(made[len(parts) - 1]) if made else None


@dataclass(frozen=True)
class Crew:
    """Who does the work: the arguments of ``dask.compute`` for a live scheduler, how many tasks it runs at once,
    and who is told."""

    arguments: Mapping[str, Any]
    concurrency: int
    listener: Listener


def run_stage(job: Job, parts: Sequence[Part], folds: Sequence[str], crew: Crew) -> None:
    """Run a stage to its last fold. One pass over the partitions that are not committed.

    Raises
    ------
    InputError, StoreError
        What a task met in the corpus or the store.
    """
    started = time.perf_counter()

    def committed() -> frozenset[int]:
        known, folded = job.ledger.parts(), job.ledger.folded(folds)
        return frozenset(i for i, part in enumerate(parts) if i < folded or part.key in known)

    done = committed()
    if done:
        logger.info(
            "%s: %d of %d partitions were committed by an earlier run and are not done again: %s",
            job.stage.name,
            len(done),
            len(parts),
            ", ".join(map(str, sorted(done))),
        )
    event = StageStarted(job.stage.name, [part.size for part in parts], done, part="partition")
    commits = Commits(committed, lambda index: Cost.from_fields(job.ledger.note(parts[index].key)))
    with watch_commits(commits, event, crew.listener):
        last = build_graph(job, parts, folds, crew.concurrency)
        if last is not None:
            # Order is the graph's own: fusing a chain would hide partitions from the other workers.
            dask.compute(last, optimize_graph=False, **crew.arguments)
    crew.listener(StageFinished(job.stage.name, time.perf_counter() - started))
