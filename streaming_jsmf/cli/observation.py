"""Progress of a long command on standard error, and its JSON log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli import interrupts
from streaming_jsmf.cli.log_json import STANDARD_ERROR, JsonLog, require_log
from streaming_jsmf.cli.outcome import Outcome, interrupted, outcome_of
from streaming_jsmf.errors import LAST, LogError
from streaming_jsmf.jobs.events import Listener, combine, progress_listener
from streaming_jsmf.storage.results import package_versions

logger = logging.getLogger(__name__)


@contextmanager
def observed(
    log_json: str | None, *, quiet: bool = False, verbose: bool = False, lines: bool = True
) -> Iterator[Listener]:
    """Yield the listener for the verb that runs in the block; raises ``LogError`` if the log cannot be written.

    Parameters
    ----------
    log_json : File for JSON lines, or ``-`` for standard error, to which nothing else is then written. None: no log.
    quiet : Print only warnings and errors to standard error; the JSON log contains everything.
    verbose : Name stages, parts, rates and memory.
    lines : Without a terminal, print a line for each commit.
    """
    listeners: list[Any] = []
    with ExitStack() as stack:
        if quiet:
            for handler in logging.getLogger("streaming_jsmf").handlers:
                stack.callback(handler.setLevel, handler.level)
                handler.setLevel(logging.WARNING)
        elif log_json != STANDARD_ERROR and (lines or sys.stderr.isatty()):
            listeners.append(progress_listener(verbose=verbose))
            stack.callback(listeners[-1].close)
        if log_json is not None:
            listeners.append(stack.enter_context(_logged(log_json)))
        stack.enter_context(_warned_of_missing_report())
        yield combine(*listeners)


class _Last(logging.Handler):
    """Keeps the messages that are to be printed again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if LAST.items() <= vars(record).items():
            self.records.append(record)


@contextmanager
def repeated() -> Iterator[None]:
    """Print warnings such as that of a large loss again after the output of the block, unless it fails."""
    package, last = logging.getLogger("streaming_jsmf"), _Last()
    package.addHandler(last)
    try:
        yield
    finally:
        package.removeHandler(last)
    for record in last.records:
        package.handle(record)


@contextmanager
def _logged(target: str) -> Iterator[JsonLog]:
    started, context = time.monotonic(), click.get_current_context()
    require_log(target, (value for name, value in context.params.items() if name != "log_json"))
    log = JsonLog(target)

    def finish(outcome: Outcome) -> None:
        seconds = round(time.monotonic() - started, 3)
        message = {"message": outcome.line} if outcome.line else {}
        log.write("command_finished", outcome=outcome.name, **message, seconds=seconds)

    def finish_interrupted() -> None:
        finish(interrupted())

    interrupts.last_words.append(finish_interrupted)
    try:
        settings = dict(context.params)
        log.write(
            "command_started", command=context.info_name, versions=package_versions(), settings=settings
        )
        with _messages_in(log, alone=target == STANDARD_ERROR):
            yield log
        finish(Outcome("done", 0))
    except BaseException as error:
        bug = Outcome("error", 1, " ".join(f"{type(error).__name__}: {error}".split()))
        with suppress(LogError):  # the log itself may have failed
            finish(outcome_of(error) or bug)
        raise
    finally:
        with suppress(ValueError):  # called already
            interrupts.last_words.remove(finish_interrupted)
        log.close()


@contextmanager
def _messages_in(log: JsonLog, *, alone: bool) -> Iterator[None]:
    """Also write the messages of the package to the log, or only to the log."""
    package = logging.getLogger("streaming_jsmf")
    handlers = package.handlers
    package.handlers = [log] if alone else [*handlers, log]
    try:
        yield
    finally:
        package.handlers = handlers


@contextmanager
def _warned_of_missing_report() -> Iterator[None]:
    """Warn if no performance report was written because the job was already complete."""
    name = click.get_current_context().params.get("performance_report")

    def modified() -> int | None:
        return Path(name).stat().st_mtime_ns if name is not None and Path(name).exists() else None

    before = modified()
    yield
    if name is not None and modified() == before:
        logger.warning("%s: not written, since there was nothing left to run on the cluster", name)
