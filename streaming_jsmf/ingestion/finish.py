"""What is left when all shards are written: words that turned out unused, the quarantine, the commit."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import DOCUMENTS, QUARANTINE_NAME, Corpus
from streaming_jsmf.corpus.manifest import ShardEntry
from streaming_jsmf.corpus.shards import renumber_shard
from streaming_jsmf.corpus.write import Origin, WordTotals, commit_directory, in_documents
from streaming_jsmf.ingestion.read import QUARANTINE_SCHEMA
from streaming_jsmf.ingestion.work import Work
from streaming_jsmf.jobs.records import Record


@dataclass(frozen=True, eq=False)
class Totals:
    """(N,) document frequencies (int64) and term counts (float64) over the documents kept."""

    document_frequency: NDArray[np.int64]
    term_count: NDArray[np.float64]

    def take(self, used: NDArray[np.bool_]) -> Totals:
        """Those of the masked words."""
        return Totals(self.document_frequency[used], self.term_count[used])


@dataclass(frozen=True)
class RenumberJob:
    """Shards of ``work.written`` with new ids from ``work``'s file go to ``work.renumbered``."""

    work: Work


def sum_counts(work: Work, n_pieces: int, n_words: int) -> Totals:
    """Counts over all pieces, added in their order."""
    document_frequency, term_count = np.zeros(n_words, np.int64), np.zeros(n_words)
    for index in range(n_pieces):
        with np.load(work.written / f"{index:05d}" / "counts.npz") as counts:
            document_frequency[counts["ids"]] += counts["document_frequency"]
            term_count[counts["ids"]] += counts["term_count"]
    return Totals(document_frequency, term_count)


def renumber_piece(job: RenumberJob, index: int) -> dict[str, Any]:
    """Task: write the shards of a piece again with ids that leave no gap for unused words."""
    new_ids = np.load(job.work.root / "renumber.npy", mmap_mode="r")
    directory = job.work.renumbered / f"{index:05d}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    source = job.work.written / f"{index:05d}"
    shards = [
        renumber_shard(entry, source / entry.name, directory / entry.name, new_ids)
        for entry in map(ShardEntry.model_validate, job.work.records("write").read(index)["shards"])
    ]
    return {"shards": [shard.model_dump(mode="json") for shard in shards]}


def commit(
    work: Work, shards_in: Path, records: Sequence[Record], counts: WordTotals, origin: Origin, target: Path
) -> Corpus:
    """Gather the shards under one directory and rename it onto the target; then the working directory goes.

    Raises
    ------
    InputError
        If nothing is left to write, or the target has appeared meanwhile.
    """
    shutil.rmtree(work.corpus, ignore_errors=True)
    documents = work.corpus / DOCUMENTS
    documents.mkdir(parents=True)
    entries: list[ShardEntry] = []
    for piece, record in enumerate(records):
        for shard in map(ShardEntry.model_validate, record["shards"]):
            name = f"part-{len(entries):05d}.parquet"
            _link(shards_in / f"{piece:05d}" / shard.name, documents / name)
            entries.append(in_documents(shard, name))
    _write_quarantine(work)
    corpus = commit_directory(work.corpus, target, entries, counts, origin)
    work.remove()
    return corpus


def _write_quarantine(work: Work) -> None:
    """All bad records in the order of units, if there are any; one file of them in memory at a time."""
    paths = [
        *sorted(work.scattered.glob("*.bad")),
        *sorted(work.read.glob("*/*.bad")),
        *sorted(work.root.glob("repeated-*.bad")),
    ]
    if not paths:
        return
    with pq.ParquetWriter(work.corpus / QUARANTINE_NAME, QUARANTINE_SCHEMA, compression="zstd") as writer:
        for path in paths:
            writer.write_table(pq.read_table(path, schema=QUARANTINE_SCHEMA))


def _link(source: Path, target: Path) -> None:
    """The same file under another name, so that an interruption loses nothing; a copy where there are no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
