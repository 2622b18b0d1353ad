"""Atomic creation, replacement and removal of directories, and cleanup after killed processes.

While a target ``NAME`` is written, its successor is ``.NAME.new`` next to it; between two renames its predecessor is
``.NAME.old``. Writers hold the lock of the target (``storage.lock``), so anything found when the lock is acquired is
left over. A target that is a link is written at the link's destination.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from upath import UPath

from streaming_jsmf.errors import InputError, StoreError, first_line, option
from streaming_jsmf.storage.objects import reaching
from streaming_jsmf.storage.paths import (
    MARK,
    ROOT,
    StorePath,
    fsync_directory,
    is_free,
    is_unfinished,
    node_exists,
    remove_file,
    remove_objects,
    write_bytes,
)

#: Temporary files that are renamed after writing: ours (``paths.write_bytes``) and Zarr's.
_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{32}$|\.[0-9a-f]{32}\.partial$")


def real_path(target: Path) -> Path:
    return Path(os.path.realpath(target))


def _new(target: Path) -> Path:
    return target.with_name(f".{target.name}.new")


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def has_leftovers(target: Path) -> bool:
    """Whether temporary files or directories exist next to a target."""
    return bool(_beside(real_path(target)))


def _beside(place: Path) -> list[Path]:
    found = [rest for rest in (_new(place), _old(place)) if os.path.lexists(rest)]
    written = place.parent.glob(f".{glob.escape(place.name)}.*")
    return found + [path for path in written if _TEMPORARY.search(path.name)]


def clear_leftovers(target: Path) -> list[Path]:
    """Restore the predecessor of a missing target and remove all temporary files; return the removed paths.

    The caller must hold the lock.
    """
    place = real_path(target)
    if os.path.lexists(_old(place)) and not os.path.lexists(place):
        _old(place).rename(place)
    leftovers = _beside(place) + [
        Path(folder, name) for folder, _, names in os.walk(place) for name in names if _TEMPORARY.search(name)
    ]
    for path in leftovers:
        _remove(path)
    return leftovers


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def require_outside(target: Path) -> None:
    """Raise ``InputError`` if the working directory is ``target`` or below it, since it would be deleted."""
    if Path.cwd().is_relative_to(real_path(target)):
        raise InputError(f"{target}: is the working directory and cannot be replaced; run from another one")


def require_free(
    target: StorePath, what: str, require_own: Callable[[Any], object], *, overwrite: bool
) -> None:
    """Refuse an existing path, except one of ours outside the working directory with ``overwrite``.

    ``what`` names its kind, and ``require_own`` raises ``InputError`` if the path holds something else.
    """
    if is_free(target):
        return
    if not overwrite:
        raise InputError(
            f"{target}: exists already; give another path, or {option.overwrite(True)} to replace {what}"
        )
    require_own(target)
    if isinstance(target, Path):
        require_outside(target)


def put_in_place(made: Path, target: Path) -> None:
    """Rename a file or directory to ``target``; an existing target is removed after the rename."""
    place = real_path(target)
    old = _old(place)
    if os.path.lexists(place):
        if os.path.lexists(old):  # left by a killed run on a file system without locks
            _remove(old)
        place.rename(old)
    try:
        made.rename(place)
    except BaseException:
        if os.path.lexists(old):
            old.rename(place)
        raise
    fsync_directory(place.parent)
    if os.path.lexists(old):
        _remove(old)


@contextmanager
def directory_written_beside(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield an empty directory next to ``target`` that is renamed to it when the block succeeds.

    On an error the directory is removed and ``target`` is unchanged. With ``overwrite`` an existing target is removed
    only after the new one is complete.
    """
    place = real_path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    new = _new(place)
    if os.path.lexists(new):  # left by a killed run on a file system without locks
        _remove(new)
    new.mkdir()
    try:
        yield new
        if overwrite:
            put_in_place(new, place)
        else:
            new.rename(place)
            fsync_directory(place.parent)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


@contextmanager
def store_written(target: StorePath, *, overwrite: bool = False) -> Iterator[StorePath]:
    """Yield where to write a new store, which appears at ``target`` complete when the block succeeds.

    The block writes the ``zarr.json`` of the root last. A local store is written next to the target
    (``directory_written_beside``), objects under their final names: leftovers and, with ``overwrite``, an existing
    store are deleted first, and on an error everything written. Raises ``InputError`` if the bucket does not exist.
    """
    if isinstance(target, Path):
        with directory_written_beside(target, overwrite=overwrite) as beside:
            yield beside
        return
    if overwrite or is_unfinished(target):
        _remove_object_store(target)
    try:
        with reaching(target):
            target.fs.pipe_file((target / MARK).path, b"")
    except FileNotFoundError as error:
        raise InputError(
            f"{target}: cannot be written ({first_line(error)}); make the bucket first"
        ) from error
    try:
        yield target
        remove_file(target / MARK)
    except BaseException:
        # Report the original error, not one of the cleanup.
        with suppress(StoreError):
            _remove_object_store(target)
        raise


def remove_store(path: StorePath, *, ignore_errors: bool = False) -> None:
    """Delete a store or directory; readers first see it disappear, then its contents are deleted."""
    with suppress(*(OSError, StoreError) if ignore_errors else ()):
        if not isinstance(path, Path):
            _remove_object_store(path)
            return
        place = real_path(path)
        if os.path.lexists(_new(place)):
            _remove(_new(place))
        place.rename(_new(place))
        _remove(_new(place))


def _remove_object_store(path: UPath) -> None:
    """Delete a store behind a URL, its root first, so that readers never see a partial store."""
    if node_exists(path):
        write_bytes(path / MARK, b"")
        remove_file(path / ROOT)
    remove_objects(path)
