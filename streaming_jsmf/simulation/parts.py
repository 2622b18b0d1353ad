"""Parts of a simulation: what one task writes, and the records that say which parts are done.

Until it is committed, a simulation is a directory of this layout::

    simulation.json          the arguments
    corpus/documents/        shards of the parts that are done, under their final names
    corpus/truth.zarr
    records/00000.json       part 0 is done: its shards; 00000.npy are its counts
    work/                    what tasks are writing

A part writes in a directory of its own, moves the files to their places, and then its record is committed. Who comes
second with the same part puts the same bytes in the same places, so a lost worker that comes back harms nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt, ValidationError

from streaming_jsmf.corpus.format import DOCUMENTS
from streaming_jsmf.corpus.manifest import ShardEntry
from streaming_jsmf.corpus.shards import TOKENS_PER_SHARD, ShardLimits, ShardWriter
from streaming_jsmf.errors import StoreError
from streaming_jsmf.jobs.steps import Record, Step
from streaming_jsmf.simulation.documents import batch_documents, process_sampler, simulate_batch
from streaming_jsmf.simulation.truth import Law
from streaming_jsmf.storage.paths import fsync_directory, write_json
from streaming_jsmf.validation import Strict

CORPUS, RECORDS, WORK = "corpus", "records", "work"
ARGUMENTS, COUNTS_NAME = "simulation.json", "counts.npy"


@dataclass(frozen=True)
class Cut:
    """How documents are cut into shards, and shards into parts: one part for each task.

    Attributes
    ----------
    n_documents
        M.
    documents_per_shard
        All shards but the last have as many.
    shards_per_part
        Above 1 only where a shard is smaller than a batch, which would be drawn again for each of its shards.
    """

    n_documents: int
    documents_per_shard: int
    shards_per_part: int

    @property
    def sizes(self) -> list[int]:
        """Documents of each part."""
        each = self.documents_per_shard * self.shards_per_part
        return [min(each, self.n_documents - first) for first in range(0, self.n_documents, each)]

    def first_document(self, part: int) -> int:
        """Number of a part's first document in the corpus."""
        return part * self.shards_per_part * self.documents_per_shard

    def shard_name(self, part: int, number: int) -> str:
        """File name of the shard with this number in its part."""
        return f"part-{part * self.shards_per_part + number:05d}.parquet"


def plan(law: Law, n_documents: int, documents_per_shard: int | None) -> Cut:
    """The cut that is asked for; by default shards of whole batches, about ``TOKENS_PER_SHARD`` tokens each."""
    batch = batch_documents(law)
    if documents_per_shard is None:
        tokens = batch * max(law.mean_length, 1.0)
        documents_per_shard = batch * max(1, round(TOKENS_PER_SHARD / tokens))
    return Cut(n_documents, documents_per_shard, -(-batch // documents_per_shard))


class PartRecord(Strict):
    """What a task says of a part that is done; shards are named relative to ``documents``."""

    shards: tuple[ShardEntry, ...]
    counts_bytes: NonNegativeInt


@dataclass(frozen=True)
class Job:
    """What every task needs: what to draw, how it is cut, and where to write. A few hundred bytes."""

    law: Law
    cut: Cut
    directory: Path

    @property
    def documents(self) -> Path:
        """Where the shards end."""
        return self.directory / CORPUS / DOCUMENTS

    @property
    def step(self) -> Step:
        """The tasks, one for each part, and their records."""
        sizes, records = self.cut.sizes, self.directory / RECORDS
        return Step("simulate", write_part, self, sizes, records, "documents")

    def record(self, part: int) -> PartRecord:
        """What was committed of a part.

        Raises
        ------
        StoreError
            If the record is missing or damaged.
        """
        try:
            return PartRecord.model_validate(self.step.record(part))
        except ValidationError as error:
            raise StoreError(
                f"{self._record_path(part)} is damaged; delete it and run the same command again"
            ) from error

    def counts(self, part: int) -> NDArray[np.float64]:
        """(2, N) float64; document frequencies and term counts of a part, whole numbers.

        Raises
        ------
        StoreError
            If the file is damaged.
        """
        path = self._counts_path(part)
        try:
            counts: NDArray[np.float64] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(
                f"{path}: the counts are damaged; delete {self._record_path(part)} and run the same command again"
            ) from error
        return counts

    def drop_incomplete(self) -> None:
        """Forget parts whose files are missing or of another size, as a crash of the machine can leave them."""
        for part in self.step.committed():
            record = self.record(part)
            sizes = {self.documents / shard.name: shard.bytes for shard in record.shards}
            sizes[self._counts_path(part)] = record.counts_bytes
            if any(not path.is_file() or path.stat().st_size != size for path, size in sizes.items()):
                self._record_path(part).unlink()

    def keep(self, part: int, attempt: Path, shards: tuple[ShardEntry, ...]) -> PartRecord:
        """Move the files of ``attempt`` to their places; return the record that will make them count."""
        entries = []
        for number, shard in enumerate(shards):
            name = self.cut.shard_name(part, number)
            (attempt / shard.name).replace(self.documents / name)
            entries.append(shard.model_copy(update={"name": name}))
        counts = self._counts_path(part)
        (attempt / COUNTS_NAME).replace(counts)
        fsync_directory(self.documents)
        fsync_directory(counts.parent)
        return PartRecord(shards=tuple(entries), counts_bytes=counts.stat().st_size)

    def _record_path(self, part: int) -> Path:
        return self.directory / RECORDS / f"{part:05d}.json"

    def _counts_path(self, part: int) -> Path:
        return self.directory / RECORDS / f"{part:05d}.npy"


def write_part(job: Job, part: int) -> Record:
    """Task: draw the documents of one part and write them; returns the record to commit.

    Memory: the tables of ``process_sampler``, one batch, one row group, and six arrays of N.

    Raises
    ------
    StoreError
        If the directory was removed meanwhile.
    """
    attempt = job.directory / WORK / f"{part:05d}-{uuid.uuid4().hex}"
    try:
        # Without parents: a worker that outlives its simulation must not bring the directory back.
        attempt.mkdir()
    except FileNotFoundError as error:
        raise StoreError(f"{job.directory} was removed while documents were written to it") from error
    try:
        shards = _write_shards(job, part, attempt)
        return job.keep(part, attempt, shards).model_dump(mode="json")
    finally:
        shutil.rmtree(attempt, ignore_errors=True)


def _write_shards(job: Job, part: int, attempt: Path) -> tuple[ShardEntry, ...]:
    """Write the shards of a part and its counts into ``attempt``; all files are on the disk when it returns."""
    sampler = process_sampler(job.law)
    limits = ShardLimits(tokens_per_shard=np.inf, documents_per_shard=job.cut.documents_per_shard)
    writer = ShardWriter(attempt, job.law.n_words, limits)
    size = batch_documents(job.law)
    first = job.cut.first_document(part)
    stop = first + job.cut.sizes[part]
    try:
        for number in range(first // size, -(-stop // size)):
            batch = simulate_batch(sampler, job.cut.n_documents, number)
            start = number * size
            writer.write(batch.take(max(first - start, 0), min(stop - start, batch.n_documents)))
        shards = writer.close()
    finally:
        writer.abort()
    np.save(attempt / COUNTS_NAME, np.stack([writer.document_frequency, writer.term_count]))
    for path in sorted(attempt.iterdir()):
        _fsync(path)
    return shards


def _fsync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def read_arguments(directory: Path) -> dict[str, Any] | None:
    """The arguments an interrupted simulation was started with; None if ``directory`` holds no simulation.

    Raises
    ------
    StoreError
        If they are damaged.
    """
    path = directory / ARGUMENTS
    try:
        found = json.loads(path.read_bytes())
        return dict(found["arguments"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged; delete {directory} and run the same command again") from error


def write_arguments(directory: Path, arguments: dict[str, Any]) -> None:
    """Write the arguments of a simulation into its directory."""
    write_json(directory / ARGUMENTS, {"kind": "streaming_jsmf.simulation", "arguments": arguments})
