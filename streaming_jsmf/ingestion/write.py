"""The second pass: a piece of bags becomes shards over the chosen words, without the documents that are left out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.corpus.curation import Curation
from streaming_jsmf.corpus.records import Documents
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.pieces import UnitBatch, damaged, read_bags, read_table
from streaming_jsmf.ingestion.read import QUARANTINE_SCHEMA
from streaming_jsmf.ingestion.work import Piece, Work
from streaming_jsmf.sources.base import BadRecords, Source, SourceBatch

#: Why documents are left out, in the order in which they are asked; 0 is for those that stay.
STEPS = ("kept", "repeated_id", "duplicates", "min_distinct_words", "min_tokens")


REPEATED_ID = "its document id is that of an earlier document"


@dataclass(frozen=True)
class WriteJob:
    """What the tasks of the second pass need.

    Attributes
    ----------
    source
        Read again if it ``rereads``, else not touched.
    work
        Where bags and choices are, and shards go.
    curation
        Rules for documents.
    limits
        Of shards.
    n_words
        N, the words chosen.
    knows_words
        Whether codes are the source's word ids rather than places in each piece's words.
    """

    source: Source
    work: Work
    curation: Curation
    limits: ShardLimits
    n_words: int
    knows_words: bool

    @property
    def rereads(self) -> bool:
        """Whether bags come from the source itself."""
        return bool(getattr(self.source, "rereads", False))


@dataclass
class _Tally:
    """Documents and tokens by step."""

    documents: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(STEPS), np.int64))
    tokens: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(STEPS)))


def write_piece(job: WriteJob, index: int) -> dict[str, Any]:
    """Task: write the shards of a piece. One pass over its bags."""
    piece = job.work.load_piece(index)
    directory = job.work.written / f"{index:05d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    new_ids = _new_ids(job, piece)
    writer = ShardWriter(directory, job.n_words, job.limits)
    tally, ordinal = _Tally(), 0
    repeats = job.work.load_repeats(index)
    try:
        first_rows = np.load(job.work.root / "first_rows.npy", mmap_mode="r")
        for held in piece_batches(job, piece):
            batch = held.batch
            steps = np.zeros(batch.n_documents, np.int8)
            for step, ordinals in repeats.items():
                steps[_within(ordinals, ordinal, batch.n_documents)] = STEPS.index(step)
            documents = _documents(batch, new_ids, steps, int(first_rows[held.unit]), job.curation, tally)
            if documents.n_documents:
                writer.write(documents)
            ordinal += batch.n_documents
        _require_all(job, piece, ordinal)
        shards = writer.close()
    finally:
        writer.abort()
    used = np.flatnonzero(writer.document_frequency)
    np.savez(
        directory / "counts.npz",
        ids=used,
        document_frequency=writer.document_frequency[used],
        term_count=writer.term_count[used],
    )
    return {
        "shards": [shard.model_dump(mode="json") for shard in shards],
        "documents": dict(zip(STEPS, tally.documents.tolist(), strict=True)),
        "tokens": dict(zip(STEPS, tally.tokens.tolist(), strict=True)),
    }


def _require_all(job: WriteJob, piece: Piece, seen: int) -> None:
    """A stream of bags that was cut between two batches looks whole."""
    if seen == piece.documents:
        return
    if not job.rereads:
        raise damaged(job.work.piece(piece.group, piece.number).with_suffix(".bags"))
    path = next(iter(job.work.load_units(piece.group).values())).path
    raise InputError(f"{path}: it was changed while it was read; run the same command again")


def piece_batches(job: WriteJob, piece: Piece) -> Iterator[UnitBatch]:
    """The good documents of a piece, as the first pass saw them."""
    if not job.rereads:
        yield from read_bags(job.work.piece(piece.group, piece.number))
        return
    for number, unit in job.work.load_units(piece.group).items():
        for batch in job.source.read(unit, BadRecords("quarantine", unit, job.source.place)):
            if batch.n_documents:
                yield UnitBatch(number, batch)


def save_repeated(job: WriteJob, index: int, ordinals: NDArray[np.int64]) -> None:
    """Keep aside the documents of a piece that repeat an id.

    What is kept of such a document is its id and its words with their counts, before any are left out.
    """
    piece = job.work.load_piece(index)
    units = job.work.load_units(piece.group)
    words = _words(job, piece)
    rows, first = [], 0
    for held in piece_batches(job, piece):
        batch, unit = held.batch, units[held.unit]
        for i in _within(ordinals, first, batch.n_documents).tolist():
            low, high = batch.indptr[i], batch.indptr[i + 1]
            names = words.take(pa.array(batch.codes[low:high].astype(np.int64))).to_pylist()
            bag = dict(zip(names, batch.counts[low:high].tolist(), strict=True))
            record = {"document_id": batch.document_id[i].as_py(), "words": bag}
            data = json.dumps(record, ensure_ascii=False).encode()
            row = job.source.first_row(unit) + int(batch.rows[i])
            rows.append({"file": unit.path, "row": row, "reason": REPEATED_ID, "record": data})
        first += batch.n_documents
    target = job.work.root / f"repeated-{index:05d}.bad"
    pq.write_table(pa.Table.from_pylist(rows, QUARANTINE_SCHEMA), target)


def _words(job: WriteJob, piece: Piece) -> Any:
    """Arrow array of the words by code."""
    if job.knows_words:
        return pa.array(job.source.vocabulary, pa.string())
    table = read_table(job.work.piece(piece.group, piece.number).with_suffix(".words"))
    words = np.full(int(pc.max(table.column("code")).as_py() or 0) + 1, "", object)
    words[np.asarray(table.column("code"))] = table.column("word").to_pylist()
    return pa.array(words, pa.string())


def _new_ids(job: WriteJob, piece: Piece) -> NDArray[np.int32]:
    """New word id by code, -1 for words left out."""
    if job.knows_words:
        known: NDArray[np.int32] = np.load(job.work.vocabulary.with_suffix(".npy"), mmap_mode="r")
        return known
    table = read_table(job.work.piece(piece.group, piece.number).with_suffix(".words"))
    chosen = read_table(job.work.vocabulary.with_suffix(".arrow")).column("word").combine_chunks()
    found = pc.index_in(table.column("word").combine_chunks(), value_set=chosen).fill_null(-1)
    codes = np.asarray(table.column("code"))
    new_ids = np.full(int(codes.max(initial=-1)) + 1, -1, np.int32)
    new_ids[codes] = np.asarray(found)
    return new_ids


def _documents(
    batch: SourceBatch,
    new_ids: NDArray[np.int32],
    steps: NDArray[np.int8],
    first_row: int,
    curation: Curation,
    tally: _Tally,
) -> Documents:
    """The documents of a batch that stay, with the words that stay. ``steps`` is completed and counted.

    ``first_row`` is the number, in the whole source, of the first record of the unit: what documents without ids are
    numbered from.
    """
    ids = new_ids[batch.codes]
    rows = np.repeat(np.arange(batch.n_documents), np.diff(batch.indptr))
    kept = ids >= 0
    distinct = np.bincount(rows[kept], minlength=batch.n_documents)
    tokens = np.bincount(rows[kept], weights=batch.counts[kept], minlength=batch.n_documents)
    steps[(steps == 0) & (distinct < curation.min_distinct_words)] = STEPS.index("min_distinct_words")
    steps[(steps == 0) & (tokens < curation.min_tokens)] = STEPS.index("min_tokens")
    tally.documents += np.bincount(steps, minlength=len(STEPS))
    tally.tokens += np.bincount(steps, weights=tokens, minlength=len(STEPS))
    stays = steps == 0
    kept &= stays[rows]
    rows, ids, counts = rows[kept], ids[kept], batch.counts[kept]
    order = _order(rows, ids)
    if order is not None:
        ids, counts = ids[order], counts[order]
    lengths = np.bincount(rows, minlength=batch.n_documents)[stays]
    mask = pa.array(stays)
    identity = batch.document_id
    if identity is None:
        identity = pa.array(first_row + np.asarray(batch.rows, np.int64))
    return Documents(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        ids,
        counts,
        identity.filter(mask),
        {name: column.filter(mask) for name, column in batch.metadata.items()},
    )


def _order(rows: NDArray[Any], ids: NDArray[np.int32]) -> NDArray[np.int64] | None:
    """What puts the words of each document in order of ids; None if they are. The rows rise already."""
    keys = (rows << 32) | ids
    if bool((keys[1:] > keys[:-1]).all()):
        return None
    order: NDArray[np.int64] = np.argsort(keys)
    return order


def _within(ordinals: NDArray[np.int64], first: int, count: int) -> NDArray[np.int64]:
    """Those of sorted ordinals that fall in a batch, from the batch's start."""
    low, high = np.searchsorted(ordinals, [first, first + count])
    return ordinals[low:high] - first
