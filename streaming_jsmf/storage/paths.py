"""Local files and objects behind URLs: names, opening, listing, reading and writing.

Sources and corpora are strings (``normalize``): absolute local paths or fsspec URLs, including chains. Stores are
``StorePath`` objects (``store_path``). Read functions accept both. Writes to a store are atomic.

Object stores have neither directories nor renames, but write single objects atomically: data are written under their
final names, and the file or record that makes them valid (``LAST_FILES``) is written last. Until then an object named
``MARK`` identifies unfinished writes of ours.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.storage.heads import HEAD, FromHead, known
from streaming_jsmf.storage.local import (
    LOCAL_SCHEMES,
    files_in,
    is_no_directory,
    local_name,
    names_beside,
    names_in,
    possible,
    require_regular,
    status,
)
from streaming_jsmf.storage.objects import (
    Reached,
    State,
    asked,
    in_threads,
    info_of,
    objects_at,
    objects_below,
    open_object,
    open_url,
    reaching,
    remove_objects,
    state_in,
    state_of_object,
    status_of,
    url_file_system,
    writing,
)
from streaming_jsmf.validation import stays_inside

#: User-supplied path: a local path, or a URL as a string.
AnyPath: TypeAlias = str | os.PathLike[str]

#: Path of a store: a local directory, or a URL, where neither directories nor renames exist.
StorePath: TypeAlias = Path | UPath

#: Object that makes a store valid; without it the other objects are leftovers.
ROOT = "zarr.json"

#: Files that make a directory valid, which is written last and removed first: of stores, of corpora, of topic shares.
LAST_FILES = (ROOT, "manifest.json", "_shares.json")

#: Without one of ``LAST_FILES`` next to it, marks an unfinished write of ours to an object store.
MARK = ".unfinished"

Place = TypeVar("Place", Path, UPath, StorePath)


def is_url(path: AnyPath | UPath) -> bool:
    """Whether ``path`` is accessed through fsspec rather than on the local disk."""
    scheme, separator, _ = str(path).partition("://")
    # A text that contains an address is not a URL.
    return bool(separator) and len(scheme.split()) < 2 and scheme.lower() not in LOCAL_SCHEMES


def normalize(path: AnyPath, what: str = "a source") -> str:
    """Return an absolute local path, or a URL without trailing slash, which any process can open."""
    text = local_name(_text_of(path, what))
    return text.rstrip("/") if is_url(text) else str(possible(Path(text).absolute(), text))


def join(root: str, name: str) -> str:
    """Return the path of ``name`` (posix, relative) below ``root``, a path returned by ``normalize``."""
    return f"{root}/{name}" if is_url(root) else str(Path(root) / name)


def inside(root: Place, name: str) -> Place:
    """Return ``root / name``; raise ``InputError`` if a name read from a file could point outside ``root``."""
    if not stays_inside(name):
        raise InputError(
            f"{root}: {name!r} leaves this directory; only relative names without '..' are allowed"
        )
    return root / name


def store_path(path: AnyPath | UPath, what: str = "a store") -> StorePath:
    """Return the store at a user's path or URL, checking once that a URL responds.

    Raises ``InputError`` if a URL cannot be opened, does not respond or names only a bucket, or if it is not a path.
    """
    text = _text_of(path, what)
    if is_url(text) and not isinstance(path, Path):
        return open_url(path if isinstance(path, UPath) else text.rstrip("/"), what)
    place = possible(
        Path(text if isinstance(path, Path) and path.parts[:1] != ("~",) else local_name(text)), text
    )
    if not place.name:
        raise InputError(f"{text}: {what} cannot be the root directory; give a path below it")
    return place


def require_suffix(path: StorePath, what: str, known: Sequence[str]) -> None:
    """Raise ``InputError`` if the name of an output has a suffix that is not ``known``; it may have none."""
    suffix = path.suffix.lower()
    if suffix and suffix not in known:
        raise InputError(
            f"{path}: {what} cannot be written as {suffix}; give a name that ends in {' or '.join(known)}, or without "
            "a suffix"
        )


def _text_of(path: AnyPath | UPath, what: str) -> str:
    if isinstance(path, UPath):
        return str(path)
    try:
        text: object = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InputError(f"{what} is named by its path or URL; a {type(path).__name__} was given")
    return text


def _on_disk(path: AnyPath | UPath) -> Path | None:
    """Return the local path; None for a URL."""
    if isinstance(path, Path):
        return path
    return None if is_url(path) else Path(local_name(str(path)))


def file_system(path: AnyPath | UPath) -> tuple[Any, str]:
    """Return the fsspec file system of a path or URL, without cached listings, and the path inside it.

    Errors are those of ``url_file_system``.
    """
    if (local := _on_disk(path)) is not None:
        # fsspec would interpret a local path with :: as a chain.
        return LocalFileSystem(), str(local)
    fs, inner = url_file_system(path)
    fs.invalidate_cache()
    return fs, inner


def is_chain(path: AnyPath | UPath) -> bool:
    """Whether a file is inside another one, such as ``zip://a.csv::b.zip``."""
    return is_url(path) and "::" in str(path)


@contextmanager
def open_file(path: AnyPath | UPath, **options: Any) -> Iterator[Any]:
    """Open a local file or URL as a binary stream; ``options`` are those of fsspec.

    Raises ``FileNotFoundError`` if it is missing, ``InputError`` if a URL's scheme is unknown or its package is
    missing. Reading raises ``StoreError`` if an object store fails.
    """
    local = _on_disk(path)
    if local is not None:
        with _open_local(require_regular(local, StoreError)) as stream:
            yield stream
    elif options or is_chain(path):
        fs, inner = file_system(path)
        with fs.open(inner, "rb", **options) as stream:
            # What a package raises for a damaged archive is not a failure of the file system.
            yield stream if is_chain(path) else Reached(stream, path)
    else:
        with open_object(path) as stream:
            yield stream


def _open_local(path: Path) -> Any:
    """Open a file, whose start is read once while planning."""
    if (held := known()) is None:
        return path.open("rb")
    found = path.stat()

    def head() -> bytes:
        with path.open("rb") as stream:
            return stream.read(HEAD)

    # A file of a spec may be downloaded again.
    start = held.head((str(path), found.st_size, found.st_mtime_ns, found.st_ino), head)
    return BufferedReader(FromHead(lambda: start, found.st_size, partial(path.open, "rb")), HEAD)


def read_bytes(path: AnyPath | UPath) -> bytes:
    """Read a small file; ``FileNotFoundError`` if it is missing, ``StoreError`` if an object store fails."""
    if (local := _on_disk(path)) is None:
        # With start=0, because some packages request the size first if no range is given.
        return bytes(asked("cat_file", path, start=0))
    return require_regular(local, StoreError).read_bytes()


def sha256_of(path: AnyPath | UPath) -> str:
    """Return the hex SHA-256 of a file; reads it once, in pieces."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def exists(path: AnyPath | UPath) -> bool:
    local = _on_disk(path)
    return (info_of(path) if local is None else status(local)) is not None


def similar_names(path: AnyPath | UPath) -> str:
    """Suggest up to three similar names in the directory of a missing local path; return an empty text without any."""
    local = _on_disk(path)
    if local is None or local.exists():
        return ""
    if local.is_symlink():
        return f"it is a symbolic link to {local.readlink()}, which does not exist"
    if local.with_name(f"{local.name}.partial").is_dir():
        return "the command that makes it was interrupted; run it again"
    near = get_close_matches(local.name, names_beside(local), 3)
    return f"did you mean {' or '.join(sorted(near))}?" if near else ""


def is_file(path: AnyPath | UPath) -> bool:
    local = _on_disk(path)
    return (info_of(path) or {}).get("type") == "file" if local is None else is_no_directory(local)


def file_size(path: AnyPath | UPath) -> int:
    """Return the size of a file in bytes; raise ``FileNotFoundError`` if it is missing."""
    local = _on_disk(path)
    return (
        int(status_of(path)["size"]) if local is None else require_regular(local, StoreError).stat().st_size
    )


def state_of(path: AnyPath | UPath) -> State:
    """Return JSON values that change when a file is replaced or edited; None if its file system has no such values.

    Size and modification time (ns) of a local file; see ``state_of_object`` for a URL. Nothing is read. Raises
    ``FileNotFoundError`` if the file is missing, ``StoreError`` if the file system does not respond.
    """
    if (local := _on_disk(path)) is None:
        return state_of_object(path)
    found = local.stat()
    return found.st_size, found.st_mtime_ns


def file_names(directory: AnyPath) -> list[str]:
    """Return the sorted names of the files directly in a directory; empty if it does not exist."""
    return list(file_states(directory))


def file_states(directory: AnyPath) -> dict[str, State]:
    """As ``file_names``, with what ``state_of`` tells about each file, from one listing."""
    folder = _on_disk(directory)
    if folder is not None:
        return files_in(folder)
    try:
        entries = asked("ls", directory, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    files = {e["name"].rstrip("/"): state_in(e) for e in entries if e["type"] == "file"}
    return {
        file.rsplit("/", 1)[-1]: files[file] for file in sorted(files) if not str(directory).endswith(file)
    }


def fsync_directory(path: Path) -> None:
    """Make renames inside ``path`` durable (POSIX only; elsewhere a no-op)."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: StorePath, value: Any) -> None:
    """Write ``value`` as JSON atomically; see ``write_bytes``."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """Encode a value as JSON in the style of this package."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode()


def write_bytes(path: StorePath, data: bytes) -> None:
    """Write or replace a file atomically: temporary file, fsync and rename; for a URL a single object write."""
    if not isinstance(path, Path):
        with writing(path):
            path.fs.pipe_file(path.path, data)
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


def try_writing(path: StorePath) -> None:
    """Write a file and remove it again; ``OSError`` or ``StoreError`` if this process may not."""
    write_bytes(path, b"written to see whether that is possible\n")
    remove_file(path)


def node_exists(path: StorePath) -> bool:
    """Whether ``path`` has a Zarr group or array; raise ``StoreError`` if an object store does not respond."""
    return file_exists(path / ROOT)


def file_exists(path: StorePath) -> bool:
    """Whether a store has this file; errors as ``node_exists``."""
    if isinstance(path, Path):
        return status(path) is not None
    try:
        # One small read, whereas ``UPath.exists`` also looks for objects below the path.
        with reaching(path):
            path.fs.cat_file(path.path, start=0, end=1)
    except FileNotFoundError:
        return False
    return True


def is_free(path: StorePath) -> bool:
    """Whether a result can be created at ``path``: nothing exists there, or only our leftovers in an object store."""
    if not exists(path):
        return True
    if isinstance(path, Path) or any(file_exists(path / name) for name in LAST_FILES):
        return False
    # Not ``file_exists``: S3 has no ranges of an empty object. Some file systems behind URLs keep directories whose
    # files are removed.
    return exists(path / MARK) or not objects_below(path)


def make_directory(path: StorePath) -> None:
    """Create a directory durably; a no-op for URLs."""
    if isinstance(path, Path):
        path.mkdir(parents=True, exist_ok=True)
        fsync_directory(path.parent)


def child_names(path: AnyPath | UPath, prefix: str = "") -> list[str]:
    """Return the names directly below ``path`` that begin with ``prefix``; for a URL one uncached listing."""
    if (local := _on_disk(path)) is not None:
        names = names_in(local)
    else:
        names = sorted(name.rstrip("/").rsplit("/", 1)[-1] for name in objects_at(path))
    return [name for name in names if name.startswith(prefix)]


def group_names(path: StorePath, prefix: str = "") -> list[str]:
    """As ``child_names``, but only names of directories that have a ``zarr.json``."""
    if isinstance(path, Path):
        return [name for name in child_names(path, prefix) if node_exists(path / name)]
    root = path.path.rstrip("/") + "/"
    names = (name.removeprefix(root).split("/") for name in objects_below(path))
    return [parts[0] for parts in names if parts[1:] == [ROOT] and parts[0].startswith(prefix)]


def remove_single(name: str, *paths: StorePath) -> None:
    """As ``remove_trees`` for directories that have a single file, which object stores delete without a listing."""
    remove_trees(*(path for path in paths if isinstance(path, Path)))
    if urls := [path / name for path in paths if not isinstance(path, Path)]:
        with suppress(StoreError):
            in_threads(remove_file, urls)


def remove_file(path: StorePath) -> None:
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    with suppress(FileNotFoundError), reaching(path):
        path.fs.rm_file(path.path)


def remove_trees(*paths: StorePath) -> None:
    """Delete directories, or all objects with these prefixes, as far as possible; errors are ignored."""
    for path in paths:
        if isinstance(path, Path):
            shutil.rmtree(path, ignore_errors=True)
    if urls := [path for path in paths if not isinstance(path, Path)]:
        with suppress(StoreError):
            in_threads(remove_objects, urls)
