"""Find repeated ids and documents by 128-bit hashes, which are identical on every machine and version.

Each file of keys has a batch for each range of hashes, and one task finds the repeats of a range.

The hashes are not cryptographic; the probability that two of a billion documents collide is 1e-21.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.corpus.totals import files_of, list_files, ranges_of_hashes
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.job import Ingest, Piece
from streaming_jsmf.ingestion.tokens.split import string_buffers
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.workspace import TaskFiles
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.tables import read_range, read_table, write_ranges

logger = logging.getLogger(__name__)

#: Steps, and kinds of key files.
_IDS, _CONTENTS = "identities", "contents"

#: File of the repeated documents of a range, which has a batch for each of so many groups of pieces.
_LISTED, _GROUPS = "repeated.arrow", 64
_REPEATS = pa.schema([("piece", pa.int64()), ("ordinal", pa.int64())])

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


def write_keys(path: Path, keys: NDArray[Any], n_ranges: int) -> None:
    """Write keys by range of their hashes."""
    packed = pa.Array.from_buffers(pa.binary(KEY.itemsize), len(keys), [None, pa.py_buffer(keys)])
    write_ranges(path, pa.table({"key": packed}), ranges_of_hashes(keys["high"], n_ranges), n_ranges)


def find_repeated_ids(
    ingest: Ingest,
    executor: Executor,
    pieces: Sequence[Piece],
    types: Sequence[str],
    faults: Mapping[str, int],
) -> Ingest:
    """Step: return the ingest with the type of its ids, and where the documents that repeat an id are listed.

    A guessed column that cannot be the ids, or repeats, becomes metadata, and the documents are numbered; this is
    logged. Raises ``InputError`` if another column repeats an id, unless bad records are quarantined.
    """
    list_files(ingest.root, "keys", [piece.file("") for piece in pieces])
    name = ingest.guessed_id
    if name is not None and types and ingest.grows is not None and ingest.grows.numbered:
        return ingest
    records = _repeats(ingest, executor, _IDS) if types else []
    repeated = sum(record["repeated"] for record in records)
    if name is not None and types:
        found = Counter(faults) or +Counter(repeated=repeated)
        for reason, number in found.most_common(1):
            values = f"{number:,} value{'s are' if number > 1 else ' is'} {reason}"
            logger.warning(
                f"%s: %s, so documents are numbered and the column is metadata; {option.id('COLUMN')} names another",
                name,
                values,
            )
            return ingest
    if repeated and ingest.on_bad_record == "fail":
        index, _, number, row = min(record["first"] for record in records if record["repeated"])
        unit = dict(pieces[index].group.numbered())[number]
        raise InputError(
            f"{ingest.source.place(unit, row)}: {REPEATED_ID}; correct the record or use "
            f"{option.on_bad_record('quarantine')}"
        )
    whole = all(pa.types.is_integer(pa.type_for_alias(each)) for each in types)
    ids = ("int64" if whole else "string") if types else ""
    return replace(ingest, ids=ids, repeats=_left_out(1, _IDS, records))


def find_repeats(ingest: Ingest, executor: Executor) -> tuple[Ingest, int]:
    """Step: return the ingest with where repeated documents are listed if they are to be dropped, and their number."""
    records = _repeats(ingest, executor, _CONTENTS)
    number = sum(record["repeated"] for record in records)
    if ingest.curation.duplicates == "drop":
        ingest = replace(ingest, repeats=(*ingest.repeats, *_left_out(2, _CONTENTS, records)))
    return ingest, number


def _left_out(
    reason: int, step: str, records: Sequence[Record]
) -> tuple[tuple[int, str, tuple[int, ...]], ...]:
    numbers = tuple(number for number, record in enumerate(records) if record["repeated"])
    return ((reason, step, numbers),) if numbers else ()


def _repeats(ingest: Ingest, executor: Executor, step: str) -> list[Record]:
    if ingest.ranges == 1:  # a job would take longer
        return [list_repeats(ingest, (step, 0))]
    return ingest.run(executor, step, list_repeats, [(step, i) for i in range(ingest.ranges)], "ranges")


def list_repeats(ingest: Ingest, item: tuple[str, int]) -> Record:
    """Task: list the documents with an id, or contents, of a range but the first of each.

    The first of several documents with the same contents is that with the smallest id; those with a repeated id are
    ignored. Memory: the keys of the range, and the numbers of the documents that are ignored.
    """
    step, number = item
    without: dict[int, NDArray[Any]] = {}
    if step == _CONTENTS:
        listed = [
            read_table(_listed(ingest, before, i)) for _, before, found in ingest.repeats for i in found
        ]
        tables = pa.concat_tables([_REPEATS.empty_table(), *listed])
        ordinals, pieces = (np.asarray(tables.column(name)) for name in ("ordinal", "piece"))
        without = {piece: ordinals[pieces == piece] for piece in np.unique(pieces).tolist()}
    stems = files_of(ingest.root, "keys")
    paths = [ingest.root / f"{stem}{step}" for stem in stems]
    bucket = dict(enumerate(in_threads(partial(_keys_in, number=number), paths)))
    for piece, ordinals in without.items():
        bucket[piece] = bucket[piece][~np.isin(bucket[piece]["ordinal"], ordinals)]
    pieces, keys = _repeats_in(bucket, ordered=step == _IDS or bool(ingest.ids))
    files = TaskFiles(ingest.root, f"{step}/{number:05d}")
    table = pa.table({"piece": pieces, "ordinal": keys["ordinal"]}, _REPEATS)
    with files.written(_LISTED) as made:
        write_ranges(made, table, pieces * _GROUPS // len(stems), _GROUPS)
    columns = (pieces, *(keys[name] for name in ("ordinal", "unit", "row")))
    first = min(zip(*(column.tolist() for column in columns), strict=True), default=None)
    return {"repeated": len(keys), "first": first, **files.record()}


def _listed(ingest: Ingest, step: str, number: int) -> StorePath:
    return ingest.root / step / f"{number:05d}" / _LISTED


def left_out(ingest: Ingest, piece: Piece) -> NDArray[np.int8]:
    """Return why each document of a piece is left out: 0 for those that stay, 1 a repeated id, 2 repeated contents."""
    steps = np.zeros(piece.documents, np.int8)
    for reason, step, numbers in ingest.repeats:
        n_pieces = len(files_of(ingest.root, "keys"))
        group = partial(read_range, number=piece.index * _GROUPS // n_pieces)
        for table in in_threads(group, [_listed(ingest, step, i) for i in numbers]):
            found = np.asarray(table.column("ordinal"))[np.asarray(table.column("piece")) == piece.index]
            steps[found] = reason
    return steps


def _keys_in(path: StorePath, number: int) -> NDArray[Any]:
    """Read the keys of a range."""
    keys = read_range(path, number).column("key").combine_chunks()
    return np.frombuffer(keys.buffers()[1] or b"", KEY)


def _repeats_in(
    bucket: Mapping[int, NDArray[Any]], *, ordered: bool
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Pieces and keys of all documents but the first of each group of equal keys: by ``order``, or in the source."""
    pieces = np.repeat(np.array([*bucket], np.int64), [len(keys) for keys in bucket.values()])
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
    return pieces[repeated], keys[repeated]
