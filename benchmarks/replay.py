"""Discrete-event simulation of the task graph of a scan: workers, a scheduler and a store. Used by `scale_out`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from streaming_jsmf.jobs.order import FoldStep

#: Nonzeros of a row group of a large corpus.
ROW_GROUP_NONZEROS = 1_000_000

#: Log-normal spread of durations; fraction of stragglers and their slowdown.
SPREAD, STRAGGLERS, STRAGGLER_FACTOR = 0.15, 0.01, 3.0


@dataclass(frozen=True)
class Costs:
    """Measured costs of the tasks of a stage: seconds of one thread, bytes and requests.

    ``fold_seconds``: adding two results. ``seconds_per_byte``: digests and copies, in addition to the time of the
    store. ``part_bytes``, ``fold_bytes``: arrays that do not grow with the documents. ``bytes_per_nonzero`` are those
    that are read of the corpus. ``sampled``: parts also contain the sampled documents, 8 bytes per nonzero. ``passes``:
    the stage is repeated, for each panel of columns. ``requests``: those of a part and of a fold, and for each part
    those of the command, which makes ``FILE_THREADS`` at a time.
    """

    stage: str
    n_words: int
    seconds_per_nonzero: float
    fold_seconds: float
    seconds_per_byte: float
    part_bytes: int
    fold_bytes: int
    bytes_per_nonzero: float
    requests: tuple[float, float, float]
    sampled: bool = False
    max_topics: int = 50
    passes: int = 1


@dataclass(frozen=True)
class Machine:
    """Single-thread workers, scheduler seconds per task, and bytes per second and seconds per request of the store."""

    workers: int
    scheduler_seconds: float
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Task:
    """A task of the graph: its step, None if it computes a part or waits for others, and what it depends on."""

    step: FoldStep | None
    computes: bool
    after: Sequence[int]


@dataclass(frozen=True)
class Load:
    """Tasks in order of priority, and their costs; ``nonzeros`` and ``sample_bytes`` are those of one part."""

    tasks: Sequence[Task]
    costs: Costs
    nonzeros: int
    sample_bytes: float
    on: Machine

    @property
    def computing(self) -> float:
        """Seconds of reading a partition, in one request for each row group, and of computing its part."""
        reading = self.nonzeros * self.costs.bytes_per_nonzero / self.on.bandwidth
        reading += self.on.latency * self.nonzeros / ROW_GROUP_NONZEROS
        return reading + self.nonzeros * self.costs.seconds_per_nonzero

    def part_transfer(self) -> float:
        return self._transfer(self.costs.requests[0], self.costs.part_bytes + self.sample_bytes)

    def _transfer(self, requests: float, size: float) -> float:
        return requests * self.on.latency + size * (1 / self.on.bandwidth + self.costs.seconds_per_byte)

    def folding(self, step: FoldStep) -> tuple[float, float]:
        """Seconds for store accesses and for computing of a step; sampled documents stay in their parts."""
        inputs = len(step.folds) + len(step.parts)
        requests = self.costs.requests[1] * inputs
        return self._transfer(requests, self._moved(step)), self.costs.fold_seconds * (inputs - 1)

    def _moved(self, step: FoldStep) -> int:
        return len(step.parts) * self.costs.part_bytes + (len(step.folds) + 1) * self.costs.fold_bytes

    def bytes_read(self) -> float:
        return self.costs.bytes_per_nonzero * self.nonzeros * sum(task.computes for task in self.tasks)

    def bytes_committed(self) -> float:
        """Bytes of parts and folds that are written and read."""
        parts = sum(task.computes for task in self.tasks) * (self.costs.part_bytes + self.sample_bytes)
        return parts + sum(self._moved(task.step) for task in self.tasks if task.step)

    def work(self) -> float:
        """Total seconds of all tasks."""
        parts = sum(task.computes for task in self.tasks) * (self.computing + self.part_transfer())
        return parts + sum(sum(self.folding(task.step)) for task in self.tasks if task.step)

    def longest_path(self) -> float:
        """Seconds of the longest chain of dependent folds."""
        ended: dict[str, float] = {}
        for task in self.tasks:
            # Tasks are in topological order, so the inputs of a fold come before it.
            if task.step:
                begun = max((ended[fold] for fold in task.step.folds), default=0.0)
                ended[task.step.fold] = begun + sum(self.folding(task.step))
        return max(ended.values())


@dataclass(frozen=True)
class Replayed:
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
    committed: float

    @property
    def efficiency(self) -> float:
        """Fraction of worker time spent computing, from 0 to 1."""
        return self.ideal / self.seconds

    @property
    def bound(self) -> str:
        """The bottleneck with infinitely many workers, or ``work``."""
        bounds = (("folds", self.longest_path), ("scheduler", self.scheduler), ("records", self.records))
        name, value = max(bounds, key=lambda item: item[1])
        return name if value > self.ideal else "work"


class Events:
    """Event queue ordered by time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[float], None]) -> None:
        """Schedule the call ``what(when)``."""
        heapq.heappush(self._heap, (when, self._count, what))
        self._count += 1

    def run(self) -> float:
        now = 0.0
        while self._heap:
            now, _, what = heapq.heappop(self._heap)
            what(now)
        return now


class Replay:
    """Simulates the tasks of a load on the workers, in order of priority."""

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
        self.most_lying = self._lying = 0.0
        random = np.random.default_rng(0)
        self._lengths = random.lognormal(0.0, SPREAD, len(tasks))
        self._lengths[random.random(len(tasks)) < STRAGGLERS] *= STRAGGLER_FACTOR

    def seconds(self) -> float:
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
            # The scheduler is sequential; its time per task covers assignment and completion.
            self._scheduler_free = max(self._scheduler_free, now) + self._load.on.scheduler_seconds
            self._events.at(self._scheduler_free, lambda when, number=number: self._start(number, when))

    def _start(self, number: int, now: float) -> None:
        task, length = self._load.tasks[number], self._lengths[number]
        if task.computes:
            computed = now + self._load.computing * length + self._load.part_transfer()
            self._events.at(computed, lambda when: self._computed(number, when))
            return
        store, computing = self._load.folding(task.step) if task.step else (0.0, 0.0)
        self._events.at(now + store + computing * length, lambda when: self._folded(number, when))

    def _computed(self, number: int, now: float) -> None:
        self._lie(self._load.costs.part_bytes + self._load.sample_bytes)
        self._ended(number, now)

    def _folded(self, number: int, now: float) -> None:
        step = self._load.tasks[number].step
        if step:
            # The new fold replaces its inputs; the sampled documents stay.
            self._lie(self._load.costs.fold_bytes * (1 - len(step.folds)))
            self._lie(-self._load.costs.part_bytes * len(step.parts))
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
