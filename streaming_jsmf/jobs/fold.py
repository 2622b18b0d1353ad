"""The second shape of a job: parts that are computed in any order and folded in a fixed one, into one result.

The graph is a tree of folds (``order``) with the parts feeding it; tasks carry small arguments, commit what they make
and return a token. A part waits for the fold of the one a window before it, the first of a group for the folds of all
parts before that too. So only a bounded number of results lies on the disk, which may weigh more than what they come
from: unfolded ones of two windows, and folds of groups that are begun.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from dask.delayed import Delayed

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult
from streaming_jsmf.jobs.events import Cost, StageStarted
from streaming_jsmf.jobs.graph import Key, TaskGraph
from streaming_jsmf.jobs.memory import peak_memory, release_unused_memory
from streaming_jsmf.jobs.order import FoldOrder, Step
from streaming_jsmf.timing import span

#: Parts for each worker that may be computed before one that takes long is folded. With two, such a one holds up
#: clusters of many workers (``docs/decisions/0042-tree-of-folds.md``).
WINDOW_PER_WORKER = 3


class Reduction(Protocol):
    """What is computed of each part, and how results fold. Implementations are small, frozen and travel to workers."""

    @property
    def name(self) -> str:
        """Of the stage in records and messages."""

    def compute(self, source: Any, /) -> PartialResult:
        """Read what a part is made of and return its contribution. Runs in a worker, with one BLAS thread."""

    def fold(self, folded: PartialResult | None, partial: PartialResult, /) -> PartialResult:
        """Return the contributions of some parts (None at first) and of those behind them together.

        ``partial`` is what was computed of one part, or the fold of several.
        """


@dataclass(frozen=True)
class Part:
    """What is folded at once.

    Attributes
    ----------
    key
        In the checkpoints.
    size
        Its weight, for progress.
    source
        What ``Reduction.compute`` reads, such as a partition; None where the result is committed before the job runs.
    note
        What the checkpoints keeps of the part besides what it took: JSON values.
    """

    key: str
    size: int
    source: Any = None
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FoldJob:
    """Parts and the order of their folds.

    Attributes
    ----------
    checkpoints, stage
        Where tasks commit, and what they compute.
    parts
        Those of the order, in it.
    order
        How they are folded.
    unit, part
        What sizes of parts count, and what a part is, for progress.
    """

    checkpoints: Checkpoints
    stage: Reduction
    parts: Sequence[Part]
    order: FoldOrder
    unit: str = "nonzeros"
    part: str = "partition"

    def started(self, done: frozenset[int]) -> StageStarted:
        """The event of the start."""
        sizes = [part.size for part in self.parts]
        return StageStarted(self.stage.name, sizes, done, self.unit, self.part)

    def verified(self) -> frozenset[int]:
        """As ``committed``: a fold compares what it reads with its digest."""
        return self.committed()

    def committed(self) -> frozenset[int]:
        """Numbers of the parts that are committed or folded."""
        known, held = self.checkpoints.parts(), self.order.covered(self.checkpoints.folds())
        return held.union(i for i, part in enumerate(self.parts) if part.key in known)

    def cost(self, index: int) -> Cost | None:
        """What a committed part took, if the checkpoints tells."""
        return Cost.from_fields(self.checkpoints.note(self.parts[index].key))

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """The folds that the checkpoints lacks, and the parts that they need."""
        del done
        committed, window = self.checkpoints.parts(), WINDOW_PER_WORKER * at_once
        graph = TaskGraph()
        # Folds that no later one has taken up yet, which together hold all parts so far; and those after each part.
        open_folds: dict[str, Key] = {}
        were_open: list[tuple[Key, ...]] = []
        for step in self.order.lacking(self.checkpoints.folds()):
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

    def unfolded(self) -> Delayed:
        """Instead of ``graph``: the parts alone, for a checkpoints that keeps them and has their folds."""
        graph = TaskGraph()
        return graph.delayed(
            [graph.add(commit_part, self.checkpoints, self.stage, part, None) for part in self.parts]
        )

    def result(self) -> PartialResult:
        """The last fold, read back and verified; ``StoreError`` if it is damaged."""
        return self.checkpoints.read_fold(self.order.total)


def commit_part(
    checkpoints: Checkpoints, stage: Reduction, part: Part, step: Step | None, *after: str
) -> str:
    """Task: compute one part and commit it, nothing if it is committed; folded at once where its turn has come.

    ``step`` is what takes it, if it is to be folded; ``after`` only orders tasks.
    """
    del after
    token = f"{stage.name}-part-{part.key}"
    if checkpoints.is_committed(part.key) or (step is not None and checkpoints.has_fold(step.fold)):
        return token
    partial, note = _computed(checkpoints, stage, part)
    if (
        step is not None
        and not checkpoints.keep
        and (step.before is None or checkpoints.has_fold(step.before))
    ):
        # A factor weighs more than its Parquet: one that need not wait is neither written nor read again.
        with suppress(StoreError, OSError):
            _fold(checkpoints, stage, step, partial, note)
            return token
        # What was computed is kept; the fold is tried again in its own task, and fails there.
    with span("commit"):
        checkpoints.commit_part(part.key, partial, note)
    return token


def _computed(checkpoints: Checkpoints, stage: Reduction, part: Part) -> tuple[PartialResult, dict[str, Any]]:
    """What a part contributes, and what the checkpoints keeps of how it was made."""
    if part.source is None:
        raise StoreError(f"{checkpoints.store}: the part {part.key} is missing; {checkpoints.hint}")
    started = time.perf_counter()
    with single_blas_thread():
        partial = stage.compute(part.source)
    release_unused_memory()
    cost = Cost(round(time.perf_counter() - started, 3), peak_memory())
    return partial, {**part.note, **cost.fields()}


def commit_fold(checkpoints: Checkpoints, stage: Reduction, step: Step, *after: str) -> str:
    """Task: take one step and commit; nothing if that is done."""
    del after
    if not _is_done(checkpoints, step):
        try:
            with span("commit"):
                partial = (
                    checkpoints.read_part(step.taken) if step.of_part else checkpoints.read_fold(step.taken)
                )
            _fold(checkpoints, stage, step, partial)
        except StoreError:
            # A worker that was given up for lost may have folded the same, and dropped what it was made from.
            if not _is_done(checkpoints, step):
                raise
    return f"{stage.name}-fold-{step.fold}"


def _is_done(checkpoints: Checkpoints, step: Step) -> bool:
    """Whether a step is taken. Its fold may be in a later one by now: Dask asks again for what a dead worker held."""
    if checkpoints.has_fold(step.fold):
        return True
    taken_up = not all(checkpoints.has_fold(fold) for fold in step.folds)
    return taken_up or (step.of_part and checkpoints.was_folded(step.taken))


def _fold(
    checkpoints: Checkpoints,
    stage: Reduction,
    step: Step,
    partial: PartialResult,
    note: Mapping[str, Any] | None = None,
) -> None:
    """``note`` is that of a part which was not committed by itself."""
    with single_blas_thread():
        with span("commit"):
            folded = None if step.before is None else checkpoints.read_fold(step.before)
        result = stage.fold(folded, partial)
        with span("commit"):
            checkpoints.commit_fold(step.fold, result, step.folds, step.taken if step.of_part else None, note)
