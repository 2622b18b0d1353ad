"""The first pass: a group of units becomes pieces of bags, with the counts and keys that the choices need."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.config import OnBadRecord
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD
from streaming_jsmf.display import location
from streaming_jsmf.ingestion.pieces import PieceWriter, UnitBatch, read_bags
from streaming_jsmf.ingestion.plan import Group, Ingest, IngestFolder, Piece, group_units
from streaming_jsmf.ingestion.readers.base import BadRecords, Source, SourceBatch, Unit
from streaming_jsmf.ingestion.readers.triples import TableSource
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.storage.paths import file_hashes

#: Documents of a group are numbered in so many bits.
ORDER_BITS = 40

QUARANTINE_SCHEMA = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("record", pa.binary())]
)


@dataclass(frozen=True)
class ReadContext:
    """What the tasks of the first pass need.

    Attributes
    ----------
    source
        Where the documents are.
    folder
        Where they go.
    n_words
        N of a source that knows its words, else None.
    tokens_per_piece
        A piece ends with the batch that brings it to this many tokens.
    on_bad_record
        What becomes of bad records.
    buckets
        Of a shuffled source; else 0.
    """

    source: Source | TableSource
    folder: IngestFolder
    n_words: int | None
    tokens_per_piece: float
    on_bad_record: OnBadRecord
    buckets: int = 0


def read_source(ingest: Ingest, units: Sequence[Unit], n_words: int | None) -> list[Record]:
    """The step: all documents of the source into pieces. One pass over the source, two over a shuffled one's rows.

    ``n_words`` is N of a source that knows its words. Besides, the number of the first record of each unit is saved.
    """
    source, settings = ingest.source, ingest.settings
    tokens = max(TOKENS_PER_SHARD, settings.tokens_per_shard)
    context = ReadContext(source, ingest.folder, n_words, tokens, settings.on_bad_record)
    if not is_shuffled(source):
        return _read_groups(ingest, context, units, group_units(units))
    buckets = source.n_buckets()
    context = replace(context, buckets=buckets)
    ingest.folder.scattered.mkdir(exist_ok=True)
    ingest.folder.save_units("sources", units)
    scattered = ingest.run("scatter", scatter_unit, context, [unit.size for unit in units])
    size = sum(unit.size for unit in units) // buckets
    gathered = [Unit(units[0].path, b, b + 1, size) for b in range(buckets)]
    read = _read_groups(ingest, context, gathered, [Group(b, b + 1, size) for b in range(buckets)])
    return [*read, *({"pieces": [], "rows": [], "bad": record["bad"]} for record in scattered)]


def _read_groups(
    ingest: Ingest, context: ReadContext, units: Sequence[Unit], groups: Sequence[Group]
) -> list[Record]:
    ingest.folder.save_units("units", units)
    ingest.folder.save_list("groups", groups)
    read = ingest.run("read", read_group, context, [group.size for group in groups])
    rows = [count for record in read for count in record["rows"]]
    np.save(ingest.folder.first_rows, np.concatenate([[0], np.cumsum(rows)]).astype(np.int64))
    return read


def piece_batches(source: Any, folder: IngestFolder, piece: Piece) -> Iterator[UnitBatch]:
    """The good documents of a piece, as this step saw them: its bags, or the source again where that is as cheap."""
    if not rereads(source):
        yield from read_bags(folder.piece(piece.group, piece.number))
        return
    for number, unit in folder.load_units(piece.group).items():
        for batch in source.read(unit, BadRecords("quarantine", unit, source.place)):
            if batch.n_documents:
                yield UnitBatch(number, batch)


def rereads(source: Any) -> bool:
    """Whether documents are read again from the source rather than from copies of its bags."""
    return bool(getattr(source, "rereads", False))


def is_shuffled(source: Source | TableSource) -> TypeGuard[TableSource]:
    """Whether the documents of a source are spread over its units."""
    return hasattr(source, "scatter")


def scatter_unit(context: ReadContext, index: int) -> dict[str, Any]:
    """Task: put the rows of a unit of a shuffled source into buckets."""
    assert is_shuffled(context.source)
    unit = context.folder.load_unit("sources", index)
    bad = BadRecords(context.on_bad_record, unit, context.source.place)
    target = context.folder.scattered / f"{index:05d}.arrow"
    target.unlink(missing_ok=True)
    context.source.scatter(unit, bad, target, context.buckets)
    kept_aside = target.with_suffix(".bad")
    record = {"bad": _save_bad(bad, context, unit, kept_aside)}
    return {**record, FILES: file_hashes(context.folder.root, [target, kept_aside])}


def read_group(context: ReadContext, index: int) -> dict[str, Any]:
    """Task: read the units of a group into pieces. One pass over them. ``rows`` are the records of each unit."""
    directory = context.folder.read / f"{index:05d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    tally = _Tally()
    pieces = [
        {"documents": writer.documents, "nonzeros": writer.nonzeros, "tokens": writer.tokens}
        for writer in _pieces(context, index, _batches(context, index, directory, tally))
    ]
    made = file_hashes(context.folder.root, sorted(directory.iterdir()))
    return {"pieces": pieces, "rows": tally.rows, "bad": tally.bad, FILES: made}


@dataclass
class _Tally:
    """Records of each unit, good and bad, and how many bad ones were kept aside."""

    rows: list[int] = field(default_factory=list)
    bad: int = 0


def _batches(context: ReadContext, index: int, directory: Path, tally: _Tally) -> Iterator[UnitBatch]:
    """All batches of a group; what a unit had is tallied when it is through."""
    for number, unit in context.folder.load_units(index).items():
        bad, rows = BadRecords(context.on_bad_record, unit, context.source.place), 0
        for batch in _read(context, unit, number, bad):
            if batch.n_documents:
                rows = int(batch.rows[-1]) + 1
                yield UnitBatch(number, batch)
        tally.rows.append(max([rows, *(r.row + 1 for r in bad.records if r.row is not None)]))
        tally.bad += _save_bad(bad, context, unit, directory / f"{number:06d}.bad")


def _read(context: ReadContext, unit: Unit, number: int, bad: BadRecords) -> Iterator[SourceBatch]:
    if is_shuffled(context.source):
        return context.source.gather(sorted(context.folder.scattered.glob("*.arrow")), number, bad)
    source = cast(Source, context.source)
    return source.read(unit, bad)


def _pieces(context: ReadContext, index: int, batches: Iterator[UnitBatch]) -> Iterator[PieceWriter]:
    """Write one piece after the other; yields each when it is closed."""
    number = documents = 0
    writer: PieceWriter | None = None
    with ExitStack() as stack:
        for held in batches:
            if writer is None:
                order = (index << ORDER_BITS) + documents
                writer = PieceWriter(
                    context.folder.piece(index, number),
                    context.n_words,
                    spill=not rereads(context.source),
                    first_order=order,
                )
                stack.callback(writer.abort)
            writer.add(held.unit, held.batch)
            if writer.tokens >= context.tokens_per_piece and not rereads(context.source):
                writer.close()
                yield writer
                number, documents, writer = number + 1, documents + writer.documents, None
        if writer is not None:
            writer.close()
            yield writer


def _save_bad(bad: BadRecords, context: ReadContext, unit: Unit, path: Path) -> int:
    """Keep the bad records of a unit until the corpus is committed; rows count from the start of the file."""
    if not bad.records:
        return 0
    first = context.source.first_row(unit) if any(record.row is not None for record in bad.records) else 0
    rows = [
        {
            "file": location(record.path),
            "row": None if record.row is None else first + record.row,
            "reason": record.reason,
            "record": record.record,
        }
        for record in bad.records
    ]
    pq.write_table(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), path)
    return len(rows)
