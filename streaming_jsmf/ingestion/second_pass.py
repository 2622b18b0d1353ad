"""The second pass: write pieces of bags as shards over the chosen words, without the dropped documents.

Documents that repeat the id of another are written to the quarantine: their id, and all words with their counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Documents
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter, write_task_shards
from streaming_jsmf.corpus.vocabulary import word_ids
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.columns import as_type
from streaming_jsmf.ingestion.first_pass import piece_batches
from streaming_jsmf.ingestion.job import Ingest, Piece
from streaming_jsmf.ingestion.losses import DISTINCT, REPEATED, STEPS, TOKENS, save_bad
from streaming_jsmf.ingestion.repeats import (
    ENTRIES_NAME,
    ENTRY,
    REPEATED_ID,
    add_origins,
    add_results,
    left_out,
    packed,
)
from streaming_jsmf.ingestion.sources.adapter import passage_ids
from streaming_jsmf.ingestion.sources.protocol import BadRecord, Batch, Unit
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.storage.tables import damaged, read_table, write_table

#: Steps: write the shards, and write them again if some words are in no kept document.
WRITE, REWRITE = "write", "rewrite"


def write_shards(
    ingest: Ingest, executor: Executor, pieces: Sequence[Piece], words: Any, step: str = WRITE
) -> list[Record]:
    """Step: write the shards of all pieces over the chosen words, an Arrow array."""
    write_table(ingest.root / f"{step}.words", pa.table({"word": words}))
    return ingest.run(executor, step, write_piece, [(step, piece) for piece in pieces], "nonzeros")


def write_piece(ingest: Ingest, item: tuple[str, Piece]) -> Record:
    """Task: write the shards of a piece in one pass over its bags, and first its documents with a repeated id."""
    step, piece = item
    chosen = read_table(ingest.root / f"{step}.words").column("word").combine_chunks()
    new_ids = word_ids(_words_of(ingest, piece), chosen).astype(np.int32)  # -1 for dropped words
    documents, tokens = np.zeros(len(STEPS), np.int64), np.zeros(len(STEPS))
    all_steps, empty = left_out(ingest, piece.index, piece.documents), 0
    entries = np.zeros(piece.documents if step == WRITE and ingest.recorded else 0, ENTRY)

    def fill(writer: ShardWriter) -> None:
        nonlocal documents, tokens, empty
        ordinal, repeated, counts = 0, list[tuple[Unit, BadRecord]](), None
        for unit, batch in piece_batches(ingest, piece):
            steps = all_steps[ordinal : ordinal + batch.n_documents]  # a view
            bags = batch.bags.mapped(new_ids)
            lengths = bags.tokens()
            steps[(steps == 0) & (bags.lengths < ingest.curation.min_distinct_words)] = DISTINCT
            empty += int(np.sum((steps == DISTINCT) & (batch.bags.lengths == 0)))
            steps[(steps == 0) & (lengths < ingest.curation.min_tokens)] = TOKENS
            documents += np.bincount(steps, minlength=len(STEPS))
            tokens += np.bincount(steps, weights=lengths, minlength=len(STEPS))
            repeated += _repeated(ingest, piece, unit, batch, np.flatnonzero(steps == REPEATED))
            identities = _identities(ingest, piece, unit, batch)
            # Ids that were kept would keep the memory of the batch.
            add_origins(ingest, entries[ordinal : ordinal + batch.n_documents], unit, identities)
            kept = Documents(bags, identities, _metadata(ingest, batch)).take(steps == 0)
            if kept.n_documents:
                counts = bags.counts.dtype if counts is None else counts
                if bags.counts.dtype != counts:
                    raise _mixed_counts(piece, unit, bags.counts)
                writer.write(replace(kept, bags=kept.bags.ordered()))
            ordinal += batch.n_documents
        if ordinal != piece.documents:  # a stream that is cut between batches looks complete
            raise damaged(ingest.root / piece.file("bags"))
        if step == WRITE:
            save_bad(writer.directory / "repeated.bad", ingest, repeated)
            if ingest.recorded:
                add_results(ingest, piece, entries, all_steps)
                write_table(writer.directory / ENTRIES_NAME, packed(entries))

    limits = ShardLimits(ingest.tokens_per_shard)
    record = write_task_shards(ingest.root, step, piece.index, len(chosen), limits, fill)
    return {
        **record,
        "documents": dict(zip(STEPS, documents.tolist(), strict=True)),
        "tokens": dict(zip(STEPS, tokens.tolist(), strict=True)),
        "empty": empty,
    }


def _mixed_counts(piece: Piece, unit: int, counts: NDArray[Any]) -> InputError:
    kinds = ("fractions", "whole numbers")
    ours, theirs = kinds if counts.dtype.kind == "f" else kinds[::-1]
    return InputError(
        f"{dict(piece.group.numbered())[unit].path}: counts are stored as {ours}, those before them as {theirs}; store "
        "all with the same type"
    )


def _repeated(
    ingest: Ingest, piece: Piece, number: int, batch: Batch, chosen: NDArray[np.int64]
) -> Iterator[tuple[Unit, BadRecord]]:
    """Yield documents of a batch as bad records."""
    if not len(chosen):
        return
    unit, words = dict(piece.group.numbered())[number], _words_of(ingest, piece)
    for i in chosen.tolist():
        found = batch.bags.slice(i, i + 1)
        bag = dict(zip(words.take(pa.array(found.ids)).to_pylist(), found.counts.tolist(), strict=True))
        record = json.dumps({"document_id": batch.document_id[i].as_py(), "words": bag}, ensure_ascii=False)
        yield unit, BadRecord(unit.path, int(batch.rows[i]), REPEATED_ID, record.encode())


def _words_of(ingest: Ingest, piece: Piece) -> Any:
    """The words of a piece by code, an Arrow array; null for codes of words that do not occur."""
    table = read_table(ingest.root / piece.file("words"))
    codes = np.asarray(table.column("id"))
    rows = np.full(int(codes.max(initial=-1)) + 1, -1)
    rows[codes] = np.arange(len(codes))
    return table.column("word").combine_chunks().take(pa.array(rows, mask=rows < 0))


def _identities(ingest: Ingest, piece: Piece, unit: int, batch: Batch) -> Any:
    """The ids of a batch, or the numbers of its records in the source, with those of passages."""
    if ingest.ids:
        return as_known(batch.document_id, ingest.ids, "ids")
    found = np.asarray(batch.numbers, np.int64)
    first = piece.first_rows[unit - piece.group.first] + (ingest.documents_before or 0)
    numbers = pa.array(first + found)
    return numbers if ingest.source.tokenizer.options.split is None else passage_ids(numbers, found)


def as_known(values: Any, kind: Any, name: str) -> Any:
    """Return the values of added documents with the type that those of the corpus have."""
    try:
        return values.cast(kind)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{name} of the added documents are {values.type}, those of the corpus {kind}; correct them, or fit again"
        ) from error


def _metadata(ingest: Ingest, batch: Batch) -> dict[str, Any]:
    held = dict(batch.metadata)
    if ingest.guessed_id is not None and batch.document_id is not None:
        held[ingest.guessed_id] = batch.document_id
    absent = pa.nulls(batch.n_documents, pa.string())
    return {column.name: as_type(held.get(column.source, absent), column.kind) for column in ingest.columns}
