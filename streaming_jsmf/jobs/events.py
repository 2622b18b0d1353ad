"""Progress events of long jobs. They describe committed work, so they remain valid after a resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias


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
