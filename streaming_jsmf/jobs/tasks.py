"""The first shape of a job: numbered tasks that do not need each other, in any order, on any scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dask.delayed import Delayed

from streaming_jsmf.jobs.events import Cost, StageStarted
from streaming_jsmf.jobs.graph import TaskGraph
from streaming_jsmf.jobs.memory import peak_memory, release_unused_memory
from streaming_jsmf.jobs.records import NumberedRecords, Record


@dataclass(frozen=True)
class TaskJob:
    """Tasks 0..n-1 of one kind.

    Attributes
    ----------
    name
        For progress.
    task
        A function of a module: ``task(context, index)`` writes what it makes and returns its record (JSON values),
        which has the hashes of the files (``records.FILES``). It may run again after a kill, over what its first run
        left.
    context
        What every task needs; small, since it travels with each.
    sizes
        Weight of each task in ``unit``, for progress.
    records
        Where tasks commit; the directory is made if it is missing.
    unit, part
        What ``sizes`` counts, and what one task does, for progress.
    """

    name: str
    task: Callable[[Any, int], Record]
    context: Any
    sizes: Sequence[int]
    records: NumberedRecords
    unit: str = "bytes"
    part: str = "part"

    def started(self, done: frozenset[int]) -> StageStarted:
        """The event of the start."""
        return StageStarted(self.name, self.sizes, done, self.unit, self.part)

    def verified(self) -> frozenset[int]:
        """Numbers of the tasks that are done and whose files are sound. One pass over these files."""
        self.records.forget_damaged()
        return self.committed()

    def committed(self) -> frozenset[int]:
        """Numbers of the tasks that are done."""
        return self.records.committed()

    def cost(self, index: int) -> Cost | None:
        """What a committed task took, if its record tells."""
        return self.records.cost(index)

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """The tasks that are not done, all ready at once."""
        del at_once
        self.records.directory.mkdir(parents=True, exist_ok=True)
        graph = TaskGraph()
        missing = [graph.add(commit_task, self, i) for i in range(len(self.sizes)) if i not in done]
        return graph.delayed(missing) if missing else None

    def result(self) -> list[Record]:
        """All records in order; ``StoreError`` if one is missing or damaged."""
        return [self.records.read(index) for index in range(len(self.sizes))]


def commit_task(job: TaskJob, index: int) -> str:
    """Task: do one, commit its record, return a token; nothing if it is committed already."""
    if not job.records.path(index).exists():
        started = time.perf_counter()
        record = job.task(job.context, index)
        release_unused_memory()
        job.records.commit(index, record, Cost(round(time.perf_counter() - started, 3), peak_memory()))
    return f"{job.name}-{index}"
