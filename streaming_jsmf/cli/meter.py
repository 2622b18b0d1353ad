"""How far a stage is, how fast, and until when: the arithmetic behind every kind of progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from streaming_jsmf.jobs.events import Event, Iteration, PartitionCommitted, StageStarted

Clock = Callable[[], float]


class Meter:
    """Follows the events of a job; its figures are those of the stage it is in.

    Parts of earlier runs count as done, but not for the rate: they took none of this run's time. Likewise the first
    iteration, which has ended when the first event comes.

    Attributes
    ----------
    part, unit
        What a part is called, and what sizes and rates are in.
    done, total
        Parts, or iterations; the total of iterations is an upper bound.
    done_size, total_size
        The same in ``unit``.
    peak_memory
        Largest peak resident memory (bytes) of the processes that did parts in this run; None if none has told.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.peak_memory: int | None = None
        self._begin("", "part", "", 0, 0)

    def see(self, event: Event) -> None:
        """Take an event into account."""
        match event:
            case StageStarted():
                self._begin(event.stage, event.part, event.unit, len(event.sizes), sum(event.sizes))
                self.done = len(event.done)
                self.done_size = self._earlier = sum(event.sizes[index] for index in event.done)
            case PartitionCommitted():
                self.done += 1
                self.done_size += event.size
                if event.cost is not None:
                    self.peak_memory = max(self.peak_memory or 0, event.cost.peak_memory)
            case Iteration():
                if self.stage != event.stage or event.number == 1:
                    self._begin(event.stage, "step", "steps", event.limit, event.limit)
                    self._earlier = event.number
                self.done = self.done_size = event.number
            case _:
                pass

    def _begin(self, stage: str, part: str, unit: str, total: int, total_size: int) -> None:
        self.stage, self.part, self.unit = stage, part, unit
        self.total, self.total_size = total, total_size
        self.done = self.done_size = self._earlier = 0
        self.peak_memory = None
        self._started = self._clock()

    @property
    def rate(self) -> float | None:
        """``unit`` a second, averaged over this run of the stage; None before anything is done."""
        seconds, size = self._clock() - self._started, self.done_size - self._earlier
        return size / seconds if size > 0 and seconds > 0 else None

    @property
    def eta_seconds(self) -> float | None:
        """Seconds that the rest takes at this rate; None if there is no rate."""
        rate = self.rate
        return None if rate is None else (self.total_size - self.done_size) / rate
