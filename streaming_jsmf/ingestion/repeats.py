"""Find repeated ids and documents by 128-bit hashes, which are identical on every machine and version.

The hashes are not cryptographic; the probability that two of a billion documents collide is 1e-21.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.job import Ingest, Piece
from streaming_jsmf.ingestion.tokens.split import string_buffers
from streaming_jsmf.linalg.compiled import compiled

#: Keys in memory at the same time.
BUCKET_KEYS = 1_000_000

REPEATED_ID = "its document id is that of an earlier document"

#: Entry of a key file: a 128-bit hash, the order among documents with equal keys, and the document: its number in the
#: piece, its unit, and its row in the unit.
KEY = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("order", "<u8"), ("ordinal", "<i8"), ("unit", "<i8"), ("row", "<i8")]
)

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


#: Keys of repeated documents, by piece and sorted by ordinal.
Repeats = Mapping[int, NDArray[Any]]


def find_repeated_documents(ingest: Ingest, pieces: Sequence[Piece]) -> int:
    """Save which documents repeat an id and which others repeat contents; return the number of the latter.

    Raises ``InputError`` if an id is repeated, unless bad records are quarantined.
    """
    stems = [ingest.stem(piece) for piece in pieces]
    identities = find_repeats([stem.with_suffix(".identities") for stem in stems])
    for index, keys in identities.items():
        if ingest.on_bad_record == "fail":
            unit = dict(pieces[index].group.numbered())[int(keys["unit"][0])]
            where = ingest.source.place(unit, int(keys["row"][0]))
            raise InputError(
                f"{where}: {REPEATED_ID}; correct the record or use {option.on_bad_record('quarantine')}"
            )
    contents = find_repeats([stem.with_suffix(".contents") for stem in stems], without=identities)
    dropped = contents if ingest.curation.duplicates == "drop" else {}
    for index in {*identities, *dropped}:
        left_out = {"repeated_id": identities, "duplicates": dropped}
        ordinals: dict[str, Any] = {
            step: keys[index]["ordinal"] for step, keys in left_out.items() if index in keys
        }
        path = ingest.folder.root / "repeats" / f"{index:05d}.npz"
        path.parent.mkdir(exist_ok=True)
        np.savez(path, **ordinals)
    return sum(map(len, contents.values()))


def find_repeats(files: Sequence[Path], without: Repeats | None = None) -> Repeats:
    """Find all documents but the first, by ``order``, of each group of equal keys.

    Makes one pass over the keys, which are sorted by hash in every file, one range of hashes at a time. ``files`` has
    one file per piece, some of which may be missing; documents in ``without`` are ignored.
    """
    present = {piece: path for piece, path in enumerate(files) if path.exists() and path.stat().st_size}
    total = sum(path.stat().st_size for path in present.values()) // KEY.itemsize
    found: dict[int, list[NDArray[Any]]] = {}
    for bucket in _buckets(present, max(1, -(-total // BUCKET_KEYS))):
        if without is not None:
            bucket = {
                piece: keys[~np.isin(keys["ordinal"], without[piece]["ordinal"])]
                if piece in without
                else keys
                for piece, keys in bucket.items()
            }
        for piece, repeated in _repeats_in(bucket):
            found.setdefault(piece, []).append(repeated)
    joined = {piece: np.concatenate(parts) for piece, parts in sorted(found.items())}
    return {piece: keys[np.argsort(keys["ordinal"])] for piece, keys in joined.items()}


def _buckets(files: Mapping[int, Path], count: int) -> Iterator[dict[int, NDArray[Any]]]:
    """Yield the keys in each of ``count`` equal hash ranges; reads them, because memory maps would fill the memory."""
    edges = np.array([(i << 64) // count for i in range(1, count)], np.uint64)
    cuts = {}
    for piece, path in files.items():
        inner = np.searchsorted(np.memmap(path, KEY, mode="r")["high"], edges).tolist() if len(edges) else []
        cuts[piece] = [0, *inner, path.stat().st_size // KEY.itemsize]
    for i in range(count):
        yield {
            piece: np.fromfile(
                path, KEY, count=cuts[piece][i + 1] - cuts[piece][i], offset=cuts[piece][i] * KEY.itemsize
            )
            for piece, path in files.items()
        }


def _repeats_in(bucket: Mapping[int, NDArray[Any]]) -> Iterator[tuple[int, NDArray[Any]]]:
    pieces = np.repeat(list(bucket), [len(keys) for keys in bucket.values()])
    keys = np.concatenate([*bucket.values(), np.empty(0, KEY)])
    # Nearly all keys are distinct, and equal ones have equal first halves.
    high = np.sort(keys["high"])
    shared = np.isin(keys["high"], high[1:][high[1:] == high[:-1]])
    keys, pieces = keys[shared], pieces[shared]
    # Ties in order (no ids, or a repeated id) are resolved by piece, then by document.
    order = np.lexsort((keys["ordinal"], pieces, keys["order"], keys["low"], keys["high"]))
    keys, pieces = keys[order], pieces[order]
    repeated = np.zeros(len(keys), bool)
    repeated[1:] = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    for piece in np.unique(pieces[repeated]).tolist():
        yield piece, keys[repeated & (pieces == piece)]


def in_batch(ordinals: NDArray[np.int64], first: int, count: int) -> NDArray[np.int64]:
    """Select the sorted ordinals in the batch of ``count`` documents from ``first``, relative to its start."""
    low, high = np.searchsorted(ordinals, [first, first + count])
    return ordinals[low:high] - first
