"""The job of ``transform``: one task per partition computes topic shares and writes a Parquet part.

The parts are then put into a directory, or merged into a file or Zarr group. The shares of a document depend only on
its words, so partitions and workers do not affect them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.corpus.bags import Place
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.metadata import document_ids, id_column, without_views
from streaming_jsmf.corpus.partition_jobs import run_on_partitions
from streaming_jsmf.corpus.units import Partition, WorkUnit
from streaming_jsmf.documents.share_files import (
    TOPIC,
    open_shares,
    shares_schema,
    stored_about,
    unfinished_shares,
    write_directory,
    write_parquet,
    write_row_groups,
    write_zarr,
)
from streaming_jsmf.documents.shares import (
    DOCUMENT_ID,
    KNOWN_TOKENS,
    SHARES,
    TOPICS,
    About,
    CsvColumns,
    ShareTotals,
    has_csv_shares,
    is_csv,
    to_lists,
    write_csv,
)
from streaming_jsmf.errors import InputError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.run import Job, map_job
from streaming_jsmf.jobs.workspace import TaskFiles, Workspace
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.storage import kinds
from streaming_jsmf.storage.lock import work_place
from streaming_jsmf.storage.paths import StorePath, sha256_of
from streaming_jsmf.storage.replace import file_written, put_files, store_written
from streaming_jsmf.storage.results import Wanted, same_contents
from streaming_jsmf.topics.document_job import BYTES_PER_SHARE, DocumentJob, TaskInputs
from streaming_jsmf.topics.parameters import TopicParameters, ids_of_corpus

logger = logging.getLogger(__name__)

#: Incremented when the same request produces different bits.
ALGORITHM_VERSION = 3
#: Nonzeros per partition, a few seconds of work. Does not affect the shares.
PARTITION_NONZEROS = 4_000_000
#: Directory of the parts in the workspace.
PARTS = "parts"


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


def wanted_shares(target: StorePath, request: Mapping[str, Any], *, overwrite: bool) -> Wanted:
    """Return the shares that a request asks for, which reads those at ``target`` once to verify them.

    A CSV file does not store its request: its contents are compared after it has been computed.
    """

    def stored() -> Mapping[str, Any]:
        if is_csv(target):
            if not has_csv_shares(target):
                raise kinds.taken(target, kinds.SHARES)
            return request
        try:
            about = stored_about(target)
        except InputError as error:
            raise kinds.taken(target, kinds.SHARES) from error
        return {} if about is None else {name: getattr(about, name) for name in request}

    def is_intact() -> bool:
        shares = None if is_csv(target) else open_shares(target)
        for _ in () if shares is None else shares.tables([*shares.columns, *shares.about.columns]):
            pass
        return shares is not None

    return Wanted(target, request, stored, is_intact, overwrite)


def share_job(topics: TopicParameters, corpus: Corpus, about: About, wanted: Wanted) -> DocumentJob:
    """The job that computes the wanted shares of the documents of a corpus."""
    ids = ids_of_corpus(corpus, topics.words)
    # Words without any topic count as unknown.
    ids[(ids >= 0) & ~(topics.word_topic.sum(axis=1) > 0)[np.maximum(ids, 0)]] = -1
    return DocumentJob(
        "transform",
        work_place(wanted.target),
        corpus,
        budget=PARTITION_NONZEROS,
        n_words=len(topics.words),
        arrays={"ids": ids, "word_topic": topics.word_topic, "prior": topics.prior},
        fields=wanted.request,
        task_bytes=2 * topics.word_topic.nbytes + about.row_group_rows * about.n_topics * BYTES_PER_SHARE,
        result=fingerprint(wanted.request),
    )


def transform_documents(
    job: DocumentJob,
    about: About,
    wanted: Wanted,
    left_out: float,
    columns: CsvColumns,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> ShareTotals:
    """Write the wanted shares, or complete an interrupted run.

    One pass over the documents, and one over the shares; errors as ``transform``. Results are the same on every
    scheduler. ``about`` is the metadata of a part, ``left_out`` the number of unknown tokens missing from the corpus,
    and ``columns`` are those of a CSV file.
    """
    schema, work = _schema_of(job.corpus, about), job.work
    with work.acquire(wanted, job.arrays) as publish:
        if publish is None:
            return open_shares(wanted.target).about.all_totals
        with job.running(execution, listener) as (executor, inputs):
            parts_job = _parts_job(PartContext(inputs, about, schema), job)
            run_on_partitions(parts_job, executor)
        records = parts_job.records()
        parts = [ShareTotals(**record["totals"]) for record in records]
        totals = sum(parts, ShareTotals(tokens=left_out, unknown_tokens=left_out))
        _log_totals(totals, left_out)
        files = [work.root / PARTS / part_name(number) for number in range(len(parts))]
        about = replace(about, totals=totals, workers="mixed" if executor.mixed else "")
        made = unfinished_shares(wanted.target, about, schema, files)
        suffix = wanted.target.suffix.lower()
        with publish(file_written if suffix in (".parquet", ".csv") else store_written) as place:
            if suffix == ".csv":
                write_csv(place, made, schema, columns)
                _require_same_csv(place, wanted, work)
            elif suffix == ".parquet":
                write_parquet(place, made, schema)
            elif suffix == ".zarr":
                write_zarr(place, made, schema)
            else:
                put_files([(file, place / file.name) for file in files])
                hashes = [sha256 for record in records for sha256 in record[FILES].values()]
                rows = [part.documents for part in parts]
                write_directory(place, made, [file.name for file in files], rows, hashes)
    return totals


def _require_same_csv(place: Path, wanted: Wanted, work: Workspace) -> None:
    """Raise ``InputError``, and remove the work, if the target has other contents than the file that was written."""
    try:
        same_contents(wanted.target, sha256_of(place), lambda: None, overwrite=wanted.overwrite).find()
    except InputError:
        work.remove()
        raise


def _schema_of(corpus: Corpus, about: About) -> Any:
    """Return the schema of the parts, with the metadata of the first shard."""
    path, schema = corpus.shard_path(corpus.shards[0]), corpus.schema()
    names, ids = _metadata_columns(schema), id_column(schema.names)
    taken = {DOCUMENT_ID, KNOWN_TOKENS, TOPICS, SHARES, TOPIC} & set(names)
    if taken:
        raise InputError(
            f"{path}: the metadata column {min(taken)!r} has the name of a result; rename it, or ingest the corpus "
            "again, which does"
        )
    text = ids is not None and not pa.types.is_integer(schema.field(ids).type)
    fields = [schema.field(name).with_type(without_views(schema.field(name).type)) for name in names]
    fields.append(pa.field(KNOWN_TOKENS, pa.float32()))
    return shares_schema(about, pa.string() if text else pa.int64(), fields)


@dataclass(frozen=True)
class PartContext:
    """Arguments of all tasks."""

    inputs: TaskInputs
    about: About
    schema: Any


def _parts_job(context: PartContext, job: DocumentJob) -> Job:
    """One task per partition."""
    sizes = [partition.rows for partition in job.partitions]
    return map_job(write_part, context, sizes, job.work.checkpoints(), "documents", job.partitions)


def part_name(number: int) -> str:
    """Name of the file of a part."""
    return f"part-{number:05d}.parquet"


def write_part(context: PartContext, partition: Partition) -> Record:
    """Task: compute and write the shares of a partition."""
    files, totals = TaskFiles(context.inputs.store, PARTS), list[ShareTotals]()
    with files.written(part_name(partition.index)) as made:
        rows = context.about.row_group_rows
        write_row_groups(made, context.schema, _tables(context, partition, totals), rows)
    return {"totals": asdict(sum(totals, ShareTotals())), **files.record()}


def _tables(context: PartContext, partition: Partition, totals: list[ShareTotals]) -> Iterator[Any]:
    """Yield the shares of a partition with metadata, and append their totals."""
    from streaming_jsmf.inference.cvb0 import document_topics

    inputs, about, first = context.inputs, context.about, partition.first
    word_topic, prior = inputs.read("word_topic"), inputs.read("prior")
    for unit, known, tokens in inputs.blocks(partition):
        of_documents = pa.array(known.sum(axis=1).astype(np.float32))
        metadata = _metadata(unit, first, context.schema).append_column(KNOWN_TOKENS, of_documents)
        for rows in panels(known.shape[0], about.row_group_rows):
            found = document_topics(known[rows], word_topic, prior, threads=inputs.threads)
            totals.append(ShareTotals(unconverged=found.unconverged))
            shown = metadata.slice(rows.start, rows.stop - rows.start)
            yield _table(shown, found.shares, about.top)
        unknown = tokens - float(known.data.sum(dtype=np.float64))
        wordless = int((np.diff(known.indptr) == 0).sum())
        totals.append(ShareTotals(int(known.shape[0]), tokens, unknown, wordless))
        first += unit.rows


def _table(metadata: Any, shares: NDArray[np.float64], top: int | None) -> Any:
    if top is not None:
        order = np.argsort(-shares, axis=1, kind="stable")[:, :top]
        metadata = metadata.append_column(TOPICS, to_lists(order.astype(np.int32)))
        shares = np.take_along_axis(shares, order, axis=1)
    return metadata.append_column(SHARES, to_lists(shares.astype(np.float32)))


def _metadata(unit: WorkUnit, first: int, schema: Any) -> Any:
    """Read ``document_id`` and metadata of a row group; raise ``InputError`` unless they are as in ``schema``."""
    # Documents of a corpus without ids are numbered from ``first``.
    with open_parquet(unit.path) as file:
        id_name, names = id_column(file.schema_arrow.names), _metadata_columns(file.schema_arrow)
        read = [*([id_name] if id_name else []), *names]
        table = file.read_row_group(unit.row_group, columns=read, use_threads=False)
    found = {name: without_views(table.schema.field(name).type) for name in names}
    wanted = [name for name in schema.names if name not in (DOCUMENT_ID, KNOWN_TOKENS, TOPICS, SHARES)]
    if found != {name: schema.field(name).type for name in wanted}:
        raise InputError(
            f"{unit.path} has the metadata columns {', '.join(found) or '(none)'}, not those of the first shard "
            f"with their types: {', '.join(wanted) or '(none)'}; make them the same"
        )
    if id_name is None:
        ids = pa.chunked_array([np.arange(first, first + unit.rows)])
    else:
        ids = document_ids(table.column(id_name), id_name, Place(unit.path, unit.row_group))
    if ids.type != schema.field(DOCUMENT_ID).type:
        raise InputError(
            f"{unit.path}: document ids are {ids.type}, unlike those of the first shard; convert them"
        )
    return pa.table({DOCUMENT_ID: ids, **{name: table.column(name).cast(found[name]) for name in wanted}})


def _metadata_columns(schema: Any) -> list[str]:
    return [name for name in schema.names if name not in ("ids", "counts", id_column(schema.names))]


def _log_totals(totals: ShareTotals, left_out: float) -> None:
    """Report what is unusual; ``left_out`` tokens of raw texts may be of words that the model dropped on purpose."""
    if totals.unknown_tokens > left_out:
        logger.info(
            "transform: %s of %s tokens (%.1f%%) are of words that are not in the model",
            f"{totals.unknown_tokens - left_out:,.10g}",
            f"{totals.tokens - left_out:,.10g}",
            100 * (totals.unknown_tokens - left_out) / (totals.tokens - left_out),
        )
    if totals.without_known_words:
        logger.warning(
            "%s of %s documents have no word of the model; their shares are those of an average document",
            f"{totals.without_known_words:,}",
            f"{totals.documents:,}",
        )
    if totals.unconverged:
        logger.warning(
            "transform: %s of %s documents did not converge; their shares are approximate",
            f"{totals.unconverged:,}",
            f"{totals.documents:,}",
        )
