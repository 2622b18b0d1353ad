"""Find repeated ids and documents by 128-bit hashes, which are identical on every machine and version.

Each file of keys has a batch for each range of hashes, and one task finds the repeats of a range. A corpus that can
grow keeps the hashes of all documents that were read in ``keys.arrow``, so that ``settled`` can tell which of them one
ingest of the present files would keep.

The hashes are not cryptographic; the probability that two of a billion documents collide is 1e-21.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.corpus.totals import files_of, list_files, ranges_of_hashes
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.job import Ingest, Piece
from streaming_jsmf.ingestion.losses import DUPLICATE, REPEATED, REPLACED
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
_REPEATS = pa.schema([("piece", pa.int64()), ("ordinal", pa.int64()), ("step", pa.int8())])

REPEATED_ID = "its document id is that of an earlier document of the file"

#: Entry of a key file: a 128-bit hash, the order among documents with equal keys, and the document: its number in the
#: piece, its unit, and its row in the unit.
KEY = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("order", "<u8"), ("ordinal", "<i8"), ("unit", "<i8"), ("row", "<i8")]
)

#: File with an ``ENTRY`` for each document that was read, those of the corpus in its order.
ENTRIES_NAME = "keys.arrow"

#: The number of its file, or of its unit until all are read; the number of the step (``STEPS``) that left it out; its
#: number in the order of reading; hashes of its id, or of that of its document if it is a passage; the order of ids;
#: and hashes of its words. What is unknown or not needed is 0.
ENTRY = np.dtype(
    [
        ("file", "<i4"),
        ("step", "<i4"),
        ("place", "<i8"),
        ("id", "<u8", 2),
        ("order", "<u8"),
        ("words", "<u8", 2),
    ]
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


def identity_keys(keys: NDArray[Any], ids: Any, *, passages: bool = False) -> NDArray[Any]:
    """Return keys with the hashes of the ids and their order."""
    keys = keys.copy()
    keys["high"], keys["low"], keys["order"] = _hashed(ids, passages=passages)
    return keys


def _hashed(ids: Any, *, passages: bool) -> tuple[NDArray[np.uint64], ...]:
    """Both hashes of ids as texts, for ``passages`` those of their documents, and the order of the ids."""
    hashes = hash_values(ids.cast(pa.string()))
    order = hashes[:, 0]
    if pa.types.is_integer(ids.type):
        # Flipping the sign bit maps the order of int64 to that of uint64.
        order = np.asarray(ids.cast(pa.int64())).view(np.uint64) ^ np.uint64(1 << 63)
    if passages:
        hashes = hash_values(pc.replace_substring_regex(ids.cast(pa.string()), "/[0-9]+$", ""))
    return hashes[:, 0], hashes[:, 1], order


def contents_keys(keys: NDArray[Any], bags: Bags, words: NDArray[np.uint64]) -> NDArray[Any]:
    """Return keys with the hashes of the bags, in the same order, without those of empty documents.

    A hash is the sum, modulo 2^64, of the hashes of the words, (words, 2), each times a random number for its count. It
    does not depend on the order of words.
    """
    keys = keys.copy()
    weights = np.full(len(bags.counts), _number_of(np.ones(1))[0])
    others = np.flatnonzero(bags.counts != 1)
    weights[others] = _number_of(bags.counts[others])
    keys["high"], keys["low"] = (replace(bags, counts=weights).matrix(len(words)) @ words).T
    return keys[bags.lengths > 0]


def _number_of(counts: NDArray[Any]) -> NDArray[np.uint64]:
    """The random number of each count."""
    return _mix(counts.astype(np.float64).view(np.uint64))


def write_keys(path: Path, keys: NDArray[Any], n_ranges: int) -> None:
    """Write keys by range of their hashes."""
    write_ranges(path, packed(keys), ranges_of_hashes(keys["high"], n_ranges), n_ranges)


def find_repeated_ids(
    ingest: Ingest,
    executor: Executor,
    pieces: Sequence[Piece],
    types: Sequence[str],
    faults: Mapping[str, int],
) -> Ingest:
    """Step: return the ingest with the type of its ids, and where the documents that repeat an id are listed.

    A guessed column that cannot be the ids, or repeats, becomes metadata, and the documents are numbered; this is
    logged. Otherwise a document replaces those of its id in earlier files. Raises ``InputError`` if a file repeats an
    id, unless bad records are quarantined.
    """
    list_files(ingest.root, "keys", [piece.file("") for piece in pieces])
    paths = [None, *(ingest.files.path(unit.path) for unit in ingest.units)]
    list_files(ingest.root, "files", [i for i, (one, next_) in enumerate(pairwise(paths)) if one != next_])
    name = ingest.guessed_id
    if name is not None and types and ingest.grows and not ingest.ids:
        return ingest
    records = _repeats(ingest, executor, _IDS) if types else []
    repeated = sum(record["repeated"] for record in records)
    if name is not None and types:
        found = Counter(faults) or +Counter(repeated=repeated + sum(record["replaced"] for record in records))
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
    ids = (ingest.ids or ("int64" if whole else "string")) if types else ""
    return replace(ingest, ids=ids, repeats=_left_out(_IDS, records))


def find_repeats(ingest: Ingest, executor: Executor) -> tuple[Ingest, int]:
    """Step: return the ingest with where repeated documents are listed if they are to be dropped, and their number."""
    records = _repeats(ingest, executor, _CONTENTS)
    number = sum(record["repeated"] for record in records)
    if ingest.curation.duplicates == "drop" and not ingest.grows:
        ingest = replace(ingest, repeats=(*ingest.repeats, *_left_out(_CONTENTS, records)))
    return ingest, number


def _left_out(step: str, records: Sequence[Record]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    numbers = tuple(i for i, record in enumerate(records) if record["repeated"] or record["replaced"])
    return ((step, numbers),) if numbers else ()


def _repeats(ingest: Ingest, executor: Executor, step: str) -> list[Record]:
    if ingest.ranges == 1:  # a job would take longer
        return [list_repeats(ingest, (step, 0))]
    return ingest.run(executor, step, list_repeats, [(step, i) for i in range(ingest.ranges)], "ranges")


def list_repeats(ingest: Ingest, item: tuple[str, int]) -> Record:
    """Task: list the documents with an id, or contents, of a range but the one of each that stays.

    Of an id, that is the first document in the last file that has it; a corpus that grows decides itself which file
    that is. Of several documents with the same contents, the one with the smallest id stays; those left out because of
    their id are ignored. Memory: the keys of the range, and the numbers of the documents that are ignored.
    """
    step, number = item
    without: dict[int, NDArray[Any]] = {}
    if step == _CONTENTS:
        listed = [read_table(_listed(ingest, before, i)) for before, found in ingest.repeats for i in found]
        tables = pa.concat_tables([_REPEATS.empty_table(), *listed])
        ordinals, pieces = (np.asarray(tables.column(name)) for name in ("ordinal", "piece"))
        without = {piece: ordinals[pieces == piece] for piece in np.unique(pieces).tolist()}
    stems = files_of(ingest.root, "keys")
    paths = [ingest.root / f"{stem}{step}" for stem in stems]
    bucket = dict(enumerate(in_threads(partial(_keys_in, number=number), paths)))
    for piece, ordinals in without.items():
        bucket[piece] = bucket[piece][~np.isin(bucket[piece]["ordinal"], ordinals)]
    pieces = np.repeat(np.array([*bucket], np.int64), [len(keys) for keys in bucket.values()])
    keys = np.concatenate([*bucket.values(), np.empty(0, KEY)])
    places = [pieces, keys["ordinal"]]
    if step == _IDS:
        of_units = np.searchsorted(files_of(ingest.root, "files"), keys["unit"], side="right")
        found, first = equal_keys(keys, -of_units, *places)
        steps = _repeated_ids(
            keys[found], of_units[found], of_units[first], first, passages=_has_passages(ingest)
        )
        steps[(steps == REPLACED) & ingest.grows] = 0
    else:
        # Ties in order (no ids) are resolved by piece, then by document.
        found, first = equal_keys(keys, *([keys["order"]] if ingest.ids else []), *places)
        steps = np.where(found == first, 0, DUPLICATE)
    found, steps = found[steps > 0], steps[steps > 0]
    pieces, keys = pieces[found], keys[found]
    files = TaskFiles(ingest.root, f"{step}/{number:05d}")
    table = pa.table({"piece": pieces, "ordinal": keys["ordinal"], "step": steps}, _REPEATS)
    with files.written(_LISTED) as made:
        write_ranges(made, table, pieces * _GROUPS // len(stems), _GROUPS)
    bad = steps != REPLACED
    columns = (pieces[bad], *(keys[name][bad] for name in ("ordinal", "unit", "row")))
    place = min(zip(*(column.tolist() for column in columns), strict=True), default=None)
    return {"repeated": int(bad.sum()), "replaced": int((~bad).sum()), "first": place, **files.record()}


def _has_passages(ingest: Ingest) -> bool:
    return ingest.source.tokenizer.options.split is not None


def _repeated_ids(
    keys: NDArray[Any], files: NDArray[Any], last: NDArray[Any], first: NDArray[Any], *, passages: bool
) -> NDArray[np.int64]:
    """Steps of documents with equal ids, sorted by id and then from the ``last`` file of each to the first."""
    starts = np.ones(len(keys), bool)
    starts[1:] = (first[1:] != first[:-1]) | (files[1:] != files[:-1])
    of_file = np.maximum.accumulate(np.where(starts, np.arange(len(keys)), 0))
    again = of_file != np.arange(len(keys))
    if passages:  # several of one record have its id
        again = (keys["unit"] != keys["unit"][of_file]) | (keys["row"] != keys["row"][of_file])
    return np.where(again, REPEATED, np.where(files != last, REPLACED, 0))


def _listed(ingest: Ingest, step: str, number: int) -> StorePath:
    return ingest.root / step / f"{number:05d}" / _LISTED


def left_out(ingest: Ingest, piece: Piece) -> NDArray[np.int8]:
    """Return the number of the step (``STEPS``) that leaves out each document of a piece; 0 for those that stay."""
    steps = np.zeros(piece.documents, np.int8)
    for step, numbers in ingest.repeats:
        n_pieces = len(files_of(ingest.root, "keys"))
        group = partial(read_range, number=piece.index * _GROUPS // n_pieces)
        for table in in_threads(group, [_listed(ingest, step, i) for i in numbers]):
            mine = np.asarray(table.column("piece")) == piece.index
            steps[np.asarray(table.column("ordinal"))[mine]] = np.asarray(table.column("step"))[mine]
    return steps


def _keys_in(path: StorePath, number: int) -> NDArray[Any]:
    """Read the keys of a range."""
    return _unpacked(read_range(path, number), KEY)


def _unpacked(table: Any, dtype: Any) -> NDArray[Any]:
    keys = table.column("key").combine_chunks()
    return np.frombuffer(keys.buffers()[1] or b"", dtype)


def packed(keys: NDArray[Any]) -> Any:
    """Return keys or entries as a table."""
    width = keys.dtype.itemsize
    return pa.table({"key": pa.Array.from_buffers(pa.binary(width), len(keys), [None, pa.py_buffer(keys)])})


def equal_keys(keys: NDArray[Any], *places: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys that others equal, sorted by key and then by ``places``, and for each the first of its key."""
    high, low = keys["high"], keys["low"]
    # Nearly all keys are distinct, and equal ones have equal first halves.
    ordered = np.sort(high)
    shared = np.flatnonzero(np.isin(high, ordered[1:][ordered[1:] == ordered[:-1]]))
    found = shared[np.lexsort([each[shared] for each in (*reversed(places), low, high)])]
    starts = np.ones(len(found), bool)
    starts[1:] = (high[found[1:]] != high[found[:-1]]) | (low[found[1:]] != low[found[:-1]])
    return found, found[np.maximum.accumulate(np.where(starts, np.arange(len(found)), 0))]


def add_origins(ingest: Ingest, entries: NDArray[Any], unit: int, ids: Any) -> None:
    """Add the unit and the ids of the documents of a batch to their entries, if these are wanted."""
    entries["file"] = unit
    if ingest.ids and len(entries):
        high, low, entries["order"] = _hashed(ids, passages=_has_passages(ingest))
        entries["id"] = np.stack([high, low], axis=1)


def add_results(ingest: Ingest, piece: Piece, entries: NDArray[Any], steps: NDArray[Any]) -> None:
    """Add the steps that left documents of a piece out, and the hashes of their words, to their entries."""
    entries["step"], entries["place"] = steps, np.arange(piece.documents)
    if ingest.curation.duplicates == "drop":
        keys = _unpacked(read_table(ingest.root / piece.file(_CONTENTS)), KEY)
        entries["words"][keys["ordinal"]] = np.stack([keys["high"], keys["low"]], axis=1)


def read_entries(path: StorePath) -> NDArray[Any]:
    """Read entries; ``StoreError`` if the file is missing or damaged."""
    return _unpacked(read_table(path), ENTRY)


def settled(
    entries: NDArray[Any], rank: NDArray[np.int64], *, by_id: bool, drop_duplicates: bool
) -> NDArray[np.int64]:
    """Return the step that leaves out each document because of another one in one ingest of all files, or 0.

    ``rank`` has the place of each file in the order of the files.
    """
    steps, ranks = np.zeros(len(entries), np.int64), rank[entries["file"]]

    def equal(chosen: NDArray[np.int64], name: str, *places: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        keys = np.zeros(len(chosen), KEY)
        keys["high"], keys["low"] = entries[name][chosen].T
        found, first = equal_keys(keys, *(each[chosen] for each in places), entries["place"][chosen])
        return chosen[found], chosen[first]

    if by_id:
        found, first = equal(np.arange(len(entries)), "id", -ranks)
        steps[found[ranks[found] != ranks[first]]] = REPLACED
    if drop_duplicates:
        rest = np.flatnonzero((steps == 0) & entries["words"].any(axis=1))
        found, first = equal(rest, "words", *([entries["order"]] if by_id else []), ranks)
        steps[found[found != first]] = DUPLICATE
    return steps
