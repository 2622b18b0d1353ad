"""Order in which parts are folded. It depends only on the parts, so the bits do not depend on the scheduler.

Parts are folded sequentially in groups of ``FAN_IN`` neighbors; workers fold different groups in parallel. The totals
of the groups are folded in groups again until one is left::

    parts    p0 p1 ... p7 | p8 ... p15 | ... | p56 ... p63 | p64 ...
    groups        g0      |     g1     | ... |     g7      |  g8 ...
    of groups                 h0                           |  h1 ...

A store that grows adds one section of parts per addition. Each section is folded separately and its total is added to
the total of the sections before it, so existing folds are reused and an addition has the same bits as if it were
folded alone and merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from streaming_jsmf.jobs.checkpoints import fold_keys

#: Number of neighbors folded sequentially. It affects the bits, so each store keeps its original value.
FAN_IN = 8


@dataclass(frozen=True)
class FoldStep:
    """One fold: ``taken`` (a part, or the fold of a group) is added to ``before`` (None for the first fold of a group).

    The fields ``fold``, ``before`` and ``taken`` are keys; the fold contains the parts ``first`` to ``last``.
    """

    fold: str
    before: str | None
    taken: str
    first: int
    last: int
    of_part: bool

    @property
    def folds(self) -> tuple[str, ...]:
        """Keys of the folds that it combines."""
        taken = () if self.of_part else (self.taken,)
        return taken if self.before is None else (self.before, *taken)


@dataclass(frozen=True)
class _Group:
    """Parts ``first`` to ``last``, their key, and the steps that fold them; a single part has no steps."""

    key: str
    first: int
    last: int
    steps: tuple[FoldStep, ...] = ()


@dataclass(frozen=True)
class FoldOrder:
    """Steps that fold parts into one result.

    Parameters
    ----------
    keys : Keys of the parts in order, all different.
    salt : Changes the keys of all folds.
    sections : Number of parts in each section; empty: one section.
    fan_in : See ``FAN_IN``.

    Examples
    --------
    >>> steps = FoldOrder(tuple("abcde"), "salt", fan_in=2).steps
    >>> [(step.first, step.last) for step in steps]
    [(0, 0), (0, 1), (2, 2), (2, 3), (0, 3), (0, 4)]
    """

    keys: tuple[str, ...]
    salt: str
    sections: tuple[int, ...] = ()
    fan_in: int = FAN_IN

    @cached_property
    def steps(self) -> tuple[FoldStep, ...]:
        """All folds, each after its inputs and as early as possible if parts arrive in order."""
        parts = [_Group(key, number, number) for number, key in enumerate(self.keys)]
        starts = accumulate(self.sections or (len(parts),), initial=0)
        sections = (parts[start:end] for start, end in pairwise(starts))
        return self._folded([self._section(section) for section in sections]).steps

    @property
    def total(self) -> str:
        """Key of the last fold, which contains all parts."""
        return self.steps[-1].fold

    def covered(self, folds: Iterable[str]) -> frozenset[int]:
        """Return the numbers of the parts that these folds contain."""
        steps = (self._by_fold[key] for key in folds if key in self._by_fold)
        return frozenset(number for step in steps for number in range(step.first, step.last + 1))

    def missing(self, folds: Collection[str]) -> list[FoldStep]:
        """Return the steps needed to reach the last fold from the existing ``folds``."""
        wanted, found = {self.total}, []
        for step in reversed(self.steps):
            if step.fold in wanted and step.fold not in folds:
                found.append(step)
                wanted.update(step.folds)
        return found[::-1]

    @cached_property
    def _by_fold(self) -> dict[str, FoldStep]:
        return {step.fold: step for step in self.steps}

    def _section(self, groups: list[_Group]) -> _Group:
        """Fold groups of groups until one group is left."""
        while len(groups) > self.fan_in:
            batches = (groups[start : start + self.fan_in] for start in range(0, len(groups), self.fan_in))
            groups = [batch[0] if len(batch) == 1 else self._folded(batch) for batch in batches]
        return groups[0] if len(groups) == 1 else self._folded(groups)

    def _folded(self, groups: Sequence[_Group]) -> _Group:
        """Fold these groups sequentially, starting from the fold of the first one if it has steps."""
        steps: list[FoldStep] = []
        before: str | None = None
        first = groups[0].first
        for group, fold in zip(groups, fold_keys([group.key for group in groups], self.salt), strict=True):
            steps += group.steps
            if before is None and group.steps:
                before = group.key
                continue
            steps.append(FoldStep(fold, before, group.key, first, group.last, of_part=not group.steps))
            before = fold
        assert before is not None
        return _Group(before, first, groups[-1].last, tuple(steps))
