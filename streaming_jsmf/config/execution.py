"""How a job runs. It changes the time and memory that a job needs, never a bit of its result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streaming_jsmf.config.fields import Settings, setting
from streaming_jsmf.errors import InputError, option

EXECUTION = "Execution (does not change the result)"

_setting = partial(setting, group=EXECUTION)


def parse_memory(size: Any) -> Any:
    """Return the bytes of a size such as ``4GB`` or ``500 MiB``; numbers and None are returned unchanged.

    Raises ``InputError`` if the text is not a size.
    """
    if not isinstance(size, str):
        return size
    from dask.utils import parse_bytes

    try:
        # Dask reads a unit without a number as one of it.
        found = int(parse_bytes(size)) if any(character.isdigit() for character in size) else 0
    except (ValueError, OverflowError):
        found = 0
    if found <= 0:
        raise InputError(f"{option.memory} is {size!r}; give a size such as 4GB or 500MiB")
    return found


def _path(given: Any) -> Any:
    return Path(given) if isinstance(given, str) else given


@dataclass(frozen=True)
class ExecutionOptions(Settings):
    """How a job runs.

    Parameters
    ----------
    scheduler
        Dask scheduler: threads, processes, synchronous, cluster (local processes), or the address of a
        running one, such as tcp://HOST:PORT.
    workers
        Number of concurrent tasks.
    memory
        Memory limit for all workers together, such as 4GB.
    performance_report
        Write Dask's performance report to this HTML file. Requires scheduler cluster or an address, with
        bokeh installed.
    """

    scheduler: str = _setting("threads")
    workers: int | None = _setting(None, absent="one per core", ge=1)
    memory: int | None = _setting(None, absent="no limit", metavar="SIZE", parse=parse_memory)
    performance_report: Path | None = _setting(
        None, absent="none", metavar="FILE.html", rare=True, parse=_path
    )
