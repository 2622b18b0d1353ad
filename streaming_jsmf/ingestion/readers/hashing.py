"""Vectorised 128-bit hashes of ids, words and bags, identical on every machine and version.

Not cryptographic; the probability that two of a billion documents collide is 1e-21.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_SEEDS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


def hash_values(values: Any) -> NDArray[np.uint64]:
    """Return (m, 2) hashes of an Arrow array of integers or strings without nulls."""
    if pa.types.is_integer(values.type):
        numbers = np.asarray(values.cast(pa.int64())).view(np.uint64)
        return np.stack([_mix(numbers ^ np.uint64(seed)) for seed in _SEEDS], axis=1)
    return _hash_strings(values)


def hash_bags(indptr: NDArray[Any], words: NDArray[np.uint64], counts: NDArray[Any]) -> NDArray[np.uint64]:
    """Return (m, 2) hashes of bags, independent of word order; ``words`` are hashes (nonzeros, 2)."""
    weight = _mix(np.ascontiguousarray(counts, np.float64).view(np.uint64))
    hashes = np.empty((len(indptr) - 1, 2), np.uint64)
    for j in range(2):
        hashes[:, j] = _segment_sums(_mix(words[:, j] ^ weight), indptr)
    return hashes


def _hash_strings(strings: Any) -> NDArray[np.uint64]:
    """Sum a random number for each (byte, position) of a string, then mix in the length."""
    array = strings.cast(pa.large_string())
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    _, offsets_buffer, data = array.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[array.offset : array.offset + len(array) + 1]
    if len(array) == 0:
        return np.empty((0, 2), np.uint64)
    start, stop = offsets[0], offsets[-1]
    content = np.frombuffer(data, np.uint8)[start:stop] if stop > start else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    place = np.arange(stop - start, dtype=np.uint64) - np.repeat(
        (offsets[:-1] - start).astype(np.uint64), lengths
    )
    key = (place << np.uint64(8)) | content
    hashes = np.empty((len(array), 2), np.uint64)
    for j, seed in enumerate(_SEEDS):
        sums = _segment_sums(_mix(key ^ np.uint64(seed)), offsets - start)
        hashes[:, j] = _mix(sums ^ lengths.astype(np.uint64))
    return hashes


def _segment_sums(values: NDArray[np.uint64], indptr: NDArray[Any]) -> NDArray[np.uint64]:
    """Return sums of values[indptr[i]:indptr[i + 1]] modulo 2^64; 0 for an empty segment."""
    running = np.zeros(len(values) + 1, np.uint64)
    np.cumsum(values, out=running[1:])
    sums: NDArray[np.uint64] = running[indptr[1:]] - running[indptr[:-1]]
    return sums


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finaliser of splitmix64 (Steele, Lea and Flood 2014): each input bit affects about half of the output bits."""
    x = x + np.uint64(_SEEDS[0])
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
