"""How a command ends: its exit code and message. Imports no library but click."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Literal

import click

from streaming_jsmf.cli import interrupts
from streaming_jsmf.errors import MachineError, StreamingJSMFError, is_of_machine, machine_error

USAGE = 2

#: As shells report a command that SIGPIPE ended.
CLOSED = 141


@dataclass(frozen=True)
class Outcome:
    """How a command ends; ``line`` says what went wrong and what to do, and is empty on success."""

    name: Literal["done", "error", "interrupted"]
    exit_code: int
    line: str = ""


def outcome_of(error: BaseException) -> Outcome | None:
    """How a command ends with ``error``; None for a bug, which keeps its traceback."""
    # Libraries convert interrupts to their own errors, and worker processes may receive the signal first.
    if interrupts.received() is not None or isinstance(error, KeyboardInterrupt | click.Abort):
        return interrupted()
    # Click turns a broken pipe into this exit.
    if isinstance(error, BrokenPipeError) or (isinstance(error, SystemExit) and error.code == 1):
        return Outcome(
            "error", CLOSED, "the output was closed, as head does; run the same command again for the rest"
        )
    if is_of_machine(error) and not isinstance(error, MachineError):
        return outcome_of(machine_error(error))
    match error:
        case StreamingJSMFError():
            return Outcome("error", error.exit_code, str(error))
        case click.ClickException():
            message = error.format_message().removesuffix(".").replace(". (Did you", " (did you")
            line = f"{message}{_example(error)}; see --help"
            return Outcome("error", USAGE, line)
        case OSError():
            file = f"{error.filename}: " if error.filename else ""
            line = f"{file}{error.strerror or error}; correct this and run the same command again"
            return Outcome("error", USAGE, line)
        case _:
            return None


def interrupted() -> Outcome:
    """How a command ends after a signal."""
    number = interrupts.received() or signal.SIGINT
    return Outcome("interrupted", 128 + number, interrupts.line(number))


def _example(error: click.ClickException) -> str:
    """The example of a verb, for a message about a missing parameter."""
    context = error.ctx if isinstance(error, click.MissingParameter) else None
    examples = getattr(context.command, "examples", ()) if context else ()
    return f", as in: {examples[0]}" if examples else ""
