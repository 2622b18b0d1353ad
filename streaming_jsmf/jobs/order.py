"""The order in which parts are folded. It depends on the parts alone, so that the bits do not depend on the scheduler.

Of many parts neighbours are folded in groups of ``FAN_IN``, one after the other; the totals of groups, which workers
make side by side, are folded in groups in their turn, until one is left::

    parts    p0 p1 ... p7 | p8 ... p15 | ... | p56 ... p63 | p64 ...
    groups        g0      |     g1     | ... |     g7      |  g8 ...
    of groups                 h0                           |  h1 ...

Up to ``FAN_IN`` parts are one group, and are folded as they come.

Parts stand in sections, of which each begins with what is added to an older result: a corpus of a store. A section is
folded by itself, and its total onto that of the sections before it. So what is there is gone on from, whatever its
number of parts, and an addition leaves the bits of its own total, merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

from streaming_jsmf.jobs.checkpoints import fold_keys

#: Neighbours that are folded one after the other. Part of the bits: a store keeps the number that it was made with.
FAN_IN = 8


@dataclass(frozen=True)
class Step:
    """One fold.

    Attributes
    ----------
    fold
        Its key.
    before
        Key of the fold that it goes on from; None: none, it is the first of a group.
    taken
        Key of what is folded into that: of a part, or of the fold of a group.
    first, last
        Numbers of the first and the last of the parts that it holds.
    of_part
        Whether a part is taken: it is that of number ``last``.
    """

    fold: str
    before: str | None
    taken: str
    first: int
    last: int
    of_part: bool

    @property
    def folds(self) -> tuple[str, ...]:
        """Keys of the folds that it is made of."""
        taken = () if self.of_part else (self.taken,)
        return taken if self.before is None else (self.before, *taken)


@dataclass(frozen=True)
class _Group:
    """Parts ``first`` to ``last`` as one: their key, and the steps that fold them, none of a single part."""

    key: str
    first: int
    last: int
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class FoldOrder:
    """The steps that fold parts into one result.

    Parameters
    ----------
    keys
        Of the parts, in order, all different.
    salt
        Another one gives other keys of folds.
    sections
        Numbers of parts of the sections; empty: all are one.
    fan_in
        See ``FAN_IN``; None: all parts are folded one after the other, whatever their sections.

    Examples
    --------
    >>> steps = FoldOrder(tuple("abcde"), "salt", fan_in=2).steps
    >>> [(step.first, step.last) for step in steps]
    [(0, 0), (0, 1), (2, 2), (2, 3), (0, 3), (0, 4)]
    """

    keys: tuple[str, ...]
    salt: str
    sections: tuple[int, ...] = ()
    fan_in: int | None = FAN_IN

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """All folds; each comes after those that it is made of, and as soon as it can when parts come in order."""
        parts = [_Group(key, number, number) for number, key in enumerate(self.keys)]
        if self.fan_in is None:
            return self._folded(parts).steps
        starts = accumulate(self.sections or (len(parts),), initial=0)
        sections = (parts[start:end] for start, end in pairwise(starts))
        return self._folded([self._section(section, self.fan_in) for section in sections]).steps

    @property
    def total(self) -> str:
        """Key of the last fold, which holds all parts."""
        return self.steps[-1].fold

    def covered(self, folds: Iterable[str]) -> frozenset[int]:
        """Numbers of the parts that these folds hold."""
        steps = (self._by_fold[key] for key in folds if key in self._by_fold)
        return frozenset(number for step in steps for number in range(step.first, step.last + 1))

    def missing(self, folds: Collection[str]) -> list[Step]:
        """The steps to the last fold from these; those that are in them already are left out."""
        wanted, found = {self.total}, []
        for step in reversed(self.steps):
            if step.fold in wanted and step.fold not in folds:
                found.append(step)
                wanted.update(step.folds)
        return found[::-1]

    @cached_property
    def _by_fold(self) -> dict[str, Step]:
        return {step.fold: step for step in self.steps}

    def _section(self, groups: list[_Group], fan_in: int) -> _Group:
        """One group of all, by groups of groups."""
        while len(groups) > fan_in:
            batches = (groups[start : start + fan_in] for start in range(0, len(groups), fan_in))
            groups = [batch[0] if len(batch) == 1 else self._folded(batch) for batch in batches]
        return groups[0] if len(groups) == 1 else self._folded(groups)

    def _folded(self, groups: Sequence[_Group]) -> _Group:
        """One group of these, folded one after the other; from the first of them, if that is folded itself."""
        steps: list[Step] = []
        before: str | None = None
        first = groups[0].first
        for group, fold in zip(groups, fold_keys([group.key for group in groups], self.salt), strict=True):
            steps += group.steps
            if before is None and group.steps:
                before = group.key
                continue
            steps.append(Step(fold, before, group.key, first, group.last, of_part=not group.steps))
            before = fold
        assert before is not None
        return _Group(before, first, groups[-1].last, tuple(steps))
