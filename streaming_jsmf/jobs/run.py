"""Jobs: parts that are computed in any order, committed one by one and, if asked, folded in a fixed order."""

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
from streaming_jsmf.storage.paths import in_threads

logger = logging.getLogger(__name__)

#: Parts for each worker that may be computed before a slow one is folded. With two, a slow part holds up clusters of
#: many workers (``docs/decisions/0042-tree-of-folds.md``).
WINDOW_PER_WORKER = 3

#: Seconds between two looks at the committed records, and at least how many times as long as a look takes.
POLL_SECONDS, POLL_SHARE = 0.25, 10


@dataclass(frozen=True)
class Job:
    """Parts to compute and commit, and the order of their folds.

    Attributes
    ----------
    checkpoints, stage
        Where tasks commit, and what they compute.
    parts
        The parts of ``order``, in its order.
    order
        How the results are folded; None if they are not: tasks write files and record them.
    unit, part
        What the sizes of parts count, and what a part is called, for progress.
    """

    checkpoints: Checkpoints
    stage: Reduction | MapTask
    parts: Sequence[Part]
    order: FoldOrder | None = None
    unit: str = "nonzeros"
    part: str = "partition"

    def committed(self) -> frozenset[int]:
        """Numbers of the parts that are committed or folded."""
        known = self.checkpoints.parts()
        found = frozenset(i for i, part in enumerate(self.parts) if part.key in known)
        return found if self.order is None else found | self.order.covered(self.checkpoints.folds())

    def cost(self, index: int) -> Cost | None:
        """The cost of a committed part, if it is recorded."""
        return Cost.from_fields(self.checkpoints.metadata(self.parts[index].key))

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """The tasks that are missing if the parts ``done`` are committed and ``at_once`` run at a time; None if none.

        A part waits for the fold of the one a window before it, and the first of a group for the folds of all parts
        before that. So only a bounded number of results is on the disk, which may be larger than their input.
        """
        graph = TaskGraph()
        if self.order is None:
            commit = commit_record if isinstance(self.stage, MapTask) else commit_part
            missing = [part for i, part in enumerate(self.parts) if i not in done]
            keys = [graph.add(commit, self.checkpoints, self.stage, part) for part in missing]
            return graph.delayed(keys) if keys else None
        committed, window = self.checkpoints.parts(), WINDOW_PER_WORKER * at_once
        # Folds that no later one has taken yet, which together hold all parts so far; and those after each part.
        open_folds: dict[str, Key] = {}
        were_open: list[tuple[Key, ...]] = []
        for step in self.order.missing(self.checkpoints.folds()):
            inputs = [open_folds.pop(fold) for fold in step.folds if fold in open_folds]
            if step.of_part and step.taken not in committed:
                after = were_open[-window] if len(were_open) >= window else ()
                if step.before is not None:
                    after = after[-1:]
                part = self.parts[step.last]
                inputs.append(graph.add(commit_part, self.checkpoints, self.stage, part, step, after=after))
            open_folds[step.fold] = graph.add(commit_fold, self.checkpoints, self.stage, step, after=inputs)
            if step.of_part:
                were_open.append(tuple(open_folds.values()))
        return graph.delayed([open_folds[self.order.total]]) if open_folds else None

    def result(self) -> PartialResult:
        """The last fold, read and verified; ``StoreError`` if it is damaged."""
        assert self.order is not None, "parts are folded"
        return self.checkpoints.read_fold(self.order.total)

    def records(self) -> list[Record]:
        """What the tasks recorded, in order; ``StoreError`` if a record is damaged."""
        return [self.checkpoints.read_metadata(part.key) for part in self.parts]


def map_job(
    task: Callable[[Any, int], Record],
    context: Any,
    sizes: Sequence[int],
    checkpoints: Checkpoints,
    unit: str = "bytes",
    part: str = "part",
) -> Job:
    """Return the job that runs ``task(context, number)`` for each of ``sizes``; see ``MapTask``.

    The record that a task returns has the hashes of its files (``checkpoints.FILES``).
    """
    parts = [Part(f"{number:05d}", size, number) for number, size in enumerate(sizes)]
    return Job(checkpoints, MapTask(checkpoints.stage, task, context), parts, None, unit, part)


def run_job(job: Job, executor: Executor) -> None:
    """Compute the parts that are not committed, or are damaged, and report each when it is committed.

    Raises
    ------
    InputError, StoreError
        From a task.
    """
    began = time.perf_counter()
    if job.order is None:  # a fold compares what it reads with its digest
        job.checkpoints.drop_damaged_files()
    sizes = [part.size for part in job.parts]
    started = StageStarted(job.stage.name, sizes, job.committed(), job.unit, job.part)
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
    """Tell ``listener`` that the job has started, and of parts as they are committed while the block runs.

    Polling the records works for every scheduler. A listener that fails does not stop the block; its first error is
    raised after it.
    """
    stop = threading.Event()
    watch = _Watch(job, started, listener)

    def loop() -> None:
        pause = POLL_SECONDS
        while not stop.wait(pause):
            before = time.perf_counter()
            watch.look()
            # Requests to an object store cost time and money.
            pause = max(POLL_SECONDS, POLL_SHARE * (time.perf_counter() - before))

    listener(started)
    thread = threading.Thread(target=loop, name=f"watch-{started.stage}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    watch.look()
    if watch.failure is not None:
        raise watch.failure


class _Watch:
    """Reports each commit once, and keeps the first failure, which a thread would print as a traceback and lose."""

    def __init__(self, job: Job, started: StageStarted, listener: Listener) -> None:
        self.failure: Exception | None = None
        self._job, self._started, self._listener = job, started, listener
        self._seen = set(started.done)

    def look(self) -> None:
        """Report what was committed since the last look."""
        try:
            fresh = sorted(self._job.committed() - self._seen)
            self._seen.update(fresh)
            costs = in_threads(self._job.cost, fresh)
        except Exception as error:
            self.failure = self.failure or error
            return
        for index, cost in zip(fresh, costs, strict=True):
            try:
                size = self._started.sizes[index]
                self._listener(PartitionCommitted(self._started.stage, index, size, cost))
            except Exception as error:
                self.failure = self.failure or error


def run_steps(
    checkpoints: Checkpoints,
    start: PartialResult,
    steps: int,
    step: Callable[[int, str, PartialResult], PartialResult],
) -> PartialResult:
    """Run steps that each need the result of the one before, from the last committed one on.

    Only the last result stays in ``checkpoints``.

    Parameters
    ----------
    start
        Input of the first step.
    steps
        Number of steps.
    step
        Called with the number of the step, from 0, the key under which ``checkpoints.read_fold`` gives its tasks
        the result before (the same in every run, so it may also salt the keys of parts), and this result.
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
