"""The JSON log: one object per line and event, as in ``docs/schemas/log.schema.json``."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO

from streaming_jsmf.display import for_json, location, printable
from streaming_jsmf.errors import LogError
from streaming_jsmf.jobs.events import (
    Event,
    Iteration,
    Meter,
    PartitionCommitted,
    StageFinished,
    StageStarted,
)
from streaming_jsmf.process_limits import peak_memory
from streaming_jsmf.storage.results import utc_now

#: Version of the lines, which each of them has: a new event or field does not change it.
SCHEMA = 1
#: Name of standard error as the target of a log.
STANDARD_ERROR = "-"
#: Longest first line in bytes; it has the settings of a command.
_LONGEST_LINE = 2**20


class JsonLog(logging.Handler):
    """Appends JSON lines to a file, or writes them to standard error for ``-``, without buffering.

    A line is an event of a job, of which the log is a listener, or a message of the package, of which it is a handler.
    Messages about progress are omitted. Raises ``LogError``, also in every call, if a line cannot be written.
    """

    def __init__(self, target: str) -> None:
        super().__init__()
        self.addFilter(lambda record: record.name != "streaming_jsmf.progress")
        self.meter = Meter()
        self._target = target
        try:
            self._file = _opened(target)
        except OSError as error:
            raise self._failure(error) from error

    def __call__(self, event: Event) -> None:
        meter = self.meter
        meter.see(event)
        stage = {"stage": event.stage, "done": meter.done, "total": meter.total, "unit": meter.unit}
        rate, left = meter.rate, meter.eta_seconds
        speed = {
            **stage,
            "rate": None if rate is None else round(rate, 3),
            "eta_seconds": None if left is None else round(left, 1),
        }
        match event:
            case StageStarted():
                self.write("stage_started", size=meter.total_size, **stage)
            case PartitionCommitted():
                cost = event.cost.fields() if event.cost else {"seconds": None, "peak_memory": None}
                self.write("committed", index=event.index, size=event.size, **cost, **speed)
            case Iteration():
                memory, measures = peak_memory(), dict(event.measures)
                self.write(
                    "iteration", index=event.number, size=1, peak_memory=memory, measures=measures, **speed
                )
            case StageFinished():
                seconds = round(event.seconds, 3)
                self.write("stage_finished", seconds=seconds, peak_memory=meter.peak_memory, **stage)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line of a message, and of its event (``as_event``); an own error is not hidden, as others do."""
        if event := getattr(record, "event", None):
            self.write(**event)
        self.write("message", level=record.levelname.lower(), text=record.getMessage())

    def write(self, event: str, **fields: Any) -> None:
        """Write a line with the time, the event and ``fields``; NaN becomes null, and URLs lose their secrets."""
        values = {"schema": SCHEMA, "time": utc_now(), "event": event, **fields}
        # Paths may not be valid UTF-8, and standard error may be a terminal.
        line = printable(json.dumps(for_json(values, location), ensure_ascii=False, allow_nan=False))
        self.acquire()  # events and messages come from several threads
        try:
            _write_all(self._file, f"{line}\n".encode())
        except OSError as error:
            raise self._failure(error) from error
        finally:
            self.release()

    def close(self) -> None:
        super().close()
        if self._target != STANDARD_ERROR:
            self._file.close()

    def _failure(self, error: OSError) -> LogError:
        name = "standard error" if self._target == STANDARD_ERROR else self._target
        return LogError(
            f"--log-json {name}: {error.strerror or error}; give a writable file, and run the same command again"
        )


def require_log(target: str, given: Iterable[object]) -> None:
    """Raise ``LogError`` if writing to ``target`` would change anything but a log of ours.

    ``given`` are the parameters of the command. Refused are paths that it names or that match or lie below one of them,
    block devices, and files that do not begin with a line of ``JsonLog``.
    """
    if target == STANDARD_ERROR:
        return
    path, named = Path(os.path.realpath(target)), Path(target)
    for name in (each for some in given for each in (some if isinstance(some, tuple) else (some,))):
        if not isinstance(name, str | Path):
            continue
        place = Path(os.path.realpath(name))
        if fnmatch(str(path), str(place)) or (place.is_dir() and path.is_relative_to(place)):
            raise _refused(target, f"is {name} or lies inside it, which this command reads or writes")
    if named.is_block_device() or (named.is_file() and not _begins_as_log(named)):
        raise _refused(target, "is not a log of this program, and nothing is appended to it")


def _refused(target: str, reason: str) -> LogError:
    return LogError(f"--log-json {target}: {reason}; give another file")


def _begins_as_log(path: Path) -> bool:
    """Whether a file is empty or its first line has the fields of ``JsonLog``."""
    with path.open("rb") as file:
        line = file.readline(_LONGEST_LINE)
    try:
        return not line or {"time", "event"} <= {*dict(json.loads(line))}
    except (TypeError, ValueError):
        return False


def _opened(target: str) -> BinaryIO:
    """Open the target at the start of a line, since a killed run may have left an incomplete one."""
    if target == STANDARD_ERROR:
        sys.stderr.flush()
        return sys.stderr.buffer
    file = open(target, "ab", buffering=0)  # noqa: PTH123, SIM115
    try:
        if os.path.isfile(target) and os.path.getsize(target):  # noqa: PTH113, PTH202
            with open(target, "rb") as written:  # noqa: PTH123
                written.seek(-1, os.SEEK_END)
                if written.read(1) != b"\n":
                    _write_all(file, b"\n")
    except OSError:
        file.close()
        raise
    return file


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Write all data, since an unbuffered file may accept only part of it."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]
    file.flush()
