"""Writing so that a reader sees all of it or nothing."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streaming_jsmf.errors import InputError


def fsync_directory(path: Path) -> None:
    """Make a rename inside ``path`` survive a crash of the machine (POSIX only; elsewhere a no-op)."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` in one step: beside, fsync, rename."""
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    fsync_directory(path.parent)


def local_path(path: str | os.PathLike[str], what: str) -> Path:
    """Return ``path`` as a local path; stores are directories that are renamed into place.

    Raises
    ------
    InputError
        If it is a URL.
    """
    text = os.fspath(path)
    if "://" in text or text.startswith("file:"):
        raise InputError(f"{text}: {what} must be a local directory; give a path without a scheme")
    return Path(text)


@contextmanager
def directory_written_beside(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty directory beside ``target`` that takes its place when the block ends well.

    On an error the directory is removed and ``target`` stays as it was. With ``overwrite`` an existing
    target goes only after the new one is complete.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    beside.mkdir()
    try:
        yield beside
        if overwrite and target.exists():
            old = target.with_name(f".{target.name}.{uuid.uuid4().hex}.old")
            target.rename(old)
            beside.rename(target)
            shutil.rmtree(old)
        else:
            beside.rename(target)
        fsync_directory(target.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


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
