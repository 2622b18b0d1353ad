"""Directories that appear, are replaced and disappear in one step, and what a killed process has left of it.

While a target ``NAME`` is written, its successor lies in ``.NAME.new`` beside it, and for the moment between two
renames the one before in ``.NAME.old``. Who writes a target holds its lock (``jobs.lock``), so there is one of each at
most, and what is there when the lock is taken is left over (``clear_leftovers``). A target that is a link is written
where it points to.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage import objects as object_store
from streaming_jsmf.storage.paths import StorePath, fsync_directory

#: Files that are written before they get their names: ours (``paths.write_bytes``) and Zarr's.
_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{32}$|\.[0-9a-f]{32}\.partial$")


def real_path(target: Path) -> Path:
    """Where a target lies, whatever the way to it."""
    return Path(os.path.realpath(target))


def _new(target: Path) -> Path:
    return target.with_name(f".{target.name}.new")


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def has_leftovers(target: Path) -> bool:
    """Whether something lies beside a target that is there only while it is written."""
    return bool(_beside(real_path(target)))


def _beside(place: Path) -> list[Path]:
    found = [rest for rest in (_new(place), _old(place)) if os.path.lexists(rest)]
    written = place.parent.glob(f".{glob.escape(place.name)}.*")
    return found + [path for path in written if _TEMPORARY.search(path.name)]


def clear_leftovers(target: Path) -> list[Path]:
    """Put back what was to be replaced by a target that is not there; remove all else that was on its way.

    To be called by the holder of the lock. Returns what was removed.
    """
    place = real_path(target)
    if os.path.lexists(_old(place)) and not os.path.lexists(place):
        _old(place).rename(place)
    rests = _beside(place) + [
        Path(folder, name) for folder, _, names in os.walk(place) for name in names if _TEMPORARY.search(name)
    ]
    for rest in rests:
        _remove(rest)
    return rests


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def require_outside(target: Path) -> None:
    """Refuse to replace a directory that this process works in: it would go on in one that is no more.

    Raises
    ------
    InputError
        If the working directory is ``target``, or below it.
    """
    if Path.cwd().is_relative_to(real_path(target)):
        raise InputError(f"{target}: is the working directory and cannot be replaced; run from another one")


def put_in_place(made: Path, target: Path) -> None:
    """Rename a file or directory to ``target``; what lies there goes once the new one is in its place."""
    place = real_path(target)
    old = _old(place)
    if os.path.lexists(place):
        if os.path.lexists(old):  # of a run that was killed, where the system has no locks
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
    """Yield an empty directory beside ``target`` that takes its place when the block ends well.

    On an error the directory is removed and ``target`` stays as it was. With ``overwrite`` an existing
    target goes only after the new one is complete.
    """
    place = real_path(target)
    place.parent.mkdir(parents=True, exist_ok=True)
    new = _new(place)
    if os.path.lexists(new):  # of a run that was killed, where the system has no locks
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
    """Yield where to write a new store: it is at ``target``, whole, when the block has ended well.

    The block writes the ``zarr.json`` of the root last. A local store is written as ``directory_written_beside``; one
    behind a URL in its own place, where nothing is a store before it has a root (``object_store.written_in_place``).

    Raises
    ------
    InputError
        If the bucket is not there.
    """
    if isinstance(target, Path):
        with directory_written_beside(target, overwrite=overwrite) as beside:
            yield beside
    else:
        with object_store.written_in_place(target, overwrite=overwrite) as place:
            yield place


def remove_store(path: StorePath, *, ignore_errors: bool = False) -> None:
    """Delete a store or a directory: first there is none any more, then what it was made of goes, or is a rest."""
    with suppress(*(OSError, StoreError) if ignore_errors else ()):
        if not isinstance(path, Path):
            object_store.delete_store(path)
            return
        place = real_path(path)
        if os.path.lexists(_new(place)):
            _remove(_new(place))
        place.rename(_new(place))
        _remove(_new(place))
