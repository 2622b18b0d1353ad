"""The second pass: a piece of bags becomes shards over the chosen words, without the documents that are left out."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streaming_jsmf.config import Curation
from streaming_jsmf.corpus.manifest import ShardEntry
from streaming_jsmf.corpus.records import Documents
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter, renumber_shard
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.pieces import damaged, read_table, within
from streaming_jsmf.ingestion.plan import Ingest, IngestFolder, Piece
from streaming_jsmf.ingestion.read import piece_batches, rereads
from streaming_jsmf.ingestion.readers.base import Source, SourceBatch
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.storage.paths import file_hashes

#: Why documents are left out, in the order in which they are asked; 0 is for those that stay.
STEPS = ("kept", "repeated_id", "duplicates", "min_distinct_words", "min_tokens")


@dataclass(frozen=True)
class WriteContext:
    """What the tasks of the second pass need.

    Attributes
    ----------
    source
        Read again if that is as cheap as its bags (``read.rereads``), else not touched.
    folder
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
    folder: IngestFolder
    curation: Curation
    limits: ShardLimits
    n_words: int
    knows_words: bool


@dataclass
class _Tally:
    """Documents and tokens by step."""

    documents: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(STEPS), np.int64))
    tokens: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(STEPS)))


def write_shards(ingest: Ingest, pieces: Sequence[Piece], n_words: int, *, knows_words: bool) -> list[Record]:
    """The step: pieces become shards over the words chosen, without the documents that are left out."""
    settings = ingest.settings
    context = WriteContext(
        ingest.source,
        ingest.folder,
        settings.curation,
        ShardLimits(settings.tokens_per_shard),
        n_words,
        knows_words,
    )
    return ingest.run("write", write_piece, context, [piece.nonzeros for piece in pieces], "nonzeros")


def renumber_shards(ingest: Ingest, pieces: Sequence[Piece], used: NDArray[np.bool_]) -> list[Record]:
    """The step that follows if some words are in no document kept: the shards again, over the ``used`` ones."""
    np.save(ingest.folder.new_ids, (np.cumsum(used) - 1).astype(np.int32))
    sizes = [piece.nonzeros for piece in pieces]
    return ingest.run("renumber", renumber_piece, ingest.folder, sizes, "nonzeros")


def write_piece(context: WriteContext, index: int) -> Record:
    """Task: write the shards of a piece. One pass over its bags."""
    piece = context.folder.load_piece(index)
    directory = context.folder.written / f"{index:05d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    new_ids = _new_ids(context, piece)
    writer = ShardWriter(directory, context.n_words, context.limits)
    tally, ordinal = _Tally(), 0
    repeats = context.folder.load_repeats(index)
    try:
        first_rows = np.load(context.folder.first_rows, mmap_mode="r")
        for held in piece_batches(context.source, context.folder, piece):
            batch = held.batch
            steps = np.zeros(batch.n_documents, np.int8)
            for step, ordinals in repeats.items():
                steps[within(ordinals, ordinal, batch.n_documents)] = STEPS.index(step)
            documents = _documents(batch, new_ids, steps, int(first_rows[held.unit]), context.curation, tally)
            if documents.n_documents:
                writer.write(documents)
            ordinal += batch.n_documents
        _require_all(context, piece, ordinal)
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
        **_shards_record(context.folder, directory, shards),
        "documents": dict(zip(STEPS, tally.documents.tolist(), strict=True)),
        "tokens": dict(zip(STEPS, tally.tokens.tolist(), strict=True)),
    }


def _require_all(context: WriteContext, piece: Piece, seen: int) -> None:
    """A stream of bags that was cut between two batches looks whole."""
    if seen == piece.documents:
        return
    if not rereads(context.source):
        raise damaged(context.folder.piece(piece.group, piece.number).with_suffix(".bags"))
    path = next(iter(context.folder.load_units(piece.group).values())).path
    raise InputError(f"{path}: it was changed while it was read; run the same command again")


def _new_ids(context: WriteContext, piece: Piece) -> NDArray[np.int32]:
    """New word id by code, -1 for words left out."""
    if context.knows_words:
        known: NDArray[np.int32] = np.load(context.folder.vocabulary.with_suffix(".npy"), mmap_mode="r")
        return known
    table = read_table(context.folder.piece(piece.group, piece.number).with_suffix(".words"))
    chosen = read_table(context.folder.vocabulary.with_suffix(".arrow")).column("word").combine_chunks()
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


@dataclass(frozen=True, eq=False)
class Totals:
    """(N,) document frequencies (int64) and term counts (float64) over the documents kept."""

    document_frequency: NDArray[np.int64]
    term_count: NDArray[np.float64]

    def take(self, used: NDArray[np.bool_]) -> Totals:
        """Those of the masked words."""
        return Totals(self.document_frequency[used], self.term_count[used])


def sum_counts(folder: IngestFolder, n_pieces: int, n_words: int) -> Totals:
    """Counts over all pieces, added in their order."""
    document_frequency, term_count = np.zeros(n_words, np.int64), np.zeros(n_words)
    for index in range(n_pieces):
        with np.load(folder.written / f"{index:05d}" / "counts.npz") as counts:
            document_frequency[counts["ids"]] += counts["document_frequency"]
            term_count[counts["ids"]] += counts["term_count"]
    return Totals(document_frequency, term_count)


def renumber_piece(folder: IngestFolder, index: int) -> Record:
    """Task: write the shards of a piece again with ids that leave no gap for unused words."""
    new_ids = np.load(folder.new_ids, mmap_mode="r")
    directory = folder.renumbered / f"{index:05d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    source = folder.written / f"{index:05d}"
    shards = [
        renumber_shard(entry, source / entry.name, directory / entry.name, new_ids)
        for entry in map(
            ShardEntry.model_validate, folder.checkpoints("write").read_metadata(f"{index:05d}")["shards"]
        )
    ]
    return _shards_record(folder, directory, shards)


def _shards_record(folder: IngestFolder, directory: Path, shards: Sequence[ShardEntry]) -> Record:
    known = {directory / shard.name: shard.sha256 for shard in shards}
    made = file_hashes(folder.root, sorted(directory.iterdir()), known=known)
    return {"shards": [shard.model_dump(mode="json") for shard in shards], FILES: made}
