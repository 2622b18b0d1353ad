"""One task of a transform: the shares of the documents of a partition, from its row groups to a Parquet part."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.corpus.csr import read_block
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.records import ID_COLUMNS, Place, document_ids
from streaming_jsmf.corpus.units import WorkUnit
from streaming_jsmf.documents.shares import (
    DOCUMENT_ID,
    SHARES,
    TOPICS,
    About,
    RowGroupWriter,
    Totals,
    lists_of,
)
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.document_topics import document_topics
from streaming_jsmf.jobs.checkpoints import FILES, Record
from streaming_jsmf.storage.arrays import ArrayDigest, read_array
from streaming_jsmf.storage.paths import join, sha256_of
from streaming_jsmf.topics.parameters import over_model_words

#: In the working directory: arrays of the model, what each task does, and the parts.
GIVEN, PLAN, PARTS = "given", "plan", "parts"


@dataclass(frozen=True)
class PartContext:
    """What every task needs; all that is large lies in the working directory.

    Attributes
    ----------
    root
        The working directory.
    corpus
        Root of the corpus as it was given; the plans have names of shards, since a URL may hold a password.
    about
        What a part says of itself.
    schema
        Of a part.
    digests
        Of the arrays in ``given``.
    threads
        Documents worked on at once in a task; changes no bit.
    """

    root: Path
    corpus: str
    about: About
    schema: Any
    digests: dict[str, ArrayDigest]
    threads: int

    def given(self, name: str) -> NDArray[Any]:
        """An array of the model."""
        hint = f"remove {self.root} and run the same command again"
        return read_array(self.root / GIVEN, name, self.digests[name], hint=hint)

    def units(self, index: int) -> list[tuple[int, WorkUnit]]:
        """The row groups of a task, each with the number of its first document in the corpus."""
        lines = json.loads((self.root / PLAN / f"{index:05d}.json").read_text(encoding="utf-8"))
        units = [(line["first"], WorkUnit(**line["unit"])) for line in lines]
        return [(first, replace(unit, path=join(self.corpus, unit.path))) for first, unit in units]

    def part(self, index: int) -> Path:
        """The file of a task."""
        return self.root / PARTS / part_name(index)


def part_name(index: int) -> str:
    """File name of the part that a task writes."""
    return f"part-{index:05d}.parquet"


def write_part(context: PartContext, index: int) -> Record:
    """Task: compute and write the shares of the documents of one partition; what it met."""
    places, word_topic, prior = (context.given(name) for name in ("places", "word_topic", "prior"))
    about, totals, path = context.about, Totals(), context.part(index)
    with RowGroupWriter(path, context.schema, about.row_group_rows) as file:
        for first, unit in context.units(index):
            columns = _columns(unit, first, context.schema)
            counts = read_block(unit, places.size)
            known = over_model_words(counts, places, word_topic.shape[0])
            for start in range(0, known.shape[0], about.row_group_rows):
                rows = slice(start, min(start + about.row_group_rows, known.shape[0]))
                found = document_topics(
                    known[rows], word_topic, prior, method=about.method, threads=context.threads
                )
                totals += Totals(unconverged=found.unconverged)
                file.write(_table(columns.slice(start, rows.stop - start), found.shares, about.top))
            totals += _totals_of(counts, known)
    return {"totals": asdict(totals), FILES: {f"{PARTS}/{path.name}": sha256_of(path)}}


def _totals_of(counts: csr_array[Any], known: csr_array[Any]) -> Totals:
    tokens = float(counts.data.sum(dtype=np.float64))
    return Totals(
        documents=int(known.shape[0]),
        tokens=tokens,
        unknown_tokens=tokens - float(known.data.sum(dtype=np.float64)),
        without_known_words=int((np.diff(known.indptr) == 0).sum()),
    )


def _table(columns: Any, shares: NDArray[np.float64], top: int | None) -> Any:
    """Ids and metadata with the shares of their documents, all or the largest."""
    if top is not None:
        order = np.argsort(-shares, axis=1, kind="stable")[:, :top]
        columns = columns.append_column(TOPICS, lists_of(order.astype(np.int32)))
        shares = np.take_along_axis(shares, order, axis=1)
    return columns.append_column(SHARES, lists_of(shares.astype(np.float32)))


def _columns(unit: WorkUnit, first: int, schema: Any) -> Any:
    """``document_id`` and the metadata of a row group; ids count from ``first`` where the corpus has none.

    Raises
    ------
    InputError
        If its columns are not those of the first shard.
    """
    wanted = [name for name in schema.names if name not in (DOCUMENT_ID, TOPICS, SHARES)]
    with open_parquet(unit.path, unit.path) as file:
        identity = id_column(file.schema_arrow)
        found = {name: file.schema_arrow.field(name).type for name in metadata_names(file.schema_arrow)}
        if found != {name: schema.field(name).type for name in wanted}:
            raise InputError(
                f"{unit.path} has the metadata columns {', '.join(found) or '(none)'}, not those of the first shard "
                f"with their types: {', '.join(wanted) or '(none)'}; make them the same"
            )
        names = [*([identity] if identity else []), *wanted]
        table = file.read_row_group(unit.row_group, columns=names, use_threads=False)
    if identity is None:
        ids = pa.array(np.arange(first, first + unit.rows))
    else:
        ids = document_ids(table.column(identity), identity, Place(unit.path, unit.row_group))
    if ids.type != schema.field(DOCUMENT_ID).type:
        raise InputError(
            f"{unit.path}: document ids are {ids.type}, those of the first shard are not; make them alike"
        )
    return pa.table({DOCUMENT_ID: ids, **{name: table.column(name) for name in wanted}})


def id_column(schema: Any) -> str | None:
    """The column of a shard that names its documents, if there is one."""
    return next((name for name in ID_COLUMNS if name in schema.names), None)


def metadata_names(schema: Any) -> list[str]:
    """The columns of a shard that are neither words nor names of documents."""
    return [name for name in schema.names if name not in ("ids", "counts", id_column(schema))]
