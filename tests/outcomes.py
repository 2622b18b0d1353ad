"""What a command ended with, and what every refusal looks like."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def refused(outcome: Outcome, code: int, *parts: str) -> None:
    """One line that begins with ``error:`` and holds all parts, and nothing printed."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    [line] = outcome.err.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line
