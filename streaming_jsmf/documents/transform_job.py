"""The job of ``transform``: one task per partition computes topic shares and writes a Parquet part.

The parts are then assembled into a file, directory or Zarr group. The shares of a document depend only on its words,
so partitions and workers do not affect them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import ShareMethod, ShareSettings
from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.records import id_column, without_views
from streaming_jsmf.corpus.units import Partition, WorkUnit, list_units, plan_partitions
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.documents.share_files import (
    ABOUT_NAME,
    TOPIC,
    RowGroupWriter,
    is_csv,
    open_shares,
    parquet_shares,
    shares_schema,
    write_csv,
    write_zarr,
)
from streaming_jsmf.documents.shares import (
    DOCUMENT_ID,
    SHARES,
    TOPICS,
    About,
    Totals,
    document_table,
    metadata_columns,
    to_lists,
)
from streaming_jsmf.errors import InputError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.document_topics import document_topics
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.run import Job, map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.storage.arrays import ArrayDigest, digest, read_arrays
from streaming_jsmf.storage.paths import sha256_of, write_json
from streaming_jsmf.storage.replace import remove_store
from streaming_jsmf.topics.parameters import BYTES_PER_NONZERO_READ, TopicParameters

logger = logging.getLogger(__name__)

#: Incremented when the same request produces different bits.
ALGORITHM_VERSION = 1

#: Nonzeros per partition, a few seconds of work.
PARTITION_NONZEROS = 4_000_000

#: Memory per share during computation and writing.
BYTES_PER_SHARE = 24

#: Entries of the working directory: the parts, and the result made of them.
PARTS, RESULT = "parts", "made"


@dataclass(frozen=True)
class TransformRequest:
    """Documents, topics, and how shares are computed; ``InputError`` if ``top`` exceeds the number of topics.

    ``left_out`` is the number of unknown tokens missing from the corpus; ``partition_nonzeros`` does not affect the
    shares. ``columns`` maps the name of each column of a CSV file to the topics whose shares it adds.
    """

    topics: TopicParameters
    corpus: Corpus
    top: int | None = None
    method: ShareMethod = ShareSettings.method
    left_out: float = 0.0
    partition_nonzeros: int = PARTITION_NONZEROS
    columns: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.top is not None and self.top > self.n_topics:
            raise InputError(
                f"top is {self.top}; the model has {self.n_topics} topics, give 1 to {self.n_topics}"
            )

    @property
    def n_topics(self) -> int:
        return self.topics.prior.size

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that determine the bytes of the parts."""
        return {
            "algorithm": ALGORITHM_VERSION,
            "topics": self.topics.fingerprint,
            "corpus": self.corpus.fingerprint,
            "top": self.top,
            "method": self.method,
            "partition_nonzeros": self.partition_nonzeros,
        }

    @cached_property
    def about(self) -> About:
        """Metadata of a part."""
        return About(
            self.topics.topics_fingerprint,
            self.corpus.fingerprint,
            fingerprint(self.arguments),
            self.n_topics,
            self.top,
            self.method,
        )

    def memory(self, partitions: Sequence[Partition], workers: int) -> int:
        """Return the projected peak memory in bytes: topics, a row group and shares of some documents per worker."""
        row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
        each = (
            2 * self.topics.word_topic.nbytes
            + row_group * BYTES_PER_NONZERO_READ
            + self.about.row_group_rows * self.n_topics * BYTES_PER_SHARE
        )
        return PROCESS_BYTES + each * min(workers, len(partitions))


def transform_documents(
    request: TransformRequest,
    target: Path,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    overwrite: bool = True,
    temporary: Path | None = None,
) -> Totals | None:
    """Write the topic shares of all documents to ``target``, or complete an interrupted run.

    One pass over the documents, and one over the shares; errors as ``transform``. Results are the same on every
    scheduler. ``overwrite`` replaces the target, which the caller has checked; ``temporary`` is a corpus to remove at
    the end. Returns None if a killed run has committed a CSV file, which has no totals.
    """
    execution = execution or Execution()
    partitions = plan_partitions(list_units(request.corpus), request.partition_nonzeros)
    needed = request.memory(partitions, execution.concurrency)
    execution.require_memory(needed, "transform", "lower --workers")
    ids = request.topics.ids_of_corpus(request.corpus)
    # Words without any topic count as unknown.
    ids[(ids >= 0) & ~(request.topics.word_topic.sum(axis=1) > 0)[np.maximum(ids, 0)]] = -1
    schema = _schema_of(request.corpus, request.about)
    arrays = {"ids": ids, "word_topic": request.topics.word_topic, "prior": request.topics.prior}
    work = Workspace.beside(target, "transform", request.arguments)
    with work.acquire(arrays, replace=overwrite) as commit:
        if commit is None:
            totals = None if is_csv(target) else open_shares(target).about.totals
        else:
            with execution.executor(listener, on_bad_input=work.remove) as executor:
                (work.directory / PARTS).mkdir(exist_ok=True)
                digests = {name: digest(values) for name, values in arrays.items()}
                # Documents are processed concurrently in a task if there are few tasks; this affects no bit.
                threads = max(1, executor.tasks_at_once // len(partitions))
                context = PartContext(work.directory, request.about, schema, digests, threads)
                job = _job(context, work, partitions)
                run_job(job, executor)
            records = job.records()
            parts = [Totals(**record["totals"]) for record in records]
            totals = sum(parts, Totals(tokens=request.left_out, unknown_tokens=request.left_out))
            _log_totals(totals, request.method, request.left_out)
            result = _assemble(work, replace(request.about, totals=totals), schema, parts, request.columns)
            hashes = {name: sha256 for record in records for name, sha256 in record[FILES].items()}
            commit(result, {work.directory / name: sha256 for name, sha256 in hashes.items()})
        if temporary is not None:
            remove_store(temporary)
    return totals


def _schema_of(corpus: Corpus, about: About) -> Any:
    """Return the schema of the parts, with the metadata of the first shard."""
    path = corpus.shard_path(corpus.shards[0])
    with open_parquet(path, path) as file:
        schema = file.schema_arrow
    names, ids = metadata_columns(schema), id_column(schema.names)
    taken = {DOCUMENT_ID, TOPICS, SHARES, TOPIC} & set(names)
    if taken:
        raise InputError(
            f"{path}: the metadata column {min(taken)!r} has the name of a result; rename it, or ingest the corpus "
            "again, which does"
        )
    text = ids is not None and not pa.types.is_integer(schema.field(ids).type)
    fields = [schema.field(name).with_type(without_views(schema.field(name).type)) for name in names]
    return shares_schema(about, pa.string() if text else pa.int64(), fields)


@dataclass(frozen=True)
class PartContext:
    """Arguments of all tasks; ``threads`` documents are processed concurrently in a task."""

    root: Path
    about: About
    schema: Any
    digests: dict[str, ArrayDigest]
    threads: int


@dataclass(frozen=True)
class DocumentPart:
    """The row groups of a task; ``first`` is the number of the first document in the corpus."""

    number: int
    first: int
    units: tuple[WorkUnit, ...]


def part_name(number: int) -> str:
    """Name of the file of a part, relative to the working directory."""
    return f"{PARTS}/part-{number:05d}.parquet"


def _job(context: PartContext, work: Workspace, partitions: Sequence[Partition]) -> Job:
    sizes = [partition.rows for partition in partitions]
    numbered = zip(accumulate(sizes, initial=0), partitions, strict=False)
    parts = [DocumentPart(partition.index, first, partition.units) for first, partition in numbered]
    return map_job(write_part, context, sizes, work.checkpoints(), "documents", parts)


def write_part(context: PartContext, part: DocumentPart) -> Record:
    """Task: compute and write the shares of one partition."""
    hint = f"remove {context.root} and run the same command again"
    arrays = read_arrays(context.root, context.digests, hint=hint)
    ids, word_topic, prior = (arrays[name] for name in ("ids", "word_topic", "prior"))
    about, totals, first, name = context.about, Totals(), part.first, part_name(part.number)
    with RowGroupWriter(context.root / name, context.schema, about.row_group_rows) as file:
        for unit in part.units:
            metadata = _metadata(unit, first, context.schema)
            counts = read_block(unit, ids.size)
            known = over_vocabulary(counts, ids, word_topic.shape[0])
            for rows in panels(known.shape[0], about.row_group_rows):
                found = document_topics(
                    known[rows], word_topic, prior, method=about.method, threads=context.threads
                )
                totals += Totals(unconverged=found.unconverged)
                file.write(
                    _table(metadata.slice(rows.start, rows.stop - rows.start), found.shares, about.top)
                )
            totals += _totals_of(counts, known)
            first += unit.rows
    return {"totals": asdict(totals), FILES: {name: sha256_of(context.root / name)}}


def _totals_of(counts: csr_array[Any], known: csr_array[Any]) -> Totals:
    tokens = float(counts.data.sum(dtype=np.float64))
    return Totals(
        documents=int(known.shape[0]),
        tokens=tokens,
        unknown_tokens=tokens - float(known.data.sum(dtype=np.float64)),
        without_known_words=int((np.diff(known.indptr) == 0).sum()),
    )


def _table(metadata: Any, shares: NDArray[np.float64], top: int | None) -> Any:
    if top is not None:
        order = np.argsort(-shares, axis=1, kind="stable")[:, :top]
        metadata = metadata.append_column(TOPICS, to_lists(order.astype(np.int32)))
        shares = np.take_along_axis(shares, order, axis=1)
    return metadata.append_column(SHARES, to_lists(shares.astype(np.float32)))


def _metadata(unit: WorkUnit, first: int, schema: Any) -> Any:
    """Return ``document_id`` and metadata of a row group; raise ``InputError`` unless they are as in ``schema``."""
    wanted = [name for name in schema.names if name not in (DOCUMENT_ID, TOPICS, SHARES)]
    table = document_table(unit, first)
    found = {name: table.schema.field(name).type for name in table.column_names if name != DOCUMENT_ID}
    if found != {name: schema.field(name).type for name in wanted}:
        raise InputError(
            f"{unit.path} has the metadata columns {', '.join(found) or '(none)'}, not those of the first shard "
            f"with their types: {', '.join(wanted) or '(none)'}; make them the same"
        )
    ids = table.schema.field(DOCUMENT_ID).type
    if ids != schema.field(DOCUMENT_ID).type:
        raise InputError(
            f"{unit.path}: document ids are {ids}, unlike those of the first shard; convert them"
        )
    return table.select([DOCUMENT_ID, *wanted])


def _log_totals(totals: Totals, method: ShareMethod, left_out: float) -> None:
    """Report what is unusual; ``left_out`` tokens of raw texts may be of words that the model dropped on purpose."""
    if totals.unknown_tokens > left_out:
        logger.info(
            "transform: %s of %s tokens (%.1f %%) are of words that are not in the model",
            f"{totals.unknown_tokens - left_out:,.10g}",
            f"{totals.tokens - left_out:,.10g}",
            100 * (totals.unknown_tokens - left_out) / (totals.tokens - left_out),
        )
    if totals.without_known_words:
        logger.info(
            "transform: %s of %s documents have no word of the model; their shares are those of the prior",
            f"{totals.without_known_words:,}",
            f"{totals.documents:,}",
        )
    if totals.unconverged:
        logger.warning(
            "transform: %s of %s documents did not converge (%s); their shares are approximate",
            f"{totals.unconverged:,}",
            f"{totals.documents:,}",
            method,
        )


def _assemble(
    work: Workspace, about: About, schema: Any, totals: Sequence[Totals], columns: Mapping[str, Sequence[int]]
) -> Path:
    """Write the result to the working directory in the format given by the suffix of the target."""
    directory = work.directory / PARTS
    files = [work.directory / part_name(number) for number in range(len(totals))]
    parts = parquet_shares(directory, replace(about, totals=None), schema, files)
    suffix = work.target.suffix.lower()
    result = work.directory / f"{RESULT}{suffix}"
    if is_csv(work.target):
        shown = columns or {str(topic): [topic] for topic in range(about.n_topics)}
        write_csv(result, parts.merged([*shown.values()]), schema, [*shown])
        return result
    if suffix == ".parquet":
        metadata = [schema.field(name) for name in parts.columns if name != DOCUMENT_ID]
        whole = shares_schema(about, schema.field(DOCUMENT_ID).type, metadata)
        with RowGroupWriter(result, whole, about.row_group_rows) as file:
            for table in parts.tables(schema.names):
                file.write(table)
        return result
    if suffix == ".zarr":
        shutil.rmtree(result, ignore_errors=True)
        write_zarr(result, parts, about, schema)
        return result
    rows = {file.name: part.documents for file, part in zip(files, totals, strict=True)}
    write_json(directory / ABOUT_NAME, {**about.fields(), "parts": rows})
    return directory
