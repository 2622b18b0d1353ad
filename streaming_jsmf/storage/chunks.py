"""Uncompressed chunks in local files, read and written without the copies that Zarr makes of a chunk.

The files are those that Zarr reads and writes. Arrays for which this does not apply are left to Zarr.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec
from zarr.core.metadata import ArrayV3Metadata

from streaming_jsmf.storage.paths import StorePath


def chunk_name(array: zarr.Array[Any], number: int) -> str:
    """Path of a chunk of whole rows below the array."""
    return "/".join(["c", str(number), *["0"] * (array.ndim - 1)])


def read_chunk(array: zarr.Array[Any], place: StorePath, number: int, out: NDArray[Any]) -> bool:
    """Read the rows of chunk ``number`` into ``out``, or return False: Zarr must read them, or find what is wrong."""
    if not _is_plain(array, place, out):
        return False
    try:
        with open(Path(place) / chunk_name(array, number), "rb", buffering=0) as file:
            view = memoryview(out).cast("B")
            while len(view) and (count := file.readinto(view)):
                view = view[count:]
            return not len(view) and file.seek(0, 2) == _chunk_bytes(array)
    except OSError:
        return False


def write_chunk(array: zarr.Array[Any], place: StorePath, number: int, values: NDArray[Any]) -> bool:
    """Write the rows of chunk ``number`` of a new array, or return False: Zarr must write them."""
    if not (values.flags.c_contiguous and _is_plain(array, place, values)):
        return False
    target = Path(place) / chunk_name(array, number)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target, "wb", buffering=0) as file:
        view = memoryview(values).cast("B")
        while len(view):
            view = view[file.write(view) :]
        # The last chunk has the size of the others.
        file.truncate(_chunk_bytes(array))
    return True


def _is_plain(array: zarr.Array[Any], place: StorePath, values: NDArray[Any]) -> bool:
    """Whether chunks are the bytes of ``values`` in whole rows, in local files."""
    meta = array.metadata
    return (
        isinstance(place, Path)
        and isinstance(meta, ArrayV3Metadata)
        and meta.codecs == (BytesCodec(endian=sys.byteorder),)
        and meta.chunk_key_encoding.encode_chunk_key((0,) * array.ndim) == chunk_name(array, 0)
        and array.chunks[1:] == array.shape[1:]
        and array.dtype == values.dtype
        and values.dtype.kind in "biuf"
        and values.size > 0
    )


def _chunk_bytes(array: zarr.Array[Any]) -> int:
    return array.dtype.itemsize * int(np.prod(array.chunks, dtype=np.int64))
