"""Atomic creation, replacement and removal of directories, and cleanup after killed processes.

While a target ``NAME`` is written, its successor is ``.NAME.new`` next to it; between two renames its predecessor is
``.NAME.old``. Writers hold the lock of the target (``storage.lock``), so anything found when the lock is acquired is
left over. A target that is a link is written at the link's destination.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp

from upath import UPath

from streaming_jsmf.errors import InputError, StoreError, first_line
from streaming_jsmf.storage.local import names_beside, walk
from streaming_jsmf.storage.objects import in_threads, objects_below, reaching, remove_objects
from streaming_jsmf.storage.paths import (
    LAST_FILES,
    MARK,
    ROOT,
    Place,
    StorePath,
    child_names,
    exists,
    file_exists,
    fsync_directory,
    is_free,
    read_bytes,
    remove_file,
    remove_trees,
    write_bytes,
    write_json,
)

#: Temporary files that are renamed after writing: ours (``paths.write_bytes``) and Zarr's.
_TEMPORARY = re.compile(r"^\..+\.[0-9a-f]{32}$|\.[0-9a-f]{32}\.partial$")

#: Suffixes of lock files and temporary files, and names of such files and of unfinished work inside a store.
PASSING = r"(new|old|lock\.json|[0-9a-f]{32})"
OF_A_WRITER = re.compile(rf"\..+\.{PASSING}|.+\.partial")

#: Names of the files that a result behind a URL keeps from the one that it replaces.
KEPT = ".kept"

#: Seconds between attempts to remove a directory to which other threads still write.
PAUSES = (0.01, 0.05, 0.2, 1.0)

#: Files of corpora, directories of topic shares, and partial results in a store, relative to their root.
_OF_A_RESULT = re.compile(
    r"manifest\.json|(files|keys)\.arrow|(vocabulary|quarantine)\.parquet|documents/[^/]+\.parquet|_shares\.json|part-\d+\.parquet"
    r"|partials/[^/]+/arrays\.bin"
)


def real_path(target: Path) -> Path:
    return Path(os.path.realpath(target))


def _new(target: Place) -> Place:
    return target.with_name(f".{target.name}.new")


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def interrupted_in(folder: StorePath, prefix: str) -> list[str]:
    """Names with a prefix of the results in a folder that a killed process was replacing."""
    found = (re.fullmatch(r"\.(.+)\.(?:new|old)", name) for name in child_names(folder, f".{prefix}"))
    return sorted({name[1] for name in found if name})


def leftovers(target: Path) -> list[Path]:
    """Return temporary files and directories next to a target."""
    place = real_path(target)
    found = [rest for rest in (_new(place), _old(place)) if os.path.lexists(rest)]
    written = (name for name in names_beside(place) if name.startswith(f".{place.name}."))
    return found + [place.with_name(name) for name in written if _TEMPORARY.search(name)]


def clear_leftovers(target: Path) -> list[Path]:
    """Restore the predecessor of a missing target and remove all temporary files; return the removed paths.

    The caller must hold the lock.
    """
    place = real_path(target)
    if os.path.lexists(_old(place)) and not os.path.lexists(place):
        _old(place).rename(place)
    inside = (Path(folder, name) for folder, _, names in walk(place) for name in names)
    removed = [*leftovers(target), *(path for path in inside if _TEMPORARY.search(path.name))]
    for path in removed:
        _remove(path)
    return removed


def _remove(path: Path) -> None:
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    # After an interrupt, Zarr's threads finish the operations that they have begun.
    for seconds in PAUSES:
        with suppress(OSError):
            shutil.rmtree(path)
        if not os.path.lexists(path):
            return
        time.sleep(seconds)
    shutil.rmtree(path)


def require_outside(target: Path) -> None:
    """Raise ``InputError`` if the working directory is ``target`` or below it, since it would be deleted."""
    if Path.cwd().is_relative_to(real_path(target)):
        raise InputError(f"{target}: is the working directory and cannot be replaced; run from another one")


def require_replaceable(target: StorePath) -> None:
    """Raise ``InputError`` if replacing a result would delete more than the result.

    That is the working directory, or a file that this package has not written: anything in a directory but Zarr nodes
    and the files of a corpus or of topic shares.
    """
    if not isinstance(target, Path):
        _require_own_objects(target)
        return
    require_outside(target)
    for folder, directories, files in walk(target):
        # The chunks of an array; groups have members instead.
        passed = {ROOT, "c"} if ROOT in files else set()
        directories[:] = [
            name for name in directories if name not in passed and not OF_A_WRITER.fullmatch(name)
        ]
        for name in files:
            if name in passed or OF_A_WRITER.fullmatch(name):
                continue
            path = Path(folder, name)
            if not _OF_A_RESULT.fullmatch(path.relative_to(target).as_posix()):
                raise _foreign(path)


def _require_own_objects(target: UPath) -> None:
    names = _names_below(target)
    nodes = {name.removesuffix(ROOT) for name in names if f"/{name}".endswith(f"/{ROOT}")}
    for name in names:
        node, _, _ = f"/{name}/".partition("/c/")  # chunks
        is_own = f"{node}/"[1:] in nodes or Path(name).name in (ROOT, MARK) or _OF_A_RESULT.fullmatch(name)
        if not is_own:
            raise _foreign(target / name)


def _foreign(path: StorePath) -> InputError:
    return InputError(f"{path}: is not part of what is replaced and would be deleted; move it away")


def put_in_place(made: Path, target: Path) -> None:
    """Rename a file or directory to ``target``; an existing directory there is removed after the rename."""
    place = real_path(target)
    old = _old(place)
    if os.path.lexists(place) and (place.is_dir() or made.is_dir()):
        if os.path.lexists(old):  # left by a killed run on a file system without locks
            _remove(old)
        place.rename(old)
    try:
        made.replace(place)
    except BaseException:
        if os.path.lexists(old):
            old.rename(place)
        raise
    fsync_directory(place.parent)
    if os.path.lexists(old):
        _remove(old)


def new_directory(target: Path) -> Path:
    """Create and return an empty directory next to ``target``, to be renamed to it; the caller holds the lock."""
    new = _new(real_path(target))
    if os.path.lexists(new):  # left by a killed run on a file system without locks
        _remove(new)
    new.mkdir(parents=True)
    return new


@contextmanager
def store_written(
    target: StorePath, *, overwrite: bool = False, keep: Sequence[str] = ()
) -> Iterator[StorePath]:
    """Yield where to write a new store, corpus or directory of topic shares, which appears at ``target`` complete.

    The block writes the file that makes the result valid (``LAST_FILES``) last. A local result is written next to the
    target and then renamed, objects under their final names. On an error everything written is deleted. With
    ``overwrite`` an existing result is removed only after the new one is complete; behind a URL, the new one is written
    next to it, and then copied (``finish_replacing``). The new result has the files ``keep`` of the old one.
    Raises ``InputError`` if another program has made the target meanwhile, or the bucket does not exist.
    """
    if isinstance(target, Path):
        beside = new_directory(target)
        with _renamed(beside, target, overwrite=overwrite):
            yield beside
            for folder in {(beside / name).parent for name in keep}:
                folder.mkdir(parents=True, exist_ok=True)
            put_files([(target / name, beside / name) for name in keep])
        return
    found = exists(target)
    replaces = found and not is_free(target)
    if replaces and not overwrite:
        raise _made_meanwhile(target)
    place = _new(target) if replaces else target
    if found:
        _remove_object_store(place)
    try:
        with reaching(place):
            place.fs.pipe_file((place / MARK).path, b"")
    except FileNotFoundError as error:
        raise InputError(
            f"{target}: cannot be written, because it is not found ({first_line(error)}); check that its bucket exists"
        ) from error
    try:
        yield place
        if keep:
            write_json(place / KEPT, [*keep])
        remove_file(place / MARK)
    except BaseException:
        # Report the original error, not one of the cleanup.
        with suppress(StoreError):
            _remove_object_store(place)
        raise
    if replaces:
        finish_replacing(target)


def finish_replacing(target: UPath) -> None:
    """Replace a result behind a URL by the complete one next to it, if there is one; repeats what was interrupted."""
    new = _new(target)
    last = [name for name in LAST_FILES if file_exists(new / name)]
    if not last or MARK in (names := _names_below(new)):
        return
    kept = {*names, *(json.loads(read_bytes(new / KEPT)) if KEPT in names else ())}
    _remove_last_files(target)
    remove_objects(
        target, kept={target.path + f"/{name}" for name in kept - {*names}} | {(target / MARK).path}
    )
    put_files([(new / name, target / name) for name in names if name not in (*last, KEPT)])
    put_files([(new / name, target / name) for name in last])
    remove_file(target / MARK)
    _remove_object_store(new)


def _names_below(place: UPath) -> list[str]:
    root = place.path.rstrip("/") + "/"
    return [name.removeprefix(root) for name in objects_below(place) if name.startswith(root)]


@contextmanager
def file_written(target: StorePath, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a local path at which to write a file, which appears at ``target`` complete when the block succeeds.

    It is next to a local target, and otherwise a temporary file that is uploaded as one object. Several processes may
    write the same file. Errors as ``store_written``.
    """
    if isinstance(target, Path):
        place = real_path(target)
        beside = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
        with _renamed(beside, target, overwrite=overwrite):
            yield beside
        return
    if not overwrite and file_exists(target):
        raise _made_meanwhile(target)
    with temporary_folder() as folder:
        made = folder / target.name
        yield made
        put_files([(made, target)])


@contextmanager
def _renamed(beside: Path, target: Path, *, overwrite: bool) -> Iterator[None]:
    """Rename what the block writes ``beside`` a target to it, or delete it on an error."""
    place = real_path(target)
    try:
        yield
        if not overwrite and os.path.lexists(place):
            raise _made_meanwhile(target)
        put_in_place(beside, place)
    except BaseException:
        # Report the original error, not one of the cleanup.
        with suppress(OSError):
            if os.path.lexists(beside):
                _remove(beside)
        raise


@contextmanager
def temporary_folder(parent: str | Path | None = None, prefix: str = "streaming-jsmf-") -> Iterator[Path]:
    """Yield an empty local directory, which is removed at the end."""
    folder = Path(mkdtemp(prefix=prefix, dir=parent))
    try:
        yield folder
    finally:
        _remove(folder)


@contextmanager
def temporary_place(parent: StorePath | None) -> Iterator[StorePath]:
    """Yield an empty directory, or a prefix of objects, in ``parent``, by default a local one; it is removed then."""
    if parent is None or isinstance(parent, Path):
        with temporary_folder(parent) as folder:
            yield folder
        return
    place = parent / f"streaming-jsmf-{uuid.uuid4().hex}"
    try:
        yield place
    finally:
        remove_trees(place)


def _made_meanwhile(target: StorePath) -> InputError:
    return InputError(
        f"{target} was made by another program meanwhile; move it away and run the same command again"
    )


def put_files(pairs: Sequence[tuple[StorePath, StorePath]]) -> None:
    """Put files under other names; the old names remain, so that an interruption loses nothing.

    Local files are linked, or copied where there are no hard links; objects are copied by their server; other files are
    uploaded or downloaded. ``StoreError`` if an object store fails.
    """
    in_threads(lambda pair: _put(*pair), pairs)


def _put(made: StorePath, place: StorePath) -> None:
    if not isinstance(place, Path):
        with reaching(place):
            if isinstance(made, Path):
                place.fs.put_file(str(made), place.path)
            else:
                place.fs.cp_file(made.path, place.path)
    elif not isinstance(made, Path):
        with reaching(made):
            made.fs.get_file(made.path, str(place))
    else:
        try:
            os.link(made, place)
        except OSError:
            shutil.copyfile(made, place)


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
    """Delete a result behind a URL, the file that makes it valid first, so that readers never see a part of it."""
    _remove_last_files(path)
    remove_objects(path)


def _remove_last_files(path: UPath) -> None:
    if last := [path / name for name in LAST_FILES if file_exists(path / name)]:
        write_bytes(path / MARK, b"")
        for file in last:
            remove_file(file)
