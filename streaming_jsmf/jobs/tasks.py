"""What workers run: tasks that compute and commit one part, or take one step of the reduction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dask._task_spec import Task, TaskRef
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, Record
from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.jobs.memory import peak_memory, release_unused_memory
from streaming_jsmf.jobs.order import Step
from streaming_jsmf.timing import span

Key: TypeAlias = tuple[str, int]


class Reduction(Protocol):
    """What is computed of each part, and how results fold. Implementations are small, frozen and travel to workers."""

    @property
    def name(self) -> str:
        """Name of the stage in records and messages."""

    def compute(self, source: Any, /) -> PartialResult:
        """Read a part and return its contribution. Runs in a worker, with one BLAS thread."""

    def fold(self, folded: PartialResult | None, partial: PartialResult, /) -> PartialResult:
        """Return the contributions of some parts (None at first) and of the next ones together.

        ``partial`` is the contribution of one part, or the fold of several.
        """


@dataclass(frozen=True)
class MapTask:
    """A stage without a reduction: ``task(context, number)``, a function of a module, writes files and records them.

    It may run again after a kill, over the files of its first run.
    """

    name: str
    task: Callable[[Any, int], Record]
    context: Any


@dataclass(frozen=True)
class Part:
    """A unit of work.

    Attributes
    ----------
    key
        Its key in the checkpoints.
    size
        Its weight, for progress.
    source
        Input of ``Reduction.compute``, such as a partition; None if the result is committed before the job runs.
    metadata
        JSON values that are recorded with the part, besides its cost.
    """

    key: str
    size: int
    source: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


class TaskGraph:
    """Tasks that return tokens and may wait for each other; built in linear time, unlike chains of ``dask.delayed``.

    Keys are unique, so that two jobs on one scheduler do not share results. A Dask dashboard groups tasks by the names
    of their functions.
    """

    def __init__(self) -> None:
        self._token = uuid.uuid4().hex
        self._tasks: dict[Key, Task] = {}

    def add(self, function: Callable[..., str], *arguments: Any, after: Sequence[Key] = ()) -> Key:
        """Add the call ``function(*arguments, *tokens)`` and return its key.

        Parameters
        ----------
        function
            A function of a module, so that workers can import it.
        arguments
            Small values: they travel with the task.
        after
            Tasks that have to end before; their tokens follow the arguments.
        """
        key = (f"{function.__name__}-{self._token}", len(self._tasks))
        self._tasks[key] = Task(key, function, *arguments, *map(TaskRef, after))
        return key

    def delayed(self, keys: Sequence[Key]) -> Delayed:
        """Return a value that is computed when all of these tasks have ended."""
        layer = f"graph-{self._token}"
        end = keys[0] if len(keys) == 1 else self.add(_count, after=keys)
        return Delayed(end, HighLevelGraph({layer: self._tasks}, {layer: set()}), layer=layer)


def _count(*tokens: str) -> str:
    """One result to compute: Dask would take seconds to collect thousands."""
    return str(len(tokens))


def commit_record(checkpoints: Checkpoints, stage: MapTask, part: Part) -> str:
    """Task: run a task of a stage without a reduction and commit its record, unless that is done."""
    if not checkpoints.is_committed(part.key):
        started = time.perf_counter()
        record = stage.task(stage.context, part.source)
        checkpoints.commit_metadata(part.key, {**record, **_cost_since(started).fields()})
    return f"{stage.name}-part-{part.key}"


def commit_part(
    checkpoints: Checkpoints, stage: Reduction, part: Part, step: Step | None = None, *after: str
) -> str:
    """Task: compute one part and commit it, unless it is committed; fold it at once if its turn has come.

    ``step`` is the fold that takes the part, if there is one; ``after`` only orders tasks.
    """
    del after
    token = f"{stage.name}-part-{part.key}"
    if checkpoints.is_committed(part.key) or (step is not None and checkpoints.has_fold(step.fold)):
        return token
    if part.source is None:
        raise StoreError(f"{checkpoints.store}: the part {part.key} is missing; {checkpoints.hint}")
    started = time.perf_counter()
    with single_blas_thread():
        partial = stage.compute(part.source)
    metadata = {**part.metadata, **_cost_since(started).fields()}
    if (
        step is not None
        and not checkpoints.keep
        and (step.before is None or checkpoints.has_fold(step.before))
    ):
        # A result may be larger than its input: one that need not wait is neither written nor read again.
        with suppress(StoreError, OSError):
            _fold(checkpoints, stage, step, partial, metadata)
            return token
        # The result is kept; the task of the fold tries again, and fails there.
    with span("commit"):
        checkpoints.commit_part(part.key, partial, metadata)
    return token


def _cost_since(started: float) -> Cost:
    release_unused_memory()
    return Cost(round(time.perf_counter() - started, 3), peak_memory())


def commit_fold(checkpoints: Checkpoints, stage: Reduction, step: Step, *after: str) -> str:
    """Task: take one step of the reduction and commit it, unless that is done."""
    del after
    if not _is_done(checkpoints, step):
        try:
            with span("commit"):
                read = checkpoints.read_part if step.of_part else checkpoints.read_fold
                partial = read(step.taken)
            _fold(checkpoints, stage, step, partial)
        except StoreError:
            # A worker that was given up for lost may have folded the same, and removed what it was made from.
            if not _is_done(checkpoints, step):
                raise
    return f"{stage.name}-fold-{step.fold}"


def _is_done(checkpoints: Checkpoints, step: Step) -> bool:
    """Whether a step is taken. Its fold may be in a later one by now: Dask repeats tasks of a worker that died."""
    if checkpoints.has_fold(step.fold):
        return True
    folded_further = not all(checkpoints.has_fold(fold) for fold in step.folds)
    return folded_further or (step.of_part and checkpoints.was_folded(step.taken))


def _fold(
    checkpoints: Checkpoints,
    stage: Reduction,
    step: Step,
    partial: PartialResult,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Fold and commit; ``metadata`` is that of a part that was not committed by itself."""
    with single_blas_thread():
        with span("commit"):
            folded = None if step.before is None else checkpoints.read_fold(step.before)
        result = stage.fold(folded, partial)
        with span("commit"):
            part = step.taken if step.of_part else None
            checkpoints.commit_fold(step.fold, result, step.folds, part, metadata)
