"""Progress of long jobs: events that describe committed work, so they remain valid after a resume, and their display.

On standard error that is a bar on a terminal, otherwise a line for each commit; stages have names for users there.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from tqdm import tqdm

logger = logging.getLogger("streaming_jsmf.progress")

#: Number of iterations between lines without a terminal.
LINE_EVERY = 25

#: What stages do, for users, also those of a model; names of others, such as ``step-1``, may end in a number.
WHAT = {
    "plan": "looking at the files",
    "scatter": "sorting the counts by document",
    "phrases": "finding phrases",
    "frequent": "adding up pairs of words",
    "read": "reading the source",
    "identities": "comparing the ids of documents",
    "contents": "comparing the words of documents",
    "words": "choosing words",
    "forms": "adding up the forms of words",
    "write": "writing the corpus",
    "rewrite": "writing what changed",
    "sample": "drawing documents",
    "simulate": "simulating documents",
    "sums": "summarizing the documents",
    "projection": "counting words that occur together",
    "cooccurrence": "counting all pairs of words",
    "refinement": "refining the counts",
    "third_moment": "counting triples of words",
    "eigenpairs": "reading the summary",
    "rectification": "finding topics",
    "anchor_words": "dividing words among topics",
    "tensor": "separating topics",
    "prior": "estimating the prior",
    "alpha0": "estimating the concentration",
    "draw": "improving topics on a sample",
    "step": "improving topics",
    "polish": "improving topics",
    "counts": "counting the words of topics",
    "transform": "computing topic shares",
}

Clock: TypeAlias = Callable[[], float]


@dataclass(frozen=True)
class StageStarted:
    """A stage starts: ``sizes`` of parts in ``unit``, parts ``done`` by earlier runs, and the name of a ``part``."""

    stage: str
    sizes: Sequence[int]
    done: frozenset[int]
    unit: str = "nonzeros"
    part: str = "part"


@dataclass(frozen=True)
class Cost:
    """Cost of a part: wall-clock seconds, and peak resident memory (bytes) of its process so far."""

    seconds: float
    peak_memory: int

    def fields(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Any) -> Cost | None:
        """Parse recorded fields; return None if they have no cost."""
        try:
            return cls(float(fields["seconds"]), int(fields["peak_memory"]))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class PartitionCommitted:
    """A worker committed one part of a stage; ``cost`` is None if it was not recorded."""

    stage: str
    index: int
    size: int
    cost: Cost | None = None


@dataclass(frozen=True)
class StageFinished:
    """All parts of a stage are committed and, where applicable, folded."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class Iteration:
    """One step of an in-memory iterative method: its number, the maximum number of steps, and measured values."""

    stage: str
    number: int
    limit: int
    measures: Mapping[str, float]


Event: TypeAlias = StageStarted | PartitionCommitted | StageFinished | Iteration
Listener: TypeAlias = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore the event."""


def stage_of(listener: Listener, stage: str, unit: str) -> Callable[[Sequence[int], int], None]:
    """Return what tells a listener about a stage, given the sizes of its parts and how many are done.

    A stage of a single part is over before it can be shown.
    """
    began = 0.0

    def tell(sizes: Sequence[int], done: int) -> None:
        nonlocal began
        if len(sizes) < 2:
            return
        if not done:
            began = time.perf_counter()
            listener(StageStarted(stage, sizes, frozenset(), unit))
        else:
            listener(PartitionCommitted(stage, done - 1, sizes[done - 1]))
        if done == len(sizes):
            listener(StageFinished(stage, time.perf_counter() - began))

    return tell


def combine(*listeners: Listener) -> Listener:
    """Return a listener that calls ``listeners`` in order and raises the first of their errors at the end."""

    def tell(event: Event) -> None:
        failures = []
        for listener in listeners:
            try:
                listener(event)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    return tell


def what(stage: str) -> str:
    """What a stage does, or its name.

    Examples
    --------
    >>> what("step-1"), what("own stage")
    ('improving topics 1', 'own stage')
    """
    name, _, number = stage.rpartition("-")
    return WHAT.get(stage) or (f"{WHAT[name]} {number}" if name in WHAT else stage)


class Meter:
    """Counts the parts or iterations of the current stage (``done`` of ``total``) and their sizes in ``unit``.

    Parts of earlier runs and the first iteration count as done but are excluded from the rate. The total of iterations
    is an upper bound. ``peak_memory`` is the largest of any process in this run in bytes, or None.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.peak_memory: int | None = None
        self._begin("", "part", "", 0, 0)

    def see(self, event: Event) -> None:
        """Count an event."""
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
        """``unit`` per second, averaged over this run of the stage; None before any work is done."""
        seconds, size = self._clock() - self._started, self.done_size - self._earlier
        return size / seconds if size > 0 and seconds > 0 else None

    @property
    def eta_seconds(self) -> float | None:
        """Estimated seconds until the stage ends; None without a rate."""
        rate = self.rate
        return None if rate is None else (self.total_size - self.done_size) / rate


class Lines:
    """Logs a line for each commit, and for some iterations; ``verbose`` ones name stages, parts, rates and memory."""

    def __init__(self, clock: Clock = time.monotonic, *, verbose: bool = False) -> None:
        self.meter, self._verbose = Meter(clock), verbose

    def __call__(self, event: Event) -> None:
        self.meter.see(event)
        match event:
            case PartitionCommitted() if self._verbose:
                facts = ", ".join([f"{self.meter.done} of {self.meter.total}", *_speed(self.meter)])
                logger.info("%s: %s %d committed (%s)", event.stage, self.meter.part, event.index, facts)
            case PartitionCommitted() if self.meter.done < self.meter.total:
                facts = ", ".join([f"{self.meter.done} of {self.meter.total} parts", *_left(self.meter)])
                logger.info("%s: %s", what(event.stage), facts)
            case StageFinished():
                name = event.stage if self._verbose else what(event.stage)
                logger.info("%s: finished in %.1f s", name, event.seconds)
            case Iteration() if event.number % LINE_EVERY == 0:
                steps = f"step {event.number} of at most {event.limit}"
                name, facts = what(event.stage), ""
                if self._verbose:
                    name, facts = event.stage, f" ({_measures(event)})"
                logger.info("%s: %s%s", name, steps, facts)
            case _:
                pass

    def close(self) -> None:
        """Do nothing; there is nothing to close."""


class Bars:
    """A bar for each stage with its rate and time left, followed by the parts done, and if ``verbose`` the peak memory.

    The bar is also redrawn every ``interval`` seconds, since a stage may have a single part.
    """

    def __init__(self, interval: float = 1.0, *, verbose: bool = False) -> None:
        self.meter, self._verbose = Meter(), verbose
        self.bar: tqdm[Any] | None = None
        self._interval = interval
        self._closed = threading.Event()
        self._ticking: threading.Thread | None = None
        self._bounded = False  # whether the total is the maximum number of steps

    def __call__(self, event: Event) -> None:
        self.meter.see(event)
        match event:
            case StageStarted():
                self._open()
                self._update(self._parts())
            case PartitionCommitted():
                self._update(self._parts())
            case Iteration():
                if self.bar is None or event.number == 1:
                    self._open()
                self._update(_measures(event) if self._verbose else "")
            case StageFinished():
                self.close()

    def _open(self) -> None:
        self.close()
        unit = self.meter.unit
        self._bounded = unit == "steps"
        self.bar = progress_bar(
            desc=self.meter.stage if self._verbose else what(self.meter.stage),
            total=self.meter.total_size,
            unit=f" {unit}",
            unit_scale=unit != "steps",
            initial=self.meter.done_size,
            smoothing=0,  # commits come in bursts, which make a moving average meaningless
        )
        self._closed = threading.Event()
        self._ticking = threading.Thread(target=self._tick, args=(self.bar, self._closed), daemon=True)
        self._ticking.start()

    def _parts(self) -> str:
        done = f"{self.meter.done}/{self.meter.total}"
        return (
            ", ".join([f"{done} {self.meter.part}s", *_memory(self.meter)])
            if self._verbose
            else f"{done} parts"
        )

    def _tick(self, bar: tqdm[Any], closed: threading.Event) -> None:
        while not closed.wait(self._interval):
            bar.refresh()

    def _update(self, facts: str) -> None:
        if self.bar is not None:
            self.bar.set_postfix_str(facts, refresh=False)
            self.bar.n = self.meter.done_size
            self.bar.refresh()

    def close(self) -> None:
        """Close the bar in its last state."""
        self._closed.set()
        if self.bar is not None and self._ticking is not None:
            self._ticking.join()  # it must not draw a closed bar
            if self._bounded:
                self.bar.total = self.bar.n  # notebooks show bars that end below their total as failed
            self.bar.close()
            self.bar = None


def progress_bar(**settings: Any) -> tqdm[Any]:
    """Return a bar of tqdm, without the thread with which tqdm watches all bars and which outlives them.

    In notebooks, bars are removed when they are complete.
    """
    if in_notebook():
        from tqdm.auto import tqdm as kind

        # Widgets ignore the environment.
        is_off = os.environ.get("TQDM_DISABLE", "") not in ("", "0", "False")
        settings = {"leave": False, "disable": is_off, **settings}
    else:
        kind = tqdm
    return type("Bar", (kind,), {"monitor_interval": 0})(**settings)


def progress_listener(*, verbose: bool = False) -> Lines | Bars:
    """Return bars if standard error is a terminal, otherwise lines."""
    return Bars(verbose=verbose) if sys.stderr.isatty() else Lines(verbose=verbose)


@contextmanager
def progress_shown(wanted: bool | None) -> Iterator[Listener]:
    """Yield a listener that shows bars if they are ``wanted``; None: in notebooks and on terminals."""
    if wanted is False or (wanted is None and not (in_notebook() or sys.stderr.isatty())):
        yield silent
        return
    bars = Bars()
    try:
        yield bars
    finally:
        bars.close()


def in_notebook() -> bool:
    """Whether this runs in a kernel of Jupyter."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return "IPKernelApp" in getattr(shell, "config", {})


def _speed(meter: Meter) -> list[str]:
    speed = [] if meter.rate is None else [f"{tqdm.format_sizeof(meter.rate)} {meter.unit}/s"]
    return [*speed, *_left(meter), *_memory(meter)]


def _left(meter: Meter) -> list[str]:
    return [] if meter.eta_seconds is None else [f"{tqdm.format_interval(meter.eta_seconds)} left"]


def _memory(meter: Meter) -> list[str]:
    from dask.utils import format_bytes

    return [] if meter.peak_memory is None else [f"peak {format_bytes(meter.peak_memory)}"]


def _measures(event: Iteration) -> str:
    return ", ".join(f"{name} {value:.1e}" for name, value in event.measures.items())
