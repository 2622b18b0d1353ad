"""Stores behind URLs, where there are objects only: no directories, no rename, a write is there at once or not at all.

What takes the place of a rename: everything is written under its final name, and the object that makes it count, a
record or the ``zarr.json`` of the root, comes last in one write. Until then an object named ``MARK`` tells what a write
that was cut off has left from what somebody else put there. Listings are never taken from a cache: another process may
have committed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from typing import Any

import fsspec
from upath import UPath

from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError, first_line, pass_on_machine

#: Its presence without a ``zarr.json`` beside it means: begun by us, never finished.
MARK = ".unfinished"

#: What makes a store: without it the other objects are leftovers.
ROOT = "zarr.json"

#: The option of every fsspec file system that makes it ask again each time.
_UNCACHED = "use_listings_cache"


def file_system(path: str | PathLike[str] | UPath) -> tuple[Any, str]:
    """fsspec's file system of a URL, with the options of a ``UPath``, and the path inside it.

    Raises
    ------
    InputError
        If the scheme is unknown, its package missing, or a login refused.
    """
    if isinstance(path, UPath):
        return path.fs, path.path
    try:
        fs, inner = fsspec.core.url_to_fs(str(path))
    except Exception as error:
        # Some log in at once, and each package has errors of its own.
        pass_on_machine(error)
        raise InputError(
            f"cannot open {path}: {first_line(error)}; check the path and the credentials"
        ) from error
    return fs, str(inner)


def open_url(place: str | UPath, what: str) -> UPath:
    """The place of a store behind a URL; asks once whether it answers.

    Parameters
    ----------
    place
        Such as ``s3://bucket/moments.zarr``. Credentials and endpoint come from the configuration of fsspec and of
        the scheme's package, or from the options of a ``UPath``.
    what
        For messages: "a moments store".

    Raises
    ------
    InputError
        If the scheme is unknown or its package missing, the URL names no more than a bucket, or nothing answers.
    """
    if isinstance(place, UPath) and place.storage_options.get(_UNCACHED) is False:
        return place
    url = str(place)
    if "::" in url:
        raise InputError(f"{url}: {what} cannot be behind a chain of file systems; give a single URL")
    try:
        path: UPath = UPath(place, protocol=None, **{_UNCACHED: False})
        # Made when first asked for, and only then the package of the scheme is looked for.
        _ = path.fs
    except (ValueError, ImportError, NotImplementedError, TypeError) as error:
        raise InputError(f"{url}: cannot be opened ({first_line(error)})") from error
    if not path.name:
        raise InputError(f"{url}: names no more than a bucket; give {what} a name in it")
    try:
        path.exists()
    except Exception as error:
        pass_on_machine(error)
        raise InputError(
            f"{url}: does not answer ({first_line(error)}); check address, credentials and network"
        ) from error
    return path


@contextmanager
def reaching(place: object) -> Iterator[None]:
    """Whatever a file system raises becomes one line that names the place; that nothing is there stays as it is.

    Raises
    ------
    StoreError
        If the object store refuses or does not answer.
    """
    try:
        yield
    except (FileNotFoundError, StreamingJSMFError):
        raise
    except Exception as error:
        # Each package has errors of its own; the store itself is sound, so the same command goes on later.
        pass_on_machine(error)
        raise StoreError(
            f"{place}: the object store failed ({first_line(error)}); run the same command again once it answers"
        ) from error


def put(path: UPath, data: bytes) -> None:
    """Write one object in one request: all of it or nothing.

    Raises
    ------
    StoreError
        If the object store refuses or does not answer.
    """
    try:
        with reaching(path):
            path.fs.pipe_file(path.path, data)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: cannot be written ({first_line(error)}); is the bucket there?") from error


def get(path: str | PathLike[str] | UPath) -> bytes:
    """Read one object; ``FileNotFoundError`` if there is none, ``StoreError`` if it cannot be read."""
    fs, inner = file_system(path)
    with reaching(path):
        # From its first byte: without a range some packages ask for the size before.
        return bytes(fs.cat_file(inner, start=0))


def has(path: UPath) -> bool:
    """Whether there is an object, and not empty; one request, where ``found`` asks for objects below it, too."""
    try:
        with reaching(path):
            path.fs.cat_file(path.path, start=0, end=1)
    except FileNotFoundError:
        return False
    return True


def found(path: UPath) -> bool:
    """Whether there is an object, or objects below it."""
    with reaching(path):
        return bool(path.exists())


def delete(path: UPath) -> None:
    """Delete one object, if it is there."""
    with suppress(FileNotFoundError), reaching(path):
        path.fs.rm_file(path.path)


def names_below(path: UPath) -> list[str]:
    """Names of all objects below ``path``, relative to it, sorted: one listing, in pages of the object store."""
    root = path.path.rstrip("/") + "/"
    try:
        with reaching(path):
            return sorted(str(name).removeprefix(root) for name in path.fs.find(path.path))
    except FileNotFoundError:
        return []


def child_names(path: UPath) -> list[str]:
    """Sorted names right below ``path``, objects and what would be directories: one listing."""
    try:
        with reaching(path):
            return sorted(
                str(name).rstrip("/").rsplit("/", 1)[-1] for name in path.fs.ls(path.path, detail=False)
            )
    except FileNotFoundError:
        return []


def delete_tree(path: UPath) -> None:
    """Delete all objects below ``path``, if there are any: a listing, and requests for many objects at once."""
    root, names = path.path.rstrip("/"), names_below(path)
    if names:
        with suppress(FileNotFoundError), reaching(path):
            path.fs.rm([f"{root}/{name}" for name in names])


def delete_store(path: UPath) -> None:
    """Delete a store: first it ceases to be one, then the leftovers go, so that nobody takes half of it for a whole."""
    if has(path / ROOT):
        put(path / MARK, b"")
        delete(path / ROOT)
    delete_tree(path)


def is_leftover(path: UPath) -> bool:
    """Whether what lies at ``path`` was begun by us and never finished, or never wholly deleted."""
    return found(path / MARK) and not has(path / ROOT)


@contextmanager
def written_in_place(target: UPath, *, overwrite: bool) -> Iterator[UPath]:
    """Yield ``target``; the block writes below it and ends with the ``zarr.json`` that makes it a store.

    Rests of a write that was cut off are deleted first. With ``overwrite`` so is an existing store: objects cannot
    be renamed, so that for the time of the writing there is none. On an error all that was written is deleted.

    Raises
    ------
    InputError
        If the bucket is not there.
    """
    if overwrite or is_leftover(target):
        delete_store(target)
    try:
        with reaching(target):
            target.fs.pipe_file((target / MARK).path, b"")
    except FileNotFoundError as error:
        raise InputError(
            f"{target}: cannot be written ({first_line(error)}); make the bucket first"
        ) from error
    try:
        yield target
        delete(target / MARK)
    except BaseException:
        # What went wrong first is what the user must hear.
        with suppress(StoreError):
            delete_store(target)
        raise
