"""Find repeated ids and documents by 128-bit hashes, which are identical on every machine and version.

The hashes are not cryptographic; the probability that two of a billion documents collide is 1e-21.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.corpus.footer import is_string
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.job import Ingest, Piece
from streaming_jsmf.ingestion.tokens.split import string_buffers
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.storage.paths import exists
from streaming_jsmf.storage.tables import read_table, write_table

logger = logging.getLogger(__name__)

#: Keys in memory at the same time.
BUCKET_KEYS = 1_000_000

_LARGEST_ID = 2**63 - 1
REPEATED_ID = "its document id is that of an earlier document"

#: Keys of repeated documents, by piece and sorted by ordinal.
Repeats = Mapping[int, NDArray[Any]]

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
        numbers = np.ascontiguousarray(values.cast(pa.int64())).view(np.uint64)
        return _mix(numbers[:, None] ^ _SEEDS)
    array = values.cast(pa.large_string())
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    hashes = np.zeros((len(array), 2), np.uint64)
    _add_bytes(*string_buffers(array), hashes)
    return hashes


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalizer of splitmix64 (Steele, Lea and Flood 2014): each input bit affects about half of the output bits."""
    x = x + _STEP
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


_mixed = compiled(nogil=True, internal=True, forceinline=True)(_mix)


@compiled(nogil=True)
def _add_bytes(offsets: Any, data: Any, hashes: Any) -> None:
    """Sum a random number for each (byte, position) of a string, then mix in the length; ``hashes`` is 0 on entry."""
    for i in range(len(offsets) - 1):
        for j in range(2):
            for place in range(offsets[i + 1] - offsets[i]):
                hashes[i, j] += _mixed((np.uint64(place) << _BYTE | data[offsets[i] + place]) ^ _SEEDS[j])
            hashes[i, j] = _mixed(hashes[i, j] ^ np.uint64(offsets[i + 1] - offsets[i]))


def id_faults(values: Any) -> Counter[str]:
    """Count the values of an Arrow array that cannot be ids, by reason."""
    faults: Counter[str] = Counter(missing=values.null_count)
    if is_string(values.type):
        faults["missing"] += int(pc.sum(pc.equal(pc.binary_length(values), 0)).as_py() or 0)
    elif pa.types.is_uint64(values.type):
        faults["above 2^63 - 1"] = int(
            pc.sum(pc.greater(values, pa.scalar(_LARGEST_ID, pa.uint64()))).as_py() or 0
        )
    elif not pa.types.is_integer(values.type):
        faults["neither texts nor whole numbers"] = len(values) - values.null_count
    return +faults


def identity_keys(keys: NDArray[Any], ids: Any, *, as_texts: bool) -> NDArray[Any]:
    """Return keys with the hashes of the ids and their order; ``as_texts`` if other ids may have another type."""
    keys = keys.copy()
    keys["high"], keys["low"] = hash_values(ids.cast(pa.string()) if as_texts else ids).T
    if pa.types.is_integer(ids.type):
        # Flipping the sign bit maps the order of int64 to that of uint64.
        keys["order"] = np.asarray(ids.cast(pa.int64())).view(np.uint64) ^ np.uint64(1 << 63)
    else:
        keys["order"] = keys["high"]
    return keys


def contents_keys(
    keys: NDArray[Any],
    indptr: NDArray[Any],
    codes: NDArray[Any],
    counts: NDArray[Any],
    words: NDArray[np.uint64],
) -> NDArray[Any]:
    """Return keys with the hashes of the bags, in the same order, without those of empty documents.

    A hash is the sum, modulo 2^64, of the hashes of the words, (words, 2), each times a random number for its count. It
    does not depend on the order of words.
    """
    keys = keys.copy()
    weights = np.full(len(counts), _number_of(np.ones(1))[0])
    others = np.flatnonzero(counts != 1)
    weights[others] = _number_of(counts[others])
    bags = csr_array((weights, codes, indptr), shape=(len(indptr) - 1, len(words)))
    keys["high"], keys["low"] = (bags @ words).T
    return keys[np.diff(indptr) > 0]


def _number_of(counts: NDArray[Any]) -> NDArray[np.uint64]:
    """The random number of each count."""
    return _mix(counts.astype(np.float64).view(np.uint64))


def write_keys(path: Path, keys: NDArray[Any]) -> None:
    """Write keys, sorted by their hashes."""
    ordered = keys[np.argsort(keys["high"], kind="stable")]
    packed = pa.Array.from_buffers(pa.binary(KEY.itemsize), len(keys), [None, pa.py_buffer(ordered)])
    write_table(path, pa.table({"key": packed}))


def _keys_in(path: Path) -> NDArray[Any]:
    """Memory-map the keys of a file."""
    chunks = read_table(path).column("key").chunks
    return np.frombuffer(chunks[0].buffers()[1], KEY) if chunks else np.empty(0, KEY)


def find_repeated_ids(
    ingest: Ingest, pieces: Sequence[Piece], types: Sequence[str], faults: Mapping[str, int]
) -> tuple[Ingest, Repeats]:
    """Return the ingest with the type of its ids, and the documents that repeat an id.

    A guessed column that cannot be the ids, or repeats, becomes metadata, and the documents are numbered; this is
    logged. Raises ``InputError`` if another column repeats an id, unless bad records are quarantined.
    """
    name, repeats = ingest.guessed_id, find_repeats(_files(ingest, pieces, "identities"))
    if name is not None and types and ingest.grows is not None and ingest.grows.numbered:
        return ingest, {}
    if name is not None and types:
        found = Counter(faults) or +Counter(repeated=sum(map(len, repeats.values())))
        for reason, number in found.most_common(1):
            values = f"{number:,} value{'s are' if number > 1 else ' is'} {reason}"
            logger.info(
                f"%s: %s, so documents are numbered and the column is metadata; {option.id('COLUMN')} names another",
                name,
                values,
            )
            return ingest, {}
    if repeats and ingest.on_bad_record == "fail":
        index, keys = next(iter(repeats.items()))
        unit = dict(pieces[index].group.numbered())[int(keys["unit"][0])]
        where = ingest.source.place(unit, int(keys["row"][0]))
        raise InputError(
            f"{where}: {REPEATED_ID}; correct the record or use {option.on_bad_record('quarantine')}"
        )
    whole = all(pa.types.is_integer(pa.type_for_alias(each)) for each in types)
    return replace(ingest, ids=("int64" if whole else "string") if types else ""), repeats


def save_repeats(ingest: Ingest, pieces: Sequence[Piece], identities: Repeats) -> int:
    """Save which documents the tasks leave out: repeated ids, and repeated contents if these are to be dropped.

    Return the number of documents that repeat the contents of another.
    """
    contents = find_repeats(_files(ingest, pieces, "contents"), identities, ordered=bool(ingest.ids))
    dropped = contents if ingest.curation.duplicates == "drop" else {}
    for index in {*identities, *dropped}:
        found = [
            (step, keys[index]["ordinal"]) for step, keys in ((1, identities), (2, dropped)) if index in keys
        ]
        steps = np.concatenate([np.full(len(ordinals), step, np.int8) for step, ordinals in found])
        table = pa.table({"ordinal": np.concatenate([each for _, each in found]), "step": steps})
        write_table(ingest.place(pieces[index], "repeats"), table)
    return sum(map(len, contents.values()))


def left_out(ingest: Ingest, piece: Piece) -> NDArray[np.int8]:
    """Return why each document of a piece is left out: 0 for those that stay, 1 a repeated id, 2 repeated contents."""
    steps = np.zeros(piece.documents, np.int8)
    path = ingest.place(piece, "repeats")
    if exists(path):
        table = read_table(path)
        steps[np.asarray(table.column("ordinal"))] = np.asarray(table.column("step"))
    return steps


def _files(ingest: Ingest, pieces: Sequence[Piece], kind: str) -> list[Path]:
    return [ingest.place(piece, kind) for piece in pieces]


def find_repeats(files: Sequence[Path], without: Repeats | None = None, *, ordered: bool = True) -> Repeats:
    """Find all documents but the first of each group of equal keys: the first by ``order``, or in the source.

    Makes one pass over the keys, which are sorted by hash in every file, one range of hashes at a time. ``files`` has
    one file per piece, some of which may be missing; documents in ``without`` are ignored.
    """
    present = {piece: path for piece, path in enumerate(files) if exists(path)}
    total = sum(len(_keys_in(path)) for path in present.values())
    found: dict[int, list[NDArray[Any]]] = {}
    for bucket in _buckets(present, max(1, -(-total // BUCKET_KEYS))):
        if without is not None:
            bucket = {
                piece: keys[~np.isin(keys["ordinal"], without[piece]["ordinal"])]
                if piece in without
                else keys
                for piece, keys in bucket.items()
            }
        for piece, repeated in _repeats_in(bucket, ordered):
            found.setdefault(piece, []).append(repeated)
    joined = {piece: np.concatenate(parts) for piece, parts in sorted(found.items())}
    return {piece: keys[np.argsort(keys["ordinal"])] for piece, keys in joined.items()}


def _buckets(files: Mapping[int, Path], count: int) -> Iterator[dict[int, NDArray[Any]]]:
    """Yield copies of the keys in each of ``count`` equal hash ranges; whole mapped files would fill the memory."""
    edges = np.array([(i << 64) // count for i in range(1, count)], np.uint64)
    cuts: dict[int, list[Any]] = {}
    for piece, path in files.items():
        cuts[piece] = [0, *np.searchsorted(_keys_in(path)["high"], edges).tolist(), None]
    for i in range(count):
        yield {
            piece: _keys_in(path)[cuts[piece][i] : cuts[piece][i + 1]].copy() for piece, path in files.items()
        }


def _repeats_in(bucket: Mapping[int, NDArray[Any]], ordered: bool) -> Iterator[tuple[int, NDArray[Any]]]:
    pieces = np.repeat(list(bucket), [len(keys) for keys in bucket.values()])
    keys = np.concatenate([*bucket.values(), np.empty(0, KEY)])
    # Nearly all keys are distinct, and equal ones have equal first halves.
    high = np.sort(keys["high"])
    shared = np.isin(keys["high"], high[1:][high[1:] == high[:-1]])
    keys, pieces = keys[shared], pieces[shared]
    # Ties in order (no ids, or a repeated id) are resolved by piece, then by document.
    places = (keys["ordinal"], pieces, *([keys["order"]] if ordered else []))
    order = np.lexsort((*places, keys["low"], keys["high"]))
    keys, pieces = keys[order], pieces[order]
    repeated = np.zeros(len(keys), bool)
    repeated[1:] = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    for piece in np.unique(pieces[repeated]).tolist():
        yield piece, keys[repeated & (pieces == piece)]
