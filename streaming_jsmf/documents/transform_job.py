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

from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.records import id_column, without_views
from streaming_jsmf.corpus.units import Partition, WorkUnit, list_units, plan_partitions
from streaming_jsmf.corpus.vocabulary import over_vocabulary
from streaming_jsmf.documents.share_csv import is_csv, require_csv, write_csv
from streaming_jsmf.documents.share_files import (
    TOPIC,
    RowGroupWriter,
    open_shares,
    shares_schema,
    stored_about,
    unfinished_shares,
    write_directory,
    write_parquet,
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
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.document_topics import document_topics
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.run import Job, map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.process_limits import PROCESS_BYTES
from streaming_jsmf.storage.arrays import ArrayDigest, digest, read_arrays
from streaming_jsmf.storage.paths import sha256_of
from streaming_jsmf.storage.results import Wanted, same_contents
from streaming_jsmf.topics.parameters import BYTES_PER_NONZERO_READ, BYTES_PER_SHARE, TopicParameters

logger = logging.getLogger(__name__)

#: Incremented when the same request produces different bits.
ALGORITHM_VERSION = 2

#: Nonzeros per partition, a few seconds of work.
PARTITION_NONZEROS = 4_000_000

#: Entries of the working directory: the parts, and the result made of them.
PARTS, RESULT = "parts", "made"


@dataclass(frozen=True)
class TransformRequest:
    """Documents, topics, and how shares are computed; ``InputError`` if ``top`` exceeds the number of topics.

    ``left_out`` is the number of unknown tokens missing from the corpus; ``partition_nonzeros`` does not affect the
    shares. ``columns`` maps the name of each column of a CSV file to the topics whose shares it adds. ``documents``
    identifies them, by default by the fingerprint of the corpus.
    """

    topics: TopicParameters
    corpus: Corpus
    top: int | None = None
    left_out: float = 0.0
    partition_nonzeros: int = PARTITION_NONZEROS
    columns: Mapping[str, Sequence[int]] = field(default_factory=dict)
    documents: str = ""

    def __post_init__(self) -> None:
        if self.top is not None and self.top > self.n_topics:
            raise InputError(
                f"{option.top} is {self.top}; the model has {self.n_topics} topics, give 1 to {self.n_topics}"
            )

    @property
    def n_topics(self) -> int:
        return self.topics.prior.size

    @property
    def arguments(self) -> dict[str, Any]:
        """JSON values that determine the bytes of the parts."""
        made_of = {"corpus": self.corpus.fingerprint, "partition_nonzeros": self.partition_nonzeros}
        return {**self.result, **made_of}

    @property
    def result(self) -> dict[str, Any]:
        """The request that the result stores."""
        documents = self.documents or self.corpus.fingerprint
        return request_of_shares(self.topics, documents, self.top)

    @cached_property
    def about(self) -> About:
        """Metadata of a part."""
        return About(
            self.topics.topics_fingerprint,
            self.corpus.fingerprint,
            self.result["request"],
            self.n_topics,
            self.top,
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


def request_of_shares(topics: TopicParameters, documents: str, top: int | None) -> dict[str, Any]:
    """Identify shares; ``documents`` is the fingerprint of a corpus, or of the request of one."""
    fields = {"model": topics.topics_fingerprint, "top": top}
    all_inputs = {
        **fields,
        "topics": topics.fingerprint,
        "documents": documents,
        "algorithm": ALGORITHM_VERSION,
    }
    return {**fields, "request": fingerprint(all_inputs)}


def wanted_shares(target: Path, request: Mapping[str, Any], *, overwrite: bool) -> Wanted:
    """Return the shares that a request asks for, which reads those at ``target`` once to verify them.

    A CSV file does not store its request: its contents are compared after it has been computed.
    """

    def stored() -> Mapping[str, Any]:
        if is_csv(target):
            require_csv(target)
            return request
        about = stored_about(target)
        return {} if about is None else {name: getattr(about, name) for name in request}

    def is_intact() -> bool:
        shares = None if is_csv(target) else open_shares(target)
        for _ in () if shares is None else shares.tables([*shares.columns, *shares.about.columns]):
            pass
        return shares is not None

    return Wanted(target, request, stored, is_intact, overwrite)


def transform_documents(
    request: TransformRequest,
    target: Path,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    overwrite: bool = False,
) -> Totals:
    """Write the topic shares of all documents to ``target``, or complete an interrupted run.

    One pass over the documents, and one over the shares; errors as ``transform``. Results are the same on every
    scheduler. ``overwrite`` replaces shares of another request.
    """
    execution = execution or Execution()
    partitions = plan_partitions(list_units(request.corpus), request.partition_nonzeros)
    needed = request.memory(partitions, execution.concurrency)
    execution.require_memory(needed, "transform", f"lower {option.workers}")
    ids = request.topics.ids_of_corpus(request.corpus)
    # Words without any topic count as unknown.
    ids[(ids >= 0) & ~(request.topics.word_topic.sum(axis=1) > 0)[np.maximum(ids, 0)]] = -1
    schema = _schema_of(request.corpus, request.about)
    arrays = {"ids": ids, "word_topic": request.topics.word_topic, "prior": request.topics.prior}
    work = Workspace.beside(target, "transform", request.arguments, fingerprint(request.result))
    with work.acquire(wanted_shares(target, request.result, overwrite=overwrite), arrays) as commit:
        if commit is None:
            return open_shares(target).about.all_totals
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
        _log_totals(totals, request.left_out)
        hashes = {name: sha256 for record in records for name, sha256 in record[FILES].items()}
        about = replace(request.about, totals=totals)
        result = _assemble(work, about, schema, parts, hashes, request.columns)
        if is_csv(target):
            try:
                same_contents(target, sha256_of(result), lambda: None, overwrite=overwrite).find()
            except InputError:
                work.remove()
                raise
        commit(result)
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
                found = document_topics(known[rows], word_topic, prior, threads=context.threads)
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


def _log_totals(totals: Totals, left_out: float) -> None:
    """Report what is unusual; ``left_out`` tokens of raw texts may be of words that the model dropped on purpose."""
    if totals.unknown_tokens > left_out:
        logger.info(
            "transform: %s of %s tokens (%.1f%%) are of words that are not in the model",
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
            "transform: %s of %s documents did not converge; their shares are approximate",
            f"{totals.unconverged:,}",
            f"{totals.documents:,}",
        )


def _assemble(
    work: Workspace,
    about: About,
    schema: Any,
    totals: Sequence[Totals],
    hashes: Mapping[str, str],
    columns: Mapping[str, Sequence[int]],
) -> Path:
    """Write the result to the working directory in the format given by the suffix of the target."""
    directory, names = work.directory / PARTS, [part_name(number) for number in range(len(totals))]
    files = [work.directory / name for name in names]
    parts = unfinished_shares(directory, about, schema, files)
    suffix = work.target.suffix.lower()
    result = work.directory / f"{RESULT}{suffix}"
    if is_csv(work.target):
        shown = columns or {str(topic): [topic] for topic in range(about.n_topics)}
        write_csv(result, parts.merged([*shown.values()]), schema, [*shown])
        return result
    if suffix == ".parquet":
        write_parquet(result, parts, about, schema)
        return result
    if suffix == ".zarr":
        shutil.rmtree(result, ignore_errors=True)
        write_zarr(result, parts, about, schema)
        return result
    known = {
        Path(name).name: (part.documents, hashes[name]) for name, part in zip(names, totals, strict=True)
    }
    write_directory(directory, parts, about, known)
    return directory
