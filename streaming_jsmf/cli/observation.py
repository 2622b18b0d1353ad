"""Observation of a long verb: progress on standard error, the JSON log, and a note on a missing report."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import click

from streaming_jsmf.cli import interrupts
from streaming_jsmf.cli.log_json import STANDARD_ERROR, JsonLog, MessageLog
from streaming_jsmf.cli.outcome import Outcome, interrupted, outcome_of
from streaming_jsmf.cli.progress import progress_listener
from streaming_jsmf.errors import LogError
from streaming_jsmf.jobs.events import Listener, combine
from streaming_jsmf.storage.provenance import package_versions

logger = logging.getLogger(__name__)


@contextmanager
def observed(log_json: str | None, *, quiet: bool = False) -> Iterator[Listener]:
    """Yield the listener of the verb that runs in the block.

    Parameters
    ----------
    log_json
        File for JSON lines, or ``-`` for standard error, which then gets nothing else. None: no log.
    quiet
        No progress and messages on standard error; the JSON log has them.

    Raises
    ------
    LogError
        If the log cannot be written.
    """
    listeners: list[Listener] = []
    with ExitStack() as stack:
        if quiet:
            stack.enter_context(_without_messages())
        elif log_json != STANDARD_ERROR:
            progress = progress_listener()
            stack.callback(progress.close)
            listeners.append(progress)
        if log_json is not None:
            listeners.append(stack.enter_context(_logged(log_json)))
        stack.enter_context(_note_on_missing_report())
        yield combine(*listeners)


@contextmanager
def _without_messages() -> Iterator[None]:
    """Print only warnings and errors."""
    handlers = logging.getLogger("streaming_jsmf").handlers[:]
    levels = [handler.level for handler in handlers]
    for handler in handlers:
        handler.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for handler, level in zip(handlers, levels, strict=True):
            handler.setLevel(level)


@contextmanager
def _logged(target: str) -> Iterator[JsonLog]:
    started, context = time.monotonic(), click.get_current_context()
    log = JsonLog(target)

    def finish(outcome: Outcome) -> None:
        seconds = round(time.monotonic() - started, 3)
        message = {"message": outcome.line} if outcome.line else {}
        log.write("command_finished", outcome=outcome.name, **message, seconds=seconds)

    def give_up() -> None:
        finish(interrupted())

    interrupts.last_words.append(give_up)
    try:
        log.write(
            "command_started",
            command=context.info_name,
            versions=package_versions(),
            settings=dict(context.params),
        )
        with _messages_in(log, alone=target == STANDARD_ERROR):
            yield log
        finish(Outcome("done", 0))
    except BaseException as error:
        fault = Outcome("error", 1, " ".join(f"{type(error).__name__}: {error}".split()))
        # The log itself may be what failed.
        with suppress(LogError):
            finish(outcome_of(error) or fault)
        raise
    finally:
        with suppress(ValueError):  # said already
            interrupts.last_words.remove(give_up)
        log.close()


@contextmanager
def _messages_in(log: JsonLog, *, alone: bool) -> Iterator[None]:
    """Write the messages of the package to the log, too, or to the log alone."""
    ours = logging.getLogger("streaming_jsmf")
    handlers = ours.handlers
    ours.handlers = [MessageLog(log)] if alone else [*handlers, MessageLog(log)]
    try:
        yield
    finally:
        ours.handlers = handlers


@contextmanager
def _note_on_missing_report() -> Iterator[None]:
    """A job that is already complete starts no cluster, and so writes no performance report; say so."""
    name = click.get_current_context().params.get("performance_report")
    before = _written(name)
    yield
    if name is not None and _written(name) == before:
        logger.warning("%s: not written, since there was nothing left to run on the cluster", name)


def _written(name: str | None) -> int | None:
    """Modification time of the file."""
    if name is None or not Path(name).exists():
        return None
    return Path(name).stat().st_mtime_ns
