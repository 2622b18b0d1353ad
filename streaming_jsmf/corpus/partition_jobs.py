"""Jobs whose parts are partitions: each shard is compared with its hash once, and tasks are small.

Tasks in other processes get a partition as a range of a list of work units, which each process reads once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.footer import ShardCheck
from streaming_jsmf.corpus.units import LabelFilter, Partition, WorkUnit, content_of
from streaming_jsmf.jobs.checkpoints import PACKED, Committed
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.run import Job, Part, run_job
from streaming_jsmf.storage.arrays import ArrayDigest
from streaming_jsmf.storage.packed import read_packed, write_packed
from streaming_jsmf.storage.paths import StorePath, remove_single


def run_on_partitions(job: Job, executor: Executor, committed: Committed | None = None) -> frozenset[str]:
    """Run a job whose parts may have partitions as sources; arguments, errors and result are those of ``run_job``.

    A shard is compared with its hash before it is used: in a task of its own if several parts need it, otherwise when
    it is read. Later jobs of this process do not compare it again.
    """
    committed = job.committed() if committed is None else committed
    done = job.done(committed)
    lacking = {
        number: part.source
        for number, part in enumerate(job.parts)
        if number not in done and isinstance(part.source, Partition)
    }
    checks = {number: [unit.check for unit in partition.units] for number, partition in lacking.items()}
    each = {number: dict.fromkeys(check for check in found if check) for number, found in checks.items()}
    uses = Counter(check for found in each.values() for check in found)
    parts = list(job.parts)
    for number, partition in lacking.items():
        units = tuple(map(_as_read, partition.units, checks[number], [uses] * len(checks[number])))
        shared = tuple(check for check in each[number] if uses[check] > 1)
        parts[number] = replace(parts[number], source=replace(partition, units=units), checks=shared)
    place = job.checkpoints.place_of_inputs()
    if executor.sends and lacking:
        _refer_to_list(parts, [*lacking], place / PACKED, job.checkpoints.hint)
    found = run_job(replace(job, parts=parts), executor, committed)
    for check in uses:
        check.passed()
    if executor.sends and lacking:
        remove_single(PACKED, place)
    return found


def _refer_to_list(parts: list[Part], numbers: Sequence[int], path: StorePath, hint: str) -> None:
    """Let the parts with these numbers refer to a list of their units, which is written to ``path``."""
    partitions = [parts[number].source for number in numbers]
    listed = UnitList.written(path, (unit for partition in partitions for unit in partition.units), hint)
    bounds = pairwise(accumulate((len(partition.units) for partition in partitions), initial=0))
    for number, partition, (first, last) in zip(numbers, partitions, bounds, strict=True):
        source = replace(partition, units=UnitRange(listed, first, last))
        parts[number] = replace(parts[number], source=source)


def _as_read(unit: WorkUnit, check: ShardCheck | None, uses: Counter[ShardCheck]) -> WorkUnit:
    """The unit of a task, which need not compare its shard if that is known or another task does."""
    known = unit.sha256 is not None and unit.state is not None if check is None else uses[check] > 1
    return unit if unit.hashed or not known else replace(unit, hashed=True)


@dataclass(frozen=True)
class UnitList:
    """A file with work units: texts of shards and labels, and the numbers of each unit, 56 bytes.

    ``digests`` are those of the texts and numbers, and ``hint`` ends messages about damage.
    """

    path: StorePath
    digests: tuple[ArrayDigest, ArrayDigest]
    hint: str

    @classmethod
    def written(cls, path: StorePath, units: Iterable[WorkUnit], hint: str) -> Self:
        """Write units to a new file."""
        shards, labels, numbers = dict[Any, int](), dict[Any, int](), list[tuple[int, ...]]()
        for unit in units:
            only, shard = unit.only or LabelFilter("", None), (unit.path, unit.sha256, unit.state)
            label = labels.setdefault((only.column, only.value), len(labels)) if unit.only else -1
            places = shards.setdefault(shard, len(shards)), unit.row_group
            numbers.append((*places, unit.rows, unit.nonzeros, label, only.read, unit.hashed))
        texts = np.frombuffer(json.dumps([[*shards], [*labels]]).encode(), np.uint8)
        arrays: dict[str, NDArray[Any]] = {"texts": texts, "numbers": np.array(numbers, np.int64)}
        first, second = write_packed(path, arrays).values()
        return cls(path, (first, second), hint)

    def units(self, first: int, last: int) -> tuple[WorkUnit, ...]:
        """Units ``first`` to ``last - 1``; raises ``StoreError`` if the file is missing or damaged."""
        shards, labels, numbers = _listed(self)
        found = []
        for shard, row_group, rows, nonzeros, label, read, hashed in numbers[first:last].tolist():
            path, sha256, state = shards[shard]
            column, value = labels[label] if label >= 0 else ("", None)
            only = LabelFilter(column, value, read) if label >= 0 else None
            content = content_of(sha256, row_group, only)
            known = None if state is None else tuple(state)
            found.append(
                WorkUnit(path, row_group, rows, nonzeros, content, only, sha256, known, hashed=bool(hashed))
            )
        return tuple(found)


@lru_cache(maxsize=2)
def _listed(units: UnitList) -> tuple[list[Any], list[Any], NDArray[np.int64]]:
    known = dict(zip(("texts", "numbers"), units.digests, strict=True))
    arrays = read_packed(units.path, known, hint=units.hint)
    shards, labels = json.loads(arrays["texts"].tobytes())
    return shards, labels, arrays["numbers"]


class UnitRange(Sequence[WorkUnit]):
    """Units ``first`` to ``last - 1`` of a list, read on first use; what is sent is the reference."""

    def __init__(self, listed: UnitList, first: int, last: int) -> None:
        self._reference = listed, first, last
        self._units: tuple[WorkUnit, ...] | None = None

    def __len__(self) -> int:
        _, first, last = self._reference
        return last - first

    @overload
    def __getitem__(self, which: int) -> WorkUnit: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[WorkUnit, ...]: ...
    def __getitem__(self, which: int | slice) -> WorkUnit | tuple[WorkUnit, ...]:
        if self._units is None:
            listed, first, last = self._reference
            self._units = listed.units(first, last)
        return self._units[which]

    def __reduce__(self) -> tuple[type[UnitRange], tuple[UnitList, int, int]]:
        return UnitRange, self._reference
