"""Find repeated ids and documents by 128-bit hashes, which are identical on every machine and version.

Keys are spread over as many ranges of hashes as their number needs, and one task finds the repeats of a range. These
are then spread over groups of pieces, which leave them out. A corpus that can grow keeps the hashes of all documents
that were read in ``keys.arrow``, so that ``settled`` can tell which of them one ingest of the present files would keep.

The hashes are not cryptographic; the probability that two of a billion documents collide is 1e-21.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Bags
from streaming_jsmf.corpus.hashes import hash_values, mix
from streaming_jsmf.corpus.ranges import files_of, list_files, number_of_ranges, ranges_of_hashes, spread
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.ingestion.job import Ingest, Piece
from streaming_jsmf.ingestion.losses import DUPLICATE, REPEATED, REPLACED
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.workspace import TaskFiles
from streaming_jsmf.storage.objects import in_threads
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.storage.tables import read_range, read_table, write_table

logger = logging.getLogger(__name__)

#: Steps, and kinds of key files.
_IDS, _CONTENTS = "identities", "contents"

#: Steps that spread keys over ranges, and the documents that are left out over at most so many groups of pieces.
_SPREAD, _LEFT_OUT, _GROUPS = "spread_", "left_out_", 1024

#: File of the repeated documents of a range.
_LISTED = "repeated.arrow"

#: Memory in bytes of a key in a task of a range, in one that spreads keys, and of a document that is left out.
KEY_BYTES, _SPREAD_BYTES, _ROW_BYTES = 136, 240, 64
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
    return mix(counts.astype(np.float64).view(np.uint64))


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
    list_files(ingest.root, "keys", [(piece.file(""), piece.documents) for piece in pieces])
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
    return _without(replace(ingest, ids=ids), executor, _IDS, records)


def find_repeats(ingest: Ingest, executor: Executor) -> tuple[Ingest, int]:
    """Step: return the ingest with where repeated documents are listed if they are to be dropped, and their number."""
    records = _repeats(ingest, executor, _CONTENTS)
    number = sum(record["repeated"] for record in records)
    if ingest.curation.duplicates == "drop" and not ingest.grows:
        ingest = _without(ingest, executor, _CONTENTS, records)
    return ingest, number


def _without(ingest: Ingest, executor: Executor, step: str, records: Sequence[Record]) -> Ingest:
    """The ingest that leaves out the documents which the tasks of a step have listed, after these are spread."""
    rows = {i: record["repeated"] + record["replaced"] for i, record in enumerate(records)}
    numbers = [i for i, number in rows.items() if number]
    if not numbers:
        return ingest
    name = f"{_LEFT_OUT}{step}"
    n_groups, read = _groups(ingest), partial(_listed_by_group, ingest.context, step, numbers)
    spread(ingest.folder, executor, name, [rows[i] for i in numbers], _ROW_BYTES, n_groups, read)
    return replace(ingest, repeats=(*ingest.repeats, step))


def _groups(ingest: Ingest) -> int:
    return min(len(files_of(ingest.root, "keys")), _GROUPS)


def _listed_by_group(
    ingest: Ingest, step: str, ranges: Sequence[int], some: slice, n_groups: int
) -> tuple[Any, NDArray[np.int64]]:
    listed = in_threads(read_table, [_listed(ingest, step, i) for i in ranges[some]])
    table = pa.concat_tables(listed).combine_chunks()
    n_pieces = len(files_of(ingest.root, "keys"))
    return table, np.asarray(table.column("piece")) * n_groups // n_pieces


def _repeats(ingest: Ingest, executor: Executor, step: str) -> list[Record]:
    documents = [number for _, number in files_of(ingest.root, "keys")]
    number = number_of_ranges(sum(documents), KEY_BYTES)
    if number == 1:  # a job would take longer
        return [list_repeats(ingest, (step, 0, 1))]
    name, read = f"{_SPREAD}{step}", partial(_keys_by_range, ingest.context, step)
    spread(ingest.folder, executor, name, documents, _SPREAD_BYTES, number, read)
    return ingest.run(executor, step, list_repeats, [(step, i, number) for i in range(number)], "ranges")


def _keys_by_range(ingest: Ingest, step: str, some: slice, number: int) -> tuple[Any, NDArray[np.int64]]:
    pieces, keys = _keys_of(ingest, step, some)
    return packed(keys).append_column("piece", pa.array(pieces)), ranges_of_hashes(keys["high"], number)


def _keys_of(ingest: Ingest, step: str, some: slice = slice(None)) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Pieces and keys of the documents of some pieces, without those of documents that are left out already."""
    listed = files_of(ingest.root, "keys")
    numbers = range(len(listed))[some]

    def read(piece: int) -> Any:
        stem, documents = listed[piece]
        keys = _unpacked(read_table(ingest.root / f"{stem}{step}"))
        if ingest.repeats:
            keys = keys[left_out(ingest, piece, documents)[keys["ordinal"]] == 0]
        return keys

    found = in_threads(read, numbers)
    return np.repeat(np.array(numbers, np.int64), [*map(len, found)]), np.concatenate(
        [*found, np.empty(0, KEY)]
    )


def list_repeats(ingest: Ingest, item: tuple[str, int, int]) -> Record:
    """Task: list the documents with an id, or contents, of a range but the one of each that stays.

    Of an id, that is the first document in the last file that has it; a corpus that grows decides itself which file
    that is. Of several documents with the same contents, the one with the smallest id stays; those left out because of
    their id are ignored. Memory: the keys of the range.
    """
    step, number, n_ranges = item
    pieces, keys = _keys_of(ingest, step) if n_ranges == 1 else _range_of_keys(ingest, step, number)
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
    with files.written(_LISTED) as made:
        write_table(made, pa.table({"piece": pieces, "ordinal": keys["ordinal"], "step": steps}, _REPEATS))
    bad = steps != REPLACED
    columns = (pieces[bad], *(keys[name][bad] for name in ("ordinal", "unit", "row")))
    place = min(zip(*(column.tolist() for column in columns), strict=True), default=None)
    return {"repeated": int(bad.sum()), "replaced": int((~bad).sum()), "first": place, **files.record()}


def _range_of_keys(ingest: Ingest, step: str, number: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Pieces and keys of the documents of a range, in order."""
    paths = [ingest.root / name for name in files_of(ingest.root, f"{_SPREAD}{step}")]
    table = pa.concat_tables(in_threads(partial(read_range, number=number), paths))
    return np.asarray(table.column("piece")), _unpacked(table)


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


def left_out(ingest: Ingest, piece: int, documents: int) -> NDArray[np.int8]:
    """Return the number of the step (``STEPS``) that leaves out each document of a piece; 0 for those that stay."""
    steps = np.zeros(documents, np.int8)
    for step in ingest.repeats:
        group = piece * _groups(ingest) // len(files_of(ingest.root, "keys"))
        paths = [ingest.root / name for name in files_of(ingest.root, f"{_LEFT_OUT}{step}")]
        for table in in_threads(partial(read_range, number=group), paths):
            mine = np.asarray(table.column("piece")) == piece
            steps[np.asarray(table.column("ordinal"))[mine]] = np.asarray(table.column("step"))[mine]
    return steps


def _unpacked(table: Any, dtype: Any = KEY) -> NDArray[Any]:
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
    several = ordered[1:][ordered[1:] == ordered[:-1]]
    del ordered
    if not several.size:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    shared = np.flatnonzero(several.take(np.searchsorted(several, high), mode="clip") == high)
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
        keys = _unpacked(read_table(ingest.root / piece.file(_CONTENTS)))
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
