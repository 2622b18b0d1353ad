"""A step of a long job: numbered tasks that each commit a small record, in any order, on any scheduler."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.events import Commits, Cost, Listener, StageFinished, StageStarted, watch_commits
from streaming_jsmf.jobs.memory import peak_memory, release_unused_memory
from streaming_jsmf.storage.paths import write_json

Record = dict[str, Any]

#: Key under which a record on the disk also keeps what its task took.
_COST = "cost"


@dataclass(frozen=True)
class Step:
    """Tasks 0..n-1 of one kind.

    Attributes
    ----------
    name
        For progress.
    task
        A function of a module: ``task(job, index)`` writes what it makes and returns its record (JSON values). It
        may run again after a kill, over the rests of its first run.
    job
        What every task needs; small, since it travels with each.
    sizes
        Weight of each task in ``unit``, for progress.
    records
        Directory of the records; made if missing.
    """

    name: str
    task: Callable[[Any, int], Record]
    job: Any
    sizes: Sequence[int]
    records: Path
    unit: str = "bytes"

    def committed(self) -> frozenset[int]:
        """Numbers of the tasks that are done."""
        if not self.records.is_dir():
            return frozenset()
        return frozenset(int(path.stem) for path in self.records.glob("[0-9]*.json"))

    def record(self, index: int) -> Record:
        """What task ``index`` committed.

        Raises
        ------
        StoreError
            If the record is missing or damaged.
        """
        value: Record = self._load(index)
        if isinstance(value, dict):
            value.pop(_COST, None)
        return value

    def cost(self, index: int) -> Cost | None:
        """What task ``index`` took, if its record tells.

        Raises
        ------
        StoreError
            If the record is missing or damaged.
        """
        value = self._load(index)
        return Cost.from_fields(value.get(_COST)) if isinstance(value, dict) else None

    def _load(self, index: int) -> Any:
        path = self.records / f"{index:05d}.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} is missing or damaged; remove {path.parent} and run again") from error


def commit_task(step: Step, index: int) -> str:
    """Task: do one, commit its record, return a token; nothing if it is committed already."""
    path = step.records / f"{index:05d}.json"
    if not path.exists():
        started = time.perf_counter()
        record = step.task(step.job, index)
        release_unused_memory()
        cost = Cost(round(time.perf_counter() - started, 3), peak_memory())
        write_json(path, {**record, _COST: cost.fields()})
    return f"{step.name}-{index}"


def run_step(step: Step, arguments: Mapping[str, Any], listener: Listener) -> list[Record]:
    """Run the tasks that are not committed; return all records in order.

    ``arguments`` are those of ``Execution.runner``.

    Raises
    ------
    InputError, StoreError
        What a task met.
    """
    started = time.perf_counter()
    step.records.mkdir(parents=True, exist_ok=True)
    done = step.committed()
    make = dask.delayed(commit_task, pure=False, traverse=False)
    event = StageStarted(step.name, step.sizes, done, step.unit)
    with watch_commits(Commits(step.committed, step.cost), event, listener):
        missing = [make(step, index) for index in range(len(step.sizes)) if index not in done]
        if missing:
            dask.compute(*missing, optimize_graph=False, **arguments)
    listener(StageFinished(step.name, time.perf_counter() - started))
    return [step.record(index) for index in range(len(step.sizes))]
