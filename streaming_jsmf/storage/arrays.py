"""Zarr arrays with digests: whole chunks by a single writer, verified on read.

A missing Zarr chunk reads as zeros, so only the sha256 of the values shows whether an array is complete.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError, pass_on_machine
from streaming_jsmf.fingerprint import sealed, unsealed
from streaming_jsmf.storage.chunks import chunk_name, read_chunk, write_chunk, zarr_store
from streaming_jsmf.storage.paths import StorePath, inside, write_json

#: Uncompressed bytes per chunk: large enough for object stores, small enough to read a panel of words.
CHUNK_BYTES = 16 * 2**20


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
    """Digest, shape and dtype of an array, as stored in records."""

    sha256: str
    shape: tuple[int, ...]
    dtype: str

    def fields(self) -> dict[str, Any]:
        return {**asdict(self), "shape": list(self.shape)}

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> ArrayDigest:
        return cls(str(fields["sha256"]), tuple(int(n) for n in fields["shape"]), str(fields["dtype"]))


def digest(values: NDArray[Any]) -> ArrayDigest:
    """Return the digest of an array: sha256 of its bytes in C order (strings as UTF-8, each terminated by NUL)."""
    total = _Digest(values.dtype)
    for panel in _panels(values.shape, values.dtype.itemsize):
        total.add(values[panel])
    return total.of(values.shape)


class _Digest:
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


def _chunk_rows(shape: Sequence[int], itemsize: int) -> int:
    row = itemsize * int(np.prod(shape[1:], dtype=np.int64)) if len(shape) > 1 else itemsize
    return int(min(max(1, CHUNK_BYTES // max(row, 1)), max(shape[0], 1)))


def _panels(shape: Sequence[int], itemsize: int) -> Iterator[slice]:
    step = _chunk_rows(shape, itemsize)
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


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


def sealed_as(kind: str, version: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of a group with its kind, format version and the fingerprint that ``read_sealed`` checks."""
    return sealed({"kind": kind, "format_version": version, **attributes})


def read_sealed(
    path: StorePath, kind: str, version: int, *, what: str, hint: str, other_kind: str | None = None
) -> dict[str, Any]:
    """Return the attributes of a group that were made by ``sealed_as``.

    Raises ``StoreError`` if they were changed, are damaged, or have another kind or version. The message names
    ``what`` is damaged and ends with ``hint``. If users name the group, another kind or version is an ``InputError``,
    whose message for another kind is ``other_kind``.
    """
    attributes = read_attributes(path, hint=hint)
    if attributes.get("kind") != kind:
        if other_kind is not None:
            raise InputError(f"{path}: {other_kind}")
        raise StoreError(f"{path}/zarr.json: {what} are damaged; {hint}")
    error = StoreError if other_kind is None else InputError
    return verified(path, attributes, version, what=what, hint=hint, other_version=error)


def verified(
    path: StorePath,
    sealed: Mapping[str, Any],
    version: int,
    *,
    what: str,
    hint: str,
    other_version: type[StreamingJSMFError] = InputError,
) -> dict[str, Any]:
    """Return sealed values of the group at ``path``; errors as ``read_sealed``."""
    # Values without a version are damaged, which their sha256 shows.
    if sealed.get("format_version", version) != version:
        raise other_version(
            f"{path}: format version {sealed['format_version']} is unknown; this release reads {version}; {hint}"
        )
    try:
        return unsealed(sealed)
    except ValueError as error:
        raise StoreError(f"{path}/zarr.json: {what} are damaged ({error}); {hint}") from error


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
    text = values.dtype.kind in "OUT"
    itemsize = 16 if text else values.dtype.itemsize
    rows = _chunk_rows(values.shape, itemsize)
    array = _make_array(group / name, values.shape, values.dtype, rows, dimensions, attributes, compress)
    for number, panel in enumerate(_panels(values.shape, itemsize)):
        if not write_chunk(array, group / name, number, values[panel]):
            array[panel] = values[panel]
    return digest(values)


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
) -> ArrayDigest:
    """As ``write_array``, but compressed, in chunks of ``rows``, and from pieces of consecutive rows of any size.

    At most one chunk and one piece are in memory. Raises ``ValueError`` if the number of rows differs from ``shape``.
    """
    array = _make_array(inside(group, name), shape, dtype, rows, dimensions, attributes, compress=True)
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
            overwrite=True,
        )


def read_array(
    group: StorePath, name: str, expected: ArrayDigest | None, *, hint: str = "make the store again"
) -> NDArray[Any]:
    """Read array ``name`` of a group and compare it with its digest.

    Raises ``StoreError`` if it is missing, truncated or altered, or an object store fails. The message names the array
    and, if known, the chunk, and ends with ``hint``.
    """
    array = _open_array(inside(group, name), expected, hint)
    values = np.empty(array.shape, dtype=object if array.dtype.kind in "OUT" else array.dtype)
    for number, panel in enumerate(_rows_of_chunks(array)):
        if not read_chunk(array, group / name, number, values[panel]):
            values[panel] = _chunk(array, group / name, number, panel, hint)
    if expected is not None and digest(values) != expected:
        raise _altered(group / name, hint)
    return values


def read_arrays(
    group: StorePath, expected: Mapping[str, ArrayDigest], *, hint: str = "make the store again"
) -> dict[str, NDArray[Any]]:
    return {name: read_array(group, name, known, hint=hint) for name, known in expected.items()}


def read_panels(
    group: StorePath, name: str, expected: ArrayDigest | None, *, hint: str = "make the store again"
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """As ``read_array``, but yield the rows and values of one chunk at a time.

    The digest is checked only after the last panel, so altered values raise ``StoreError`` at the end; None for values
    that were verified before.
    """
    array = _open_array(inside(group, name), expected, hint)
    total = _Digest(array.dtype)
    for number, panel in enumerate(_rows_of_chunks(array)):
        part = _chunk(array, group / name, number, panel, hint)
        if expected is not None:
            total.add(part)
        yield panel, part
    if expected is not None and total.of(array.shape) != expected:
        raise _altered(group / name, hint)


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


def _rows_of_chunks(array: zarr.Array[Any]) -> Iterator[slice]:
    step = int(array.chunks[0]) if array.ndim else 1
    for start in range(0, array.shape[0], step):
        yield slice(start, start + step)


def _chunk(array: zarr.Array[Any], place: StorePath, number: int, rows: slice, hint: str) -> NDArray[Any]:
    try:
        return np.asarray(array[rows])
    except StoreError:
        raise
    except Exception as error:
        pass_on_machine(error)
        # Codecs raise various exceptions for a short buffer; all of them mean damage here.
        chunk = chunk_name(array, number)
        raise StoreError(f"{place}/{chunk}: chunk is truncated or damaged; {hint}") from error


def _altered(place: StorePath, hint: str) -> StoreError:
    return StoreError(
        f"{place}: values differ from the committed digest (a chunk is missing or altered); {hint}"
    )
