"""Where the chunks of Zarr arrays are: objects behind a URL, or local files.

Uncompressed chunks in local files are read and written without the copies that Zarr makes of each. The files are the
same. Other arrays are left to Zarr.
"""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import zarr
from numpy.typing import NDArray
from upath import UPath
from zarr.abc.store import ByteRequest
from zarr.codecs import BytesCodec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.metadata import ArrayV3Metadata
from zarr.storage import FsspecStore, LocalStore

from streaming_jsmf.errors import StoreError, first_line
from streaming_jsmf.storage.objects import reaching
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.regular import require_regular


def chunk_name(array: zarr.Array[Any], number: int) -> str:
    """Path of a chunk of whole rows below the array."""
    return "/".join(["c", str(number), *["0"] * (array.ndim - 1)])


def read_chunk(array: zarr.Array[Any], place: StorePath, number: int, out: NDArray[Any]) -> bool:
    """Read the rows of chunk ``number`` into ``out``, or return False: Zarr must read them, or find what is wrong."""
    if not (isinstance(place, Path) and _is_plain(array, out)):
        return False
    path = place / chunk_name(array, number)
    try:
        require_regular(path, StoreError)
        with path.open("rb", buffering=0) as file:
            view = _bytes(out)
            while len(view) and (count := file.readinto(view)):
                view = view[count:]
            return not len(view) and file.seek(0, 2) == _chunk_bytes(array)
    except OSError:
        return False


def write_chunk(array: zarr.Array[Any], place: StorePath, number: int, values: NDArray[Any]) -> bool:
    """Write the rows of chunk ``number`` of a new array, or return False: Zarr must write them."""
    if not (isinstance(place, Path) and values.flags.c_contiguous and _is_plain(array, values)):
        return False
    target = place / chunk_name(array, number)
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb", buffering=0) as file:
        view = _bytes(values)
        while len(view):
            view = view[file.write(view) :]
        # The last chunk has the size of the others.
        file.truncate(_chunk_bytes(array))
    return True


def _is_plain(array: zarr.Array[Any], values: NDArray[Any]) -> bool:
    """Whether chunks are the bytes of ``values`` in whole rows."""
    meta = array.metadata
    return (
        isinstance(meta, ArrayV3Metadata)
        and meta.codecs == (BytesCodec(endian=sys.byteorder),)
        and meta.chunk_key_encoding.encode_chunk_key((0,) * array.ndim) == chunk_name(array, 0)
        and array.chunks[1:] == array.shape[1:]
        and array.dtype == values.dtype
        and values.dtype.kind in "biuf"
        and values.size > 0
    )


def _bytes(values: NDArray[Any]) -> memoryview:
    return memoryview(values.data).cast("B")


def _chunk_bytes(array: zarr.Array[Any]) -> int:
    # Damaged metadata may claim chunks that no NumPy integer can count.
    return array.dtype.itemsize * math.prod(array.chunks)


def zarr_store(path: StorePath) -> LocalFiles | ObjectStore:
    """Return the Zarr store of the node at ``path``, local or on the file system of the URL."""
    # Zarr would interpret a local path with :: as a chain of file systems.
    return LocalFiles(path) if isinstance(path, Path) else ObjectStore.at(path)


class LocalFiles(LocalStore):
    """Zarr store in a local directory that reads only regular files."""

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read a file; None if it is missing."""
        with suppress(FileNotFoundError, NotADirectoryError):
            require_regular(self.root / key, StoreError)
        return await super().get(key, prototype, byte_range)


class ObjectStore(FsspecStore):
    """Zarr store on fsspec that distinguishes a failing file system from a damaged array."""

    @classmethod
    def at(cls, path: UPath) -> ObjectStore:
        # Open by URL, since zarr needs a file system instance bound to its own event loop.
        return cls.from_url(str(path), storage_options={**path.storage_options})  # type: ignore[return-value]

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read an object; None if it is missing."""
        with reaching(f"{self.path}/{key}"):
            return await super().get(key, prototype, byte_range)

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        try:
            with reaching(f"{self.path}/{key}"):
                await super().set(key, value, byte_range)
        except FileNotFoundError as error:
            raise StoreError(f"{self.path}/{key}: cannot be written ({first_line(error)})") from error

    async def exists(self, key: str) -> bool:
        """Whether an object exists; Zarr checks only metadata, and a small read is cheaper than a listing."""
        return await self.get(key, default_buffer_prototype()) is not None

    async def delete_dir(self, prefix: str) -> None:
        """Delete all objects below a prefix: one listing, and one request if there are any."""
        place = f"{self.path}/{prefix}".rstrip("/")
        with suppress(FileNotFoundError), reaching(place):
            names = await self.fs._find(place)
            if names:
                await self.fs._rm(names)
