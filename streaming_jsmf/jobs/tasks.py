"""Tasks that run on workers: compute and commit one part, or perform one step of a reduction."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dask._task_spec import Task, TaskRef
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from streaming_jsmf.errors import StoreError, name_options, names_options
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult, Record
from streaming_jsmf.jobs.events import Cost
from streaming_jsmf.jobs.memory import peak_memory, release_unused_memory
from streaming_jsmf.jobs.order import Step
from streaming_jsmf.timing import span

Key: TypeAlias = tuple[str, int]


class Reduction(Protocol):
    """Computes results of parts and folds them. Implementations are small, frozen and sent to workers."""

    def compute(self, source: Any, /) -> PartialResult:
        """Read a part and return its contribution. Runs in a worker with one BLAS thread."""

    def fold(self, folded: PartialResult | None, partial: PartialResult, /) -> PartialResult:
        """Combine the contributions of earlier parts (None at first) with the next part or fold of parts."""


@dataclass(frozen=True)
class MapTask:
    """A stage without a reduction: the module-level ``task(context, source)`` writes files and returns a record.

    ``source`` is that of the ``Part``.

    After a kill the task may run again and overwrite the files of its first run.
    """

    task: Callable[[Any, Any], Record]
    context: Any


@dataclass(frozen=True)
class Part:
    """A unit of work, with its ``size`` for progress and JSON ``metadata`` to record.

    ``source`` is the input of ``Reduction.compute``, such as a partition; None if the result is already committed.
    """

    key: str
    size: int
    source: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


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


def _in_words_of(on_command_line: bool, function: Callable[..., str], *arguments: Any) -> str:
    """Run a task so that its error messages name options as in the process that submitted it."""
    name_options(on_command_line)
    return function(*arguments)


def _count(*tokens: str) -> str:
    """Combine all results into one, since Dask would take seconds to collect thousands."""
    return str(len(tokens))


def commit_record(checkpoints: Checkpoints, stage: MapTask, part: Part) -> str:
    """Task: run a task of a ``MapTask`` stage and commit its record, unless it is committed."""
    if not checkpoints.is_committed(part.key):
        started = time.perf_counter()
        record = stage.task(stage.context, part.source)
        checkpoints.commit_metadata(part.key, {**record, **_cost_since(started).fields()})
    return f"{checkpoints.stage}-part-{part.key}"


def commit_part(checkpoints: Checkpoints, stage: Reduction, part: Part, *after: str) -> str:
    """Task: compute and commit one part, unless it is committed; ``after`` only orders tasks."""
    del after
    token = f"{checkpoints.stage}-part-{part.key}"
    if checkpoints.is_committed(part.key):
        return token
    if part.source is None:
        raise StoreError(f"{checkpoints.store}: the part {part.key} is missing; {checkpoints.hint}")
    started = time.perf_counter()
    with single_blas_thread():
        partial = stage.compute(part.source)
    metadata = {**part.metadata, **_cost_since(started).fields()}
    with span("commit"):
        checkpoints.commit_part(part.key, partial, metadata)
    return token


def _cost_since(started: float) -> Cost:
    release_unused_memory()
    return Cost(round(time.perf_counter() - started, 3), peak_memory())


def commit_fold(checkpoints: Checkpoints, stage: Reduction, step: Step, *after: str) -> str:
    """Task: perform and commit one step of the reduction, unless it is done."""
    del after
    if not _is_done(checkpoints, step):
        try:
            with span("commit"):
                partial = (
                    checkpoints.read_part(step.taken, folding=True)
                    if step.of_part
                    else checkpoints.read_fold(step.taken)
                )
                folded = None if step.before is None else checkpoints.read_fold(step.before)
            with single_blas_thread():
                result = stage.fold(folded, partial)
            with span("commit"):
                part = step.taken if step.of_part else None
                checkpoints.commit_fold(step.fold, result, step.folds, part)
        except StoreError:
            # A worker that was considered lost may have committed the same fold and removed its inputs.
            if not _is_done(checkpoints, step):
                raise
    return f"{checkpoints.stage}-fold-{step.fold}"


def _is_done(checkpoints: Checkpoints, step: Step) -> bool:
    """Whether a step is done; a later fold may contain it already, since Dask repeats tasks of a worker that died."""
    if checkpoints.has_fold(step.fold):
        return True
    folded_further = not all(checkpoints.has_fold(fold) for fold in step.folds)
    return folded_further or (step.of_part and checkpoints.was_folded(step.taken))
