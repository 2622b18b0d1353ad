"""Progress for people: a bar on a terminal, a quiet line for each commit elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import Any

from tqdm import tqdm

from streaming_jsmf.runtime.events import (
    Event,
    Iteration,
    Listener,
    PartitionCommitted,
    StageFinished,
    StageStarted,
)

logger = logging.getLogger("streaming_jsmf.progress")

#: Without a terminal, iterations are told at these numbers only.
TOLD_EVERY = 25


def progress_listener() -> Listener:
    """Return what suits standard error: bars if it is a terminal, log lines if not."""
    return _Bars() if sys.stderr.isatty() else _Lines()


class _Lines:
    def __init__(self) -> None:
        self.total = self.done = 0

    def __call__(self, event: Event) -> None:
        match event:
            case StageStarted():
                self.total, self.done = len(event.sizes), len(event.done)
            case PartitionCommitted():
                self.done += 1
                logger.info(
                    "%s: partition %d committed (%d of %d)", event.stage, event.index, self.done, self.total
                )
            case StageFinished():
                logger.info("%s: finished in %.1f s", event.stage, event.seconds)
            case Iteration() if event.number % TOLD_EVERY == 0:
                logger.info("%s: step %d (%s)", event.stage, event.number, _measures(event))
            case _:
                pass


class _Bars:
    def __init__(self) -> None:
        self.bar: tqdm[Any] | None = None
        self.iterating = ""

    def __call__(self, event: Event) -> None:
        match event:
            case StageStarted():
                self._open(event.stage, sum(event.sizes), event.unit, sum(event.sizes[i] for i in event.done))
            case PartitionCommitted() if self.bar is not None:
                self.bar.update(event.size)
            case Iteration():
                if self.iterating != event.stage or event.number == 1:
                    self._open(event.stage, event.limit, "steps", 0)
                    self.iterating = event.stage
                assert self.bar is not None
                self.bar.set_postfix_str(_measures(event))
                self.bar.update()
            case StageFinished():
                self._close()
            case _:
                pass

    def _open(self, stage: str, total: int, unit: str, initial: int) -> None:
        self._close()
        self.bar = tqdm(desc=stage, total=total, unit=f" {unit}", unit_scale=unit != "steps", initial=initial)

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None
        self.iterating = ""


def _measures(event: Iteration) -> str:
    return ", ".join(f"{name} {value:.1e}" for name, value in event.measures.items())
