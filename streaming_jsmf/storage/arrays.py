"""Arrays in Zarr with a digest each: whole chunks by one writer, verified when they are read.

A missing Zarr chunk reads as zeros, so that the files alone never tell whether an array is whole. The sha256 of its
values does.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from upath import UPath
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import FsspecStore, LocalStore

from streaming_jsmf.errors import StoreError, first_line, pass_on_machine
from streaming_jsmf.storage.objects import reaching
from streaming_jsmf.storage.paths import StorePath, inside

#: Bytes of a chunk before compression: large enough for object stores, small enough to read a panel of words.
CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class ArrayDigest:
    """What a record keeps of an array: enough to know it again."""

    sha256: str
    shape: tuple[int, ...]
    dtype: str

    def fields(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ArrayDigest:
        """Read back what ``fields`` gave."""
        return cls(str(fields["sha256"]), tuple(int(n) for n in fields["shape"]), str(fields["dtype"]))


def digest(values: NDArray[Any]) -> ArrayDigest:
    """Return the digest of an array: sha256 over its bytes in C order (strings as UTF-8, each ended by NUL)."""
    total = _Digest(values.dtype)
    for panel in _panels(values.shape, values.dtype.itemsize):
        total.add(values[panel])
    return total.of(values.shape)


class _Digest:
    """The digest of an array that comes a panel of rows after the other."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._total = hashlib.sha256()
        self._name = "str" if dtype.kind in "OUT" else dtype.name

    def add(self, values: NDArray[Any]) -> None:
        """The next rows."""
        if self._name == "str":
            words = [f"{word}\0" for word in values.ravel()]
            self._total.update("".join(words).encode())
        else:
            self._total.update(np.ascontiguousarray(values).data)

    def of(self, shape: Sequence[int]) -> ArrayDigest:
        """The digest, once all rows have come."""
        return ArrayDigest(self._total.hexdigest(), tuple(int(n) for n in shape), self._name)


def _chunk_rows(shape: Sequence[int], itemsize: int) -> int:
    row = itemsize * int(np.prod(shape[1:], dtype=np.int64)) if len(shape) > 1 else itemsize
    return int(min(max(1, CHUNK_BYTES // max(row, 1)), max(shape[0], 1)))


def _panels(shape: Sequence[int], itemsize: int) -> Iterator[slice]:
    step = _chunk_rows(shape, itemsize)
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def zarr_store(path: StorePath) -> LocalStore | ObjectStore:
    """What Zarr takes for the node at ``path``: its store on the local disk, or on the file system of the URL."""
    # Of a local path with :: in it Zarr would make a chain of file systems.
    return LocalStore(path) if isinstance(path, Path) else ObjectStore.at(path)


def create_group(path: StorePath, attributes: Mapping[str, Any]) -> None:
    """Make a Zarr v3 group at ``path`` with the given JSON attributes."""
    zarr.create_group(store=zarr_store(path), attributes=dict(attributes), zarr_format=3)


def read_attributes(path: StorePath, *, hint: str = "make the store again") -> dict[str, Any]:
    """Return the JSON attributes of the group at ``path``; ``StoreError`` if its metadata are damaged."""
    try:
        attributes: dict[str, Any] = zarr.open_group(
            store=zarr_store(path), mode="r", zarr_format=3
        ).attrs.asdict()
    except Exception as error:  # as of an array
        pass_on_machine(error)
        reason = " ".join(str(error).split())
        raise StoreError(f"{path}/zarr.json: metadata are damaged ({reason}); {hint}") from error
    return attributes


def write_array(
    group: StorePath,
    name: str,
    values: NDArray[Any],
    dimensions: Sequence[str],
    attributes: Mapping[str, Any] | None = None,
    *,
    compress: bool = False,
) -> ArrayDigest:
    """Write ``values`` as array ``name`` of the group at ``group``, replacing what may lie there.

    Chunks are whole panels of rows, written by this call alone. Factors of random data are not compressed:
    it gains 4 to 12 % and costs more than the write.

    Returns
    -------
    ArrayDigest
        Of the values, for the record that commits the array.
    """
    text = values.dtype.kind in "OUT"
    itemsize = 16 if text else values.dtype.itemsize
    rows = _chunk_rows(values.shape, itemsize)
    array = _make_array(group / name, values.shape, values.dtype, rows, dimensions, attributes, compress)
    for panel in _panels(values.shape, itemsize):
        array[panel] = values[panel]
    return digest(values)


def write_panels(
    group: StorePath,
    name: str,
    panels: Iterable[NDArray[Any]],
    shape: Sequence[int],
    dtype: np.dtype[Any],
    dimensions: Sequence[str],
    attributes: Mapping[str, Any] | None = None,
    *,
    rows: int,
) -> ArrayDigest:
    """As ``write_array``, compressed, for rows that come in pieces of any size and in order; chunks of ``rows``.

    No more than a chunk and a piece are in memory.

    Raises
    ------
    ValueError
        If there are more rows than ``shape`` says, or fewer.
    """
    array = _make_array(group / name, shape, dtype, rows, dimensions, attributes, compress=True)
    total, start, held = _Digest(dtype), 0, 0
    pieces: list[NDArray[Any]] = []
    for piece in panels:
        pieces.append(piece)
        held += len(piece)
        while held >= rows:
            whole = np.concatenate(pieces)
            _write_rows(array, start, whole[:rows], total)
            pieces, start, held = [whole[rows:]], start + rows, held - rows
    if held:
        _write_rows(array, start, np.concatenate(pieces), total)
    if start + held != shape[0]:
        raise ValueError(f"{name} has {start + held} rows, not {shape[0]}")
    return total.of(shape)


def _write_rows(array: zarr.Array[Any], start: int, values: NDArray[Any], total: _Digest) -> None:
    array[start : start + len(values)] = values
    total.add(values)


def _make_array(
    place: StorePath,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    rows: int,
    dimensions: Sequence[str],
    attributes: Mapping[str, Any] | None,
    compress: bool,
) -> zarr.Array[Any]:
    """A Zarr array in chunks of whole rows, still without values."""
    text = dtype.kind in "OUT"
    with warnings.catch_warnings():
        # Variable-length strings have no final Zarr v3 specification yet; xarray and zarr-python agree on them.
        warnings.filterwarnings("ignore", category=zarr.errors.UnstableSpecificationWarning)
        return zarr.create_array(
            # At its own root: of a name Zarr would make groups of the nodes above, and a root group makes a store.
            store=zarr_store(place),
            shape=tuple(shape),
            dtype=str if text else dtype,
            # A factor of empty documents has no columns; a chunk has at least one.
            chunks=(rows, *(max(1, n) for n in shape[1:])),
            compressors="auto" if compress or text else None,
            dimension_names=list(dimensions),
            attributes=dict(attributes or {}),
            # Comparing each chunk with zeros costs more than to write the few that are.
            config={"write_empty_chunks": True},
            overwrite=True,
        )


def read_array(
    group: StorePath, name: str, expected: ArrayDigest | None, *, hint: str = "make the store again"
) -> NDArray[Any]:
    """Read array ``name`` of the group at ``group`` and compare it with its digest.

    ``hint`` ends the message about damage.

    Raises
    ------
    StoreError
        If it is missing, truncated or altered; the message names the array, and the chunk where that can be told.
        Also if an object store fails.
    """
    array = _open_array(inside(group, name), expected, hint)
    values = np.empty(array.shape, dtype=object if array.dtype.kind in "OUT" else array.dtype)
    for panel, part in _chunk_panels(array, group / name, hint):
        values[panel] = part
    if expected is not None and digest(values) != expected:
        raise _altered(group / name, hint)
    return values


def read_arrays(
    group: StorePath, expected: Mapping[str, ArrayDigest], *, hint: str = "make the store again"
) -> dict[str, NDArray[Any]]:
    """The arrays that ``expected`` names, each as ``read_array`` reads it."""
    return {name: read_array(group, name, known, hint=hint) for name, known in expected.items()}


def read_panels(
    group: StorePath, name: str, expected: ArrayDigest, *, hint: str = "make the store again"
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """As ``read_array``, a chunk of rows at a time: the rows, and their values.

    Only when the last panel has been taken is it known that the values are those of the digest.

    Raises
    ------
    StoreError
        As ``read_array``; for altered values after the last panel.
    """
    array = _open_array(inside(group, name), expected, hint)
    total = _Digest(array.dtype)
    for panel, part in _chunk_panels(array, group / name, hint):
        total.add(part)
        yield panel, part
    if total.of(array.shape) != expected:
        raise _altered(group / name, hint)


def _open_array(place: StorePath, expected: ArrayDigest | None, hint: str) -> zarr.Array[Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=zarr.errors.UnstableSpecificationWarning)
        try:
            array = zarr.open_array(store=zarr_store(place), mode="r", zarr_format=3)
        except Exception as error:
            pass_on_machine(error)
            # Damaged metadata may say anything, and zarr raises what it likes of it.
            reason = " ".join(str(error).split())
            raise StoreError(
                f"{place}: array is missing or its metadata is damaged ({reason}); {hint}"
            ) from error
    if expected is not None and tuple(array.shape) != expected.shape:
        raise StoreError(f"{place}: has shape {array.shape}, {expected.shape} was committed; {hint}")
    return array


def _chunk_panels(
    array: zarr.Array[Any], place: StorePath, hint: str
) -> Iterator[tuple[slice, NDArray[Any]]]:
    step = int(array.chunks[0]) if array.ndim else 1
    for number, start in enumerate(range(0, array.shape[0], step)):
        panel = slice(start, start + step)
        try:
            part = np.asarray(array[panel])
        except StoreError:
            raise
        except Exception as error:
            pass_on_machine(error)
            # Each codec raises what it likes on a short buffer; every one of them means damage here.
            chunk = "/".join(["c", str(number), *["0"] * (array.ndim - 1)])
            raise StoreError(f"{place}/{chunk}: chunk is truncated or damaged; {hint}") from error
        yield panel, part


def _altered(place: StorePath, hint: str) -> StoreError:
    return StoreError(
        f"{place}: values differ from the committed digest (a chunk is missing or altered); {hint}"
    )


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
            raise StoreError(f"{self.path}/{key}: cannot be written ({first_line(error)})") from error

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
