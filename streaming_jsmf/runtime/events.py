"""What a long job tells whoever listens. Events are facts about committed work, so they survive a resume."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class StageStarted:
    """A stage begins. ``sizes`` of its parts are in ``unit``, ``done`` are those committed by an earlier run."""

    stage: str
    sizes: Sequence[int]
    done: frozenset[int]
    unit: str = "nonzeros"


@dataclass(frozen=True)
class PartitionCommitted:
    """One partition of a stage is committed, by any worker."""

    stage: str
    index: int
    size: int


@dataclass(frozen=True)
class StageFinished:
    """All partitions of a stage are committed and folded."""

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


#: Seconds between two looks at the committed records.
POLL_SECONDS = 0.25

#: At least so many times as long as a look takes.
POLL_SHARE = 10


@contextmanager
def watch_commits(
    committed: Callable[[], frozenset[int]], started: StageStarted, listener: Listener
) -> Iterator[None]:
    """Report partitions to ``listener`` as they are committed, while the block runs.

    One look at the store serves every scheduler: local threads, processes and a cluster commit alike.
    """
    stop = threading.Event()
    seen = set(started.done)

    def look() -> None:
        for index in sorted(committed() - seen):
            seen.add(index)
            listener(PartitionCommitted(started.stage, index, started.sizes[index]))

    def loop() -> None:
        pause = POLL_SECONDS
        while not stop.wait(pause):
            before = time.perf_counter()
            look()
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
    look()
