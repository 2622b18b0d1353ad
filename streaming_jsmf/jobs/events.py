"""What a long job tells whoever listens. Events are facts about committed work, so they survive a resume."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class StageStarted:
    """A stage begins. ``sizes`` of its parts are in ``unit``, ``done`` are those committed by an earlier run.

    ``part`` is what the stage calls one of them.
    """

    stage: str
    sizes: Sequence[int]
    done: frozenset[int]
    unit: str = "nonzeros"
    part: str = "part"


@dataclass(frozen=True)
class Cost:
    """What a part took: wall-clock seconds, and the peak resident memory (bytes) its process had reached by then."""

    seconds: float
    peak_memory: int

    def fields(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_fields(cls, fields: Any) -> Cost | None:
        """Read back what a record keeps; None where it keeps nothing of the kind."""
        try:
            return cls(float(fields["seconds"]), int(fields["peak_memory"]))
        except (KeyError, TypeError, ValueError):
            return None


@dataclass(frozen=True)
class PartitionCommitted:
    """One part of a stage is committed, by any worker; ``cost`` if its record tells."""

    stage: str
    index: int
    size: int
    cost: Cost | None = None


@dataclass(frozen=True)
class StageFinished:
    """All parts of a stage are committed, and folded where they are."""

    stage: str
    seconds: float


@dataclass(frozen=True)
class Iteration:
    """One step of an iterative method in memory: its number, the most there can be, and what it measures."""

    stage: str
    number: int
    limit: int
    measures: Mapping[str, float]


Event: TypeAlias = StageStarted | PartitionCommitted | StageFinished | Iteration
Listener: TypeAlias = Callable[[Event], None]


def silent(event: Event) -> None:
    """Listen to nothing."""


def combine(*listeners: Listener) -> Listener:
    """Return a listener that tells each of ``listeners``, in order; what one raises comes after all were told."""

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


#: Seconds between two looks at the committed records.
POLL_SECONDS = 0.25

#: At least so many times as long as a look takes.
POLL_SHARE = 10


@dataclass(frozen=True)
class Commits:
    """Where the commits of a stage are seen: ``done`` gives the parts, ``cost`` what one of them took."""

    done: Callable[[], frozenset[int]]
    cost: Callable[[int], Cost | None]


@contextmanager
def watch_commits(commits: Commits, started: StageStarted, listener: Listener) -> Iterator[None]:
    """Report parts to ``listener`` as they are committed, while the block runs.

    One look at the store serves every scheduler: local threads, processes and a cluster commit alike. A listener
    that fails does not stop the work of the block; what it raised first is raised after it.
    """
    stop = threading.Event()
    watch = _Watch(commits, started, listener)

    def loop() -> None:
        pause = POLL_SECONDS
        while not stop.wait(pause):
            before = time.perf_counter()
            watch.look()
            # Looking into an object store costs time and money: a tenth of the time at most.
            pause = max(POLL_SECONDS, POLL_SHARE * (time.perf_counter() - before))

    listener(started)
    thread = threading.Thread(target=loop, name=f"watch-{started.stage}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    watch.look()
    if watch.failure is not None:
        raise watch.failure


class _Watch:
    """Tells of each commit once, and keeps the first failure.

    In a thread a failure would end as a traceback on the terminal, and the job as if nothing were wrong.
    """

    def __init__(self, commits: Commits, started: StageStarted, listener: Listener) -> None:
        self.failure: Exception | None = None
        self._commits, self._started, self._listener = commits, started, listener
        self._seen = set(started.done)

    def look(self) -> None:
        """Tell of what was committed since the last look."""
        try:
            fresh = sorted(self._commits.done() - self._seen)
        except Exception as error:
            self.failure = self.failure or error
            return
        for index in fresh:
            self._seen.add(index)
            try:
                self._tell(index)
            except Exception as error:
                self.failure = self.failure or error

    def _tell(self, index: int) -> None:
        stage, size = self._started.stage, self._started.sizes[index]
        self._listener(PartitionCommitted(stage, index, size, self._commits.cost(index)))
