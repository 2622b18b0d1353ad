"""One writer at a time: a small file beside a store says who writes it, since when, and that it is still at work.

The lock lies beside the store and not within, so that it is there before the store is, and stays when the store is
deleted or swapped for another. It holds no part of a result.
"""

from __future__ import annotations

import getpass
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from dask.utils import format_time

from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.paths import StorePath

logger = logging.getLogger(__name__)

#: Seconds between two signs of life.
BEAT_SECONDS = 5.0

#: Without a sign of life for so long a lock is broken; more than clocks of different machines may differ.
LIMIT_SECONDS = 60.0

#: Where nothing can be created exclusively: how long to wait for one who saw no lock either and writes later.
SETTLE_SECONDS = 2.0

COMMAND_LENGTH = 200


@dataclass(frozen=True)
class Owner:
    """Who holds a lock, as it stands in the file.

    Attributes
    ----------
    token
        Tells one holder from another, whatever else they share.
    user, host, pid, command
        For the message.
    processes
        The space that ``pid`` belongs to: containers may share the name of a host and count processes of their own.
    started, heartbeat
        Seconds since 1970, by the clock of the holder.
    """

    token: str
    user: str
    host: str
    processes: str
    pid: int
    command: str
    started: float
    heartbeat: float

    def __str__(self) -> str:
        return f"{self.user}@{self.host}, process {self.pid} ({self.command})"


def this_process() -> Owner:
    """Return this process as an owner whose life begins now."""
    now = time.time()
    words = " ".join([_program(), *sys.argv[1:]]).split()
    return Owner(
        uuid.uuid4().hex,
        _user(),
        socket.gethostname(),
        _process_space(),
        os.getpid(),
        " ".join(words)[:COMMAND_LENGTH],
        now,
        now,
    )


def lock_path(store: Path) -> Path:
    """Where the lock of a local store lies, whatever the way to it."""
    place = Path(os.path.realpath(store))
    return place.with_name(f".{place.name}.lock.json")


def read_owner(place: Path) -> Owner | None:
    """Return who holds the lock at ``place``; None if nobody does, or the file does not tell."""
    try:
        return Owner(**json.loads(place.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None


@contextmanager
def sole_writer(store: StorePath) -> Iterator[None]:
    """Hold the lock of ``store`` while the block runs; there is none for a store behind a URL.

    A lock is broken, with a line in the log, if its process on this host has ended or it has shown no sign of life
    for ``LIMIT_SECONDS``. A holder that stood still for so long and finds another in its place is interrupted.

    Raises
    ------
    InputError
        If another process holds it, or has taken it over: says who, and for how long.
    """
    if not isinstance(store, Path):
        # An object store creates nothing exclusively; two writers there commit the same and harm nothing but time.
        yield
        return
    place = lock_path(store)
    lock = _Lock(store, place, this_process())
    place.parent.mkdir(parents=True, exist_ok=True)
    lock.take()
    try:
        yield
    except KeyboardInterrupt:
        if lock.taken_over_by is None:
            raise
    finally:
        lock.release()
    if lock.taken_over_by is not None:
        raise InputError(
            f"{store}: this process stood still, and {lock.taken_over_by} has taken over; run the same command again "
            "when that has ended"
        )


@contextmanager
def sole_user(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` while the block runs; the system lets go of it when the process ends, however.

    Raises
    ------
    InputError
        If another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # no such locks there
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{path.parent} is in use by another process; wait until it has ended"
            ) from error
        yield


class _Lock:
    """A lock and the thread that keeps it alive."""

    def __init__(self, store: Path, place: Path, owner: Owner) -> None:
        self.store, self.place, self.owner = store, place, owner
        self.taken_over_by: Owner | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="lock", daemon=True)
        self._taker = threading.current_thread()

    def take(self) -> None:
        with _alone(self.place.parent):
            found = read_owner(self.place)
            if found is not None:
                self._break(found)
            elif self.place.exists():
                # Locks are written whole, so this one was damaged, not half written.
                logger.warning("%s: the lock cannot be read and is broken", self.place)
                self.place.unlink(missing_ok=True)
            if not self._create():
                raise InputError(_refusal(self.store, read_owner(self.place)))
        self._thread.start()

    def release(self) -> None:
        self._stop.set()
        self._thread.join()
        found = read_owner(self.place)
        if found is not None and found.token == self.owner.token:
            self.place.unlink(missing_ok=True)

    def _break(self, found: Owner) -> None:
        silent = time.time() - found.heartbeat
        if _has_ended(found, self.owner):
            reason = "its process has ended"
        elif silent > LIMIT_SECONDS:
            reason = f"it has shown no sign of life for {format_time(silent)}"
        else:
            raise InputError(_refusal(self.store, found))
        logger.warning("%s: the lock of %s is broken: %s", self.store, found, reason)
        self.place.unlink(missing_ok=True)
        _draft(self.place, found).unlink(missing_ok=True)

    def _create(self) -> bool:
        """Whether the lock is ours now; it appears with its content or not at all."""
        draft = _draft(self.place, self.owner)
        draft.write_text(self._text(), encoding="utf-8")
        try:
            os.link(draft, self.place)
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return self._create_and_read_back()
        finally:
            draft.unlink(missing_ok=True)
        return True

    def _create_and_read_back(self) -> bool:
        """The last of several that saw no lock has it: all wait, and look."""
        self.place.write_text(self._text(), encoding="utf-8")
        time.sleep(SETTLE_SECONDS)
        return self._is_ours()

    def _is_ours(self) -> bool:
        found = read_owner(self.place)
        return found is not None and found.token == self.owner.token

    def _text(self) -> str:
        return json.dumps(asdict(replace(self.owner, heartbeat=time.time())), indent=1)

    def _live(self) -> None:
        while not self._stop.wait(BEAT_SECONDS):
            # A full disk or a network that is away for a moment: the next beat may do better.
            with suppress(OSError):
                if not self._beat():
                    return

    def _beat(self) -> bool:
        """Write the time; False if the lock has become another's."""
        if self._is_ours():
            draft = _draft(self.place, self.owner)
            draft.write_text(self._text(), encoding="utf-8")
            draft.replace(self.place)
            return True
        found = read_owner(self.place)
        if found is None:
            return self._create()
        self.taken_over_by = found
        logger.error("%s: %s has taken over; this process ends", self.store, found)
        if self._taker is threading.main_thread():
            _interrupt_main_thread()
        return False


def _refusal(store: Path, found: Owner | None) -> str:
    if found is None:
        return f"{store}: another process has just begun to write it; wait until it has ended"
    now = time.time()
    return (
        f"{store}: {found} has been writing it for {format_time(max(now - found.started, 0))} (last sign of life "
        f"{format_time(max(now - found.heartbeat, 0))} ago); wait until it has ended"
    )


def _draft(place: Path, owner: Owner) -> Path:
    return place.with_name(f"{place.name}.{owner.token}")


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Others on this host wait meanwhile: of two that break one lock the second would break that of the first."""
    try:
        import fcntl
    except ImportError:  # no such locks there
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        with suppress(OSError):  # nor on every file system
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _interrupt_main_thread() -> None:
    """As Ctrl-C does: it wakes the main thread, which may be waiting for tasks."""
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def _has_ended(found: Owner, here: Owner) -> bool:
    """Whether the process is known to have ended; one of another host or container may live for all we know."""
    if (found.host, found.processes) != (here.host, here.processes):
        return False
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # another user's
        return False
    return _is_zombie(found.pid)


def _is_zombie(pid: int) -> bool:
    """A process that was killed stays in the table until its parent looks; some parents never do."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["Z"]


def _program() -> str:
    """Name of what was started; of ``python -m PACKAGE`` the package."""
    path = Path(sys.argv[0])
    return path.parent.name if path.name == "__main__.py" else path.name


def _process_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"
