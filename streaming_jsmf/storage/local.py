"""Local files that users name: what a name stands for, why none can have it, and which files are read.

Only regular files are read: the reading of a named pipe, socket or device may never end.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import dropwhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StreamingJSMFError

logger = logging.getLogger(__name__)

#: Advice where a text may have been given instead of a path.
CHECK_OR_LIST = "check the path, or give texts as a list or in a file"

#: A need of this many bytes on disk is announced.
MUCH = 10**8

LOCAL_SCHEMES = ("file", "local")
#: What precedes the path in the URLs of RFC 8089, such as file:///path, file://localhost/path and file:/path.
_LOCAL_URL = re.compile(r"(?:file|local):(?://(?:localhost(?=/))?|(?=/))", re.IGNORECASE)

#: Types of files that have no end, or wait for another process.
_ENDLESS = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


def local_name(text: str) -> str:
    """Strip a local scheme and expand ``~``; raise ``InputError`` for names that are not UTF-8."""
    try:
        os.fsencode(text).decode()
        text.encode()
    except UnicodeError as error:
        raise _not_encodable(text) from error
    if address := _LOCAL_URL.match(text):
        return unquote(text[address.end() :])
    if text.lower().startswith("file:"):
        raise InputError(
            f"{text} is not the URL of a file; write file:///PATH, or ./{text} for a file of this name"
        )
    # Unlike ``Path.expanduser``, this leaves names such as ~draft.csv as they are.
    return os.path.expanduser(text)  # noqa: PTH111


def _not_encodable(text: str) -> InputError:
    encoding = sys.getfilesystemencoding()
    if encoding == "utf-8":
        shown = text.encode(errors="backslashreplace").decode()
        return InputError(f"{shown}: the name is not UTF-8; rename it")
    return InputError(
        f"{text}: this locale encodes the names of files in {encoding.upper()}; set LC_ALL=C.UTF-8"
    )


def possible(path: Path, given: str) -> Path:
    """Return ``path`` so that it has a name of its own, except for the root directory.

    Raises ``InputError`` if no file can have this name: it is too long, contains NUL or follows a loop of links.
    """
    try:
        path.stat()
    except UnicodeEncodeError as error:
        raise _not_encodable(given) from error
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) or error.errno == errno.ENAMETOOLONG:
            shown = repr(given) if len(given) <= 60 else f"{given[:60]!r}... ({len(given):,} characters)"
            raise InputError(f"no file or directory can be named {shown}; {CHECK_OR_LIST}") from error
        if error.errno == errno.ELOOP:
            raise InputError(
                f"{given}: a symbolic link in this path leads back to itself; correct it"
            ) from error
    if path.name in ("", ".."):
        return Path(os.path.realpath(path))
    # A store is replaced by renaming it, and a path through it would lead nowhere in the meantime.
    through = ".." in dropwhile(lambda part: part == "..", path.parts)
    return Path(os.path.realpath(path.parent), path.name) if through else path


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


def status(path: Path) -> os.stat_result | None:
    """What is at a path, following links; None if nothing is.

    Other errors, such as "Permission denied", are raised: they do not say that nothing is there. ``Path.exists`` of
    Python 3.14 and ``os.path.exists`` return False for them.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_no_directory(path: Path) -> bool:
    """Whether something that is opened as a file exists, even if ``require_regular`` refuses it."""
    return (found := status(path)) is not None and not stat.S_ISDIR(found.st_mode)


def files_in(folder: Path) -> dict[str, tuple[int | str | None, ...] | None]:
    """Sorted names of the files directly in a folder, with size and time; None for others than regular files."""
    found = {name: status(folder / name) for name in names_in(folder)}
    return {
        name: (each.st_size, each.st_mtime_ns) if stat.S_ISREG(each.st_mode) else None
        for name, each in found.items()
        if each is not None and not stat.S_ISDIR(each.st_mode)
    }


def names_in(folder: Path) -> list[str]:
    """The sorted names in a folder, empty if it does not exist; raises other errors, unlike ``Path.glob``."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []


def names_beside(path: Path) -> list[str]:
    """The names next to a store; none in a folder that may not be listed, where nothing says what a store is."""
    try:
        return names_in(path.parent)
    except PermissionError:
        return []


def walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As ``os.walk``, which leaves out folders that cannot be listed: only those that do not exist."""

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            raise error

    return os.walk(folder, onerror=failed)


def bytes_in(folder: Any) -> int:
    """Bytes of the files below a local folder; 0 of one that does not exist, or behind a URL."""
    if not isinstance(folder, Path):
        return 0
    files = (Path(place, name) for place, _, names in walk(folder) for name in names)
    return sum(found.st_size for path in files if (found := status(path)) is not None)


def require_disk(target: Any, needed: int, what: str) -> None:
    """Log what a job needs on disk if it is much; raise ``InputError`` if the local disk of ``target`` lacks it.

    ``needed`` are the bytes that it has still to write. How much an object store may hold is unknown.
    """
    from dask.utils import format_bytes  # the command line shows its help without it

    told = f"{location(target)}: {what} needs about {format_bytes(needed)} on disk"
    if not isinstance(target, Path):
        if needed >= MUCH:
            logger.info("%s", told)
        return
    free = shutil.disk_usage(next(place for place in target.absolute().parents if place.is_dir())).free
    if needed > free:
        raise InputError(
            f"{told}, and {format_bytes(free)} are free there; free some, or give a path on another disk"
        )
    if needed >= MUCH:
        logger.info("%s; %s are free", told, format_bytes(free))
