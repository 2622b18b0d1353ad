"""Outcomes of commands, and the format of error messages."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any
from unittest.mock import patch

from streaming_jsmf.__main__ import main
from streaming_jsmf.cli import main as cli

PROGRESS = re.compile(r"^[\w -]+: (\d+ of \d+ parts|finished in \d|step \d+ of at most \d).*\n", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def without_progress(self) -> Outcome:
        return Outcome(self.code, self.out, PROGRESS.sub("", self.err))


Command = Callable[..., Outcome]


def run(arguments: Sequence[str]) -> int:
    """Run ``python -m streaming_jsmf`` in this process, and return its exit code."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with patch.object(sys, "argv", ["streaming-jsmf", *arguments]):
            main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    raise AssertionError("the program returned instead of exiting")


def called(*arguments: object) -> Outcome:
    """Run a command line in this process, and capture its output."""
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run([*map(str, arguments)])
    return Outcome(code, out.getvalue(), err.getvalue())


def invoked(*arguments: object) -> Outcome:
    """Run a command line in this process without handling signals; it may also write bytes."""
    out, err = BytesIO(), BytesIO()
    with (
        redirect_stdout(TextIOWrapper(out, "utf-8", write_through=True)),
        redirect_stderr(TextIOWrapper(err, "utf-8", "backslashreplace", write_through=True)),
    ):
        code = cli.run([*map(str, arguments)])
        return Outcome(code, out.getvalue().decode(), err.getvalue().decode())


def printed(*arguments: object) -> str:
    """Run a command line that must succeed, and return its output."""
    outcome = called(*arguments)
    assert outcome.code == 0, f"{' '.join(map(str, arguments))} ended with {outcome.code}: {outcome.err}"
    return outcome.out


def described(place: object) -> dict[str, Any]:
    """Output of ``info --json``, which checks the digest of each array."""
    shown: dict[str, Any] = json.loads(printed("info", place, "--json"))
    return shown


def refused(outcome: Outcome, code: int, *parts: str) -> None:
    """Check for the exit code, one line that starts with ``error:`` and contains all parts, and no output."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    [line] = outcome.err.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line
