"""Hashes of words, ids and numbers that are identical on every machine and version; not cryptographic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled

_SEEDS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
_STEP, _FIRST, _SECOND = (np.uint64(x) for x in (_SEEDS[0], 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_BYTE, _27, _30, _31 = (np.uint64(bits) for bits in (8, 27, 30, 31))


def string_buffers(texts: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return offsets and bytes of an Arrow array of strings; offsets may start above 0, and bytes are not copied."""
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, offsets, data = texts.buffers()
    content = np.frombuffer(data or b"", np.uint8)
    content.flags.writeable = False  # one type for compiled functions
    if not offsets:
        return np.zeros(1, np.int64), content
    used = np.frombuffer(offsets, kind)[texts.offset : texts.offset + len(texts) + 1]
    return used.astype(np.int64), content


def hash_values(values: Any) -> NDArray[np.uint64]:
    """Return (m, 2) hashes of an Arrow array of integers or strings without nulls."""
    if pa.types.is_integer(values.type):
        numbers = np.ascontiguousarray(values.cast(pa.int64())).view(np.uint64)
        return mix(numbers[:, None] ^ _SEEDS)
    array = values.cast(pa.large_string())
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    hashes = np.zeros((len(array), 2), np.uint64)
    _add_bytes(*string_buffers(array), hashes)
    return hashes


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalizer of splitmix64 (Steele, Lea and Flood 2014): each input bit affects about half of the output bits."""
    x = x + _STEP
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


_mixed = compiled(nogil=True, internal=True, forceinline=True)(mix)


@compiled(nogil=True)
def _add_bytes(offsets: Any, data: Any, hashes: Any) -> None:
    """Sum a random number for each (byte, position) of a string, then mix in the length; ``hashes`` is 0 on entry."""
    for i in range(len(offsets) - 1):
        for j in range(2):
            for place in range(offsets[i + 1] - offsets[i]):
                hashes[i, j] += _mixed((np.uint64(place) << _BYTE | data[offsets[i] + place]) ^ _SEEDS[j])
            hashes[i, j] = _mixed(hashes[i, j] ^ np.uint64(offsets[i + 1] - offsets[i]))
