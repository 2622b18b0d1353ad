"""Stores behind URLs, where only objects exist: no directories and no renames, but atomic writes of single objects.

Data are written under their final names; the record or root ``zarr.json`` that makes them valid is written last. Until
then an object named ``MARK`` identifies unfinished writes of ours. Listings are never cached, because other processes
may commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from typing import Any

import fsspec
from upath import UPath

from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError, first_line, pass_on_machine

#: Without a ``zarr.json`` next to it, marks an unfinished write of ours.
MARK = ".unfinished"

#: Object that makes a store valid; without it the other objects are leftovers.
ROOT = "zarr.json"

#: fsspec option that controls the caching of listings.
_UNCACHED = "use_listings_cache"


def file_system(path: str | PathLike[str] | UPath) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, with the options of a ``UPath``, and the path inside it.

    Raises ``InputError`` if the scheme is unknown, its package is not installed, or a login fails.
    """
    if isinstance(path, UPath):
        return path.fs, path.path
    try:
        fs, inner = fsspec.core.url_to_fs(str(path))
    except Exception as error:
        # Some file systems log in immediately, and each package has its own exceptions.
        pass_on_machine(error)
        raise InputError(
            f"cannot open {path}: {first_line(error)}; check the path and the credentials"
        ) from error
    return fs, str(inner)


def open_url(place: str | UPath, what: str) -> UPath:
    """Return the path of a store behind a URL such as ``s3://bucket/moments.zarr``; checks once that it responds.

    Credentials and endpoint come from the configuration of fsspec and the scheme's package, or from the options of a
    ``UPath``. ``what`` names the store in messages. Raises ``InputError`` if the scheme is unknown, its package is not
    installed, the URL names only a bucket, or the store does not respond.
    """
    if isinstance(place, UPath) and place.storage_options.get(_UNCACHED) is False:
        return place
    url = str(place)
    if "::" in url:
        raise InputError(f"{url}: {what} cannot be behind a chain of file systems; give a single URL")
    try:
        path: UPath = UPath(place, protocol=None, **{_UNCACHED: False})
        # The file system is created on first access, which imports the package of the scheme.
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
    """Convert file system errors except ``FileNotFoundError`` to a one-line ``StoreError`` that names the place."""
    try:
        yield
    except (FileNotFoundError, StreamingJSMFError):
        raise
    except Exception as error:
        # Each package has its own exceptions. The store is intact, so the same command can be run again.
        pass_on_machine(error)
        raise StoreError(
            f"{place}: the object store failed ({first_line(error)}); run the same command again once it answers"
        ) from error


def put(path: UPath, data: bytes) -> None:
    """Write one object atomically in one request; raise ``StoreError`` if that fails."""
    try:
        with reaching(path):
            path.fs.pipe_file(path.path, data)
    except FileNotFoundError as error:
        raise StoreError(f"{path}: cannot be written ({first_line(error)}); is the bucket there?") from error


def get(path: str | PathLike[str] | UPath) -> bytes:
    """Read one object; raise ``FileNotFoundError`` if it is missing, ``StoreError`` if it cannot be read."""
    fs, inner = file_system(path)
    with reaching(path):
        # With start=0, because some packages request the size first if no range is given.
        return bytes(fs.cat_file(inner, start=0))


def has(path: UPath) -> bool:
    """Whether a nonempty object exists; one request, whereas ``found`` also looks for objects below it."""
    try:
        with reaching(path):
            path.fs.cat_file(path.path, start=0, end=1)
    except FileNotFoundError:
        return False
    return True


def found(path: UPath) -> bool:
    """Whether an object, or objects below it, exist."""
    with reaching(path):
        return bool(path.exists())


def delete(path: UPath) -> None:
    """Delete one object if it exists."""
    with suppress(FileNotFoundError), reaching(path):
        path.fs.rm_file(path.path)


def names_below(path: UPath) -> list[str]:
    """Return the sorted names of all objects below ``path``, relative to it; one listing."""
    root = path.path.rstrip("/") + "/"
    try:
        with reaching(path):
            return sorted(str(name).removeprefix(root) for name in path.fs.find(path.path))
    except FileNotFoundError:
        return []


def child_names(path: UPath) -> list[str]:
    """Return the sorted names of objects and prefixes directly below ``path``; one listing."""
    try:
        with reaching(path):
            return sorted(
                str(name).rstrip("/").rsplit("/", 1)[-1] for name in path.fs.ls(path.path, detail=False)
            )
    except FileNotFoundError:
        return []


def delete_tree(path: UPath) -> None:
    """Delete all objects below ``path`` with one listing and bulk requests."""
    root, names = path.path.rstrip("/"), names_below(path)
    if names:
        with suppress(FileNotFoundError), reaching(path):
            path.fs.rm([f"{root}/{name}" for name in names])


def delete_store(path: UPath) -> None:
    """Delete a store, its root first, so that readers never see a partial store."""
    if has(path / ROOT):
        put(path / MARK, b"")
        delete(path / ROOT)
    delete_tree(path)


def is_leftover(path: UPath) -> bool:
    """Whether ``path`` has an unfinished or incompletely deleted store of ours."""
    return found(path / MARK) and not has(path / ROOT)


@contextmanager
def written_in_place(target: UPath, *, overwrite: bool) -> Iterator[UPath]:
    """Yield ``target``; the block writes below it and ends with the ``zarr.json`` that makes it a store.

    Leftovers and, with ``overwrite``, an existing store are deleted first: objects cannot be renamed, so no store
    exists during the write. On an error everything written is deleted. Raises ``InputError`` if the bucket does not
    exist.
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
        # Report the original error, not one of the cleanup.
        with suppress(StoreError):
            delete_store(target)
        raise
