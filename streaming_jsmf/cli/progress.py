"""Progress for people: a bar on a terminal, a quiet line for each commit elsewhere."""

from __future__ import annotations

import logging
import sys
import threading
import time
from typing import Any

from dask.utils import format_bytes
from tqdm import tqdm

from streaming_jsmf.cli.meter import Clock, Meter
from streaming_jsmf.jobs.events import Event, Iteration, PartitionCommitted, StageFinished, StageStarted

logger = logging.getLogger("streaming_jsmf.progress")

#: Without a terminal, iterations are told at these numbers only.
TOLD_EVERY = 25


class Lines:
    """A log line for each part that is committed, and for some iterations."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.meter = Meter(clock)

    def __call__(self, event: Event) -> None:
        """Tell about ``event``."""
        self.meter.see(event)
        match event:
            case PartitionCommitted():
                facts = ", ".join([f"{self.meter.done} of {self.meter.total}", *_speed(self.meter)])
                logger.info("%s: %s %d committed (%s)", event.stage, self.meter.part, event.index, facts)
            case StageFinished():
                logger.info("%s: finished in %.1f s", event.stage, event.seconds)
            case Iteration() if event.number % TOLD_EVERY == 0:
                steps = f"step {event.number} of at most {event.limit}"
                logger.info("%s: %s (%s)", event.stage, steps, _measures(event))
            case _:
                pass

    def close(self) -> None:
        """Nothing is left open."""


class Bars:
    """A bar for each stage: size done, rate and time left; parts done and peak memory behind it.

    Between events the bar is drawn again every ``interval`` seconds: a small corpus is one partition, and the time that
    runs is all that shows the work.
    """

    def __init__(self, interval: float = 1.0) -> None:
        self.meter = Meter()
        self.bar: tqdm[Any] | None = None
        self._interval = interval
        self._closed = threading.Event()

    def __call__(self, event: Event) -> None:
        """Draw what ``event`` changes."""
        self.meter.see(event)
        match event:
            case StageStarted():
                self._open()
                self._update(_parts(self.meter))
            case PartitionCommitted():
                self._update(_parts(self.meter))
            case Iteration():
                if self.bar is None or event.number == 1:
                    self._open()
                self._update(_measures(event))
            case StageFinished():
                self.close()

    def _open(self) -> None:
        self.close()
        unit = self.meter.unit
        self.bar = tqdm(
            desc=self.meter.stage,
            total=self.meter.total_size,
            unit=f" {unit}",
            unit_scale=unit != "steps",
            initial=self.meter.done_size,
            # Commits come in bursts: the rate of the last few says little.
            smoothing=0,
        )
        self._closed = threading.Event()
        threading.Thread(target=self._tick, args=(self.bar, self._closed), daemon=True).start()

    def _tick(self, bar: tqdm[Any], closed: threading.Event) -> None:
        while not closed.wait(self._interval):
            bar.refresh()

    def _update(self, facts: str) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(facts, refresh=False)
            self.bar.n = self.meter.done_size
            self.bar.refresh()

    def close(self) -> None:
        """Leave the last state of the bar behind and end its line."""
        self._closed.set()
        if self.bar is not None:
            self.bar.close()
            self.bar = None


def progress_listener() -> Lines | Bars:
    """Return what suits standard error: bars if it is a terminal, log lines if not."""
    return Bars() if sys.stderr.isatty() else Lines()


def _speed(meter: Meter) -> list[str]:
    """Rate, time left and peak memory, as far as they are known."""
    rate, seconds = meter.rate, meter.eta_seconds
    facts = []
    if rate is not None and seconds is not None:
        facts += [f"{tqdm.format_sizeof(rate)} {meter.unit}/s", f"{tqdm.format_interval(seconds)} left"]
    return [*facts, *_memory(meter)]


def _parts(meter: Meter) -> str:
    return ", ".join([f"{meter.done}/{meter.total} {meter.part}s", *_memory(meter)])


def _memory(meter: Meter) -> list[str]:
    return [] if meter.peak_memory is None else [f"peak {format_bytes(meter.peak_memory)}"]


def _measures(event: Iteration) -> str:
    return ", ".join(f"{name} {value:.1e}" for name, value in event.measures.items())
