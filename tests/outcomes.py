"""What a command ended with, and what every refusal looks like."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from streaming_jsmf.cli.main import run

PROGRESS = re.compile(r"^[\w-]+: ((part|partition|sample) \d+ committed|finished in|step) .*\n", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def without_progress(self) -> Outcome:
        """Less the lines that tell how far a job is."""
        return Outcome(self.code, self.out, PROGRESS.sub("", self.err))


Command = Callable[..., Outcome]


def described(place: object, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What ``info`` prints; it compares each array with its digest."""
    capsys.readouterr()
    assert run(["info", str(place), "--json"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    return shown


def refused(outcome: Outcome, code: int, *parts: str) -> None:
    """One line that begins with ``error:`` and holds all parts, and nothing printed."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    [line] = outcome.err.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line
