"""Numeric arrays of one result in a single file, verified on read: on an object store one request writes or reads them.

The file has only the values, in C order and one array after another; names, shapes and digests are in the record that
commits the file. An array may be compressed in frames of ``CHUNK_BYTES``, whose sizes are in the record, too.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs import Delta, Shuffle, Zstd
from numpy.typing import NDArray

from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.storage.arrays import CHUNK_BYTES, ArrayDigest, RunningDigest, chunk_rows, digest
from streaming_jsmf.storage.large_arrays import large_empty
from streaming_jsmf.storage.local import require_regular
from streaming_jsmf.storage.objects import Ranges, writing
from streaming_jsmf.storage.paths import StorePath


def write_packed(
    path: StorePath, arrays: Mapping[str, NDArray[Any]], compressed: Container[str] = ()
) -> dict[str, ArrayDigest]:
    """Write arrays to a new file, at most one chunk in memory; return their digests in this order."""
    digests = {}
    with _written(path) as stream:
        for name, values in arrays.items():
            total, rows, frames = RunningDigest(values.dtype), chunk_rows(values), []
            for start in range(0, len(values), rows):
                panel = np.ascontiguousarray(values[start : start + rows])
                total.add(panel)
                if name in compressed:
                    frame = _encoded(panel)
                    frames.append(len(frame))
                    stream.write(frame)
                else:
                    stream.write(panel.data)
            digests[name] = replace(total.of(values.shape), frames=tuple(frames))
    return digests


def _encoded(panel: NDArray[Any]) -> bytes:
    values: Any = panel
    for codec in _codecs(panel.dtype):
        values = codec.encode(values)
    return bytes(values)


def _codecs(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Codecs of Zarr. Of whole numbers, such as sorted word ids, the bytes of the differences are stored."""
    # Level 1 needs .09 bytes more for a value, and level 5 twice the time to save .06.
    zstd = Zstd(level=3)
    return (Delta(dtype.str), Shuffle(dtype.itemsize), zstd) if dtype.kind in "iu" else (zstd,)


def read_packed(
    path: StorePath, digests: Mapping[str, ArrayDigest], *, without: Container[str] = (), hint: str
) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file that has those of ``digests``, in this order; reads nothing of those ``without``.

    Raises ``StoreError`` if it is missing, truncated or altered, or an object store fails; the message ends with
    ``hint``.
    """
    sizes = [_stored_bytes(known) for known in digests.values()]
    arrays, start = {}, 0
    try:
        with _opened(path, sum(sizes), CHUNK_BYTES) as stream:
            for (name, known), size in zip(digests.items(), sizes, strict=True):
                if name not in without:
                    values = large_empty(known.shape, known.dtype)
                    stream.seek(start)
                    if known.frames:
                        _decode(stream, values, known.frames)
                    else:
                        _fill(stream, values)
                    if digest(values) != known:
                        raise StoreError(f"{path}: {name} differs from the committed digest; {hint}")
                    arrays[name] = values
                start += size
    except (OSError, EOFError) as error:
        pass_on_machine(error)
        raise StoreError(f"{path}: is missing or truncated; {hint}") from error
    except (ValueError, RuntimeError) as error:  # of a codec
        raise StoreError(f"{path}: {name} is damaged ({error}); {hint}") from error
    return arrays


def _stored_bytes(known: ArrayDigest) -> int:
    return sum(known.frames) or math.prod(known.shape) * np.dtype(known.dtype).itemsize


def _decode(stream: Any, values: NDArray[Any], frames: Sequence[int]) -> None:
    *before, zstd = _codecs(values.dtype)
    rows = chunk_rows(values)
    for number, size in enumerate(frames):
        panel, data = values[number * rows : (number + 1) * rows], stream.read(size)
        if len(data) < size:
            raise EOFError
        # A damaged frame cannot ask for more memory than its values have.
        decoded: Any = zstd.decode(data, np.empty(panel.nbytes, np.uint8))
        for codec in reversed(before):
            decoded = codec.decode(decoded)
        panel[...] = np.asarray(decoded).view(values.dtype).reshape(panel.shape)


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
