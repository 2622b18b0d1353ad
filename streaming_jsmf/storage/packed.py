"""Numeric arrays of one result in a single file, verified on read: on an object store one request writes or reads them.

The file has only the values, in C order and one array after another; names, shapes and digests are in the record that
commits the file.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.storage.arrays import CHUNK_BYTES, ArrayDigest, RunningDigest, chunk_rows, digest
from streaming_jsmf.storage.large_arrays import large_empty
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.objects import Ranges, writing
from streaming_jsmf.storage.paths import StorePath


def write_packed(path: StorePath, arrays: Mapping[str, NDArray[Any]]) -> dict[str, ArrayDigest]:
    """Write arrays to a new file, at most one chunk in memory; return their digests in this order."""
    digests = {}
    with _written(path) as stream:
        for name, values in arrays.items():
            total, rows = RunningDigest(values.dtype), chunk_rows(values)
            for start in range(0, len(values), rows):
                panel = np.ascontiguousarray(values[start : start + rows])
                total.add(panel)
                stream.write(panel.data)
            digests[name] = total.of(values.shape)
    return digests


def read_packed(
    path: StorePath, digests: Mapping[str, ArrayDigest], *, without: Container[str] = (), hint: str
) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file that has those of ``digests``, in this order; reads nothing of those ``without``.

    Raises ``StoreError`` if it is missing, truncated or altered, or an object store fails; the message ends with
    ``hint``.
    """
    sizes = [math.prod(known.shape) * np.dtype(known.dtype).itemsize for known in digests.values()]
    arrays, start = {}, 0
    try:
        with _opened(path, sum(sizes), CHUNK_BYTES) as stream:
            for (name, known), size in zip(digests.items(), sizes, strict=True):
                if name not in without:
                    values = large_empty(known.shape, known.dtype)
                    stream.seek(start)
                    _fill(stream, values)
                    if digest(values) != known:
                        raise StoreError(f"{path}: {name} differs from the committed digest; {hint}")
                    arrays[name] = values
                start += size
    except (OSError, EOFError) as error:
        pass_on_machine(error)
        raise StoreError(f"{path}: is missing or truncated; {hint}") from error
    return arrays


def _fill(stream: Any, values: NDArray[Any]) -> None:
    into = values.reshape(-1).view(np.uint8).data
    for start in range(0, len(into), CHUNK_BYTES):
        piece = into[start : start + CHUNK_BYTES]
        if stream.readinto(piece) < len(piece):
            raise EOFError


def _opened(path: StorePath, size: int, at_once: int) -> BufferedReader:
    """Open a file of known size, of which about ``at_once`` bytes are read in a request."""
    if isinstance(path, Path):
        return require_regular(path, StoreError).open("rb")
    return BufferedReader(Ranges(path, size), max(1, min(size, at_once)))


@contextmanager
def _written(path: StorePath) -> Iterator[Any]:
    """Open a new file as a binary stream; until something else commits it, it may be incomplete."""
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            yield stream
        return
    with writing(path), path.fs.open(path.path, "wb") as stream:
        yield stream
