"""Discrete-event simulation of the task graph of a scan: workers, a scheduler and a store. Used by `scale_out`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streaming_jsmf.jobs.order import Step

#: Spread of durations, and the share and the length of stragglers.
SPREAD, STRAGGLERS, STRAGGLER_FACTOR = 0.15, 0.01, 3.0


@dataclass(frozen=True)
class Costs:
    """What tasks of a stage cost: seconds of one thread, bytes of what is committed.

    Attributes
    ----------
    n_words
        N.
    seconds_per_nonzero
        Of reading and multiplying.
    fold_seconds
        Of adding or merging.
    seconds_per_byte
        Of writing a result and reading it back, beside what the store takes: digests and copies.
    part_bytes, fold_bytes
        Of what does not grow with the documents: sums, factors.
    sampled
        Whether documents of the sample are kept besides, 8 bytes a nonzero.
    """

    stage: str
    n_words: int
    seconds_per_nonzero: float
    fold_seconds: float
    seconds_per_byte: float
    part_bytes: int
    fold_bytes: int
    sampled: bool = False


@dataclass(frozen=True)
class Machine:
    """Workers of one thread, seconds of the scheduler for a task, bytes a second and seconds a commit of the store."""

    workers: int
    scheduler_seconds: float
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Task:
    """A task of the graph: its step, whether it computes the part of that, and the tasks that it waits for."""

    step: Step
    computes: bool
    after: Sequence[int]


@dataclass(frozen=True)
class Load:
    """Tasks in the order of their priority, and what they cost.

    Attributes
    ----------
    nonzeros
        Of a part.
    sample_bytes
        Of the documents of a part that are in the sample.
    """

    tasks: Sequence[Task]
    costs: Costs
    nonzeros: int
    sample_bytes: float
    on: Machine

    @property
    def computing(self) -> float:
        """Seconds of a part."""
        return self.nonzeros * self.costs.seconds_per_nonzero

    def part_transfer(self) -> float:
        """Seconds to write a part or to read it."""
        return self._transfer(self.costs.part_bytes + self.sample_bytes)

    def fold_transfer(self, parts: int) -> float:
        """Seconds to write a fold of so many parts or to read it."""
        return self._transfer(self.costs.fold_bytes + self.sample_bytes * parts)

    def _transfer(self, size: float) -> float:
        return self.on.latency + size * (1 / self.on.bandwidth + self.costs.seconds_per_byte)

    def folding(self, step: Step, *, at_once: bool) -> tuple[float, float]:
        """Seconds that a step waits for the store, and that it computes; ``at_once``: its part is in memory."""
        held = self._parts_held[step.fold]
        taken = 1 if step.of_part else self._parts_held[step.taken]
        store = self.fold_transfer(held)
        if step.before is not None:
            store += self.fold_transfer(held - taken)
        if not at_once:
            store += self.part_transfer() if step.of_part else self.fold_transfer(taken)
        return store, self.costs.fold_seconds

    @cached_property
    def _parts_held(self) -> dict[str, int]:
        """How many parts a fold holds."""
        return {task.step.fold: task.step.last - task.step.first + 1 for task in self.tasks}

    def work(self) -> float:
        """Seconds of all tasks together, where no part is written by itself."""
        seconds = 0.0
        for task in self.tasks:
            seconds += (
                self.computing if task.computes else sum(self.folding(task.step, at_once=task.step.of_part))
            )
        return seconds

    def longest_path(self) -> float:
        """Seconds of the folds that come one after the other, on the longest way to the last."""
        ended: dict[str, float] = {}
        for task in self.tasks:
            # Whatever the priorities, what a fold is made of comes before it.
            if not task.computes:
                begun = max((ended[fold] for fold in task.step.folds), default=0.0)
                ended[task.step.fold] = begun + sum(self.folding(task.step, at_once=task.step.of_part))
        return max(ended.values())


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
    longest_path: float
    scheduler: float
    records: float
    most_bytes: float

    @property
    def efficiency(self) -> float:
        """Of the workers, from 0 to 1."""
        return self.ideal / self.seconds

    @property
    def bound(self) -> str:
        """What the row would still wait for with infinitely many workers, or ``work``."""
        bounds = (("folds", self.longest_path), ("scheduler", self.scheduler), ("records", self.records))
        name, value = max(bounds, key=lambda item: item[1])
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
    """The tasks of a load on simulated workers, in the order of their priority."""

    def __init__(self, load: Load) -> None:
        self._load, tasks = load, load.tasks
        self._waits = [len(task.after) for task in tasks]
        self._dependents: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for other in task.after:
                self._dependents[other].append(number)
        self._events = Events()
        self._ready: list[int] = []
        self._idle = load.on.workers
        self._scheduler_free = 0.0
        self._folded: set[str] = set()
        self.most_lying = self._lying = 0.0
        random = np.random.default_rng(0)
        self._lengths = random.lognormal(0.0, SPREAD, len(tasks))
        self._lengths[random.random(len(tasks)) < STRAGGLERS] *= STRAGGLER_FACTOR

    def seconds(self) -> float:
        """From the first task to the end of the last."""
        self._release([number for number, waits in enumerate(self._waits) if waits == 0], 0.0)
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
            self._scheduler_free = max(self._scheduler_free, now) + self._load.on.scheduler_seconds
            self._events.at(self._scheduler_free, lambda when, number=number: self._start(number, when))

    def _start(self, number: int, now: float) -> None:
        task, length = self._load.tasks[number], self._lengths[number]
        if task.computes:
            computed = now + self._load.computing * length
            self._events.at(computed, lambda when: self._computed(number, when))
        elif task.step.fold in self._folded:
            # A look into the store tells so.
            self._events.at(now + self._load.on.latency, lambda when: self._ended(number, when))
        else:
            self._fold(number, now, at_once=False)

    def _computed(self, number: int, now: float) -> None:
        step = self._load.tasks[number].step
        if step.before is None or step.before in self._folded:
            # Its turn has come: folded by the task that computed it, and not written by itself.
            self._fold(number, now, at_once=True)
        else:
            self._lie(self._load.costs.part_bytes + self._load.sample_bytes)
            self._events.at(now + self._load.part_transfer(), lambda when: self._ended(number, when))

    def _fold(self, number: int, now: float, *, at_once: bool) -> None:
        step = self._load.tasks[number].step
        store, computing = self._load.folding(step, at_once=at_once)
        end = now + store + computing * self._lengths[number]
        self._events.at(end, lambda when: self._end_of_fold(number, when, at_once=at_once))

    def _end_of_fold(self, number: int, now: float, *, at_once: bool) -> None:
        step = self._load.tasks[number].step
        self._folded.add(step.fold)
        # One fold more lies in the store, and what it was made of does not; of the sample there is as much as before.
        self._lie(self._load.costs.fold_bytes * (1 - len(step.folds)))
        if step.of_part:
            self._lie(self._load.sample_bytes if at_once else -self._load.costs.part_bytes)
        self._ended(number, now)

    def _lie(self, size: float) -> None:
        self._lying += size
        self.most_lying = max(self.most_lying, self._lying)

    def _ended(self, number: int, now: float) -> None:
        self._idle += 1
        fresh = []
        for other in self._dependents[number]:
            self._waits[other] -= 1
            if self._waits[other] == 0:
                fresh.append(other)
        self._release(fresh, now)
