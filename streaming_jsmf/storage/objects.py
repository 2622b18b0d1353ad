"""Stores behind URLs, where there are objects only: no directories, no rename, a write is there at once or not at all.

What takes the place of a rename: everything is written under its final name, and the object that makes it count, a
record or the ``zarr.json`` of the root, comes last in one write. Until then an object named ``MARK`` tells the rests of
a write that was cut off from what somebody else put there. Listings are never taken from a cache: another process
may have committed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from upath import UPath
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import FsspecStore

from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError

#: Its presence without a ``zarr.json`` beside it means: begun by us, never finished.
MARK = ".unfinished"

#: What makes a store: without it the other objects are rests.
ROOT = "zarr.json"

#: The option of every fsspec file system that makes it ask again each time.
_UNCACHED = "use_listings_cache"


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
        raise InputError(f"{url}: cannot be opened ({_line(error)})") from error
    if not path.name:
        raise InputError(f"{url}: names no more than a bucket; give {what} a name in it")
    try:
        path.exists()
    except Exception as error:
        raise InputError(
            f"{url}: does not answer ({_line(error)}); check address, credentials and network"
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
        raise StoreError(
            f"{place}: the object store failed ({_line(error)}); run the same command again once it answers"
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
        raise StoreError(f"{path}: cannot be written ({_line(error)}); is the bucket there?") from error


def get(path: UPath) -> bytes:
    """Read one object; ``FileNotFoundError`` if there is none, ``StoreError`` if it cannot be read."""
    with reaching(path):
        # From its first byte: without a range some packages ask for the size before.
        return bytes(path.fs.cat_file(path.path, start=0))


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
    """Delete a store: first it ceases to be one, then its rests go, so that nobody takes half of it for a whole."""
    if has(path / ROOT):
        put(path / MARK, b"")
        delete(path / ROOT)
    delete_tree(path)


def is_rest(path: UPath) -> bool:
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
    if overwrite or is_rest(target):
        delete_store(target)
    try:
        with reaching(target):
            target.fs.pipe_file((target / MARK).path, b"")
    except FileNotFoundError as error:
        raise InputError(f"{target}: cannot be written ({_line(error)}); make the bucket first") from error
    try:
        yield target
        delete(target / MARK)
    except BaseException:
        # What went wrong first is what the user must hear.
        with suppress(StoreError):
            delete_store(target)
        raise


class ObjectStore(FsspecStore):
    """Zarr's store on fsspec; a failing file system is told from a damaged array."""

    @classmethod
    def at(cls, path: UPath) -> ObjectStore:
        """The store whose root is ``path``."""
        # By the URL: zarr needs an instance of the file system that belongs to its own event loop.
        return cls.from_url(str(path), storage_options={**path.storage_options})  # type: ignore[return-value]

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read an object, or None."""
        with reaching(f"{self.path}/{key}"):
            return await super().get(key, prototype, byte_range)

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        """Write an object."""
        try:
            with reaching(f"{self.path}/{key}"):
                await super().set(key, value, byte_range)
        except FileNotFoundError as error:
            raise StoreError(f"{self.path}/{key}: cannot be written ({_line(error)})") from error

    async def exists(self, key: str) -> bool:
        """Whether there is an object; Zarr asks for metadata only, and one small read is cheaper than a listing."""
        return await self.get(key, default_buffer_prototype()) is not None

    async def delete_dir(self, prefix: str) -> None:
        """Delete all objects below a prefix: a listing, and a request if there are any."""
        place = f"{self.path}/{prefix}".rstrip("/")
        with suppress(FileNotFoundError), reaching(place):
            names = await self.fs._find(place)
            if names:
                await self.fs._rm(names)


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
