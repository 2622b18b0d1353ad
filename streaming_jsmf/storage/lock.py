"""One writer at a time: a file next to a store, locked by the system until the writing process ends.

The lock file exists from before the first change until the cleanup is complete, and names its owner. One that nobody
holds was left by a killed process, and the next owner of the lock cleans up after it. Reading (``left_behind``) changes
nothing.
"""

from __future__ import annotations

import errno
import getpass
import logging
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from streaming_jsmf.errors import InputError
from streaming_jsmf.process_limits import require_no_import
from streaming_jsmf.storage.local import names_beside, walk
from streaming_jsmf.storage.paths import Place, StorePath
from streaming_jsmf.storage.replace import (
    OF_A_WRITER,
    PASSING,
    clear_leftovers,
    finish_replacing,
    leftovers,
    real_path,
)

logger = logging.getLogger(__name__)

#: Timeout in seconds; retries are needed because an owner may be just deleting the opened file.
PATIENCE = 0.1

COMMAND_LENGTH = 200

#: Upper bound for the size of a lock file.
_MOST_BYTES = 4096

#: Errors of a full disk, or of a limit of the process, which do not tell where.
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


class Owner(BaseModel):
    """Owner of a lock, as stored in its file; ``started`` is in seconds since 1970 by the owner's clock."""

    model_config = ConfigDict(frozen=True, strict=True)

    user: str
    host: str
    pid: int
    command: str
    started: FiniteFloat

    def __str__(self) -> str:
        # The file is untrusted, and messages must be one line.
        return " ".join(f"{self.user}@{self.host}, process {self.pid} ({self.command})".split())


def this_process() -> Owner:
    words = " ".join([_program(), *sys.argv[1:]]).split()
    return Owner(
        user=_as_unicode(_user()),
        host=_as_unicode(socket.gethostname()),
        pid=os.getpid(),
        command=_as_unicode(" ".join(words))[:COMMAND_LENGTH],
        started=time.time(),
    )


def lock_path(store: Path) -> Path:
    """Return the path of the lock of a local store, with links resolved."""
    place = real_path(store)
    return place.with_name(f".{place.name}.lock.json")


def work_place(store: Place) -> Place:
    """Return the working directory of a store: ``NAME.partial`` next to it."""
    return store.with_name(f"{store.name}.partial")


def is_left(store: StorePath) -> bool:
    """Whether a process is writing a store, or was killed before its cleanup."""
    return isinstance(store, Path) and (
        os.path.lexists(lock_path(store)) or bool(leftovers(store) + leftovers(work_place(store)))
    )


def left_behind(store: StorePath) -> list[Path]:
    """Return locks, working directories and temporary files next to and inside a local store, in use or left over."""
    if not isinstance(store, Path):
        return []
    place = real_path(store)
    name = re.escape(place.name)
    own = re.compile(rf"{name}\.partial|\.{name}(\.partial)?\.{PASSING}")
    found = [place.with_name(each) for each in names_beside(place) if own.fullmatch(each)]
    for folder, directories, files in walk(place):
        passing = {each for each in (*directories, *files) if OF_A_WRITER.fullmatch(each)}
        directories[:] = [each for each in directories if each not in passing]
        found += [Path(folder, each) for each in passing]
    return sorted(found)


def recover(store: StorePath) -> None:
    """Clean up after a killed writer of a store; a running writer is left alone."""
    if not isinstance(store, Path) or is_left(store):
        # Cleanup is optional, so failures, such as on a read-only medium, are ignored.
        with suppress(InputError, OSError), sole_writer(store):
            pass


def read_owner(place: Path) -> Owner | None:
    """Return the owner stored in a lock file; None if it is missing or unreadable."""
    try:
        with place.open("rb") as file:
            return _parse(file.read(_MOST_BYTES))
    except OSError:
        return None


@contextmanager
def sole_writer(store: StorePath) -> Iterator[None]:
    """Hold the lock of a local ``store`` during the block; stores behind URLs have no locks.

    Leftovers of a killed process are removed on entry, and a replacement that it began is completed. Raises
    ``InputError`` if another process holds the lock; the message names it. An error of a full disk names the directory.
    """
    require_no_import()
    if not isinstance(store, Path):
        # Object stores have no locks; two writers commit the same bytes and only waste time.
        finish_replacing(store)
        yield
        return
    place = lock_path(store)
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_non_file(place)
    file = _LockFile(store)
    lock = FileLock(place, PATIENCE, thread_local=False, fallback_to_soft=False, on_acquired=file.take)
    try:
        lock.acquire(poll_interval=PATIENCE / 4)
    except Timeout:
        raise InputError(_refusal(store, read_owner(place))) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logger.warning("%s: no locks on this file system; let no other process write there", store)
    try:
        if file.was_left or leftovers(store) or leftovers(work_place(store)):
            for path in (*clear_leftovers(store), *clear_leftovers(work_place(store))):
                logger.info("%s: removed; it was left by a run that was killed", path)
        yield
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            raise OSError(error.errno, os.strerror(error.errno), str(place.parent)) from error
        raise
    finally:
        # Delete before releasing: a process that has opened the file meanwhile notices and creates a new one.
        file.remove(place)
        lock.release()


class _LockFile:
    """The lock file, ours after ``take``; ``was_left`` is whether a killed process left it."""

    def __init__(self, store: Path) -> None:
        self.was_left = False
        self._store = store
        self._status: os.stat_result | None = None

    def take(self, descriptor: int) -> None:
        """Overwrite the file of a dead process, if any, with our own entry."""
        self._status = os.fstat(descriptor)
        if left := os.read(descriptor, _MOST_BYTES):
            self.was_left = True
            dead = _parse(left) or "a process that cannot be read"
            logger.warning("%s: the lock of %s is broken: its process has ended", self._store, dead)
        with suppress(OSError):  # for example a full disk; the contents only inform other processes
            _write(descriptor, this_process())

    def remove(self, place: Path) -> None:
        """Delete the file if it is still the locked one, or if locking was not possible."""
        with suppress(OSError):  # already deleted, or still open on Windows
            if self._status is None or os.path.samestat(place.lstat(), self._status):
                place.unlink()


def _remove_non_file(place: Path) -> None:
    """Delete a link or pipe in place of the lock file, which would redirect or block writes."""
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise InputError(f"{place}: a directory with the name of a lock; move it away")
    if not stat.S_ISREG(mode):
        logger.warning("%s: is not a file, so it is no lock and is deleted", place)
        place.unlink(missing_ok=True)


def _write(descriptor: int, owner: Owner) -> None:
    """Overwrite with one write that never shrinks the file: a kill leaves either the old or the new contents."""
    text = owner.model_dump_json(indent=1).encode()
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.write(descriptor, text.ljust(os.fstat(descriptor).st_size))


def _parse(data: bytes) -> Owner | None:
    try:
        return Owner.model_validate_json(data)
    except ValidationError:
        return None


def _refusal(store: Path, owner: Owner | None) -> str:
    if owner is None:
        return f"{store}: another process is writing it; wait until it has ended"
    from dask.utils import format_time

    seconds = format_time(max(time.time() - owner.started, 0))
    return f"{store}: {owner} has been writing it for {seconds}; wait until it has ended"


def _program() -> str:
    """Name of the program; for ``python -m PACKAGE`` the package."""
    path = Path(sys.argv[0])
    return path.parent.name if path.name == "__main__.py" else path.name


def _as_unicode(text: str) -> str:
    """Escape bytes that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"
