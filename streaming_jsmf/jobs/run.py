"""Jobs: parts that are computed in any order, committed one by one and optionally folded in a fixed order."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from dask._task_spec import Task, TaskRef
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from streaming_jsmf.errors import StoreError, name_options, names_options
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, Record, fold_keys
from streaming_jsmf.jobs.events import Cost, Listener, PartitionCommitted, StageFinished, StageStarted, what
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.order import FoldOrder, FoldStep
from streaming_jsmf.process_limits import peak_memory
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.timing import span

logger = logging.getLogger(__name__)

Key: TypeAlias = tuple[str, int]

#: Parts per worker that may be computed before a slow part is folded. With two, a slow part delays large clusters
#: (``docs/decisions/0042-tree-of-folds.md``).
WINDOW_PER_WORKER = 3

#: Minimum seconds between polls of the records, and minimum ratio of the pause to the duration of a poll.
POLL_SECONDS, POLL_SHARE = 0.25, 10


class Check(Protocol):
    """A check of an input; hashable, small and sent to workers."""

    def __call__(self) -> None:
        """Check the input; raise the error that ends the job."""

    def passed(self) -> None:
        """Note in the process that runs the job that the check has passed."""


class Reduction(Protocol):
    """Computes results of parts and folds them. Implementations are small, frozen and sent to workers."""

    def compute(self, source: Any, /) -> PartialResult:
        """Read a part and return its contribution. Runs in a worker with one BLAS thread."""

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
    the input are made before the part is computed; one that several parts need is made once.
    """

    key: str
    size: int
    source: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()


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
        known, folds = self.checkpoints.committed()
        found = frozenset(i for i, part in enumerate(self.parts) if part.key in known)
        return found if self.order is None else found | self.order.covered(folds)

    def missing(self, done: Collection[int]) -> list[Part]:
        return [part for i, part in enumerate(self.parts) if i not in done]

    def cost(self, index: int) -> Cost | None:
        """Return the cost of a committed part, or None if it is not recorded."""
        return Cost.from_fields(self.checkpoints.read_metadata(self.parts[index].key))

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """Return the tasks that remain after ``done`` parts are committed, or None if all are done.

        A part waits for the fold of the part one window earlier; the first part of a group waits for the folds of all
        parts up to that one. This bounds the number of results on disk, which may be larger than their input.
        """
        graph = TaskGraph()
        missing = self.missing(done)
        add_part = partial(
            _add_part, graph, self, Counter(check for part in missing for check in part.checks), {}
        )
        if self.order is None:
            keys = [add_part(part) for part in missing]
            return graph.delayed(keys) if keys else None
        (committed, folds), window = self.checkpoints.committed(), WINDOW_PER_WORKER * at_once
        # Folds not yet taken by a later fold, which together contain all parts so far; and their state after each part.
        open_folds: dict[str, Key] = {}
        were_open: list[tuple[Key, ...]] = []
        for step in self.order.missing(folds):
            inputs = [open_folds.pop(fold) for fold in step.folds if fold in open_folds]
            if step.of_part and step.taken not in committed:
                after = were_open[-window] if len(were_open) >= window else ()
                if step.before is not None:
                    after = after[-1:]
                part = self.parts[step.last]
                inputs.append(add_part(part, after))
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
            "%s: %d of %d %ss were finished by an earlier run and are not computed again",
            what(started.stage),
            len(started.done),
            len(sizes),
            job.part,
        )
    with watched(job, started, executor.listener):
        missing = job.graph(started.done, executor.tasks_at_once)
        if missing is not None:
            executor.compute(missing)
    for check in {check for part in job.missing(started.done) for check in part.checks}:
        check.passed()
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


class TaskGraph:
    """Tasks that return tokens and may depend on each other; built in linear time, unlike chains of ``dask.delayed``.

    Keys are unique, so two jobs on one scheduler do not share results. Dask dashboards group tasks by function name.
    """

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self._tasks: dict[Key, Task] = {}

    def add(self, function: Callable[..., str], *arguments: Any, after: Sequence[Key] = ()) -> Key:
        """Add the call ``function(*arguments, *tokens)`` and return its key.

        ``function`` must be importable by workers, and ``arguments`` small, as they are sent with the task. The tokens
        are the results of the tasks ``after``, on which this one depends.
        """
        key = (f"{function.__name__}-{self._token}", len(self._tasks))
        self._tasks[key] = Task(
            key, _in_words_of, names_options(), function, *arguments, *map(TaskRef, after)
        )
        return key

    def delayed(self, keys: Sequence[Key]) -> Delayed:
        """Return a value that is computed when all these tasks have finished."""
        layer = f"graph-{self._token}"
        end = keys[0] if len(keys) == 1 else self.add(_count, after=keys)
        return Delayed(end, HighLevelGraph({layer: self._tasks}, {layer: set()}), layer=layer)


def _add_part(
    graph: TaskGraph,
    job: Job,
    uses: Counter[Check],
    made: dict[Check, Key],
    part: Part,
    after: Sequence[Key] = (),
) -> Key:
    """Add the task of a part, after one task for each of its checks that other parts need, too."""
    shared = [check for check in part.checks if uses[check] > 1]
    made |= {check: graph.add(run_check, check) for check in shared if check not in made}
    own = replace(part, checks=tuple(check for check in part.checks if check not in made))
    return graph.add(
        commit_part, job.checkpoints, job.stage, own, after=[*after, *(made[check] for check in shared)]
    )


def run_check(check: Check) -> str:
    """Task: check an input of several parts."""
    check()
    return "checked"


def _in_words_of(on_command_line: bool, function: Callable[..., str], *arguments: Any) -> str:
    """Run a task so that its error messages name options as in the process that submitted it."""
    name_options(on_command_line)
    return function(*arguments)


def _count(*tokens: str) -> str:
    """Combine all results into one, since Dask would take seconds to collect thousands."""
    return str(len(tokens))


def commit_part(checkpoints: Checkpoints, stage: Reduction | MapTask, part: Part, *after: str) -> str:
    """Task: compute and commit one part, unless it is committed; ``after`` only orders tasks."""
    del after
    token = f"{checkpoints.stage}-part-{part.key}"
    if checkpoints.is_committed(part.key):
        return token
    if part.source is None:
        raise StoreError(f"{checkpoints.store}: the part {part.key} is missing; {checkpoints.hint}")
    started = time.perf_counter()
    for check in part.checks:
        check()
    with single_blas_thread():
        result = stage.compute(part.source)
    # Arrow's pool grows slightly with each partition that is read.
    pa.default_memory_pool().release_unused()
    cost = Cost(round(time.perf_counter() - started, 3), peak_memory())
    metadata = {**part.metadata, **result.note, **cost.fields()}
    with span("commit"):
        checkpoints.commit_part(part.key, result, metadata)
    return token


def commit_fold(checkpoints: Checkpoints, stage: Reduction, step: FoldStep, *after: str) -> str:
    """Task: perform and commit one step of the reduction; a step that is done lacks its inputs, or is done again."""
    del after
    try:
        with span("commit"):
            taken = (
                checkpoints.read_part(step.taken, folding=True)
                if step.of_part
                else checkpoints.read_fold(step.taken)
            )
            folded = None if step.before is None else checkpoints.read_fold(step.before)
        with single_blas_thread():
            result = stage.fold(folded, taken)
        with span("commit"):
            read = {step.taken: taken}
            if step.before is not None and folded is not None:
                read[step.before] = folded
            part = step.taken if step.of_part else None
            checkpoints.commit_fold(step.fold, result, step.folds, part, read)
    except StoreError:
        # A worker that was considered lost may have committed this or a later fold and removed the inputs.
        if not _is_done(checkpoints, step):
            raise
    return f"{checkpoints.stage}-fold-{step.fold}"


def _is_done(checkpoints: Checkpoints, step: FoldStep) -> bool:
    """Whether a step is done; a later fold may contain it already, since Dask repeats tasks of a worker that died."""
    if checkpoints.has_fold(step.fold):
        return True
    folded_further = not all(checkpoints.has_fold(fold) for fold in step.folds)
    return folded_further or (step.of_part and checkpoints.was_folded(step.taken))
