"""Compiled 128-bit hashes of ids, words and bags, identical on every machine and version.

Not cryptographic; the probability that two of a billion documents collide is 1e-21.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.ingestion.tokens.split import string_buffers
from streaming_jsmf.linalg.compiled import compiled

_SEEDS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
_STEP, _FIRST, _SECOND = (np.uint64(x) for x in (_SEEDS[0], 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_BYTE, _27, _30, _31 = (np.uint64(bits) for bits in (8, 27, 30, 31))


def hash_values(values: Any) -> NDArray[np.uint64]:
    """Return (m, 2) hashes of an Arrow array of integers or strings without nulls."""
    if pa.types.is_integer(values.type):
        hashes: NDArray[np.uint64] = _numbers(np.ascontiguousarray(values.cast(pa.int64())).view(np.uint64))
    else:
        array = values.cast(pa.large_string())
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        hashes = _strings(*string_buffers(array))
    return hashes


def hash_bags(
    indptr: NDArray[Any], codes: NDArray[Any], counts: NDArray[Any], words: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """Return (m, 2) hashes of bags, independent of word order; ``words`` are the hashes of the codes, (words, 2)."""
    hashes: NDArray[np.uint64] = _bags(np.asarray(indptr, np.int64), codes, counts, words)
    return hashes


@compiled(nogil=True)
def _numbers(numbers: Any) -> Any:
    hashes = np.empty((len(numbers), 2), np.uint64)
    for i in range(len(numbers)):
        for j in range(2):
            hashes[i, j] = _mix(numbers[i] ^ _SEEDS[j])
    return hashes


@compiled(nogil=True)
def _strings(offsets: Any, data: Any) -> Any:
    """Sum a random number for each (byte, position) of a string, then mix in the length."""
    hashes = np.zeros((len(offsets) - 1, 2), np.uint64)
    for i in range(len(offsets) - 1):
        for j in range(2):
            for place in range(offsets[i + 1] - offsets[i]):
                hashes[i, j] += _mix((np.uint64(place) << _BYTE | data[offsets[i] + place]) ^ _SEEDS[j])
            hashes[i, j] = _mix(hashes[i, j] ^ np.uint64(offsets[i + 1] - offsets[i]))
    return hashes


@compiled(nogil=True)
def _bags(indptr: Any, codes: Any, counts: Any, words: Any) -> Any:
    """Sum a random number for each (word, bits of the count as a float)."""
    hashes = np.zeros((len(indptr) - 1, 2), np.uint64)
    number = np.ones(1, np.float64)
    bits = number.view(np.uint64)
    weight = weight_of_one = _mix(bits[0])
    for i in range(len(indptr) - 1):
        for k in range(indptr[i], indptr[i + 1]):
            weight = weight_of_one
            if counts[k] != 1:
                number[0] = counts[k]
                weight = _mix(bits[0])
            for j in range(2):
                hashes[i, j] += _mix(words[codes[k], j] ^ weight)
    return hashes


@compiled(nogil=True, forceinline=True)
def _mix(x: Any) -> Any:
    """Finaliser of splitmix64 (Steele, Lea and Flood 2014): each input bit affects about half of the output bits."""
    x = x + _STEP
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)
