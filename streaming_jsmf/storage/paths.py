"""Writing so that a reader sees all of it or nothing: local directories, and stores behind URLs."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

from upath import UPath

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage import objects as object_store

#: Where a store is: a local directory, or what a URL stands for. One that is not a ``Path`` has no directories and
#: no rename; its files go through the functions here.
StorePath: TypeAlias = Path | UPath


def fsync_directory(path: Path) -> None:
    """Make a rename inside ``path`` survive a crash of the machine (POSIX only; elsewhere a no-op)."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: StorePath, value: Any) -> None:
    """Write ``value`` to ``path`` in one step, see ``write_bytes``."""
    write_bytes(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode())


def write_bytes(path: StorePath, data: bytes) -> None:
    """Write a file in one step: beside, fsync, rename; behind a URL one write of an object.

    What lies at ``path`` is replaced, and stays as it was on an error.
    """
    if not isinstance(path, Path):
        object_store.put(path, data)
        return
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def read_bytes(path: StorePath) -> bytes:
    """The whole of a file; errors as ``read_text``."""
    return path.read_bytes() if isinstance(path, Path) else object_store.get(path)


def read_text(path: StorePath) -> str:
    """The whole of a small file of a store, as UTF-8.

    Raises
    ------
    FileNotFoundError
        If there is none.
    StoreError
        If the object store fails.
    """
    return read_bytes(path).decode()


def exists(path: StorePath) -> bool:
    """Whether a file is at ``path``, such as a ``zarr.json``; ``StoreError`` if an object store does not answer."""
    return path.exists() if isinstance(path, Path) else object_store.has(path)


def is_free(path: StorePath) -> bool:
    """Whether a store can be made at ``path``: nothing is there, or rests of ours in an object store."""
    if isinstance(path, Path):
        return not path.exists()
    return not object_store.found(path) or object_store.is_rest(path)


def make_directory(path: StorePath) -> None:
    """Make a directory that survives a crash of the machine; behind a URL there are none."""
    if isinstance(path, Path):
        path.mkdir(parents=True, exist_ok=True)
        fsync_directory(path.parent)


def child_names(path: StorePath, prefix: str = "") -> list[str]:
    """Names right below ``path`` that begin with ``prefix``; behind a URL one listing, never a cached one."""
    if isinstance(path, Path):
        return [child.name for child in path.glob(f"{prefix}*")]
    return [name for name in object_store.child_names(path) if name.startswith(prefix)]


def group_names(path: StorePath, prefix: str = "") -> list[str]:
    """Names right below ``path`` that begin with ``prefix`` and hold a ``zarr.json``; listed as ``child_names``."""
    if isinstance(path, Path):
        return [found.parent.name for found in path.glob(f"{prefix}*/zarr.json")]
    names = (name.split("/") for name in object_store.names_below(path))
    return [parts[0] for parts in names if parts[1:] == ["zarr.json"] and parts[0].startswith(prefix)]


def remove_file(path: StorePath) -> None:
    """Delete a file, if it is there."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
    else:
        object_store.delete(path)


def remove_tree(path: StorePath, *, ignore_errors: bool = False) -> None:
    """Delete a directory, or all objects of this prefix, with all below; what cannot be deleted may be left."""
    if isinstance(path, Path):
        shutil.rmtree(path, ignore_errors=ignore_errors)
        return
    try:
        object_store.delete_tree(path)
    except StoreError:
        if not ignore_errors:
            raise


def remove_store(path: StorePath) -> None:
    """Delete a store; one in an object store first ceases to be one, then its rests go."""
    if isinstance(path, Path):
        shutil.rmtree(path)
    else:
        object_store.delete_store(path)


def is_url(path: str | os.PathLike[str] | UPath) -> bool:
    """Whether ``path`` is reached through fsspec."""
    text = str(path)
    return "://" in text and not text.startswith(("file://", "local://"))


def store_path(path: str | os.PathLike[str] | UPath, what: str = "a store") -> StorePath:
    """Where a user's path or URL points to. A URL is asked once whether it answers.

    Raises
    ------
    InputError
        If it is a URL that cannot be opened or does not answer, or names no more than a bucket.
    """
    if isinstance(path, Path):
        return path
    text = str(path)
    if is_url(text):
        return object_store.open_url(path if isinstance(path, UPath) else text.rstrip("/"), what)
    for scheme in ("file://", "local://"):
        if text.startswith(scheme):
            return Path(unquote(text.removeprefix(scheme)))
    if text.startswith("file:"):
        raise InputError(f"{text}: {what} must be a path or a URL; write file:///...")
    return Path(text)


def local_path(path: str | os.PathLike[str] | UPath, what: str) -> Path:
    """As ``store_path``, for what cannot be behind a URL.

    Raises
    ------
    InputError
        If it is a URL.
    """
    if is_url(path):
        raise InputError(f"{path}: {what} must be a local directory; give a path without a scheme")
    local = store_path(path, what)
    assert isinstance(local, Path), "no URL"
    return local


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
