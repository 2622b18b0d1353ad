"""Stream documents into Parquet shards in one directory, alone or as one of numbered tasks.

Task 3 of a step leaves its shards, and the counts of their words, in ``STEP/00003`` of the workspace; the shards of all
tasks are then linked or copied into one corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.bags import BATCH_NONZEROS, Bags, Documents
from streaming_jsmf.corpus.format import DOCUMENTS
from streaming_jsmf.corpus.manifest import ShardEntry, as_number
from streaming_jsmf.corpus.metadata import OWN_COLUMNS
from streaming_jsmf.corpus.vocabulary import COUNTS, WordCounts, used_counts
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.checkpoints import Record
from streaming_jsmf.jobs.workspace import TaskFiles
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.storage.objects import FILE_THREADS, in_threads
from streaming_jsmf.storage.paths import StorePath, make_directory, sha256_of
from streaming_jsmf.storage.replace import put_files
from streaming_jsmf.storage.tables import read_table, write_table

TOKENS_PER_SHARD = 20_000_000

#: Layout of a workspace, one of its arguments: unfinished work with another layout is refused.
LAYOUT = {"layout": 10}

_COUNTS = "counts.arrow"

# 1.33 bytes per nonzero on the NIPS counts; Arrow's default encodings need 1.93.
_PARQUET: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": False,
    "column_encoding": {
        "ids.list.element": "DELTA_BINARY_PACKED",
        "counts.list.element": "BYTE_STREAM_SPLIT",
    },
    "write_page_checksum": True,
}


@dataclass(frozen=True)
class ShardLimits:
    """Limits of shards and row groups; ``InputError`` if one is not positive.

    A shard ends with the document that reaches ``tokens_per_shard``, or after ``documents_per_shard`` documents. A
    document with more than ``nonzeros_per_row_group`` nonzeros has its own row group.
    """

    tokens_per_shard: float = TOKENS_PER_SHARD
    documents_per_shard: int | None = None
    nonzeros_per_row_group: int = BATCH_NONZEROS

    def __post_init__(self) -> None:
        if min(self.tokens_per_shard, self.nonzeros_per_row_group, self.documents_per_shard or 1) < 1:
            raise InputError("tokens, documents per shard and nonzeros per row group must be at least 1")


class ShardWriter:
    """Write documents, in the given order, as ``part-00000.parquet``, ... into an empty directory. Makes one pass.

    The same documents give the same bytes, however they are batched. Memory: one row group, one batch, and two arrays
    of length N.

    Attributes
    ----------
    document_frequency : (N,) int64; number of documents with each word so far.
    term_count : (N,) float64; tokens of each word so far.
    shards : The shards that are complete.
    """

    def __init__(self, directory: Path, n_words: int, limits: ShardLimits) -> None:
        self.directory = directory
        self._limits = limits
        self._documents_limit = limits.documents_per_shard or int(np.iinfo(np.int64).max)
        self.document_frequency = np.zeros(n_words, np.int64)
        self.term_count = np.zeros(n_words, np.float64)
        self.shards: list[ShardEntry] = []
        self._schema: Any = None
        self._file: Any = None
        self._pieces: list[Documents] = []
        self._pending = 0  # nonzeros in _pieces
        self._rows, self._nonzeros, self._tokens = 0, 0, 0.0  # of the current shard, _pieces included
        self._row_groups = list[tuple[int, int]]()

    def write(self, documents: Documents) -> None:
        """Write checked documents (ids sorted, unique, below N; counts positive).

        Raises ``InputError`` if the columns or their types differ from those of the first batch.
        """
        self._check_schema(documents)
        documents.bags.count_words(self.document_frequency, self.term_count)
        tokens = documents.bags.tokens()
        start = 0
        while start < documents.n_documents:
            stop = start + self._fitting(documents.bags.indptr[start:], tokens[start:])
            if stop == start:
                self._flush()
                continue
            self._push(documents.slice(start, stop), tokens[start:stop])
            start = stop
            if self._rows >= self._documents_limit or self._tokens >= self._limits.tokens_per_shard:
                self._close_shard()

    def close(self) -> tuple[ShardEntry, ...]:
        """End the last shard; return all of them, named relative to the directory."""
        self._close_shard()
        return tuple(self.shards)

    def abort(self) -> None:
        """Close the current file. May be called repeatedly, and after ``close``."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _check_schema(self, documents: Documents) -> None:
        clash = {*OWN_COLUMNS} & set(documents.metadata)
        if clash:
            raise InputError(f"metadata column {min(clash)!r} has a reserved name; rename it")
        schema = _schema(documents)
        if self._schema is None:
            self._schema = schema
        elif schema != self._schema:
            first, other = (
                ", ".join(f"{field.name}: {field.type}" for field in each) for each in (self._schema, schema)
            )
            raise InputError(f"documents have columns {other}, those before them {first}; make them the same")

    def _fitting(self, indptr: NDArray[np.int64], tokens: NDArray[np.float64]) -> int:
        """Number of the next documents that fit into the current row group and shard."""
        room = self._limits.nonzeros_per_row_group - self._pending
        by_nonzeros = int(np.searchsorted(indptr[1:] - indptr[0], room, side="right"))
        if by_nonzeros == 0 and not self._pieces:
            by_nonzeros = 1
        running = np.cumsum(np.concatenate([[self._tokens], tokens]))[1:]
        by_tokens = int(np.searchsorted(running, self._limits.tokens_per_shard, side="left")) + 1
        return min(by_nonzeros, by_tokens, self._documents_limit - self._rows, len(tokens))

    def _push(self, documents: Documents, tokens: NDArray[np.float64]) -> None:
        self._pieces.append(documents)
        self._pending += len(documents.bags.ids)
        self._rows += documents.n_documents
        self._nonzeros += len(documents.bags.ids)
        self._tokens = float(np.cumsum(np.concatenate([[self._tokens], tokens]))[-1])

    def _flush(self) -> None:
        """Write the pending documents as one row group."""
        if not self._pieces:
            return
        if self._file is None:
            leaves = {"ids": "ids.list.element", "counts": "counts.list.element"}
            # Level 9 takes four times as long as level 3 on excerpts, and saves a tenth of their bytes.
            levels = {leaves.get(name, name): 3 if name == EXCERPT else 9 for name in self._schema.names}
            path = self.directory / self._name()
            self._file = pq.ParquetWriter(path, self._schema, compression_level=levels, **_PARQUET)
        table = _table(self._pieces, self._schema)
        self._file.write_table(table, row_group_size=table.num_rows)
        pairs = sum(int(np.maximum(piece.bags.lengths, 1).sum()) for piece in self._pieces)
        self._row_groups.append((table.num_rows, pairs))
        self._pieces, self._pending = [], 0

    def _close_shard(self) -> None:
        self._flush()
        if self._file is None:
            return
        self.abort()
        path = self.directory / self._name()
        self.shards.append(
            ShardEntry(
                name=path.name,
                rows=self._rows,
                nonzeros=self._nonzeros,
                tokens=as_number(self._tokens),
                bytes=path.stat().st_size,
                sha256=sha256_of(path),
                row_groups=tuple(self._row_groups),
            )
        )
        self._row_groups.clear()
        self._rows, self._nonzeros, self._tokens = 0, 0, 0.0

    def _name(self) -> str:
        return f"part-{len(self.shards):05d}.parquet"


def _schema(documents: Documents) -> Any:
    counts = pa.int32() if documents.bags.counts.dtype == np.int32 else pa.float32()
    fields = [
        pa.field("ids", pa.list_(pa.field("element", pa.int32(), nullable=False)), nullable=False),
        pa.field("counts", pa.list_(pa.field("element", counts, nullable=False)), nullable=False),
        pa.field("document_id", documents.document_id.type, nullable=False),
    ]
    return pa.schema([*fields, *(pa.field(name, array.type) for name, array in documents.metadata.items())])


def _table(pieces: list[Documents], schema: Any) -> Any:
    """Combine all pieces into one Arrow table; list offsets stay far below 2^31."""
    columns = [
        *Bags.concatenated([piece.bags for piece in pieces]).lists(schema.types[:2]),
        pa.chunked_array([piece.document_id for piece in pieces]),
        *(
            pa.chunked_array([piece.metadata[name] for piece in pieces], schema.field(name).type)
            for name in schema.names[3:]
        ),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def task_directory(step: str, index: int) -> str:
    """The directory of the files of a task, relative to the workspace."""
    return f"{step}/{index:05d}"


def write_task_shards(
    root: StorePath,
    step: str,
    index: int,
    n_words: int,
    limits: ShardLimits,
    fill: Callable[[ShardWriter], None],
) -> Record:
    """Task: write the shards that ``fill`` makes, and the counts of their words; return the record to commit."""
    files = TaskFiles(root, task_directory(step, index))
    with files.local() as directory:
        writer = ShardWriter(directory, n_words, limits)
        try:
            fill(writer)
            shards = writer.close()
            files.known |= {shard.name: shard.sha256 for shard in shards}
        finally:
            writer.abort()
        write_table(directory / _COUNTS, used_counts(writer.document_frequency, writer.term_count))
    return {"shards": [shard.model_dump(mode="json") for shard in shards], **files.record()}


def total_counts(root: StorePath, step: str, n_tasks: int, words: pa.Array) -> WordCounts:
    """Sum the counts of the words over the shards of all tasks, in their order."""
    totals = WordCounts(words, np.zeros(len(words), np.int64), np.zeros(len(words)))
    files = [root / task_directory(step, index) / _COUNTS for index in range(n_tasks)]
    for some in panels(len(files), FILE_THREADS):
        for table in in_threads(read_table, files[some]):
            ids = np.asarray(table.column("id"))
            for name in COUNTS:
                getattr(totals, name)[ids] += np.asarray(table.column(name))
    return totals


def task_shards(root: StorePath, step: str, records: Sequence[Record]) -> list[tuple[StorePath, ShardEntry]]:
    """Return the shards of all tasks, in their order, with their paths."""
    return [
        (root / task_directory(step, index) / shard["name"], ShardEntry.model_validate(shard))
        for index, record in enumerate(records)
        for shard in record["shards"]
    ]


def link_shards(
    shards: Iterable[tuple[StorePath, ShardEntry]], corpus: StorePath, first: int = 0
) -> list[ShardEntry]:
    """Put shards, numbered consecutively, into the directory of a corpus."""
    documents = corpus / DOCUMENTS
    make_directory(documents)
    pairs, entries = list[tuple[StorePath, StorePath]](), list[ShardEntry]()
    for number, (path, shard) in enumerate(shards, first):
        name = f"part-{number:05d}.parquet"
        pairs.append((path, documents / name))
        entries.append(shard.model_copy(update={"name": name}))
    put_files(pairs)
    return entries
