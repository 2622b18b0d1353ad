"""Local files and objects behind URLs: names, opening, listing, reading and writing.

Sources and corpora are strings (``normalise``): absolute local paths or fsspec URLs, including chains. Stores are
``StorePath`` objects (``store_path``). Functions that read accept both. Writes to a store are atomic.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage import objects as object_store
from streaming_jsmf.validation import stays_inside

#: How a user names a file or directory: a local path, or a URL as a string.
AnyPath: TypeAlias = str | os.PathLike[str]

#: A store: a local directory, or a URL, which has neither directories nor rename.
StorePath: TypeAlias = Path | UPath

_LOCAL_SCHEMES = ("file://", "local://")

#: Files that ``in_threads`` asks for at a time: they are waited for, not computed on.
FILE_THREADS = 16

Place = TypeVar("Place", Path, StorePath)
Item = TypeVar("Item")
Result = TypeVar("Result")


def is_url(path: AnyPath | UPath) -> bool:
    """Whether ``path`` is reached through fsspec rather than on the local disk."""
    text = str(path)
    return "://" in text and not text.startswith(_LOCAL_SCHEMES)


def normalise(path: AnyPath, what: str = "a source") -> str:
    """An absolute local path, or the URL without its last slash.

    Absolute, so that a task on another process or with another working directory opens the same file.
    """
    text = _without_scheme(_text_of(path, what))
    return text.rstrip("/") if is_url(text) else str(Path(text).expanduser().absolute())


def join(root: str, name: str) -> str:
    """Path of ``name`` (posix, relative) under ``root``, a path made by ``normalise``."""
    return f"{root}/{name}" if is_url(root) else str(Path(root) / name)


def inside(root: Place, name: str) -> Place:
    """``root / name`` for a name read from a file; ``InputError`` if it could lead out of ``root``."""
    if not stays_inside(name):
        raise InputError(
            f"{root}: {name!r} leaves this directory; only relative names without '..' are allowed"
        )
    return root / name


def file_inside(directory: Path, name: str, most: int | None = None) -> Path:
    """The path of a local file that a spec names below ``directory``; the file may be missing.

    Parameters
    ----------
    most
        Bytes that it may have; None: it is read in pieces, and may have any number.

    Raises
    ------
    InputError
        If the name or a link leads out of the directory, or if it is no regular file or too large.
    """
    path = inside(directory, name)
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory)):
        raise InputError(f"{path} is a link out of {directory}; copy the file to this place")
    try:
        found = path.stat()
    except OSError:  # who reads it says more
        return path
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path} is not a regular file; put a file in its place")
    if most is not None and found.st_size > most:
        raise InputError(f"{path} has {found.st_size} bytes, and {most} are allowed; shorten the file")
    return path


def store_path(path: AnyPath | UPath, what: str = "a store") -> StorePath:
    """Where a user's path or URL of a store points to. A URL is asked once whether it answers.

    Raises
    ------
    InputError
        If it is a URL that cannot be opened or does not answer, or names no more than a bucket; or no path at all.
    """
    if isinstance(path, Path):
        return path
    text = _text_of(path, what)
    if is_url(text):
        return object_store.open_url(path if isinstance(path, UPath) else text.rstrip("/"), what)
    if text.startswith("file:") and not text.startswith(_LOCAL_SCHEMES):
        raise InputError(f"{text}: {what} must be a path or a URL; write file:///...")
    return Path(_without_scheme(text))


def local_path(path: AnyPath | UPath, what: str) -> Path:
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


def _text_of(path: AnyPath | UPath, what: str) -> str:
    """A path or URL as text; also of what is at one and says so, such as an open corpus."""
    if isinstance(path, UPath):
        return str(path)
    try:
        text: object = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InputError(f"{what} is named by its path or URL; a {type(path).__name__} was given")
    return text


def _without_scheme(text: str) -> str:
    """A local path of its URL; other text as it is. Raises InputError for a name that no store could keep."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{text}: the name is not UTF-8; rename it") from error
    for scheme in _LOCAL_SCHEMES:
        if text.startswith(scheme):
            return unquote(text.removeprefix(scheme))
    return text


def _on_disk(path: AnyPath | UPath) -> Path | None:
    """The local path; None for what is behind a URL."""
    if isinstance(path, Path):
        return path
    return None if is_url(path) else Path(_without_scheme(str(path)))


def file_system(path: AnyPath | UPath) -> tuple[Any, str]:
    """fsspec's file system of a path or URL, and the path inside it; errors as ``objects.file_system``."""
    local = _on_disk(path)
    # Not by fsspec, which takes a local path with :: in it for a chain.
    return (LocalFileSystem(), str(local)) if local is not None else object_store.file_system(path)


def is_chain(path: AnyPath) -> bool:
    """Whether a file is reached through another one, such as ``zip://a.csv::b.zip``."""
    return is_url(path) and "::" in str(path)


@contextmanager
def open_file(path: AnyPath | UPath) -> Iterator[BufferedIOBase]:
    """A binary stream on a local file, without Python code in between, or on what a URL stands for.

    Raises
    ------
    FileNotFoundError
        If there is none; other errors of reading as the system or the package of the URL raises them.
    InputError
        If the scheme of a URL is unknown or its package missing.
    """
    local = _on_disk(path)
    if local is not None:
        with local.open("rb") as stream:
            yield stream
    else:
        fs, inner = object_store.file_system(path)
        with fs.open(inner, "rb") as stream:
            yield stream


def read_bytes(path: AnyPath | UPath) -> bytes:
    """The whole of a file; errors as ``read_text``."""
    local = _on_disk(path)
    return local.read_bytes() if local is not None else object_store.get(path)


def read_text(path: AnyPath | UPath) -> str:
    """The whole of a small file, as UTF-8.

    Raises
    ------
    FileNotFoundError
        If there is none.
    StoreError
        If the object store fails.
    """
    return read_bytes(path).decode()


def sha256_of(path: AnyPath) -> str:
    """Hex SHA-256 of a file; reads it once, in pieces."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def file_hashes(
    root: Path, paths: Iterable[Path] | None = None, *, known: Mapping[Path, str] | None = None
) -> dict[str, str]:
    """The sha256 of local files by their paths below ``root``: of all there, or of some; reads those not ``known``."""
    found = sorted([root, *root.rglob("*")]) if paths is None else paths
    return {
        path.relative_to(root).as_posix(): (known or {}).get(path) or sha256_of(path)
        for path in found
        if path.is_file()
    }


def exists(path: AnyPath) -> bool:
    """Whether there is a file or a directory at ``path``."""
    local = _on_disk(path)
    if local is not None:
        return local.exists()
    fs, inner = object_store.file_system(path)
    with object_store.reaching(path):
        return bool(fs.exists(inner))


def is_file(path: AnyPath) -> bool:
    """Whether ``path`` is a file."""
    local = _on_disk(path)
    if local is not None:
        return local.is_file()
    fs, inner = object_store.file_system(path)
    with object_store.reaching(path):
        return bool(fs.isfile(inner))


def file_size(path: AnyPath) -> int:
    """Bytes of the file.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    local = _on_disk(path)
    if local is not None:
        return local.stat().st_size
    fs, inner = object_store.file_system(path)
    return int(fs.info(inner)["size"])


def file_names(directory: AnyPath) -> list[str]:
    """Sorted names of the files right in a directory; empty when there is no such directory."""
    folder = _on_disk(directory)
    if folder is not None:
        return sorted(p.name for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
    fs, inner = object_store.file_system(directory)
    if not fs.isdir(inner):
        return []
    fs.invalidate_cache(inner)  # a cached listing would hide shards written since
    entries = fs.ls(inner, detail=True)
    return sorted(e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "file")


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """``function`` of every item, results in order; the first failure in that order is raised."""
    with ThreadPoolExecutor(max_workers=FILE_THREADS) as pool:
        return list(pool.map(function, items))


def fsync_directory(path: Path) -> None:
    """Make a rename inside ``path`` survive a crash of the machine (POSIX only; elsewhere a no-op)."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_file(path: Path) -> None:
    """Make what another library has written survive a crash of the machine."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_json(path: StorePath, value: Any) -> None:
    """Write ``value`` to ``path`` in one step, see ``write_bytes``."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """JSON as this package writes it."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode()


def write_bytes(path: StorePath, data: bytes) -> None:
    """Write or replace a file atomically: temporary file, fsync, rename; for a URL a single write of an object."""
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


def node_exists(path: StorePath) -> bool:
    """Whether a Zarr group or array is at ``path``; ``StoreError`` if an object store does not answer."""
    node = path / object_store.ROOT
    return node.exists() if isinstance(node, Path) else object_store.has(node)


def is_free(path: StorePath) -> bool:
    """Whether a store can be made at ``path``: nothing is there, or leftovers of ours in an object store."""
    if isinstance(path, Path):
        return not path.exists()
    return not object_store.found(path) or object_store.is_leftover(path)


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


def remove_trees(paths: Sequence[StorePath]) -> None:
    """Delete many directories, objects of some at a time; what cannot be deleted is left."""
    if all(isinstance(path, Path) for path in paths):
        for path in paths:
            remove_tree(path, ignore_errors=True)
    else:
        in_threads(partial(remove_tree, ignore_errors=True), paths)


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
