"""Runs a job of either shape: what is done, who is told, what is lacking, computed and committed, finished."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from dask.delayed import Delayed

from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, fold_keys
from streaming_jsmf.jobs.events import Cost, Listener, PartitionCommitted, StageFinished, StageStarted
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.storage.paths import in_threads

logger = logging.getLogger(__name__)

#: Seconds between two looks at the committed records.
POLL_SECONDS = 0.25

#: At least so many times as long as a look takes.
POLL_SHARE = 10


class Job(Protocol):
    """Work in numbered parts, each committed once, by whatever process does it.

    The two shapes are ``tasks.TaskJob``, numbered tasks that do not need each other, and ``fold.FoldJob``, parts that
    are folded in order.
    """

    def started(self, done: frozenset[int]) -> StageStarted:
        """The event of the start: name of the stage, sizes of the parts, and those that are done."""

    def verified(self) -> frozenset[int]:
        """Numbers of the parts that an earlier run has done; those that are damaged are taken back."""

    def committed(self) -> frozenset[int]:
        """Numbers of the parts that are done, by this run or another."""

    def cost(self, index: int) -> Cost | None:
        """What a committed part took."""

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """The tasks that commit what is not done, of which ``at_once`` run at a time; None if there are none."""


def run_job(job: Job, executor: Executor) -> None:
    """Do what is not committed, or is damaged, and tell of each part when it is committed.

    Raises
    ------
    InputError, StoreError
        What a task met.
    """
    began = time.perf_counter()
    started = job.started(job.verified())
    if started.done:
        logger.info(
            "%s: %d of %d %ss were committed by an earlier run and are not done again: %s",
            started.stage,
            len(started.done),
            len(started.sizes),
            started.part,
            ", ".join(map(str, sorted(started.done))),
        )
    with watched(job, started, executor.listener):
        lacking = job.graph(started.done, executor.tasks_at_once)
        if lacking is not None:
            executor.compute(lacking)
    executor.listener(StageFinished(started.stage, time.perf_counter() - began))


@contextmanager
def watched(job: Job, started: StageStarted, listener: Listener) -> Iterator[None]:
    """Tell ``listener`` that the job has started, and of parts as they are committed while the block runs.

    One look at the records serves every scheduler: local threads, processes and a cluster commit alike. A listener
    that fails does not stop the work of the block; what it raised first is raised after it.
    """
    stop = threading.Event()
    watch = _Watch(job, started, listener)

    def loop() -> None:
        pause = POLL_SECONDS
        while not stop.wait(pause):
            before = time.perf_counter()
            watch.look()
            # Looking into an object store costs time and money: a tenth of the time at most.
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
    """Tells of each commit once, and keeps the first failure.

    In a thread a failure would end as a traceback on the terminal, and the job as if nothing were wrong.
    """

    def __init__(self, job: Job, started: StageStarted, listener: Listener) -> None:
        self.failure: Exception | None = None
        self._job, self._started, self._listener = job, started, listener
        self._seen = set(started.done)

    def look(self) -> None:
        """Tell of what was committed since the last look."""
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
    """Take steps of which each needs the result of the one before; go on from the last that is committed.

    Of the results only the last stays in ``checkpoints``.

    Parameters
    ----------
    start
        What the first step is given.
    steps
        How many there are.
    step
        Called with the number of the step, from 0, the key under which ``checkpoints.read_fold`` gives its tasks the
        result before (the same in every run, so it may also salt the keys of parts), and this result.
    """
    chain = fold_keys([str(number) for number in range(steps + 1)], "")
    done = checkpoints.folded(chain)
    if done:
        result = checkpoints.read_fold(chain[done - 1])
    else:
        result, done = start, 1
        checkpoints.commit_fold(chain[0], start)
    for number in range(done - 1, steps):
        result = step(number, chain[number], result)
        checkpoints.commit_fold(chain[number + 1], result, [chain[number]])
    return result
