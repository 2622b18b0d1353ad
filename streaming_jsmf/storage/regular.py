"""Files of users that may be read: regular files, not named pipes, sockets or devices."""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from streaming_jsmf.errors import InputError, StreamingJSMFError

#: Types of files that have no end, or wait for another process.
_ENDLESS = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def require_regular(path: Path, error: type[StreamingJSMFError] = InputError) -> Path:
    """Return a local path; raise ``error`` for a named pipe, socket or device, whose reading may never end.

    Links are followed. Directories and what cannot be inspected pass: opening them reports the reason.
    """
    with suppress(OSError, ValueError):
        if kind := _ENDLESS.get(stat.S_IFMT(path.stat().st_mode)):
            raise error(
                f"{path} is a {kind}, not a regular file, and is not read; replace it by a regular file"
            )
    return path


def is_no_directory(path: Path) -> bool:
    """Whether something that is opened as a file exists, even if ``require_regular`` refuses it."""
    return path.exists() and not path.is_dir()
