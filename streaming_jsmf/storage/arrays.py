"""Zarr arrays with digests: whole chunks by a single writer, verified on read.

Zarr reads a missing chunk as zeros. All chunks are written, so reading a missing one is an error here.
"""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from upath import UPath
from zarr.abc.store import ByteRequest, OffsetByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import FsspecStore, LocalStore

from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.storage.large_arrays import large_empty
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.objects import reaching, writing
from streaming_jsmf.storage.paths import StorePath, inside, node_exists, write_json

#: Uncompressed bytes per chunk: large enough for object stores, small enough to read a panel of words.
CHUNK_BYTES = 16 * 2**20

#: Names of chunks, of an array or below a group.
_CHUNK = re.compile(r"(.*/)?c(/[0-9]+)*")


@dataclass(frozen=True)
class Variable:
    """Description of a stored array: its dimensions, its meaning, and its symbol in the papers if it has one."""

    dimensions: tuple[str, ...]
    meaning: str
    symbol: str = ""

    def attributes(self) -> dict[str, str]:
        """Attributes of the array in xarray."""
        return {"long_name": self.meaning, **({"symbol": self.symbol} if self.symbol else {})}


@dataclass(frozen=True)
class ArrayDigest:
    """Digest, shape and dtype of an array, as stored in records, and the sizes of its ``frames`` in a packed file."""

    sha256: str
    shape: tuple[int, ...]
    dtype: str
    frames: tuple[int, ...] = field(default=(), compare=False)

    def fields(self) -> dict[str, Any]:
        plain = {"sha256": self.sha256, "shape": list(self.shape), "dtype": self.dtype}
        return {**plain, "frames": list(self.frames)} if self.frames else plain

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ArrayDigest:
        shape, frames = (tuple(map(int, sizes)) for sizes in (fields["shape"], fields.get("frames", ())))
        return cls(str(fields["sha256"]), shape, str(fields["dtype"]), frames)


def digest(values: NDArray[Any]) -> ArrayDigest:
    """Return the digest of an array: sha256 of its bytes in C order (strings as UTF-8, each terminated by NUL)."""
    total, rows = RunningDigest(values.dtype), chunk_rows(values)
    for start in range(0, len(values), rows):
        total.add(values[start : start + rows])
    return total.of(values.shape)


class RunningDigest:
    """Digest of an array that arrives in panels of rows."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._total = hashlib.sha256()
        self._name = "str" if dtype.kind in "OUT" else dtype.name

    def add(self, values: NDArray[Any]) -> None:
        if self._name == "str":
            words = [f"{word}\0" for word in values.ravel()]
            self._total.update("".join(words).encode())
        else:
            self._total.update(np.ascontiguousarray(values).data)

    def of(self, shape: Sequence[int]) -> ArrayDigest:
        return ArrayDigest(self._total.hexdigest(), tuple(int(n) for n in shape), self._name)


def chunk_rows(values: NDArray[Any]) -> int:
    size = 16 if values.dtype.kind in "OUT" else values.dtype.itemsize
    row = size * math.prod(values.shape[1:])
    return min(max(1, CHUNK_BYTES // max(row, 1)), max(len(values), 1))


def create_group(path: StorePath, attributes: Mapping[str, Any]) -> None:
    """Create a Zarr v3 group at ``path`` with JSON attributes."""
    zarr.create_group(store=zarr_store(path), attributes=dict(attributes), zarr_format=3)


def replace_attributes(path: StorePath, attributes: Mapping[str, Any]) -> None:
    """Replace the attributes of the group at ``path`` atomically; its directory must exist."""
    group = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}
    write_json(path / "zarr.json", group)


def read_attributes(path: StorePath, *, hint: str = "make the store again") -> dict[str, Any]:
    """Return the attributes of the group at ``path``; raise ``StoreError`` if its metadata are damaged."""
    try:
        attributes: dict[str, Any] = zarr.open_group(
            store=zarr_store(path), mode="r", zarr_format=3
        ).attrs.asdict()
    except Exception as error:  # as in _open_array
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
    """Write or replace array ``name`` of a group in chunks of whole rows; return its digest.

    Factors of random data are not compressed: compression saves 4 to 12 % and takes longer than the write.
    """
    shape, dtype, rows = values.shape, values.dtype, chunk_rows(values)
    return write_panels(
        group, name, [values], shape, dtype, dimensions, attributes, rows=rows, compress=compress
    )


def write_arrays(
    group: StorePath,
    arrays: Mapping[str, NDArray[Any]],
    variables: Mapping[str, Variable],
    *,
    compress: bool = False,
) -> dict[str, dict[str, Any]]:
    """Write described arrays of a group; return the fields of their digests by name."""
    digests = {}
    for name, values in arrays.items():
        described = variables[name]
        written = write_array(
            group, name, values, described.dimensions, described.attributes(), compress=compress
        )
        digests[name] = written.fields()
    return digests


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
    compress: bool = True,
) -> ArrayDigest:
    """As ``write_array``, but in chunks of ``rows``, and from pieces of consecutive rows of any size.

    At most one chunk and one piece are in memory. Raises ``ValueError`` if the number of rows differs from ``shape``.
    """
    array = _make_array(inside(group, name), shape, dtype, rows, dimensions, attributes, compress)
    total, start = RunningDigest(dtype), 0
    for chunk in _cut(panels, rows):
        array[start : start + len(chunk)] = chunk
        total.add(chunk)
        start += len(chunk)
    if start != shape[0]:
        raise ValueError(f"{name} has {start} rows, not {shape[0]}")
    return total.of(shape)


def _cut(pieces: Iterable[NDArray[Any]], rows: int) -> Iterator[NDArray[Any]]:
    """Yield the same rows in chunks of ``rows``, and the rest in a smaller one."""
    held: list[NDArray[Any]] = []
    for piece in pieces:
        held.append(piece)
        while sum(map(len, held)) >= rows:
            whole = held[0] if len(held) == 1 else np.concatenate(held)
            yield whole[:rows]
            held = [whole[rows:]]
    if any(map(len, held)):
        yield np.concatenate(held)


def _make_array(
    place: StorePath,
    shape: Sequence[int],
    dtype: np.dtype[Any],
    rows: int,
    dimensions: Sequence[str],
    attributes: Mapping[str, Any] | None,
    compress: bool,
) -> zarr.Array[Any]:
    """Create a Zarr array in chunks of whole rows, without values."""
    text = dtype.kind in "OUT"
    with warnings.catch_warnings():
        # The Zarr v3 specification of variable-length strings is not final; xarray and zarr-python are compatible.
        warnings.filterwarnings("ignore", category=zarr.errors.UnstableSpecificationWarning)
        return zarr.create_array(
            # The array is its own root: with a name Zarr would create parent groups, and a root group marks a store.
            store=zarr_store(place),
            shape=tuple(shape),
            dtype=str if text else dtype,
            # A factor of empty documents has no columns, but chunks need at least one.
            chunks=(rows, *(max(1, n) for n in shape[1:])),
            compressors="auto" if compress or text else None,
            dimension_names=list(dimensions),
            attributes=dict(attributes or {}),
            # Comparing each chunk with zeros takes longer than writing the few empty ones.
            config={"write_empty_chunks": True},
            overwrite=node_exists(place),
        )


def read_array(
    group: StorePath, name: str, expected: ArrayDigest | None, *, hint: str = "make the store again"
) -> NDArray[Any]:
    """Read array ``name`` of a group and compare it with its digest.

    Raises ``StoreError`` if it is missing, truncated or altered, or an object store fails. The message names the array
    and, if known, the chunk, and ends with ``hint``.
    """
    array = _open_array(inside(group, name), expected, hint)
    values = large_empty(array.shape, object if array.dtype.kind in "OUT" else array.dtype)
    for rows, panel in _panels(array, group / name, expected, hint):
        values[rows] = panel
    return values


def read_panels(
    group: StorePath, name: str, expected: ArrayDigest | None, *, hint: str = "make the store again"
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """As ``read_array``, but yield the rows and values of one chunk at a time.

    The digest is checked only after the last panel, so altered values raise ``StoreError`` at the end; None for values
    that were verified before.
    """
    return _panels(_open_array(inside(group, name), expected, hint), group / name, expected, hint)


def _panels(
    array: zarr.Array[Any], place: StorePath, expected: ArrayDigest | None, hint: str
) -> Iterator[tuple[slice, NDArray[Any]]]:
    total, step = RunningDigest(array.dtype), int(array.chunks[0]) if array.ndim else 1
    for number, start in enumerate(range(0, array.shape[0], step)):
        rows = slice(start, start + step)
        try:
            panel = np.asarray(array[rows])
        except StoreError:
            raise
        except Exception as error:
            pass_on_machine(error)
            # Codecs raise various exceptions for a short buffer; all of them mean damage here.
            chunk = "/".join(["c", str(number), *["0"] * (array.ndim - 1)])
            raise StoreError(f"{place}/{chunk}: chunk is missing, truncated or damaged; {hint}") from error
        if expected is not None:
            total.add(panel)
        yield rows, panel
    if expected is not None and total.of(array.shape) != expected:
        raise StoreError(f"{place}: values differ from the committed digest; {hint}")


def _open_array(place: StorePath, expected: ArrayDigest | None, hint: str) -> zarr.Array[Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=zarr.errors.UnstableSpecificationWarning)
        try:
            array = zarr.open_array(store=zarr_store(place), mode="r", zarr_format=3)
        except Exception as error:
            pass_on_machine(error)
            # zarr raises various exceptions for damaged metadata.
            reason = " ".join(str(error).split())
            raise StoreError(
                f"{place}: array is missing or its metadata is damaged ({reason}); {hint}"
            ) from error
    if 0 in array.chunks:
        raise StoreError(f"{place}: its metadata is damaged (chunks of shape {array.chunks}); {hint}")
    if expected is not None and tuple(array.shape) != expected.shape:
        raise StoreError(f"{place}: has shape {array.shape}, {expected.shape} was committed; {hint}")
    return array


def zarr_store(path: StorePath) -> LocalFiles | ObjectStore:
    """Return the Zarr store of the node at ``path``, local or on the file system of the URL."""
    # Zarr would interpret a local path with :: as a chain of file systems.
    return LocalFiles(path) if isinstance(path, Path) else ObjectStore.at(path)


def _require_chunk(found: Buffer | None, place: StorePath | str, key: str) -> Buffer | None:
    if found is None and _CHUNK.fullmatch(key):
        raise FileNotFoundError(f"{place}/{key}: chunk is missing")
    return found


class LocalFiles(LocalStore):
    """Zarr store in a local directory that reads only regular files."""

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read a file; None if it is missing and no chunk."""
        with suppress(FileNotFoundError, NotADirectoryError):
            require_regular(self.root / key, StoreError)
        return _require_chunk(await super().get(key, prototype, byte_range), self.root, key)


class ObjectStore(FsspecStore):
    """Zarr store on fsspec that distinguishes a failing file system from a damaged array."""

    @classmethod
    def at(cls, path: UPath) -> ObjectStore:
        # Open by URL, since zarr needs a file system instance bound to its own event loop.
        return cls.from_url(str(path), storage_options={**path.storage_options})  # type: ignore[return-value]

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read an object; None if it is missing and no chunk."""
        # Without a range, some packages request the size first.
        with reaching(f"{self.path}/{key}"):
            found = await super().get(key, prototype, byte_range or OffsetByteRequest(0))
        return _require_chunk(found, self.path, key)

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        with writing(f"{self.path}/{key}"):
            await super().set(key, value, byte_range)

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
