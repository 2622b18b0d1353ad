"""Jobs: parts that are computed in any order, committed one by one and optionally folded in a fixed order."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa

from streaming_jsmf.errors import StoreError, names_options
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints, Committed, PartialResult, Record, fold_keys
from streaming_jsmf.jobs.cluster import tell
from streaming_jsmf.jobs.events import Cost, Listener, PartitionCommitted, StageFinished, StageStarted, what
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.order import FoldOrder, FoldStep
from streaming_jsmf.process_limits import peak_memory

if TYPE_CHECKING:
    from dask._task_spec import Task
    from dask.delayed import Delayed

logger = logging.getLogger(__name__)

Key: TypeAlias = str
#: Checks an input, and raises the error that ends the job; hashable, small and sent to workers.
Check: TypeAlias = Callable[[], None]

#: Parts per worker that may be computed before a slow part is folded. With two, a slow part delays large clusters
#: (``docs/decisions/0042-tree-of-folds.md``).
WINDOW_PER_WORKER = 3


class PartStage(Protocol):
    """Computes results of parts. Implementations are small, frozen and sent to workers."""

    def compute(self, source: Any, /) -> PartialResult:
        """Read a part and return its contribution. Runs in a worker with one BLAS thread."""


class Reduction(PartStage, Protocol):
    """Computes results of parts and folds them."""

    def fold(self, folded: PartialResult | None, partial: PartialResult, /) -> PartialResult:
        """Combine the contributions of earlier parts (None at first) with the next part or fold of parts."""


@dataclass(frozen=True)
class MapTask:
    """A stage that is not folded: the module-level ``task(context, source)`` writes files and returns a record.

    ``source`` is that of the ``Part``. After a kill the task may run again and overwrite the files of its first run.
    """

    task: Callable[[Any, Any], Record]
    context: Any

    def compute(self, source: Any, /) -> PartialResult:
        return PartialResult({}, note=self.task(self.context, source))


@dataclass(frozen=True)
class Part:
    """A unit of work, with its ``size`` for progress and JSON ``metadata`` to record.

    ``source`` is the input of the stage, such as a partition; None if the result is already committed. ``checks`` of
    the input are made before the part is computed, in tasks of their own; one that several parts need is made once.
    """

    key: str
    size: int
    source: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Job:
    """Parts to compute and commit, and the order of their folds.

    ``order`` has the parts in the same order, and is None if they are not folded. ``unit`` is the unit of the part
    sizes and ``part`` the name of a part, for progress reports.
    """

    checkpoints: Checkpoints
    stage: PartStage
    parts: Sequence[Part]
    order: FoldOrder | None = None
    unit: str = "nonzeros"
    part: str = "partition"

    @cached_property
    def name(self) -> str:
        """Verb and stage, with which the names of its tasks begin; Dask groups them by words of letters only."""
        words = self.checkpoints.verb, self.checkpoints.stage.replace("_", "-")
        return "-".join(dict.fromkeys(word for word in words if word))

    def numbered(self, *numbers: int) -> str:
        """Numbers of parts in the names of tasks; the names of all tasks are in the order of the parts."""
        width = max(4, len(str(len(self.parts) - 1)))
        return "-".join(f"{number:0{width}d}" for number in numbers)

    def committed(self) -> Committed:
        """What is committed; files of tasks are verified, and a fold compares what it reads with its digest."""
        return self.checkpoints.intact() if self.order is None else self.checkpoints.committed()

    def done(self, committed: Committed) -> frozenset[int]:
        """Return the numbers of the parts that are committed or folded."""
        known, folds = committed
        found = frozenset(i for i, part in enumerate(self.parts) if part.key in known)
        return found if self.order is None else found | self.order.covered(folds)

    def graph(self, at_once: int, committed: Committed) -> Delayed | None:
        """Return the tasks that remain after what is ``committed``, or None if all is done.

        The parts of a group wait for the folds of all groups that ended one window earlier. This bounds the number of
        results on disk, which may be larger than their input.
        """
        graph, done, (known, folds) = TaskGraph(), self.done(committed), committed
        missing = {part.key: number for number, part in enumerate(self.parts) if number not in done}
        add_part = partial(_add_part, graph, self, {})
        if self.order is None:
            keys = [add_part(number) for number in missing.values()]
            return graph.delayed(keys) if keys else None
        open_folds: dict[str, Key] = {}
        window, ended, gate = WINDOW_PER_WORKER * at_once, deque[tuple[int, Key]](), list[Key]()
        for step in self.order.missing(folds):
            lacking = [part for part in step.parts if part not in known]
            if lacking:
                first = step.last - len(step.parts)
                passed = [ended.popleft()[1] for last, _ in [*ended] if last <= first - window]
                name = f"{self.name}-wait-{self.numbered(first + 1)}"
                gate = [graph.add(name, _count, after=[*gate, *passed])] if passed else gate
            inputs = [add_part(missing[part], gate) for part in lacking]
            inputs += [open_folds.pop(fold) for fold in step.folds if fold in open_folds]
            name = f"{self.name}-fold-{self.numbered(step.first, step.last)}"
            open_folds[step.fold] = graph.add(
                name, commit_fold, self.checkpoints, self.stage, step, after=inputs
            )
            if step.parts:
                ended.append((step.last, open_folds[step.fold]))
        return graph.delayed([open_folds[self.order.total]]) if open_folds else None

    def compute(
        self, executor: Executor, committed: Committed, told: Callable[..., None] | None = None
    ) -> None:
        """Compute what remains after what is ``committed``; ``told`` as in ``Executor.compute``."""
        graph = self.graph(executor.tasks_at_once, committed)
        if graph is not None:
            executor.compute(graph, _topic(self.checkpoints), told)

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


def run_job(job: Job, executor: Executor, committed: Committed | None = None) -> frozenset[str]:
    """Compute missing or damaged parts and report each commit. Raises ``InputError`` or ``StoreError`` from a task.

    ``committed`` is what was found before, if the caller has listed it. Returns the keys of all parts with a record.
    """
    began, checkpoints = time.perf_counter(), job.checkpoints
    committed = job.committed() if committed is None else committed
    sizes, done = [part.size for part in job.parts], job.done(committed)
    started = StageStarted(checkpoints.stage, sizes, done, job.unit, job.part)
    if done:
        logger.info(
            "%s: %d of %d %ss were finished by an earlier run and are not computed again",
            what(started.stage),
            len(done),
            len(sizes),
            job.part,
        )
    missing = {part.key: number for number, part in enumerate(job.parts) if number not in done}
    told = Reports(started, missing, executor.listener)
    executor.listener(started)
    job.compute(executor, committed, told)
    for key in [*told.lacking]:  # committed by another run meanwhile, or news of a cluster that are late
        told(key, checkpoints.read_metadata(key))
    if told.failures:
        raise told.failures[0]
    executor.listener(StageFinished(started.stage, time.perf_counter() - began))
    return committed.parts | missing.keys()


class Reports:
    """Reports each of the ``lacking`` parts (numbers by key) once, when a task tells that it is committed.

    A job does not end because a listener fails; the ``failures`` are kept.
    """

    def __init__(self, started: StageStarted, lacking: Mapping[str, int], listener: Listener) -> None:
        self.lacking, self.failures = {**lacking}, list[Exception]()
        self._started, self._listener, self._lock = started, listener, threading.Lock()

    def __call__(self, key: str, cost: Mapping[str, Any]) -> None:
        with self._lock:
            number = self.lacking.pop(key, None)
            if number is None:
                return
            size = self._started.sizes[number]
            try:
                self._listener(PartitionCommitted(self._started.stage, number, size, Cost.from_fields(cost)))
            except Exception as error:
                self.failures.append(error)


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
    known = checkpoints.committed().folds
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


class TaskGraph:
    """Tasks that return tokens and may depend on each other; built in linear time, unlike chains of ``dask.delayed``.

    Keys are unique, so two jobs on one scheduler do not share results. Dashboards show them, and group tasks by the
    words with which they begin.
    """

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex[:16]
        self._tasks: dict[Key, Task] = {}

    def add(self, name: str, function: Callable[..., Any], *arguments: Any, after: Sequence[Key] = ()) -> Key:
        """Add the call ``function(*arguments, *tokens)`` under a name of its own, and return its key.

        ``function`` must be importable by workers, and ``arguments`` small, as they are sent with the task. The tokens
        are the results of the tasks ``after``, on which this one depends.
        """
        from dask._task_spec import Task, TaskRef

        key = f"{name}-{self._token}"
        assert key not in self._tasks, name
        self._tasks[key] = Task(
            key, _in_words_of, names_options.get(), function, *arguments, *map(TaskRef, after)
        )
        return key

    def delayed(self, keys: Sequence[Key]) -> Delayed:
        """Return a value that is computed when all these tasks have finished."""
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph

        layer = f"graph-{self._token}"
        end = keys[0] if len(keys) == 1 else self.add("end", _count, after=keys)
        return Delayed(end, HighLevelGraph({layer: self._tasks}, {layer: set()}), layer=layer)


def _add_part(
    graph: TaskGraph,
    job: Job,
    made: dict[Check, Key],
    number: int,
    after: Sequence[Key] = (),
) -> Key:
    """Add the task of a part, after one task for each of its checks."""
    part = job.parts[number]
    for check in part.checks:
        if check not in made:
            made[check] = graph.add(f"{job.name}-check-{job.numbered(len(made))}", run_check, check)
    arguments = job.checkpoints, job.stage, replace(part, checks=())
    inputs = [*after, *(made[check] for check in part.checks)]
    return graph.add(f"{job.name}-{job.numbered(number)}", commit_part, *arguments, after=inputs)


def run_check(check: Check) -> str:
    """Task: check an input of several parts."""
    check()
    return "checked"


def _in_words_of(on_command_line: bool, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task so that its error messages name options as in the process that submitted it."""
    names_options.set(on_command_line)
    return function(*arguments)


def _count(*tokens: Any) -> str:
    """Combine all results into one, since Dask would take seconds to collect thousands."""
    return str(len(tokens))


def commit_part(checkpoints: Checkpoints, stage: PartStage, part: Part, *after: Any) -> tuple[str, Record]:
    """Task: compute and commit one part, unless it is committed; ``after`` only orders tasks.

    Returns its key and cost, and on a cluster tells them to the process that runs the job.
    """
    del after
    cost = Record()
    if not checkpoints.has("part", part.key):
        if part.source is None:
            raise StoreError(f"{checkpoints.store}: the part {part.key} is missing; {checkpoints.hint}")
        started = time.perf_counter()
        with single_blas_thread():
            result = stage.compute(part.source)
        # Arrow's pool grows slightly with each partition that is read.
        pa.default_memory_pool().release_unused()
        cost = Cost(round(time.perf_counter() - started, 3), peak_memory()).fields()
        checkpoints.commit_part(part.key, result, {**part.metadata, **result.note, **cost})
    tell(_topic(checkpoints), part.key, cost)
    return part.key, cost


def _topic(checkpoints: Checkpoints) -> str:
    return f"{checkpoints.store}: {checkpoints.stage}"


def commit_fold(checkpoints: Checkpoints, stage: Reduction, step: FoldStep, *after: Any) -> str:
    """Task: perform and commit one step of the reduction; a step that is done lacks its inputs, or is done again.

    One input is in memory at a time.
    """
    del after
    folded, read = None, dict[str, str]()
    try:
        for key in (*step.folds, *step.parts):
            taken = (
                checkpoints.read_fold(key) if key in step.folds else checkpoints.read_part(key, folding=True)
            )
            with single_blas_thread():
                folded = stage.fold(folded, taken)
            read[key] = taken.attempt
            del taken
        assert folded is not None, "a step has inputs"
        checkpoints.commit_fold(step.fold, folded, step.folds, step.parts, read)
    except StoreError:
        # A worker that was considered lost may have committed this or a later fold and removed the inputs.
        if not _is_done(checkpoints, step):
            raise
    return step.fold


def _is_done(checkpoints: Checkpoints, step: FoldStep) -> bool:
    """Whether a step is done; a later fold may contain it already, since Dask repeats tasks of a worker that died."""
    if checkpoints.has("fold", step.fold):
        return True
    return not all(checkpoints.has("fold", fold) for fold in step.folds) or any(
        map(checkpoints.was_folded, step.parts)
    )
