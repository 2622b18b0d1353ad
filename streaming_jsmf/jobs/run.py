"""Jobs: parts that are computed in any order, committed one by one and optionally folded in a fixed order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dask.delayed import Delayed

from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, Record, fold_keys
from streaming_jsmf.jobs.events import Cost, Listener, PartitionCommitted, StageFinished, StageStarted
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.order import FoldOrder
from streaming_jsmf.jobs.tasks import (
    Key,
    MapTask,
    Part,
    Reduction,
    TaskGraph,
    commit_fold,
    commit_part,
    commit_record,
)
from streaming_jsmf.storage.objects import in_threads

logger = logging.getLogger(__name__)

#: Parts per worker that may be computed before a slow part is folded. With two, a slow part delays large clusters
#: (``docs/decisions/0042-tree-of-folds.md``).
WINDOW_PER_WORKER = 3

#: Minimum seconds between polls of the records, and minimum ratio of the pause to the duration of a poll.
POLL_SECONDS, POLL_SHARE = 0.25, 10


@dataclass(frozen=True)
class Job:
    """Parts to compute and commit, and the order of their folds.

    ``order`` has the parts in the same order, and is None if tasks write files and record them. ``unit`` is the unit of
    the part sizes and ``part`` the name of a part, for progress reports.
    """

    checkpoints: Checkpoints
    stage: Reduction | MapTask
    parts: Sequence[Part]
    order: FoldOrder | None = None
    unit: str = "nonzeros"
    part: str = "partition"

    def committed(self) -> frozenset[int]:
        """Return the numbers of the parts that are committed or folded."""
        known = self.checkpoints.parts()
        found = frozenset(i for i, part in enumerate(self.parts) if part.key in known)
        return found if self.order is None else found | self.order.covered(self.checkpoints.folds())

    def cost(self, index: int) -> Cost | None:
        """Return the cost of a committed part, or None if it is not recorded."""
        return Cost.from_fields(self.checkpoints.metadata(self.parts[index].key))

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """Return the tasks that remain after ``done`` parts are committed, or None if all are done.

        A part waits for the fold of the part one window earlier; the first part of a group waits for the folds of all
        parts up to that one. This bounds the number of results on disk, which may be larger than their input.
        """
        graph = TaskGraph()
        if self.order is None:
            commit = commit_record if isinstance(self.stage, MapTask) else commit_part
            missing = [part for i, part in enumerate(self.parts) if i not in done]
            keys = [graph.add(commit, self.checkpoints, self.stage, part) for part in missing]
            return graph.delayed(keys) if keys else None
        committed, window = self.checkpoints.parts(), WINDOW_PER_WORKER * at_once
        # Folds not yet taken by a later fold, which together contain all parts so far; and their state after each part.
        open_folds: dict[str, Key] = {}
        were_open: list[tuple[Key, ...]] = []
        for step in self.order.missing(self.checkpoints.folds()):
            inputs = [open_folds.pop(fold) for fold in step.folds if fold in open_folds]
            if step.of_part and step.taken not in committed:
                after = were_open[-window] if len(were_open) >= window else ()
                if step.before is not None:
                    after = after[-1:]
                part = self.parts[step.last]
                inputs.append(graph.add(commit_part, self.checkpoints, self.stage, part, after=after))
            open_folds[step.fold] = graph.add(commit_fold, self.checkpoints, self.stage, step, after=inputs)
            if step.of_part:
                were_open.append(tuple(open_folds.values()))
        return graph.delayed([open_folds[self.order.total]]) if open_folds else None

    def result(self) -> PartialResult:
        """Read and verify the last fold; raise ``StoreError`` if it is damaged."""
        assert self.order is not None, "parts are folded"
        return self.checkpoints.read_fold(self.order.total)

    def records(self) -> list[Record]:
        """Return the records of all tasks in order; raise ``StoreError`` if a record is damaged."""
        return [self.checkpoints.read_metadata(part.key) for part in self.parts]


def map_job(
    task: Callable[[Any, Any], Record],
    context: Any,
    sizes: Sequence[int],
    checkpoints: Checkpoints,
    unit: str = "bytes",
    items: Sequence[Any] | None = None,
) -> Job:
    """Return a job that runs ``task(context, item)`` for each of ``items``, by default the numbers; see ``MapTask``.

    The record that a task returns has the hashes of its files (``checkpoints.FILES``).
    """
    sources = range(len(sizes)) if items is None else items
    parts = [
        Part(f"{number:05d}", size, source)
        for number, (size, source) in enumerate(zip(sizes, sources, strict=True))
    ]
    return Job(checkpoints, MapTask(task, context), parts, None, unit, "part")


def run_job(job: Job, executor: Executor) -> None:
    """Compute missing or damaged parts and report each commit. Raises ``InputError`` or ``StoreError`` from a task."""
    began = time.perf_counter()
    if job.order is None:  # a fold compares what it reads with its digest
        job.checkpoints.drop_damaged_files()
    sizes = [part.size for part in job.parts]
    started = StageStarted(job.checkpoints.stage, sizes, job.committed(), job.unit, job.part)
    if started.done:
        logger.info(
            "%s: %d of %d %ss were committed by an earlier run and are not computed again: %s",
            started.stage,
            len(started.done),
            len(sizes),
            job.part,
            ", ".join(map(str, sorted(started.done))),
        )
    with watched(job, started, executor.listener):
        missing = job.graph(started.done, executor.tasks_at_once)
        if missing is not None:
            executor.compute(missing)
    executor.listener(StageFinished(started.stage, time.perf_counter() - began))


@contextmanager
def watched(job: Job, started: StageStarted, listener: Listener) -> Iterator[None]:
    """Report to ``listener`` that the job has started, and each part committed while the block runs.

    Polling the records works with every scheduler. Errors of the listener do not stop the block; the first one is
    raised after it.
    """
    stop, seen, failures = threading.Event(), set(started.done), list[Exception]()

    def loop() -> None:
        pause = POLL_SECONDS
        while not stop.wait(pause):
            before = time.perf_counter()
            _report_new(job, started, listener, seen, failures)
            # Limit requests to object stores, which cost time and money.
            pause = max(POLL_SECONDS, POLL_SHARE * (time.perf_counter() - before))

    listener(started)
    thread = threading.Thread(target=loop, name=f"watch-{started.stage}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    _report_new(job, started, listener, seen, failures)
    if failures:
        raise failures[0]


def _report_new(
    job: Job, started: StageStarted, listener: Listener, seen: set[int], failures: list[Exception]
) -> None:
    """Report commits that are not ``seen``; collect failures, which a thread would only print."""
    try:
        fresh = sorted(job.committed() - seen)
        seen.update(fresh)
        costs = in_threads(job.cost, fresh)
    except Exception as error:
        failures.append(error)
        return
    for index, cost in zip(fresh, costs, strict=True):
        try:
            listener(PartitionCommitted(started.stage, index, started.sizes[index], cost))
        except Exception as error:
            failures.append(error)


def run_steps(
    checkpoints: Checkpoints,
    start: PartialResult,
    steps: int,
    step: Callable[[int, str, PartialResult], PartialResult],
) -> PartialResult:
    """Run a sequence of steps, each using the previous result, starting after the last committed step.

    Only the last result is kept. ``step`` is called with the step number (from 0), the key of the previous result and
    that result, which tasks can read with ``checkpoints.read_fold(key)``. Keys are the same in every run, so they may
    also salt the keys of parts.
    """
    chain = fold_keys([str(number) for number in range(steps + 1)], "")
    known = checkpoints.folds()
    done = max((number for number, key in enumerate(chain) if key in known), default=None)
    if done is None:
        result, done = start, 0
        checkpoints.commit_fold(chain[0], start)
    else:
        result = checkpoints.read_fold(chain[done])
    for number in range(done, steps):
        result = step(number, chain[number], result)
        checkpoints.commit_fold(chain[number + 1], result, [chain[number]])
    return result
