"""The second pass: write pieces of bags as shards over the chosen words, without the dropped documents.

Documents that repeat the id of another are written to the quarantine: their id, and all words with their counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.corpus.assemble import (
    attempt,
    shards_of,
    shards_record,
    task_directory,
    write_task_shards,
)
from streaming_jsmf.corpus.records import Documents
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter, renumber_shard
from streaming_jsmf.corpus.vocabulary import word_ids
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.ingestion.bags import piece_batches
from streaming_jsmf.ingestion.columns import as_type
from streaming_jsmf.ingestion.job import CHOSEN_WORDS, Ingest, Piece, write_quarantined
from streaming_jsmf.ingestion.readers.base import Batch
from streaming_jsmf.ingestion.readers.records import passage_ids
from streaming_jsmf.ingestion.repeats import REPEATED_ID, left_out
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.storage.tables import damaged, read_table, write_table

WRITE, RENUMBER = "write", "renumber"

#: Reasons for dropping documents, in the order of the checks; the first entry counts kept documents.
STEPS = ("kept", "repeated_id", "duplicates", "min_distinct_words", "min_tokens")
REPEATED, DISTINCT, TOKENS = map(STEPS.index, ("repeated_id", "min_distinct_words", "min_tokens"))

#: File of the new id of each word, if some are in no kept document.
NEW_IDS = "renumber.arrow"
#: File of the repeated ids of a piece, in the directory of its task.
QUARANTINED = "repeated.bad"


def write_shards(ingest: Ingest, executor: Executor, pieces: Sequence[Piece]) -> list[Record]:
    """Step: write the shards of all pieces."""
    return ingest.run(executor, WRITE, write_piece, pieces, "nonzeros")


def renumber_shards(
    ingest: Ingest, executor: Executor, pieces: Sequence[Piece], used: NDArray[np.bool_]
) -> list[Record]:
    """Step: write the shards again over the ``used`` words, if some words occur in no kept document."""
    write_table(ingest.folder.root / NEW_IDS, pa.table({"id": (np.cumsum(used) - 1).astype(np.int32)}))
    return ingest.run(executor, RENUMBER, renumber_piece, pieces, "nonzeros")


def write_piece(ingest: Ingest, piece: Piece) -> Record:
    """Task: write the shards of a piece. Makes one pass over its bags."""
    new_ids, n_words = _new_ids(ingest, piece)
    documents, tokens = np.zeros(len(STEPS), np.int64), np.zeros(len(STEPS))
    repeats, empty = left_out(ingest, piece), 0

    repeated: list[dict[str, Any]] = []

    def fill(writer: ShardWriter) -> None:
        nonlocal documents, tokens, empty
        ordinal = 0
        for unit, batch in piece_batches(ingest, piece):
            steps = repeats[ordinal : ordinal + batch.n_documents].copy()
            if len(steps) < batch.n_documents:
                raise _changed(ingest, piece)
            ids, distinct, lengths = _renamed(batch, new_ids)
            steps[(steps == 0) & (distinct < ingest.curation.min_distinct_words)] = DISTINCT
            empty += int(np.sum((steps == DISTINCT) & (np.diff(batch.indptr) == 0)))
            steps[(steps == 0) & (lengths < ingest.curation.min_tokens)] = TOKENS
            documents += np.bincount(steps, minlength=len(STEPS))
            tokens += np.bincount(steps, weights=lengths, minlength=len(STEPS))
            repeated.extend(_quarantined(ingest, piece, unit, batch, np.flatnonzero(steps == REPEATED)))
            kept = _kept_documents(
                batch,
                ids,
                n_words,
                steps == 0,
                _identities(ingest, piece, unit, batch),
                _metadata(ingest, batch),
            )
            if kept.n_documents:
                writer.write(kept)
            ordinal += batch.n_documents
        if ordinal != piece.documents:
            raise _changed(ingest, piece)
        if repeated:
            write_quarantined(writer.directory / QUARANTINED, repeated)

    limits = ShardLimits(ingest.tokens_per_shard)
    try:
        record = write_task_shards(ingest.folder.root, WRITE, piece.index, n_words, limits, fill)
    except pa.ArrowInvalid as error:
        raise _changed(ingest, piece) from error
    return {
        **record,
        "documents": dict(zip(STEPS, documents.tolist(), strict=True)),
        "tokens": dict(zip(STEPS, tokens.tolist(), strict=True)),
        "empty": empty,
    }


def _quarantined(
    ingest: Ingest, piece: Piece, number: int, batch: Batch, chosen: NDArray[np.int64]
) -> Iterator[dict[str, Any]]:
    """Yield rows of the quarantine for documents of a batch."""
    if not len(chosen):
        return
    unit, words = dict(piece.group.numbered())[number], _words_of(ingest, piece)
    first = ingest.source.first_row(unit)
    for i in chosen.tolist():
        low, high = batch.indptr[i], batch.indptr[i + 1]
        bag = dict(zip(words[batch.codes[low:high]], batch.counts[low:high].tolist(), strict=True))
        record = {"document_id": batch.document_id[i].as_py(), "words": bag}
        yield {
            "file": location(unit.path),
            "row": first + int(batch.rows[i]),
            "reason": REPEATED_ID,
            "record": json.dumps(record, ensure_ascii=False).encode(),
        }


def _words_of(ingest: Ingest, piece: Piece) -> NDArray[Any]:
    """The words of a piece by code."""
    if ingest.n_words is not None:
        return np.array(ingest.source.vocabulary, object)
    table = read_table(ingest.stem(piece).with_suffix(".words"))
    codes = np.asarray(table.column("code"))
    words = np.full(int(codes.max(initial=-1)) + 1, "", object)
    words[codes] = table.column("word").to_pylist()
    return words


def _changed(ingest: Ingest, piece: Piece) -> InputError | StoreError:
    """The error if documents differ from those of the first pass: a stream cut between batches looks complete."""
    if not ingest.rereads:
        return damaged(ingest.stem(piece).with_suffix(".bags"))
    path = piece.group.units[0].path
    return InputError(f"{path}: it changed while it was read; run the same command again")


def _identities(ingest: Ingest, piece: Piece, unit: int, batch: Batch) -> Any:
    """The ids of a batch, or the numbers of its records in the source, with those of passages."""
    if ingest.ids:
        return batch.document_id.cast(ingest.ids)
    found = np.asarray(batch.rows if batch.numbers is None else batch.numbers, np.int64)
    numbers = pa.array(piece.first_rows[unit - piece.group.first] + found)
    return numbers if ingest.source.tokenizer.passage is None else passage_ids(numbers, found)


def _metadata(ingest: Ingest, batch: Batch) -> dict[str, Any]:
    held = dict(batch.metadata)
    if ingest.guessed_id is not None and batch.document_id is not None:
        held[ingest.guessed_id] = batch.document_id
    absent = pa.nulls(batch.n_documents, pa.string())
    return {column.name: as_type(held.get(column.source, absent), column.kind) for column in ingest.columns}


def _new_ids(ingest: Ingest, piece: Piece) -> tuple[NDArray[np.int32], int]:
    """New word id by code, -1 for dropped words, and the number of chosen words."""
    chosen = read_table(ingest.folder.root / CHOSEN_WORDS).column(0).combine_chunks()
    if ingest.n_words is not None:
        known: NDArray[np.int32] = np.asarray(chosen)
        return known, int(known.max()) + 1
    table = read_table(ingest.stem(piece).with_suffix(".words"))
    codes = np.asarray(table.column("code"))
    new_ids = np.full(int(codes.max(initial=-1)) + 1, -1, np.int32)
    new_ids[codes] = word_ids(table.column("word").combine_chunks(), chosen)
    return new_ids, len(chosen)


def _renamed(
    batch: Batch, new_ids: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.float64]]:
    """Return the new ids of the codes, and the number of chosen words and their tokens in each document."""
    chosen, ids = new_ids >= 0, new_ids[batch.codes]
    bags = csr_array((batch.counts, batch.codes, batch.indptr), shape=(batch.n_documents, len(new_ids)))
    tokens = bags @ chosen.astype(np.float64)
    bags.data = np.ones(len(ids), np.int8)
    return ids, bags @ chosen.astype(np.int64), tokens


def _kept_documents(
    batch: Batch,
    ids: NDArray[np.int32],
    n_words: int,
    stays: NDArray[np.bool_],
    identities: Any,
    metadata: Mapping[str, Any],
) -> Documents:
    """Kept documents with kept words, sorted by new id; ``ids`` are those of the codes."""
    held = (ids >= 0) & np.repeat(stays, np.diff(batch.indptr))
    before = np.concatenate([[0], np.cumsum(held)])
    indptr = before[np.append(batch.indptr[:-1][stays], batch.indptr[-1])]
    bags = csr_array(
        (batch.counts[held], ids[held], indptr.astype(np.int32)), shape=(len(indptr) - 1, n_words)
    )
    bags.sort_indices()
    mask = pa.array(stays)
    columns = {name: each.filter(mask) for name, each in metadata.items()}
    return Documents(indptr, bags.indices, bags.data, identities.filter(mask), columns)


def renumber_piece(ingest: Ingest, piece: Piece) -> Record:
    """Task: copy the shards of a piece with consecutive ids for the used words."""
    root, index = ingest.folder.root, piece.index
    new_ids = np.asarray(read_table(root / NEW_IDS).column("id").combine_chunks())
    written = shards_of(ingest.folder.checkpoints(WRITE).read_metadata(f"{index:05d}"))
    source = task_directory(root, WRITE, index)
    with attempt(root, RENUMBER, index) as directory:
        shards = [
            renumber_shard(shard, source / shard.name, directory / shard.name, new_ids) for shard in written
        ]
    return shards_record(root, RENUMBER, index, shards)
