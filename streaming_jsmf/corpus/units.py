"""Work units and partitions of a corpus, planned by sizes only, and units as blocks of H: CSR arrays without a copy."""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streaming_jsmf.corpus.bags import Place, checked_bags
from streaming_jsmf.corpus.footer import ShardCheck, open_parquet, reading
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.jobs.run import Part
from streaming_jsmf.storage.objects import State
from streaming_jsmf.storage.paths import AnyPath

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True)
class WorkUnit:
    """One row group of one shard, with the ``path`` as the worker opens it.

    Attributes
    ----------
    nonzeros : Upper bound, because the footer counts an empty document as one; an estimate if ``only`` is set.
    content : sha256 of the shard hash, the row group number and the selection; independent of the file name.
    only : Documents to keep; None for all.
    sha256 : Hash of the shard, verified when it is read; None if unknown.
    state : State of the shard when the corpus was opened; None if its file system has none.
    hashed : Whether the shard is known to have this hash in this state; otherwise a process that reads it compares it.
    """

    path: str
    row_group: int
    rows: int
    nonzeros: int
    content: str
    only: LabelFilter | None = None
    sha256: str | None = None
    state: State = None
    hashed: bool = False

    @property
    def check(self) -> ShardCheck | None:
        """The comparison of the hash, which need not be repeated in this state; None if it is known or impossible."""
        if self.hashed or self.sha256 is None or self.state is None:
            return None
        check = ShardCheck(self.path, self.sha256, self.state)
        return None if check.is_known() else check


@dataclass(frozen=True)
class LabelFilter:
    """The documents whose metadata ``column`` (see ``labels_of``) equals ``value`` (None: is null).

    ``read`` is the number of nonzeros of the whole row group, because all of them are read into memory.
    """

    column: str
    value: str | int | None
    read: int = 0


@dataclass(frozen=True)
class Partition:
    """Units, in corpus order, that one task loads and commits together.

    ``label`` is the value of the column that the corpus is partitioned by; without one, ``first`` is the number of the
    first document in the corpus.
    """

    index: int
    units: Sequence[WorkUnit]
    label: str | int | None = None
    first: int = 0

    @cached_property
    def nonzeros(self) -> int:
        """Nonzeros of all units (upper bound, see ``WorkUnit``)."""
        return sum(unit.nonzeros for unit in self.units)

    @cached_property
    def rows(self) -> int:
        return sum(unit.rows for unit in self.units)

    @cached_property
    def content(self) -> str:
        """sha256 of the contents of the units, in order; the probes of the partition depend on it."""
        return hashlib.sha256("".join(unit.content for unit in self.units).encode()).hexdigest()


def shard_name(unit: WorkUnit, root: str) -> str:
    """Name of a unit's shard, relative to the corpus."""
    return unit.path.removeprefix(root).lstrip("/")


def list_units(corpus: Corpus) -> tuple[WorkUnit, ...]:
    """List the work units of a corpus by shard name and row group, without empty row groups. Reads no files."""
    found = []
    for shard in corpus.shards:
        path = corpus.shard_path(shard)
        hashed = ShardCheck(path, shard.sha256, shard.state).is_known()
        for number, group in enumerate(shard.row_groups):
            if group.rows:
                sizes, content = (number, group.rows, group.nonzeros), content_of(shard.sha256, number)
                found.append(WorkUnit(path, *sizes, content, None, shard.sha256, shard.state, hashed))
    return tuple(found)


def content_of(sha256: str, row_group: int, only: LabelFilter | None = None) -> str:
    """``WorkUnit.content`` of a row group of a shard with this hash, or of some of its documents."""
    content = hashlib.sha256(f"{sha256}:{row_group}".encode()).hexdigest()
    if only is None:
        return content
    return hashlib.sha256(f"{content}:{only.column}={only.value!r}".encode()).hexdigest()


def partition_units(sizes: Sequence[int], budget: int) -> list[range]:
    """Group consecutive units of the given sizes (nonzeros) into partitions of nearly equal size.

    Each unit is assigned to the partition that contains its midpoint. There is therefore no small last partition, and a
    partition exceeds ``budget`` (nonzeros, at least 1) by less than its largest unit. The result does not depend on the
    number of workers.
    """
    total = sum(sizes)
    count = max(1, -(-total // budget))
    ranges: list[range] = []
    start, before, current = 0, 0, 0
    for number, size in enumerate(sizes):
        middle = 2 * before + size
        # floor(middle / (2 total / count)) in exact integer arithmetic.
        slot = min(count - 1, middle * count // (2 * total)) if total else 0
        if slot != current and number > start:
            ranges.append(range(start, number))
            start = number
        current = slot
        before += size
    if len(sizes) > start:
        ranges.append(range(start, len(sizes)))
    return ranges


def plan_partitions(
    units: Sequence[WorkUnit], budget: int, partition_by: str | None = None
) -> tuple[Partition, ...]:
    """Return the partitions of a scan.

    With ``partition_by``, each value of that metadata column has its own partitions, ordered by value: integers,
    strings, null. The column is read once (see ``labels_of``); a row group with several values belongs to several
    partitions.
    """
    by_value: dict[str | int | None, list[WorkUnit]] = {}
    if partition_by is None:
        by_value[None] = list(units)
    else:
        for unit in units:
            for value, selected in split_by_value(unit, partition_by).items():
                by_value.setdefault(value, []).append(selected)

    def order(value: str | int | None) -> tuple[bool, bool, str | int]:
        return value is None, isinstance(value, str), 0 if value is None else value

    partitions, first = list[Partition](), 0
    for value in sorted(by_value, key=order):
        selected_units = by_value[value]
        for group in partition_units([unit.nonzeros for unit in selected_units], budget):
            of_group = tuple(selected_units[j] for j in group)
            partitions.append(Partition(len(partitions), of_group, value, first))
            first += sum(unit.rows for unit in of_group)
    return tuple(partitions)


def split_by_value(unit: WorkUnit, column: str) -> dict[str | int | None, WorkUnit]:
    """Return the unit for each value of a metadata column, with nonzeros in proportion to its documents."""
    found = {}
    for value, count in Counter(labels_of(unit, column, unit.rows)).items():
        nonzeros, only = -(-unit.nonzeros * count // unit.rows), LabelFilter(column, value, unit.nonzeros)
        content = content_of(unit.sha256 or "", unit.row_group, only)
        found[value] = replace(unit, rows=count, nonzeros=nonzeros, content=content, only=only)
    return found


def labels_of(unit: WorkUnit, column: str, rows: int) -> list[str | int | None]:
    """Return the label of each of the ``rows`` documents in the row group of a unit: its value of a metadata column.

    "rows % n" instead of a column gives the remainders of the row numbers, for n partitions of a corpus with few row
    groups. Dates and times are ISO strings, whole numbers are integers, and other numbers are strings. Raises
    ``InputError`` if the column is missing or contains other values.
    """
    if remainders := re.fullmatch("rows % ([1-9][0-9]*)", column):
        return [row % int(remainders[1]) for row in range(rows)]
    with open_parquet(unit.path) as file:
        names = file.schema_arrow.names
        if column not in names:
            raise InputError(
                f"{unit.path} has no column {column!r} to partition by; it has {', '.join(names)}"
            )
        table = file.read_row_group(unit.row_group, columns=[column], use_threads=False)
    labels = [_label(value) for value in table.column(column).to_pylist()]
    bad = next((x for x in labels if x is not None and type(x) not in (str, int)), None)
    if bad is not None:
        raise InputError(
            f"{unit.path}: column {column!r} holds {type(bad).__name__}; partitions are made by strings, numbers or "
            "dates"
        )
    return labels


def _label(value: Any) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return int(value) if value.is_integer() else str(value)
    return value.isoformat() if isinstance(value, datetime.date) else value


def distinct(contents: Sequence[str]) -> tuple[str, ...]:
    """Number repeated contents, so that a shard that occurs twice in a corpus is counted twice."""
    seen: Counter[str] = Counter()
    names = []
    for content in contents:
        seen[content] += 1
        names.append(content if seen[content] == 1 else f"{content} repeat {seen[content]}")
    return tuple(names)


def partition_part(key: str, partition: Partition) -> Part:
    """Convert a partition to a part of a tree reduction, with its size and content as metadata."""
    described = {"nonzeros": partition.nonzeros, "rows": partition.rows, "content": partition.content}
    return Part(key, partition.nonzeros, partition, described)


def read_block(unit: WorkUnit, n_words: int) -> csr_array[Any]:
    """Read one row group as CSR counts, (rows, ``n_words``), with the count type of the file and int32 indices.

    The arrays are read-only views of Arrow buffers; copy them before changing them. Raises ``InputError`` for a bad
    record (see ``checked_bags``; checking takes about 2 % of the time of a product), and ``StoreError`` if the file is
    damaged or has changed since the corpus was opened; the first read of a shard in a process computes its hash.
    """
    (block,) = iter_blocks([unit], n_words)
    return block


def iter_blocks(units: Iterable[WorkUnit], n_words: int) -> Iterator[csr_array[Any]]:
    """Yield the blocks of ``units`` in order, with one in memory at a time. Makes one pass over the data.

    Opens each shard once for units that follow each other. Errors as in ``read_block``.
    """
    for (path, sha256, state, hashed), together in groupby(
        units, attrgetter("path", "sha256", "state", "hashed")
    ):
        with open_parquet(path, sha256=sha256, known=state if hashed else None) as file:
            for unit in together:
                yield _block(file, unit, n_words)


def _block(file: Any, unit: WorkUnit, n_words: int) -> csr_array[Any]:
    with reading(f"{unit.path}, row group {unit.row_group}"):
        table = file.read_row_group(unit.row_group, columns=["ids", "counts"], use_threads=False)
    ids, counts = (_one_array(table.column(name)) for name in ("ids", "counts"))
    bags = checked_bags(ids, counts, n_words, Place(unit.path, unit.row_group))
    if unit.only is not None:
        labels = labels_of(unit, unit.only.column, len(bags))
        bags = bags.take(np.array([label == unit.only.value for label in labels], bool))
    return bags.matrix(n_words)


def _one_array(column: Any) -> Any:
    """Return a column as one array; Arrow splits columns only above 2 GB."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def to_dask_array(corpus: AnyPath | Corpus) -> Any:
    """Return H (documents x words) as a lazy Dask array with one ``csr_array`` block per row group.

    Use ``map_blocks`` with ``meta=``: Dask does not define array operators such as ``@`` and ``.sum`` for sparse
    blocks, and some fail silently.
    """
    from dask import array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph
    from dask.sizeof import sizeof
    from dask.task_spec import Task
    from scipy.sparse import csr_array

    from streaming_jsmf.corpus.sizeof import register_sizeof

    register_sizeof(sizeof)

    corpus = open_corpus(corpus)
    units = list_units(corpus)
    name = f"corpus-{tokenize(corpus.fingerprint, corpus.root)}"
    layer = {
        (name, i, 0): Task((name, i, 0), read_block, unit, corpus.n_words) for i, unit in enumerate(units)
    }
    return da.Array(
        HighLevelGraph.from_collections(name, layer),
        name,
        chunks=(tuple(unit.rows for unit in units), (corpus.n_words,)),
        meta=csr_array((0, 0), dtype=np.int32),
        dtype=np.int32,
    )
