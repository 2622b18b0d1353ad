"""The first pass: a group of units becomes pieces of bags, with the counts and keys that the choices need."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard, cast

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.ingestion.pieces import PieceWriter, UnitBatch
from streaming_jsmf.ingestion.work import Work
from streaming_jsmf.sources.base import BadRecords, OnBadRecord, Source, SourceBatch, Unit
from streaming_jsmf.sources.tables.shuffle import ShuffledSource

#: Documents of a group are numbered in so many bits.
ORDER_BITS = 40

QUARANTINE_SCHEMA = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("reason", pa.string()), ("record", pa.binary())]
)


@dataclass(frozen=True)
class ReadJob:
    """What the tasks of the first pass need.

    Attributes
    ----------
    source
        Where the documents are.
    work
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

    source: Source | ShuffledSource
    work: Work
    n_words: int | None
    tokens_per_piece: float
    on_bad_record: OnBadRecord
    buckets: int = 0

    @property
    def rereads(self) -> bool:
        """Whether the second pass reads the source again instead of copies of its bags."""
        return bool(getattr(self.source, "rereads", False))


def is_shuffled(source: Source | ShuffledSource) -> TypeGuard[ShuffledSource]:
    """Whether the documents of a source are spread over its units."""
    return hasattr(source, "scatter")


def scatter_unit(job: ReadJob, index: int) -> dict[str, Any]:
    """Task: put the rows of a unit of a shuffled source into buckets."""
    assert is_shuffled(job.source)
    unit = job.work.load_unit("sources", index)
    bad = BadRecords(job.on_bad_record, unit, job.source.place)
    target = job.work.scattered / f"{index:05d}.arrow"
    target.unlink(missing_ok=True)
    job.source.scatter(unit, bad, target, job.buckets)
    return {"bad": _save_bad(bad, job, unit, target.with_suffix(".bad"))}


def read_group(job: ReadJob, index: int) -> dict[str, Any]:
    """Task: read the units of a group into pieces. One pass over them. ``rows`` are the records of each unit."""
    directory = job.work.read / f"{index:05d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    tally = _Tally()
    pieces = [
        {"documents": writer.documents, "nonzeros": writer.nonzeros, "tokens": writer.tokens}
        for writer in _pieces(job, index, _batches(job, index, directory, tally))
    ]
    return {"pieces": pieces, "rows": tally.rows, "bad": tally.bad}


@dataclass
class _Tally:
    """Records of each unit, good and bad, and how many bad ones were kept aside."""

    rows: list[int] = field(default_factory=list)
    bad: int = 0


def _batches(job: ReadJob, index: int, directory: Path, tally: _Tally) -> Iterator[UnitBatch]:
    """All batches of a group; what a unit had is tallied when it is through."""
    for number, unit in job.work.load_units(index).items():
        bad, rows = BadRecords(job.on_bad_record, unit, job.source.place), 0
        for batch in _read(job, unit, number, bad):
            if batch.n_documents:
                rows = int(batch.rows[-1]) + 1
                yield UnitBatch(number, batch)
        tally.rows.append(max([rows, *(r.row + 1 for r in bad.records if r.row is not None)]))
        tally.bad += _save_bad(bad, job, unit, directory / f"{number:06d}.bad")


def _read(job: ReadJob, unit: Unit, number: int, bad: BadRecords) -> Iterator[SourceBatch]:
    if is_shuffled(job.source):
        return job.source.gather(sorted(job.work.scattered.glob("*.arrow")), number, bad)
    source = cast(Source, job.source)
    return source.read(unit, bad)


def _pieces(job: ReadJob, index: int, batches: Iterator[UnitBatch]) -> Iterator[PieceWriter]:
    """Write one piece after the other; yields each when it is closed."""
    number = documents = 0
    writer: PieceWriter | None = None
    with ExitStack() as stack:
        for held in batches:
            if writer is None:
                order = (index << ORDER_BITS) + documents
                writer = PieceWriter(
                    job.work.piece(index, number), job.n_words, spill=not job.rereads, first_order=order
                )
                stack.callback(writer.abort)
            writer.add(held.unit, held.batch)
            if writer.tokens >= job.tokens_per_piece and not job.rereads:
                writer.close()
                yield writer
                number, documents, writer = number + 1, documents + writer.documents, None
        if writer is not None:
            writer.close()
            yield writer


def _save_bad(bad: BadRecords, job: ReadJob, unit: Unit, path: Path) -> int:
    """Keep the bad records of a unit until the corpus is committed; rows count from the start of the file."""
    if not bad.records:
        return 0
    first = job.source.first_row(unit) if any(record.row is not None for record in bad.records) else 0
    rows = [
        {
            "file": record.path,
            "row": None if record.row is None else first + record.row,
            "reason": record.reason,
            "record": record.record,
        }
        for record in bad.records
    ]
    pq.write_table(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), path)
    return len(rows)
