"""Shards written by numbered tasks, and the corpus that is assembled from them.

Task 3 of a step leaves its shards, and the counts of their words, in ``STEP/00003`` of the workspace.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.format import DOCUMENTS
from streaming_jsmf.corpus.manifest import ShardEntry
from streaming_jsmf.corpus.shards import ShardLimits, ShardWriter
from streaming_jsmf.corpus.vocabulary import WordCounts
from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.storage.paths import empty_directory, file_hashes, make_directory, remove_trees
from streaming_jsmf.storage.tables import read_table, write_table

#: Directories of a workspace: files that tasks are writing, and the corpus before it is renamed to the target.
WORK, CORPUS = "work", "corpus"

#: Layout of a workspace, one of its arguments: unfinished work with another layout is refused.
LAYOUT = 4

_COUNTS = "counts.arrow"


def task_directory(root: Path, step: str, index: int) -> Path:
    return root / step / f"{index:05d}"


def clear_attempts(root: Path) -> None:
    """Remove what tasks of an interrupted run were writing."""
    empty_directory(root / WORK)


@contextmanager
def attempt(root: Path, step: str, index: int) -> Iterator[Path]:
    """Yield an empty directory, whose files are moved to that of the task if the block succeeds.

    A task may run twice, also at the same time: both runs move the same bytes to the same places. Raises ``StoreError``
    if the workspace was removed in the meantime; a worker that outlives its job must not create it again.
    """
    try:
        made = Path(mkdtemp(prefix=f"{step}-{index:05d}-", dir=root / WORK))
    except FileNotFoundError as error:
        raise StoreError(f"{root} was removed while documents were written to it") from error
    try:
        yield made
        place = task_directory(root, step, index)
        make_directory(place)
        for path in made.iterdir():
            path.replace(place / path.name)
    finally:
        remove_trees(made)


def write_task_shards(
    root: Path, step: str, index: int, n_words: int, limits: ShardLimits, fill: Callable[[ShardWriter], None]
) -> Record:
    """Task: write the shards that ``fill`` makes, and their counts; return the record to commit."""
    with attempt(root, step, index) as directory:
        writer = ShardWriter(directory, n_words, limits)
        try:
            fill(writer)
            shards = writer.close()
        finally:
            writer.abort()
        used = np.flatnonzero(writer.document_frequency)
        counts = {"document_frequency": writer.document_frequency, "term_count": writer.term_count}
        write_table(
            directory / _COUNTS, pa.table({"id": used, **{name: each[used] for name, each in counts.items()}})
        )
    return shards_record(root, step, index, shards)


def shards_record(root: Path, step: str, index: int, shards: Sequence[ShardEntry]) -> Record:
    """Return the record of a task: its shards, and the hashes of all its files."""
    directory = task_directory(root, step, index)
    known = {directory / shard.name: shard.sha256 for shard in shards}
    files = file_hashes(root, sorted(directory.iterdir()), known=known)
    return {"shards": [shard.model_dump(mode="json") for shard in shards], FILES: files}


def shards_of(record: Record) -> list[ShardEntry]:
    return [ShardEntry.model_validate(shard) for shard in record["shards"]]


def total_counts(root: Path, step: str, n_tasks: int, words: pa.Array) -> WordCounts:
    """Sum the counts of the words over all tasks, in their order."""
    totals = WordCounts(words, np.zeros(len(words), np.int64), np.zeros(len(words)))
    for index in range(n_tasks):
        counts = read_table(task_directory(root, step, index) / _COUNTS)
        ids = np.asarray(counts.column("id"))
        totals.document_frequency[ids] += np.asarray(counts.column("document_frequency"))
        totals.term_count[ids] += np.asarray(counts.column("term_count"))
    return totals


def link_shards(root: Path, step: str, records: Sequence[Record]) -> list[ShardEntry]:
    """Link the shards of all tasks, numbered consecutively, into the directory that becomes the corpus."""
    documents = root / CORPUS / DOCUMENTS
    empty_directory(root / CORPUS)
    make_directory(documents)
    entries: list[ShardEntry] = []
    for index, record in enumerate(records):
        for shard in shards_of(record):
            name = f"part-{len(entries):05d}.parquet"
            made = task_directory(root, step, index) / shard.name
            try:
                # A hard link keeps the original name, so that an interruption loses nothing.
                os.link(made, documents / name)
            except OSError:
                shutil.copyfile(made, documents / name)
            entries.append(shard.model_copy(update={"name": name}))
    return entries
