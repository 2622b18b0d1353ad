"""What a long job tells whoever listens. Events are facts about committed work, so they survive a resume."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
