"""Large arrays of a computation in temporary files, which the system keeps in memory as far as there is room.

The arithmetic is the same, so no bits change. The files are in the folder for temporary files (``TMPDIR``), have no
names, and end with their arrays.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from streaming_jsmf.errors import InputError

#: Bytes from which an array is in a file.
FILE_BYTES = 2**30
#: Rows copied at a time.
_ROWS = 4096

Rows: TypeAlias = "NDArray[np.bool_] | NDArray[np.integer[Any]]"

_lock = threading.Lock()
_inside = 0


@contextmanager
def large_arrays_in_files() -> Iterator[None]:
    """Let the functions below make large arrays in files while any thread of this process is inside the block."""
    global _inside
    with _lock:
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1


def bytes_in_memory(sizes: Iterable[int]) -> int:
    """Bytes of memory of large arrays of these sizes."""
    return sum(size for size in sizes if size < FILE_BYTES)


def large_empty(shape: Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array without values, as ``numpy.empty``."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if not _inside or size < FILE_BYTES:
        return np.empty(shape, kind)
    with tempfile.TemporaryFile(prefix="streaming-jsmf-") as file:
        try:
            # Without room for it, a later write to memory would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:  # macOS
                file.truncate(size)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise InputError(
                f"{tempfile.gettempdir()} has no room for a temporary array of {size / 1e9:.1f} GB; set TMPDIR to a "
                "folder on a larger disk"
            ) from error
        return np.asarray(np.memmap(file, kind, "r+", shape=tuple(shape)))


def large_zeros(shape: Sequence[int], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An array of zeros, as ``numpy.zeros``."""
    kind = np.dtype(dtype)
    if _inside and math.prod(shape) * kind.itemsize >= FILE_BYTES:
        return large_empty(shape, kind)  # a new file has zeros
    return np.zeros(shape, kind)


def large_copy(
    matrix: NDArray[Any], dtype: DTypeLike | None = None, rows: Rows | None = None
) -> NDArray[Any]:
    """The matrix, or some of its rows by mask or number, in an array of its own in C order."""
    ids = None if rows is None else np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
    copy = large_empty((len(matrix) if ids is None else ids.size, *matrix.shape[1:]), dtype or matrix.dtype)
    for start in range(0, len(copy), _ROWS):
        part = slice(start, start + _ROWS)
        copy[part] = matrix[part if ids is None else ids[part]]
    return copy
