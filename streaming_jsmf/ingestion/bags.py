"""The first pass: read groups of units into pieces, with the counts, hashes and columns needed to choose words.

A piece is a file of bags over its own words, the counts of these words, and keys of documents (hashes and places).
"""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.records import OWN_COLUMNS, free_name
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.errors import StoreError, pass_on_machine
from streaming_jsmf.ingestion.job import Group, Ingest, Piece, group_units
from streaming_jsmf.ingestion.readers.base import BadRecords, Batch, Unit
from streaming_jsmf.ingestion.readers.values import (
    KINDS,
    holds_strings,
    kinds_of,
    listed,
    n_given,
    require_few,
)
from streaming_jsmf.ingestion.repeats import KEY, hash_bags, hash_values
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.linalg.csr import count_columns
from streaming_jsmf.storage.paths import file_hashes

logger = logging.getLogger(__name__)

#: Bits for the number of a document within its group.
ORDER_BITS = 40

QUARANTINE_SCHEMA = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("record", pa.binary())]
)


def read_source(ingest: Ingest, executor: Executor) -> tuple[list[Piece], int]:
    """Step: read all documents of the source into pieces, and save the first row number of each unit.

    Makes one pass over the source, or two over the rows of a shuffled source. Returns the number of bad records, too.
    """
    units, records = ingest.units, []
    groups = group_units(units)
    if hasattr(ingest.source, "scatter"):
        # The documents of a shuffled source are spread over its units and are gathered by bucket.
        ingest = replace(ingest, buckets=ingest.source.n_buckets())
        (ingest.folder.root / "scattered").mkdir(exist_ok=True)
        records = ingest.run(
            executor, "scatter", scatter_unit, [Group(i, i, (unit,)) for i, unit in enumerate(units)]
        )
        size = sum(unit.size for unit in units) // ingest.buckets
        buckets = (Unit(units[0].path, b, b + 1, size) for b in range(ingest.buckets))
        groups = [Group(b, b, (bucket,)) for b, bucket in enumerate(buckets)]
    read = ingest.run(executor, "read", read_group, groups)
    rows = [count for record in read for count in record["rows"]]
    np.save(ingest.folder.root / "first_rows.npy", np.concatenate([[0], np.cumsum(rows)]).astype(np.int64))
    pieces: list[Piece] = []
    for group, record in zip(groups, read, strict=True):
        for number, piece in enumerate(record["pieces"]):
            pieces.append(Piece(len(pieces), group, number, **piece))
    return pieces, sum(record["bad"] for record in (*read, *records))


def with_columns(ingest: Ingest, pieces: Sequence[Piece]) -> Ingest:
    """Return the ingest with its partial columns, new names, and the kind of each column of strings that has one.

    A column that the corpus of the vocabulary has as well gets its kind there, if all values have it. Raises
    ``InputError`` if there are too many partial columns.
    """
    common: dict[str, tuple[set[str], int]] = {}
    covered: Counter[str] = Counter()
    for piece in pieces:
        for name, (own, number, documents) in piece.metadata.items():
            before, total = common.get(name, (set(KINDS), 0))
            common[name] = before & set(own), total + number
            covered[name] += documents
    n_documents = sum(piece.documents for piece in pieces)
    partial = tuple(name for name, documents in covered.items() if documents < n_documents)
    require_few(partial)
    renamed = _new_names(dict.fromkeys(name for piece in pieces for name in piece.columns))
    kinds: dict[str, str] = {}
    notes = []
    for name, (found, number) in common.items():
        narrowest = "" if found == set(KINDS) else next((kind for kind in KINDS if kind in found), "")
        wanted = ingest.known_kinds.get(renamed.get(name, name), narrowest)
        if wanted in found:
            kinds[name] = wanted
            notes += [f"{name}: {number:,} values read as {wanted}"] * (number > 0)
        elif wanted:
            logger.warning(
                "%s: not all values are %s, as in the corpus of the vocabulary; they stay strings",
                name,
                wanted,
            )
    if notes:
        logger.info("%s", listed(notes))
    return replace(ingest, kinds=kinds, partial=partial, renamed=renamed)


def _new_names(columns: Collection[str]) -> dict[str, str]:
    """New names of metadata columns whose names corpora or topic shares need; they are logged."""
    taken = {*OWN_COLUMNS, *columns}
    renamed = {name: free_name(name, taken) for name in columns if name in OWN_COLUMNS}
    for name, new in renamed.items():
        logger.info("%s: the column is stored as %s, because results have a column of its name", name, new)
    return renamed


def piece_batches(ingest: Ingest, piece: Piece) -> Iterator[tuple[int, Batch]]:
    """Yield unit number and good documents of a piece, from its bags or again from the source."""
    if not ingest.rereads:
        yield from read_bags(ingest.stem(piece))
        return
    for number, unit in piece.group.numbered():
        for batch in ingest.source.read(unit, BadRecords("quarantine", unit, ingest.source.place)):
            if batch.n_documents:
                yield number, batch


def scatter_unit(ingest: Ingest, group: Group) -> Record:
    """Task: distribute the rows of the unit of a shuffled source to buckets."""
    [unit] = group.units
    bad = BadRecords(ingest.on_bad_record, unit, ingest.source.place)
    target = ingest.folder.root / "scattered" / f"{group.index:05d}.arrow"
    target.unlink(missing_ok=True)
    ingest.source.scatter(unit, bad, target, ingest.buckets)
    quarantined = target.with_suffix(".bad")
    n_bad = _save_bad(bad, ingest, unit, quarantined)
    return {"bad": n_bad, FILES: file_hashes(ingest.folder.root, [target, quarantined])}


@dataclass
class _Seen:
    """Number of records of each unit, good and bad, and number of bad records."""

    rows: list[int] = field(default_factory=list)
    bad: int = 0


def read_group(ingest: Ingest, group: Group) -> Record:
    """Task: read the units of a group into pieces, in one pass. ``rows`` has the number of records of each unit."""
    directory = ingest.folder.stem(group.index, 0).parent
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    seen = _Seen()
    batches = _batches(ingest, group, directory, seen)
    pieces = [
        {
            "documents": writer.documents,
            "nonzeros": writer.nonzeros,
            "tokens": writer.tokens,
            "columns": list(writer.columns),
            "metadata": {
                name: (kinds, writer.strings[name], writer.covered[name])
                for name, kinds in writer.kinds.items()
            },
        }
        for writer in _written_pieces(ingest, group.index, batches)
    ]
    files = file_hashes(ingest.folder.root, sorted(directory.iterdir()))
    return {"pieces": pieces, "rows": seen.rows, "bad": seen.bad, FILES: files}


def _batches(ingest: Ingest, group: Group, directory: Path, seen: _Seen) -> Iterator[tuple[int, Batch]]:
    """Yield all batches of a group by unit; updates ``seen`` after each unit."""
    for number, unit in group.numbered():
        bad, n_records = BadRecords(ingest.on_bad_record, unit, ingest.source.place), 0
        if ingest.buckets:
            scattered = sorted((ingest.folder.root / "scattered").glob("*.arrow"))
            batches = ingest.source.gather(scattered, number, bad)
        else:
            batches = ingest.source.read(unit, bad)
        for batch in batches:
            if batch.n_documents:
                n_records += batch.n_documents
                yield number, batch
        if ingest.source.refuses_documents:
            n_records += sum(record.row is not None for record in bad.records)
        seen.rows.append(n_records)
        seen.bad += _save_bad(bad, ingest, unit, directory / f"{number:06d}.bad")


def _written_pieces(
    ingest: Ingest, index: int, batches: Iterator[tuple[int, Batch]]
) -> Iterator[PieceWriter]:
    """Write the pieces in turn; yield each when it is closed."""
    number = documents = 0
    writer: PieceWriter | None = None
    tokens_per_piece = max(TOKENS_PER_SHARD, ingest.tokens_per_shard)
    with ExitStack() as stack:
        for unit, batch in batches:
            if writer is None:
                writer = PieceWriter(
                    ingest.folder.stem(index, number),
                    ingest.n_words,
                    spill=not ingest.rereads,
                    first_order=(index << ORDER_BITS) + documents,
                )
                stack.callback(writer.abort)
            writer.add(unit, batch)
            if writer.tokens >= tokens_per_piece and not ingest.rereads:
                writer.close()
                yield writer
                number, documents, writer = number + 1, documents + writer.documents, None
        if writer is not None:
            writer.close()
            yield writer


def _save_bad(bad: BadRecords, ingest: Ingest, unit: Unit, path: Path) -> int:
    """Save the bad records of a unit, with row numbers from the start of the file."""
    if not bad.records:
        return 0
    first = ingest.source.first_row(unit) if any(record.row is not None for record in bad.records) else 0
    write_quarantined(
        path,
        [
            {
                "file": location(record.path),
                "row": None if record.row is None else first + record.row,
                "reason": record.reason,
                "record": record.record,
            }
            for record in bad.records
        ],
    )
    return len(bad.records)


def write_quarantined(path: Path, rows: list[dict[str, Any]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), path)


_METADATA = "metadata "  # prefix that separates user columns from our own


class PieceWriter:
    """Write batches of a source as files with the path prefix ``stem``: bags (if ``spill``), word counts, keys.

    If ``n_words`` is None, words are numbered in order of appearance. ``first_order`` is the order of the first
    document, used if ids do not determine the order.
    """

    def __init__(self, stem: Path, n_words: int | None, *, spill: bool, first_order: int) -> None:
        self._stem = stem
        self._open_vocabulary = n_words is None
        self._spill = spill
        self._first_order = first_order
        self._file: Any = None
        self._stream: Any = None
        self._schema: Any = None
        self._words = pa.array([], pa.string())
        self._hashes = hash_values(pa.array(np.arange(n_words or 0, dtype=np.int64)))
        self._document_frequency = np.zeros(n_words or 0, np.int64)
        self._term_count = np.zeros(n_words or 0, np.float64)
        self._keys: dict[str, list[NDArray[Any]]] = {"contents": [], "identities": []}
        #: The kinds (``values.KINDS``) that all strings so far of a metadata column are, how many there are, and the
        #: number of documents in batches with the column.
        self.kinds: dict[str, list[str]] = {}
        self.strings: Counter[str] = Counter()
        self.covered: Counter[str] = Counter()
        #: Names of all metadata columns, in order.
        self.columns: dict[str, None] = {}
        self.documents = self.nonzeros = 0
        self.tokens = 0.0

    def add(self, unit: int, batch: Batch) -> None:
        """Add a batch of the unit with number ``unit``."""
        codes = batch.codes if batch.dictionary is None else self._codes(batch)
        count_columns(codes, batch.counts, self._document_frequency, self._term_count)
        self._add_keys(unit, batch, codes)
        self._add_kinds(batch)
        if self._spill:
            self._write(unit, batch, codes)
        self.documents += batch.n_documents
        self.nonzeros += len(codes)
        self.tokens += float(batch.counts.sum(dtype=np.float64))

    def close(self) -> None:
        self.abort()
        used = np.flatnonzero(self._document_frequency)
        columns = {
            "code": pa.array(used.astype(np.int64)),
            "document_frequency": pa.array(self._document_frequency[used]),
            "term_count": pa.array(self._term_count[used]),
        }
        if self._open_vocabulary:
            columns["word"] = self._words.take(columns["code"])
        table = pa.table(columns)
        write_table(
            self._stem.with_suffix(".words"), table.sort_by("word") if self._open_vocabulary else table
        )
        for kind, parts in self._keys.items():
            if parts:
                keys = np.concatenate(parts)
                keys[np.argsort(keys["high"], kind="stable")].tofile(self._stem.with_suffix(f".{kind}"))

    def abort(self) -> None:
        for opened in (self._stream, self._file):
            if opened is not None:
                opened.close()
        self._stream = self._file = None

    def _codes(self, batch: Batch) -> NDArray[np.int32]:
        """Map the codes of the batch to codes of the piece, adding new words."""
        words = batch.dictionary.cast(pa.string())
        known = pc.index_in(words, value_set=self._words)
        new = np.asarray(known.is_null())
        numbers = np.asarray(known.fill_null(0)).astype(np.int32)
        numbers[new] = len(self._words) + np.arange(new.sum())
        if new.any():
            added = words.filter(pa.array(new))
            self._words = pa.concat_arrays([self._words, added])
            self._hashes = np.concatenate([self._hashes, hash_values(added)])
            self._document_frequency = np.append(self._document_frequency, np.zeros(len(added), np.int64))
            self._term_count = np.append(self._term_count, np.zeros(len(added)))
        codes: NDArray[np.int32] = numbers[batch.codes]
        return codes

    def _add_keys(self, unit: int, batch: Batch, codes: NDArray[Any]) -> None:
        keys = np.empty(batch.n_documents, KEY)
        keys["ordinal"] = self.documents + np.arange(batch.n_documents)
        keys["order"] = (self._first_order + keys["ordinal"]).astype(np.uint64)
        keys["unit"], keys["row"] = unit, batch.rows
        if batch.document_id is not None:
            identities = keys.copy()
            identities["high"], identities["low"] = hash_values(batch.document_id).T
            self._keys["identities"].append(identities)
            if pa.types.is_integer(batch.document_id.type):
                # Flipping the sign bit maps the order of int64 to that of uint64.
                keys["order"] = np.asarray(batch.document_id).view(np.uint64) ^ np.uint64(1 << 63)
            else:
                keys["order"] = identities["high"]
        keys["high"], keys["low"] = hash_bags(batch.indptr, codes, batch.counts, self._hashes).T
        # Empty documents are not repeats of each other.
        self._keys["contents"].append(keys[np.diff(batch.indptr) > 0])

    def _add_kinds(self, batch: Batch) -> None:
        self.columns |= dict.fromkeys(batch.metadata)
        for name, values in batch.metadata.items():
            if not holds_strings(values.type):
                continue
            self.covered[name] += batch.n_documents
            before = self.kinds.get(name, [] if name == EXCERPT else list(KINDS))  # texts are not parsed
            known = batch.kinds.get(name)
            if known is None:
                self.kinds[name] = before and kinds_of(values, before)
                if self.kinds[name]:
                    self.strings[name] += n_given(values)
            else:
                self.kinds[name] = [kind for kind in before if kind in known]

    def _write(self, unit: int, batch: Batch, codes: NDArray[Any]) -> None:
        offsets = pa.array(np.asarray(batch.indptr, np.int32))
        columns = {
            "codes": pa.ListArray.from_arrays(offsets, pa.array(np.asarray(codes, np.int32))),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(batch.counts)),
            "unit": pa.array(np.full(batch.n_documents, unit, np.int64)),
            "row": pa.array(np.asarray(batch.rows, np.int64)),
        }
        if batch.document_id is not None:
            columns["document_id"] = batch.document_id
        columns.update({f"{_METADATA}{name}": array for name, array in batch.metadata.items()})
        record = pa.record_batch(columns)
        if self._file is None:
            self._file = pa.OSFile(str(self._stem.with_suffix(".bags")), "wb")
        if record.schema != self._schema:
            # The file has a stream for each run of batches with the same columns.
            if self._stream is not None:
                self._stream.close()
            self._schema = record.schema
            # Compression would cost more than writing and reading the file.
            self._stream = pa.ipc.new_stream(self._file, record.schema)
        self._stream.write_batch(record)


def read_bags(stem: Path) -> Iterator[tuple[int, Batch]]:
    """Yield unit number and batch, with codes over the words of the piece; ``StoreError`` if damaged."""
    path = stem.with_suffix(".bags")
    # Not memory-mapped: pages of the whole file would count as memory of the process.
    with _own_file(path), pa.OSFile(str(path)) as file:
        for record in _records(file):
            codes, names = record.column("codes"), record.schema.names
            offsets = np.asarray(codes.offsets).astype(np.int64)
            batch = Batch(
                offsets - offsets[0],
                np.asarray(codes.flatten()),
                np.asarray(record.column("counts").flatten()),
                np.asarray(record.column("row")),
                record.column("document_id") if "document_id" in names else None,
                {
                    name.removeprefix(_METADATA): record.column(name)
                    for name in names
                    if name.startswith(_METADATA)
                },
            )
            yield record.column("unit")[0].as_py(), batch


def _records(file: Any) -> Iterator[Any]:
    """Yield the record batches of all streams of a file."""
    while file.tell() < file.size():
        with pa.ipc.open_stream(file) as stream:
            yield from stream


def write_table(path: Path, table: Any) -> None:
    """Write an Arrow table that can be read in parts."""
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table.combine_chunks())


def read_table(path: Path) -> Any:
    """Memory-map a table; ``StoreError`` if the file is missing or damaged."""
    with _own_file(path):
        return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@contextmanager
def _own_file(path: Path) -> Iterator[None]:
    """Convert errors of a file from an earlier step to ``StoreError``."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        pass_on_machine(error)
        raise damaged(path) from error


def damaged(path: Path) -> StoreError:
    root = next(
        parent for parent in (path, *path.parents) if parent.suffix == ".partial" or parent == parent.parent
    )
    return StoreError(f"{path} is missing or damaged; remove {root} and run again")
