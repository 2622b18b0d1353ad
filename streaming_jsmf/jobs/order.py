"""Order in which parts are folded. It depends only on the parts, so the bits do not depend on the scheduler.

Groups of ``FAN_IN`` neighbors are folded by one task each, in order, and then groups of groups until one is left::

    parts    p0 p1 ... p7 | p8 ... p15 | ... | p56 ... p63 | p64 ...
    groups        g0      |     g1     | ... |     g7      |  g8 ...
    of groups                 h0                           |  h1 ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TypeVar

from streaming_jsmf.jobs.checkpoints import fold_keys

Value = TypeVar("Value")

#: Number of neighbors folded sequentially. It affects the bits.
FAN_IN = 8


@dataclass(frozen=True)
class FoldStep:
    """One fold: earlier ``folds`` and then ``parts`` are added one after the other.

    All are keys; the fold, whose key is ``fold``, contains the parts ``first`` to ``last``.
    """

    fold: str
    folds: tuple[str, ...]
    parts: tuple[str, ...]
    first: int
    last: int


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
    fan_in : See ``FAN_IN``.

    Examples
    --------
    >>> steps = FoldOrder(tuple("abcde"), "salt", fan_in=2).steps
    >>> [(step.first, step.last) for step in steps]
    [(0, 1), (2, 3), (0, 3), (0, 4)]
    """

    keys: tuple[str, ...]
    salt: str
    fan_in: int = FAN_IN

    @cached_property
    def steps(self) -> tuple[FoldStep, ...]:
        """All folds, each after its inputs and as early as possible if parts arrive in order."""
        groups = [_Group(key, number, number) for number, key in enumerate(self.keys)]
        if len(groups) == 1:
            return _folded(groups, fold_keys(self.keys, self.salt)[0]).steps
        while len(groups) > 1:
            batches = (groups[start : start + self.fan_in] for start in range(0, len(groups), self.fan_in))
            groups = [batch[0] if len(batch) == 1 else self._of_groups(batch) for batch in batches]
        return groups[0].steps

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

    def folded(self, values: Sequence[Value], add: Callable[[Value, Value], Value]) -> Value:
        """Values of the parts, added in memory by the same steps."""
        known = dict(zip(self.keys, values, strict=True))
        for step in self.steps:
            known[step.fold] = reduce(add, [known[key] for key in (*step.folds, *step.parts)])
        return known[self.total]

    @cached_property
    def _by_fold(self) -> dict[str, FoldStep]:
        return {step.fold: step for step in self.steps}

    def _of_groups(self, groups: Sequence[_Group]) -> _Group:
        return _folded(groups, fold_keys([group.key for group in groups], self.salt)[-1])


def _folded(groups: Sequence[_Group], key: str) -> _Group:
    """Fold these groups in one step. Single parts among them come last."""
    first, last = groups[0].first, groups[-1].last
    folds, parts = (
        tuple(group.key for group in groups if bool(group.steps) is folded) for folded in (True, False)
    )
    steps = [step for group in groups for step in group.steps]
    return _Group(key, first, last, (*steps, FoldStep(key, folds, parts, first, last)))
