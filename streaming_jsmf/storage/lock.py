"""One writer at a time: a file beside a store that the system locks for as long as the process lives.

The file lies beside the store and not within, so that it is there before the store is, and stays when the store is
deleted or swapped for another. It is made before anything is changed, and deleted when all is cleared up: one that
nobody holds is of a process that was killed at work (``is_left``), and who takes the lock next clears what that process
has left of the way from one state to the next. What is written in the file names its owner to others, and says which
result was about to be put in place (``announce_commit``): so the same command, run again, knows its own work. Reading
(``left_behind``) changes nothing.
"""

from __future__ import annotations

import errno
import getpass
import hashlib
import logging
import os
import re
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dask.utils import format_time
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.paths import Place, StorePath, is_free, read_bytes, write_bytes
from streaming_jsmf.storage.replace import clear_leftovers, has_leftovers, real_path, remove_store

logger = logging.getLogger(__name__)

#: Seconds to try: of one who is just letting go, the file that was opened is none any more.
PATIENCE = 0.1

COMMAND_LENGTH = 200

#: More than any owner takes.
_MOST_BYTES = 4096

#: What ends the names of locks and of what is written beside, and such names within a store.
_PASSING = r"(new|old|lock\.json|[0-9a-f]{32})"
_OF_A_WRITER = re.compile(rf"\..+\.{_PASSING}|.+\.partial")

_NO_LOCKS = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK}


class Owner(BaseModel):
    """Who holds a lock, as it stands in the file; ``started`` is in seconds since 1970, by the clock of the owner.

    ``commits`` is the fingerprint of the result that is about to be put in place, and may be there already; empty
    before. ``work`` says whether the work for it was done at ``work_place``.
    """

    model_config = ConfigDict(frozen=True, strict=True)

    user: str
    host: str
    pid: int
    command: str
    started: FiniteFloat
    commits: str = ""
    work: bool = False

    def __str__(self) -> str:
        # Anybody may have written the file; a message is one line.
        return " ".join(f"{self.user}@{self.host}, process {self.pid} ({self.command})".split())


def this_process() -> Owner:
    """Return this process as an owner from now on."""
    words = " ".join([_program(), *sys.argv[1:]]).split()
    return Owner(
        user=_as_unicode(_user()),
        host=_as_unicode(socket.gethostname()),
        pid=os.getpid(),
        command=_as_unicode(" ".join(words))[:COMMAND_LENGTH],
        started=time.time(),
    )


def lock_path(store: Path) -> Path:
    """Where the lock of a local store lies, whatever the way to it."""
    place = real_path(store)
    return place.with_name(f".{place.name}.lock.json")


def work_place(store: Place) -> Place:
    """Where the work for a store is done until its result is put in place: ``NAME.partial`` beside it."""
    return store.with_name(f"{store.name}.partial")


def is_left(store: StorePath) -> bool:
    """Whether a process writes a store, or one that did was killed before it had cleared up."""
    return isinstance(store, Path) and (os.path.lexists(lock_path(store)) or has_leftovers(store))


def left_behind(store: StorePath) -> list[Path]:
    """Locks, work and temporary files beside a local store and within: of a process at work, or of one that was killed.

    Reads directories and nothing else.
    """
    if not isinstance(store, Path):
        return []
    place = real_path(store)
    name = re.escape(place.name)
    own = re.compile(rf"{name}\.partial|\.{name}(\.partial)?\.{_PASSING}")
    found = [path for path in place.parent.glob("*") if own.fullmatch(path.name)]
    for folder, directories, files in os.walk(place):
        passing = {each for each in (*directories, *files) if _OF_A_WRITER.fullmatch(each)}
        directories[:] = [each for each in directories if each not in passing]
        found += [Path(folder, each) for each in passing]
    return sorted(found)


def recover(store: StorePath) -> None:
    """Clear what a killed process has left of its writing of a store; what one that lives does is its own."""
    if is_left(store):
        # Nobody else's work depends on it: on a medium that is read only it stays.
        with suppress(InputError, OSError), sole_writer(store):
            pass


def announce_commit(store: StorePath, result: str, *, work: bool = False) -> None:
    """Say in our lock that the result with this fingerprint is about to be put in place.

    Parameters
    ----------
    work
        Whether the work was done at ``work_place``, which is then of no use once the result is there.
    """
    if isinstance(store, Path) and (owner := read_owner(lock_path(store))) is not None:
        told = owner.model_copy(update={"commits": result, "work": work})
        with suppress(OSError), lock_path(store).open("r+b") as file:
            _write(file.fileno(), told)


def write_alone(target: StorePath, data: bytes, refuse: Callable[[], None] = lambda: None) -> None:
    """Write a file under its lock, in one step; a killed run's temporary file is removed.

    Parameters
    ----------
    refuse
        Raises if a file that is there may not be replaced; not called if a killed run has written this very one.
    """
    known = hashlib.sha256(data).hexdigest()
    with sole_writer(target) as committed:
        if committed == known and not is_free(target) and read_bytes(target) == data:
            return
        refuse()
        announce_commit(target, known)
        write_bytes(target, data)


def read_owner(place: Path) -> Owner | None:
    """Return who wrote the lock file at ``place``; None if there is none, or it does not tell."""
    try:
        with place.open("rb") as file:
            return _parse(file.read(_MOST_BYTES))
    except OSError:
        return None


@contextmanager
def sole_writer(store: StorePath) -> Iterator[str]:
    """Hold the lock of ``store`` while the block runs; there is none for a store behind a URL.

    The system lets go of it when the process ends, however it ends. A line in the log tells of a file that an ended
    process has left, and of a file system that has no locks, where none is held. What such a process has left of a
    change is cleared before the block begins; what it said of its result stays in the file if the block fails.

    Yields
    ------
    str
        What a killed process was about to put in place, and may have (``announce_commit``); empty as a rule.

    Raises
    ------
    InputError
        If another process holds it: says who, and for how long.
    """
    if not isinstance(store, Path):
        # An object store has no locks; two writers there commit the same and harm nothing but time.
        yield ""
        return
    place = lock_path(store)
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_what_is_no_file(place)
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
    committed, failed = file.left.commits if file.left else "", True
    try:
        if file.was_left or has_leftovers(store) or has_leftovers(work_place(store)):
            _clear(store, file.left)
        yield committed
        failed = False
    finally:
        if not (failed and committed):
            # First deleted, then let go: who has opened it meanwhile sees that it is no more, and makes another.
            file.remove(place)
        lock.release()


def _clear(store: Path, left: Owner | None) -> None:
    """Finish for a killed process, or undo, what lies between two states of a store."""
    work = work_place(store)
    rests = [*clear_leftovers(store), *clear_leftovers(work)]
    if left is not None and left.commits and left.work and store.exists() and work.exists():
        remove_store(work)
        rests.append(work)
    for rest in rests:
        logger.info("%s: removed; a run that was killed had left it", rest)


class _LockFile:
    """The file of a lock: ours from ``take`` on, if the system has locks.

    ``was_left`` says whether a process that was killed had it before, and ``left`` which, if it can be read.
    """

    def __init__(self, store: Path) -> None:
        self.was_left = False
        self.left: Owner | None = None
        self._store = store
        self._status: os.stat_result | None = None

    def take(self, descriptor: int) -> None:
        """Write our name over what an ended process has left."""
        self._status = os.fstat(descriptor)
        left, owner = os.read(descriptor, _MOST_BYTES), this_process()
        if left:
            self.was_left, self.left = True, _parse(left)
            dead = self.left or "a process that cannot be read"
            logger.warning("%s: the lock of %s is broken: its process has ended", self._store, dead)
        if self.left is not None:
            # Until we put in place what is ours, a kill must not lose what was told before.
            owner = owner.model_copy(update=self.left.model_dump(include={"commits", "work"}))
        with suppress(OSError):  # a full disk; it is but for the others to read
            _write(descriptor, owner)

    def remove(self, place: Path) -> None:
        """Delete the file, if it is still the one that was locked, or nothing could be."""
        with suppress(OSError):  # gone already; or open, which Windows does not delete
            if self._status is None or os.path.samestat(place.lstat(), self._status):
                place.unlink()


def _remove_what_is_no_file(place: Path) -> None:
    """A link or a pipe is no lock of ours, and would lead elsewhere or block."""
    try:
        mode = place.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise InputError(f"{place}: a directory is in the place of a lock; move it away")
    if not stat.S_ISREG(mode):
        logger.warning("%s: is no file, so no lock, and is deleted", place)
        place.unlink(missing_ok=True)


def _write(descriptor: int, owner: Owner) -> None:
    """Over what is there, in one write and never shorter: a kill leaves the one or the other, both of them whole."""
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
    seconds = format_time(max(time.time() - owner.started, 0))
    return f"{store}: {owner} has been writing it for {seconds}; wait until it has ended"


def _program() -> str:
    """Name of what was started; of ``python -m PACKAGE`` the package."""
    path = Path(sys.argv[0])
    return path.parent.name if path.name == "__main__.py" else path.name


def _as_unicode(text: str) -> str:
    """Bytes of a path that are no UTF-8 are spelled out."""
    return text.encode(errors="backslashreplace").decode()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"
