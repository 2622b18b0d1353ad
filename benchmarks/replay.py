"""A simulator of discrete events for the task graph of a scan: workers, a scheduler, a store. `scale_out` feeds it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

#: Spread of durations, and the share and the length of stragglers.
SPREAD, STRAGGLERS, STRAGGLER_FACTOR = 0.15, 0.01, 3.0


@dataclass(frozen=True)
class Costs:
    """What tasks of a stage cost: seconds of one thread, bytes of what is committed."""

    stage: str
    seconds_per_nonzero: float
    fold_seconds: float
    part_bytes: int
    fold_bytes: int


@dataclass(frozen=True)
class Machine:
    """Workers of one thread, seconds of the scheduler for a task, bytes a second and seconds a commit of the store."""

    workers: int
    scheduler_seconds: float
    bandwidth: float
    latency: float

    def transfer(self, size: int) -> float:
        """Seconds to write or read ``size`` bytes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Replayed:
    """One row of the table, in seconds."""

    stage: str
    folds: str
    documents: float
    partitions: int
    workers: int
    seconds: float
    ideal: float
    chain: float
    scheduler: float

    @property
    def efficiency(self) -> float:
        """Of the workers, from 0 to 1."""
        return self.ideal / self.seconds

    @property
    def bound(self) -> str:
        """What the row would still wait for with infinitely many workers, or ``work``."""
        name, value = max((("chain", self.chain), ("scheduler", self.scheduler)), key=lambda item: item[1])
        return name if value > self.ideal else "work"


class Events:
    """Things that happen at a time, taken in order of time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[float], None]) -> None:
        """Call ``what(when)`` when the clock is there."""
        heapq.heappush(self._heap, (when, self._count, what))
        self._count += 1

    def run(self) -> float:
        """Let everything happen; the time of the last event."""
        now = 0.0
        while self._heap:
            now, _, what = heapq.heappop(self._heap)
            what(now)
        return now


class Replay:
    """Tasks of a graph on simulated workers, in the order of their priority.

    ``tasks`` maps a number to (kind, index, numbers of tasks that it waits for); numbers are priorities.
    """

    def __init__(
        self, tasks: dict[int, tuple[str, int, list[int]]], costs: Costs, nonzeros: int, on: Machine
    ) -> None:
        self._tasks, self._costs, self._machine = tasks, costs, on
        self._work = nonzeros * costs.seconds_per_nonzero
        self._waits = {number: len(after) for number, (_, _, after) in tasks.items()}
        self._dependents: dict[int, list[int]] = {}
        for number, (_, _, after) in tasks.items():
            for other in after:
                self._dependents.setdefault(other, []).append(number)
        self._events = Events()
        self._ready: list[int] = []
        self._idle = on.workers
        self._scheduler_free = 0.0
        self._folded: set[int] = set()
        random = np.random.default_rng(0)
        self._lengths = random.lognormal(0.0, SPREAD, len(tasks))
        self._lengths[random.random(len(tasks)) < STRAGGLERS] *= STRAGGLER_FACTOR

    def seconds(self) -> float:
        """From the first task to the end of the last."""
        self._release([number for number, waits in self._waits.items() if waits == 0], 0.0)
        return self._events.run()

    def _release(self, numbers: list[int], now: float) -> None:
        for number in numbers:
            heapq.heappush(self._ready, number)
        self._assign(now)

    def _assign(self, now: float) -> None:
        while self._idle and self._ready:
            number = heapq.heappop(self._ready)
            self._idle -= 1
            # One thing at a time: a task is told of, and its end is heard of.
            self._scheduler_free = max(self._scheduler_free, now) + self._machine.scheduler_seconds
            self._events.at(self._scheduler_free, lambda when, number=number: self._start(number, when))

    def _start(self, number: int, now: float) -> None:
        kind, index, _ = self._tasks[number]
        length = self._lengths[number % len(self._lengths)]
        if kind == "part":
            self._events.at(now + self._work * length, lambda when: self._computed(number, index, when))
        elif kind == "chain" and index in self._folded:
            self._events.at(now, lambda when: self._ended(number, when))
        else:
            # Two operands are read: what is folded so far, and what comes to it.
            costs, transfer = self._costs, self._machine.transfer
            whole = transfer(costs.part_bytes) + transfer(costs.fold_bytes) + self._fold_seconds(length)
            self._events.at(now + whole, lambda when: self._end_of_fold(number, index, when))

    def _fold_seconds(self, length: float) -> float:
        return self._costs.fold_seconds * length + self._machine.transfer(self._costs.fold_bytes)

    def _computed(self, number: int, index: int, now: float) -> None:
        costs, transfer = self._costs, self._machine.transfer
        if "chain" in {self._tasks[other][0] for other in self._dependents.get(number, [])} and (
            index == 0 or index - 1 in self._folded
        ):
            # Its turn has come: folded by the task that computed it, and not written by itself.
            whole = transfer(costs.fold_bytes) + self._fold_seconds(1.0)
            self._events.at(now + whole, lambda when: self._end_of_fold(number, index, when))
        else:
            self._events.at(now + transfer(costs.part_bytes), lambda when: self._ended(number, when))

    def _end_of_fold(self, number: int, index: int, now: float) -> None:
        self._folded.add(index)
        self._ended(number, now)

    def _ended(self, number: int, now: float) -> None:
        self._idle += 1
        fresh = []
        for other in self._dependents.get(number, []):
            self._waits[other] -= 1
            if self._waits[other] == 0:
                fresh.append(other)
        self._release(fresh, now)
