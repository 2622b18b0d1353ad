"""The second shape of a job: parts that are computed in any order and folded in theirs, into one result.

The graph is a chain of folds with the parts feeding it; tasks carry small arguments, commit what they make and return
a token. A part waits for the fold a window before it, so that only a bounded number of unfolded results, which may
weigh more than what they come from, lies on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from dask.delayed import Delayed

from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.events import Cost, StageStarted
from streaming_jsmf.jobs.graph import Key, TaskGraph
from streaming_jsmf.jobs.ledger import Ledger, Partial
from streaming_jsmf.jobs.memory import peak_memory, release_unused_memory
from streaming_jsmf.linalg.blas import single_blas_thread
from streaming_jsmf.timing import span

#: Unfolded parts allowed for each worker; beside them lie the fold and the one that takes its place.
WINDOW_PER_WORKER = 2


class Reduction(Protocol):
    """What is computed of each part, and how results fold. Implementations are small, frozen and travel to workers."""

    @property
    def name(self) -> str:
        """Of the stage in records and messages."""

    def compute(self, source: Any, /) -> Partial:
        """Read what a part is made of and return its contribution. Runs in a worker, with one BLAS thread."""

    def fold(self, folded: Partial | None, partial: Partial, /) -> Partial:
        """Return the contributions of parts 0..i from those of 0..i-1 (None at first) and of i."""


@dataclass(frozen=True)
class Part:
    """What is folded at once.

    Attributes
    ----------
    key
        In the ledger.
    size
        Its weight, for progress.
    source
        What ``Reduction.compute`` reads, such as a partition; None where the result is committed before the job runs.
    note
        What the ledger keeps of the part besides what it took: JSON values.
    """

    key: str
    size: int
    source: Any = None
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Link:
    """A place in the chain of folds: the key of the fold before it (None at its start) and its own; whether the one
    before must not be dropped, because the store as it was before hangs on it."""

    before: str | None
    fold: str
    protects: bool = False


@dataclass(frozen=True)
class FoldJob:
    """Parts and the chain of their folds.

    Attributes
    ----------
    ledger, stage
        Where tasks commit, and what they compute.
    parts
        In the order in which they are folded.
    folds
        Key of the fold of the first part, of the first two, and so on: ``ledger.fold_keys``.
    protected
        A fold that is not dropped when the next is committed.
    unit, part
        What sizes of parts count, and what a part is, for progress.
    """

    ledger: Ledger
    stage: Reduction
    parts: Sequence[Part]
    folds: Sequence[str]
    protected: str | None = None
    unit: str = "nonzeros"
    part: str = "partition"

    def started(self, done: frozenset[int]) -> StageStarted:
        """The event of the start."""
        sizes = [part.size for part in self.parts]
        return StageStarted(self.stage.name, sizes, done, self.unit, self.part)

    def committed(self) -> frozenset[int]:
        """Numbers of the parts that are committed or folded."""
        known, folded = self.ledger.parts(), self.ledger.folded(self.folds)
        return frozenset(i for i, part in enumerate(self.parts) if i < folded or part.key in known)

    def cost(self, index: int) -> Cost | None:
        """What a committed part took, if the ledger tells."""
        return Cost.from_fields(self.ledger.note(self.parts[index].key))

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """The chain, from the first fold that the ledger lacks."""
        del done
        committed, folded = self.ledger.parts(), self.ledger.folded(self.folds)
        window = WINDOW_PER_WORKER * at_once
        graph = TaskGraph()
        made: dict[int, Key] = {}
        for index in range(folded, len(self.parts)):
            part, link = self.parts[index], self._link(index)
            inputs = [made[index - 1]] if index - 1 in made else []
            if part.key not in committed:
                after = [made[index - window]] if index - window in made else []
                inputs.append(graph.add(commit_part, self.ledger, self.stage, part, link, after=after))
            made[index] = graph.add(commit_fold, self.ledger, self.stage, part.key, link, after=inputs)
        return graph.delayed([made[len(self.parts) - 1]]) if made else None

    def _link(self, index: int) -> Link:
        before = self.folds[index - 1] if index else None
        return Link(before, self.folds[index], protects=before is not None and before == self.protected)

    def unfolded(self) -> Delayed:
        """Instead of ``graph``: the parts alone, for a ledger that keeps them and has their folds."""
        graph = TaskGraph()
        return graph.delayed(
            [graph.add(commit_part, self.ledger, self.stage, part, None) for part in self.parts]
        )

    def result(self) -> Partial:
        """The last fold, read back and verified; ``StoreError`` if it is damaged."""
        return self.ledger.read_fold(self.folds[-1])


def commit_part(ledger: Ledger, stage: Reduction, part: Part, link: Link | None, *after: str) -> str:
    """Task: compute one part and commit it, nothing if it is committed; folded at once where its turn has come.

    ``link`` is its place in the chain of folds, if it is to be folded; ``after`` only orders tasks.
    """
    del after
    token = f"{stage.name}-part-{part.key}"
    if ledger.is_committed(part.key) or (link is not None and ledger.has_fold(link.fold)):
        return token
    partial, note = _computed(ledger, stage, part)
    if link is not None and not ledger.keep and (link.before is None or ledger.has_fold(link.before)):
        # A factor weighs more than its Parquet: one that need not wait is neither written nor read again.
        with suppress(StoreError, OSError):
            _fold(ledger, stage, part.key, partial, link, note)
            return token
        # What was computed is kept; the fold is tried again in its own task, and fails there.
    with span("commit"):
        ledger.commit_part(part.key, partial, note)
    return token


def _computed(ledger: Ledger, stage: Reduction, part: Part) -> tuple[Partial, dict[str, Any]]:
    """What a part contributes, and what the ledger keeps of how it was made."""
    if part.source is None:
        raise StoreError(f"{ledger.store}: the part {part.key} is missing; {ledger.remedy}")
    started = time.perf_counter()
    with single_blas_thread():
        partial = stage.compute(part.source)
    release_unused_memory()
    cost = Cost(round(time.perf_counter() - started, 3), peak_memory())
    return partial, {**part.note, **cost.fields()}


def commit_fold(ledger: Ledger, stage: Reduction, part: str, link: Link, *after: str) -> str:
    """Task: fold a part into those before it and commit; nothing if that is done."""
    del after
    # This fold may have gone into the next one by now, which dropped it: Dask asks again for what a dead worker held.
    if not (ledger.has_fold(link.fold) or ledger.was_folded(part)):
        try:
            with span("commit"):
                partial = ledger.read_part(part)
            _fold(ledger, stage, part, partial, link)
        except StoreError:
            # A worker that was given up for lost may have folded the same, and dropped what it was made from.
            if not ledger.has_fold(link.fold):
                raise
    return f"{stage.name}-fold-{link.fold}"


def _fold(
    ledger: Ledger,
    stage: Reduction,
    part: str,
    partial: Partial,
    link: Link,
    note: Mapping[str, Any] | None = None,
) -> None:
    """``note`` is that of a part which was not committed by itself."""
    with single_blas_thread():
        with span("commit"):
            folded = None if link.before is None else ledger.read_fold(link.before)
        result = stage.fold(folded, partial)
        with span("commit"):
            ledger.commit_fold(link.fold, result, part, None if link.protects else link.before, note)
