"""Connections to file systems behind URLs, and their errors in one line. Listings of stores are never cached."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from contextvars import copy_context
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem
from upath import UPath

from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError, first_line, pass_on_machine
from streaming_jsmf.storage.heads import HEAD, FromHead, Progress, SizedStream, known, silent
from streaming_jsmf.storage.local import local_name, require_regular

#: Threads of ``in_threads``, which wait for I/O rather than compute, and those that look at the files of a source.
FILE_THREADS, SOURCE_THREADS = 16, 32

#: What ``state_of`` tells about a file; None if its file system has nothing that changes with the contents.
State: TypeAlias = tuple[int | str | None, ...] | None

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Bytes of a file on a web server, or of a source that is planned, that are read at once.
_READ_BYTES = 4 << 20

#: Reports of the progress of a plan.
_REPORTS = 50

#: fsspec option that controls the caching of listings.
_UNCACHED = "use_listings_cache"

#: What the packages of file systems call values that change with the contents of a file, the most reliable first; in
#: lower case and without punctuation.
_STATES = (
    "etag", "versionid", "version", "generation", "md5hash", "md5checksum", "contentmd5", "md5", "checksum", "digest",
    "sha", "blobid", "lastmodified", "modifiedtime", "mtime", "modified", "modify", "updated", "created",
)  # fmt: skip


def url_file_system(path: str | PathLike[str] | UPath) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, with the options of a ``UPath``, and the path inside it.

    Raises ``InputError`` if the scheme is unknown, its package is not installed, or a login fails.
    """
    if isinstance(path, UPath):
        return path.fs, path.path
    _, chained, archive = str(path).rpartition("::")
    if chained and ("://" not in archive or archive.lower().startswith(("file:", "local:"))):
        require_regular(Path(local_name(archive)))
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
        raise InputError(f"{url}: names only a bucket; give {what} a name in it")
    try:
        path.fs.info(path.path)
    except Exception as error:
        if not is_absence(error):
            pass_on_machine(error)
            raise InputError(
                f"{url}: does not respond ({reason_of(error)}); check address, credentials and network"
            ) from error
    return path


def is_absence(error: BaseException) -> bool:
    """Whether an error says that nothing is at a URL; fsspec also calls failures of HTTP servers "not found"."""
    cause = error.__cause__
    failed = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)
    failed |= type(cause).__module__.startswith("aiohttp") and getattr(cause, "status", None) not in (
        404,
        410,
    )
    return isinstance(error, FileNotFoundError) and not failed


def reason_of(error: BaseException) -> str:
    """The line of an error, or of the failure that fsspec calls "not found"."""
    cause = error.__cause__
    return first_line(cause if cause is not None and isinstance(error, FileNotFoundError) else error)


@contextmanager
def reaching(place: object) -> Iterator[None]:
    """Convert file system errors except ``FileNotFoundError`` to a one-line ``StoreError`` that names the place."""
    try:
        yield
    except StreamingJSMFError:
        raise
    except Exception as error:
        if is_absence(error):
            raise
        # Each package has its own exceptions. The store is intact, so the same command can be run again.
        pass_on_machine(error)
        raise StoreError(
            f"{place}: the object store failed ({reason_of(error)}); run the same command again once it answers"
        ) from error


@contextmanager
def writing(place: object) -> Iterator[None]:
    """As ``reaching`` for a write, which raises ``StoreError`` also without its bucket."""
    try:
        with reaching(place):
            yield
    except FileNotFoundError as error:
        raise StoreError(f"{place}: cannot be written ({first_line(error)}); is the bucket there?") from error


class Reached:
    """A stream from a file system, whose errors are those of ``reaching``."""

    def __init__(self, stream: Any, place: object) -> None:
        self._stream, self._place = stream, place

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stream, name)
        return reaching(self._place)(value) if callable(value) else value

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


def state_of_object(path: str | PathLike[str] | UPath) -> State:
    """Return the size (None if unknown) and the ETag, version, checksum or modification time of a file behind a URL.

    Cached listings are not used. A file in an archive changes with the archive. None if the file system has none of
    these values; errors as ``storage.paths.state_of``.
    """
    if not isinstance(path, UPath):
        path = str(path).rpartition("::")[2]
    return state_in(status_of(path))


def state_in(info: Mapping[str, Any]) -> State:
    """As ``state_of_object``, of what a file system has answered about the file."""
    values = {re.sub(r"[\W_]", "", str(name)).lower(): value for name, value in info.items()}
    state = next((str(values[name]) for name in _STATES if values.get(name)), None)
    return None if state is None else (values.get("size"), state)


def asked(request: str, path: str | PathLike[str] | UPath, **options: Any) -> Any:
    """What the file system of a URL answers; cached listings would miss what was written since then."""
    fs, inner = url_file_system(path)
    fs.invalidate_cache(inner)
    with reaching(path):
        return getattr(fs, request)(inner, **options)


def info_of(path: str | PathLike[str] | UPath) -> Mapping[str, Any] | None:
    """What the file system of a URL tells about it; None if nothing is there.

    fsspec's ``exists``, ``isfile`` and ``isdir`` answer False to every error, such as a lack of permission.
    """
    try:
        return status_of(path)
    except FileNotFoundError:
        return None


def status_of(path: str | PathLike[str] | UPath) -> Mapping[str, Any]:
    """What the file system of a URL tells about it, which is requested once while planning; errors as ``asked``."""
    held, key = known(), str(path)
    if held is None or isinstance(path, UPath):
        found: Mapping[str, Any] = asked("info", path)
        return found
    if key not in held.statuses:
        held.statuses[key] = asked("info", path)
    return held.statuses[key]


@contextmanager
def open_object(path: str | PathLike[str] | UPath) -> Iterator[Any]:
    """Open a file behind a URL as a binary stream; its start is read once while planning. Errors as ``reaching``."""
    fs, inner = url_file_system(path)
    fs.invalidate_cache()
    on_web, held = "http" in fs.protocol, None if isinstance(path, UPath) else known()
    status = status_of(path) if on_web or held is not None else {}
    size: Any = status.get("size") if status.get("partial", True) else None

    def opened() -> Any:
        if held is not None and size and not on_web:  # opening would ask for the status again
            return BufferedReader(Ranges(path, size), _READ_BYTES)
        return Reached(OnWeb(fs, inner, size) if on_web and size else fs.open(inner, "rb"), path)

    def head() -> bytes:
        if not on_web:
            return bytes(asked("cat_file", path, start=0, end=min(HEAD, size)))
        with reaching(path), closing(opened()) as stream:
            return bytes(stream.read(min(HEAD, size)))

    if size is None or held is None:
        with closing(opened()) as stream:
            yield BufferedReader(stream, _READ_BYTES) if on_web and size else stream
        return
    with BufferedReader(FromHead(lambda: held.head(str(path), head), size, opened), HEAD) as headed:
        yield headed


class OnWeb(SizedStream):
    """A file on a web server: in ranges, or as one stream if the server has no ranges.

    fsspec reads ahead in parts that overlap, and does not change to a stream.
    """

    def __init__(self, fs: Any, name: str, size: int) -> None:
        super().__init__(size)
        self._fs, self._name = fs, name
        self._ranges: Any = fs.open(name, "rb", size=size, cache_type="none")
        self._stream: Any = None
        self._at = 0

    def read_at(self, size: int) -> bytes:
        if self._stream is None:
            self._ranges.seek(self.position)
            try:
                return bytes(self._ranges.read(size))
            except ValueError as error:
                if "range requests" not in str(error):
                    raise
        if self._stream is None or self._at > self.position:
            self._stream, self._at = self._fs.open(self._name, "rb", block_size=0), 0
        while self._at < self.position and (
            skipped := self._stream.read(min(self.position - self._at, HEAD))
        ):
            self._at += len(skipped)
        data = bytes(self._stream.read(size))
        self._at += len(data)
        return data

    def close(self) -> None:
        for stream in (self._ranges, self._stream):
            if stream is not None:
                stream.close()
        super().close()


def keep_status(path: str, status: Mapping[str, Any]) -> None:
    """While planning, let ``status_of`` return what a listing tells about a file, if that identifies its contents."""
    held = known()
    if held is not None and status.get("size") is not None and state_in(status):
        held.statuses.setdefault(path, status)


def files_below(fs: Any, folder: str, depth: int | None = None) -> dict[str, Mapping[str, Any]]:
    """What a file system tells about the files below a folder, at most ``depth`` levels, by their names.

    Empty if the folder does not exist. Links of a local file system are files. Unlike ``find`` and ``glob`` of fsspec,
    which leave out folders that they cannot list, raises every error except that a folder is missing.
    """
    find = getattr(type(fs), "_find", type(fs).find)
    if depth is None and find not in (AbstractFileSystem.find, AsyncFileSystem._find):
        return dict(fs.find(folder, detail=True))  # an object store has one listing of all levels
    found, folders = dict[str, Mapping[str, Any]](), [(folder, 1)]
    while folders:
        here, level = folders.pop()
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in fs.ls(here, detail=True):
                name = str(entry["name"])
                if entry["type"] != "directory":
                    found[name] = entry
                elif level != depth and name.strip("/") != here.strip("/"):
                    folders.append((name, level + 1))
    return found


class Ranges(SizedStream):
    """An object as a raw stream; each read is one request, and threads may read the same object."""

    def __init__(self, path: str | PathLike[str] | UPath, size: int) -> None:
        super().__init__(size)
        self._path = path

    def read_at(self, size: int) -> bytes:
        return bytes(asked("cat_file", self._path, start=self.position, end=self.position + size))


def objects_at(path: str | PathLike[str] | UPath) -> list[str]:
    """Return the names of objects and prefixes directly below a prefix."""
    try:
        return [*map(str, asked("ls", path, detail=False))]
    except FileNotFoundError:
        return []


def objects_below(path: UPath) -> list[str]:
    """Return the sorted names of all objects with a prefix."""
    try:
        return sorted(map(str, asked("find", path)))
    except FileNotFoundError:
        return []


def remove_objects(path: UPath, kept: Collection[str] = ()) -> None:
    """Delete all objects with a prefix, except those ``kept``, in bulk requests; on errors some may remain."""
    if names := [name for name in objects_below(path) if name not in kept]:
        with suppress(FileNotFoundError), reaching(path):
            path.fs.rm(names)


def in_threads(
    function: Callable[[Item], Result], items: Sequence[Item], at_once: int = FILE_THREADS
) -> list[Result]:
    """Apply ``function`` to all items in threads; returns results, or raises the first failure, in order."""
    contexts = [copy_context() for _ in items]  # with what is known while planning
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        return list(pool.map(lambda context, item: context.run(function, item), contexts, items))


def of_each_file(
    function: Callable[[Item], Result], files: Sequence[Item], progress: Progress = silent
) -> list[Result]:
    """As ``in_threads``, for what is found out about the files of a source."""
    found, step = list[Result](), max(SOURCE_THREADS, len(files) // _REPORTS)
    runs = [files[start : start + step] for start in range(0, len(files), step)]
    sizes = [*map(len, runs)]
    progress(sizes, 0)
    for done, run in enumerate(runs, 1):
        found += in_threads(function, run, SOURCE_THREADS)
        progress(sizes, done)
    return found
