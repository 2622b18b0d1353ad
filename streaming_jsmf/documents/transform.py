"""Transform: the topic shares of every document of a corpus, from given topics (``inference.document_topics``).

Numbered tasks, one for each partition of row groups; each writes one Parquet part and commits a record of what it
met. Then the parts become the result: a file, a directory, or a Zarr group. A document's shares hang on its own words
alone, so neither partitions nor workers change them, and never are more than some thousand documents' in memory.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.config import fingerprint
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import Partition, list_units, plan_partitions, shard_name
from streaming_jsmf.documents.open_shares import open_shares
from streaming_jsmf.documents.shares import (
    ABOUT_NAME,
    DOCUMENT_ID,
    SHARES,
    TOPICS,
    About,
    ParquetShares,
    RowGroupWriter,
    Totals,
    shares_schema,
    topics_fingerprint,
)
from streaming_jsmf.documents.shares_zarr import RESERVED, write_zarr
from streaming_jsmf.documents.transform_part import (
    GIVEN,
    PARTS,
    PLAN,
    PartContext,
    id_column,
    metadata_names,
    part_name,
    write_part,
)
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.document_topics import ShareMethod
from streaming_jsmf.jobs.checkpoints import FILES
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution, Executor
from streaming_jsmf.jobs.memory import PROCESS_BYTES
from streaming_jsmf.jobs.run import Job, map_job, run_job
from streaming_jsmf.jobs.workspace import Workspace
from streaming_jsmf.storage.arrays import create_group, write_array
from streaming_jsmf.storage.paths import node_exists, write_json
from streaming_jsmf.storage.replace import remove_store
from streaming_jsmf.topics.parameters import BYTES_PER_NONZERO_READ, GivenTopics, require_known_words

logger = logging.getLogger(__name__)

#: Changes when the same request would give other bits.
ALGORITHM_VERSION = 1

#: Nonzeros of a partition: a few seconds of work.
PARTITION_NONZEROS = 4_000_000

#: Bytes that a share takes while it is computed and written.
BYTES_PER_SHARE = 24

#: What ends the names of results of a form of their own.
FILE_SUFFIX, ZARR_SUFFIX = ".parquet", ".zarr"

#: In the working directory: the result before it is moved.
MADE = "made"


@dataclass(frozen=True)
class TransformRequest:
    """Which documents, given which topics, and what is kept of their shares.

    Attributes
    ----------
    top
        How many shares of a document are kept, the largest; None: all.
    method
        ``map`` or ``cvb0``, see ``document_topics``.
    left_out
        Tokens that are not in the corpus because the model lacks their words; they count as unknown.
    partition_nonzeros
        Of a task; the shares are the same with any.

    Raises
    ------
    InputError
        If ``top`` or ``method`` is out of range.
    """

    topics: GivenTopics
    corpus: Corpus
    top: int | None = None
    method: ShareMethod = "map"
    left_out: float = 0.0
    partition_nonzeros: int = PARTITION_NONZEROS

    def __post_init__(self) -> None:
        if self.top is not None and not 1 <= self.top <= self.n_topics:
            raise InputError(
                f"top is {self.top}; the model has {self.n_topics} topics, give 1 to {self.n_topics}"
            )
        if self.method not in ("map", "cvb0"):
            raise InputError(f"method is {self.method!r}; give map or cvb0")

    @property
    def n_topics(self) -> int:
        """K."""
        return self.topics.prior.size

    @property
    def before(self) -> Totals:
        """What there is to say before a document is read."""
        return Totals(tokens=self.left_out, unknown_tokens=self.left_out)

    @property
    def arguments(self) -> dict[str, Any]:
        """What decides the bytes of the parts: JSON values."""
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
        """What a part says of itself."""
        return About(
            topics_fingerprint(self.topics),
            self.corpus.fingerprint,
            fingerprint(self.arguments),
            self.n_topics,
            self.top,
            self.method,
        )


def transform_documents(
    request: TransformRequest,
    target: Path,
    execution: Execution | None = None,
    listener: Listener = silent,
    *,
    overwrite: bool = True,
    temporary: Path | None = None,
) -> Totals:
    """Write the topic shares of all documents to ``target``, or finish what an interrupted run has begun.

    One pass over the documents, and one over the shares to put them together. The same request gives the same bytes
    on every scheduler and number of workers.

    Parameters
    ----------
    target
        ``*.parquet``: one file; ``*.zarr``: a Zarr group; anything else: a directory of Parquet files.
    overwrite
        Whether what lies there is replaced; it is the caller's to know that it may be.
    temporary
        The corpus, if it was made for this alone and is to be removed with the work.

    Raises
    ------
    InputError
        If the corpus has none of the model's words, a bad record or metadata that cannot be kept, memory is too small,
        or the target is there and not to be replaced.
    StoreError
        If a shard, or what an interrupted run left, is damaged.
    """
    execution = execution or Execution()
    partitions = plan_partitions(list_units(request.corpus), request.partition_nonzeros)
    execution.require_memory(
        transform_memory(request, partitions, execution.concurrency), "transform", "lower --workers"
    )
    places = _known_places(request)
    schema = _schema_of(request.corpus, request.about)
    work = Workspace.beside(target, "transform", request.arguments)
    with work.acquire(replace=overwrite) as commit:
        if commit is None:
            totals = open_shares(target).about.totals or Totals()
        else:
            with execution.executor(listener, on_bad_input=work.remove) as executor:
                job = _job(request, work, places, schema, partitions, executor)
                run_job(job, executor)
            records = job.records()
            rows = [Totals(**record["totals"]) for record in records]
            totals = sum(rows, request.before)
            _tell(totals, request.about)
            made = _made(work, replace(request.about, totals=totals), schema, rows, target)
            known = {name: sha256 for record in records for name, sha256 in record[FILES].items()}
            commit(made, {work.directory / name: sha256 for name, sha256 in known.items()})
        if temporary is not None:
            remove_store(temporary)
    return totals


def transform_memory(request: TransformRequest, partitions: Sequence[Partition], workers: int) -> int:
    """Projected peak memory in bytes: for each worker the topics, a row group, and the shares of a few documents."""
    row_group = max(unit.nonzeros for partition in partitions for unit in partition.units)
    each = (
        2 * request.topics.word_topic.nbytes
        + row_group * BYTES_PER_NONZERO_READ
        + request.about.row_group_rows * request.n_topics * BYTES_PER_SHARE
    )
    return PROCESS_BYTES + each * min(workers, len(partitions))


def _job(
    request: TransformRequest,
    work: Workspace,
    places: NDArray[np.int64],
    schema: Any,
    partitions: Sequence[Partition],
    executor: Executor,
) -> Job:
    given = work.directory / GIVEN
    if not node_exists(given):
        create_group(given, {})
    topics = request.topics
    digests = {
        "places": write_array(given, "places", places, ("corpus_word",)),
        "word_topic": write_array(given, "word_topic", topics.word_topic, ("word", "topic")),
        "prior": write_array(given, "prior", topics.prior, ("topic",)),
    }
    first = 0
    for folder in (PLAN, PARTS):
        (work.directory / folder).mkdir(exist_ok=True)
    for partition in partitions:
        lines = []
        for unit in partition.units:
            named = replace(unit, path=shard_name(unit, request.corpus.root))
            lines.append({"first": first, "unit": asdict(named)})
            first += unit.rows
        write_json(work.directory / PLAN / f"{partition.index:05d}.json", lines)
    threads = max(1, executor.tasks_at_once // len(partitions))
    context = PartContext(work.directory, request.corpus.root, request.about, schema, digests, threads)
    sizes = [partition.rows for partition in partitions]
    return map_job(write_part, context, sizes, work.checkpoints(), "documents")


def _schema_of(corpus: Corpus, about: About) -> Any:
    """The schema of the parts: metadata as in the first shard."""
    path = corpus.shard_path(corpus.shards[0])
    with open_parquet(path, path) as file:
        schema = file.schema_arrow
    names, identity = metadata_names(schema), id_column(schema)
    taken = {DOCUMENT_ID, TOPICS, SHARES, *RESERVED} & set(names)
    if taken:
        raise InputError(f"{path}: the metadata column {min(taken)!r} has the name of a result; rename it")
    text = identity is not None and not pa.types.is_integer(schema.field(identity).type)
    return shares_schema(about, pa.string() if text else pa.int64(), [schema.field(name) for name in names])


def _known_places(request: TransformRequest) -> NDArray[np.int64]:
    """Places of the corpus' words in the model; a word that no topic has is as unknown as one it lacks."""
    places = require_known_words(request.topics, request.corpus)
    without = ~(request.topics.word_topic.sum(axis=1) > 0)
    places[(places >= 0) & without[np.maximum(places, 0)]] = -1
    return places


def _tell(totals: Totals, about: About) -> None:
    """Say what the shares lack."""
    if totals.unknown_tokens:
        share = totals.unknown_tokens / totals.tokens
        logger.info(
            "transform: %s of %s tokens (%.1f %%) are of words that the model lacks",
            f"{totals.unknown_tokens:,.10g}",
            f"{totals.tokens:,.10g}",
            100 * share,
        )
    if totals.without_known_words:
        logger.info(
            "transform: %s of %s documents have no word of the model; their shares are those of the prior",
            f"{totals.without_known_words:,}",
            f"{totals.documents:,}",
        )
    if totals.unconverged:
        logger.warning(
            "transform: %s of %s documents did not converge (%s); their shares are near the solution, not at it",
            f"{totals.unconverged:,}",
            f"{totals.documents:,}",
            about.method,
        )


def _made(work: Workspace, whole: About, schema: Any, each: Sequence[Totals], target: Path) -> Path:
    """The result in the form that the name of the target asks for, still in the working directory.

    ``each`` are the totals of the parts, which do not know those of the whole.
    """
    about, directory = replace(whole, totals=None), work.directory / PARTS
    names = [part_name(index) for index in range(len(each))]
    parts = ParquetShares(directory, about, schema, tuple(directory / name for name in names))
    if target.suffix == FILE_SUFFIX:
        made = work.directory / f"{MADE}{FILE_SUFFIX}"
        metadata = [schema.field(name) for name in parts.columns if name != DOCUMENT_ID]
        of_all = shares_schema(whole, schema.field(DOCUMENT_ID).type, metadata)
        with RowGroupWriter(made, of_all, whole.row_group_rows) as file:
            for table in parts.tables(schema.names):
                file.write(table)
        return made
    if target.suffix == ZARR_SUFFIX:
        made = work.directory / f"{MADE}{ZARR_SUFFIX}"
        shutil.rmtree(made, ignore_errors=True)
        write_zarr(made, parts, whole)
        return made
    rows = {name: totals.documents for name, totals in zip(names, each, strict=True)}
    write_json(directory / ABOUT_NAME, {**whole.fields(), "parts": rows})
    return directory
