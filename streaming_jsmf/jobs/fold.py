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
from streaming_jsmf.jobs.events import Cost
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
    """A place in the chain of folds: the key of the fold before it (None at its start) and its own."""

    before: str | None
    fold: str


@dataclass(frozen=True)
class FoldContext:
    """What every task needs: where to commit, what to compute, and the fold that must not be dropped, because the
    store as it was before hangs on it."""

    ledger: Ledger
    stage: Reduction
    protected: str | None = None


@dataclass(frozen=True)
class FoldJob:
    """Parts and the chain of their folds.

    Attributes
    ----------
    context
        What every task needs.
    parts
        In the order in which they are folded.
    folds
        Key of the fold of the first part, of the first two, and so on: ``ledger.fold_keys``.
    unit, part
        What sizes of parts count, and what a part is, for progress.
    """

    context: FoldContext
    parts: Sequence[Part]
    folds: Sequence[str]
    unit: str = "nonzeros"
    part: str = "partition"

    @property
    def name(self) -> str:
        """Of the stage."""
        return self.context.stage.name

    @property
    def sizes(self) -> Sequence[int]:
        """Of the parts."""
        return [part.size for part in self.parts]

    def committed(self) -> frozenset[int]:
        """Numbers of the parts that are committed or folded."""
        ledger = self.context.ledger
        known, folded = ledger.parts(), ledger.folded(self.folds)
        return frozenset(i for i, part in enumerate(self.parts) if i < folded or part.key in known)

    def cost(self, index: int) -> Cost | None:
        """What a committed part took, if the ledger tells."""
        return Cost.from_fields(self.context.ledger.note(self.parts[index].key))

    def graph(self, done: frozenset[int], at_once: int) -> Delayed | None:
        """The chain, from the first fold that the ledger lacks."""
        del done
        context, parts, folds = self.context, self.parts, self.folds
        committed, folded = context.ledger.parts(), context.ledger.folded(folds)
        window = WINDOW_PER_WORKER * at_once
        graph = TaskGraph()
        made: dict[int, Key] = {}
        for index in range(folded, len(parts)):
            part, link = parts[index], Link(folds[index - 1] if index else None, folds[index])
            inputs = [made[index - 1]] if index - 1 in made else []
            if part.key not in committed:
                after = [made[index - window]] if index - window in made else []
                inputs.append(graph.add(commit_part, context, part, link, after=after))
            made[index] = graph.add(commit_fold, context, part.key, link, after=inputs)
        return graph.delayed([made[len(parts) - 1]]) if made else None

    def unfolded(self) -> Delayed:
        """Instead of ``graph``: the parts alone, for a ledger that keeps them and has their folds."""
        graph = TaskGraph()
        return graph.delayed([graph.add(commit_part, self.context, part, None) for part in self.parts])

    def result(self) -> Partial:
        """The last fold, read back and verified; ``StoreError`` if it is damaged."""
        return self.context.ledger.read_fold(self.folds[-1])


def commit_part(context: FoldContext, part: Part, link: Link | None, *after: str) -> str:
    """Task: compute one part and commit it, nothing if it is committed; folded at once where its turn has come.

    ``link`` is its place in the chain of folds, if it is to be folded; ``after`` only orders tasks.
    """
    del after
    token = f"{context.stage.name}-part-{part.key}"
    ledger = context.ledger
    if ledger.is_committed(part.key) or (link is not None and ledger.has_fold(link.fold)):
        return token
    partial, note = _computed(context, part)
    if link is not None and not ledger.keep and (link.before is None or ledger.has_fold(link.before)):
        # A factor weighs more than its Parquet: one that need not wait is neither written nor read again.
        with suppress(StoreError, OSError):
            _fold(context, part.key, partial, link, note)
            return token
        # What was computed is kept; the fold is tried again in its own task, and fails there.
    with span("commit"):
        ledger.commit_part(part.key, partial, note)
    return token


def _computed(context: FoldContext, part: Part) -> tuple[Partial, dict[str, Any]]:
    """What a part contributes, and what the ledger keeps of how it was made."""
    ledger = context.ledger
    if part.source is None:
        raise StoreError(f"{ledger.store}: the part {part.key} is missing; {ledger.remedy}")
    started = time.perf_counter()
    with single_blas_thread():
        partial = context.stage.compute(part.source)
    release_unused_memory()
    cost = Cost(round(time.perf_counter() - started, 3), peak_memory())
    return partial, {**part.note, **cost.fields()}


def commit_fold(context: FoldContext, part: str, link: Link, *after: str) -> str:
    """Task: fold a part into those before it and commit; nothing if that is done."""
    del after
    # What was folded at once may have gone into the next fold by now, which dropped this one.
    if not (context.ledger.has_fold(link.fold) or context.ledger.was_folded_at_once(part)):
        try:
            with span("commit"):
                partial = context.ledger.read_part(part)
            _fold(context, part, partial, link)
        except StoreError:
            # A worker that was given up for lost may have folded the same, and dropped what it was made from.
            if not context.ledger.has_fold(link.fold):
                raise
    return f"{context.stage.name}-fold-{link.fold}"


def _fold(
    context: FoldContext, part: str, partial: Partial, link: Link, note: Mapping[str, Any] | None = None
) -> None:
    """``note`` is that of a part which was not committed by itself."""
    with single_blas_thread():
        with span("commit"):
            folded = None if link.before is None else context.ledger.read_fold(link.before)
        result = context.stage.fold(folded, partial)
        with span("commit"):
            dropped = None if link.before == context.protected else link.before
            context.ledger.commit_fold(link.fold, result, part, dropped, note)
