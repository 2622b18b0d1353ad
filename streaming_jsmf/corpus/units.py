"""The units of work of a scan, and how they are grouped. Planning takes integers and gives ranges."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError


@dataclass(frozen=True)
class WorkUnit:
    """One row group of one shard.

    Parameters
    ----------
    path
        Of the Parquet file, as the worker opens it.
    row_group
        Its number in the file.
    rows
        Documents in it.
    nonzeros
        At most this many: the footer counts an empty document as one. With a selection an estimate.
    content
        sha256 of the shard, the row group's number and the selection: known by what it holds, not by its name.
    only
        Selection of its documents; None for all.
    sha256
        Of the shard, with which it is compared when it is read; None if that is not known.
    """

    path: str
    row_group: int
    rows: int
    nonzeros: int
    content: str
    only: Selection | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Selection:
    """The documents whose metadata ``column`` has ``value`` (None: is null).

    ``read`` are the nonzeros of the whole row group, all of which pass through memory.
    """

    column: str
    value: str | int | None
    read: int = 0


@dataclass(frozen=True)
class ColumnMap:
    """Where the words of a corpus are among those of a store: an array of new ids by old, in the store at ``path``."""

    path: str
    name: str
    sha256: str
    n_words: int


@dataclass(frozen=True)
class Partition:
    """Units that one task holds in memory and commits at once.

    Parameters
    ----------
    index
        Place among the partitions of the store.
    units
        In the order of the corpus.
    label
        Value of the metadata column that partitions are made by; None without one.
    columns
        Where the corpus has other words than the store.
    """

    index: int
    units: tuple[WorkUnit, ...]
    label: str | int | None = None
    columns: ColumnMap | None = None

    @cached_property
    def nonzeros(self) -> int:
        """Nonzeros of all units (an upper bound, see ``WorkUnit``)."""
        return sum(unit.nonzeros for unit in self.units)

    @cached_property
    def rows(self) -> int:
        """Documents of all units."""
        return sum(unit.rows for unit in self.units)

    @cached_property
    def content(self) -> str:
        """sha256 over the contents of the units in order: what the probes of the partition hang on."""
        return hashlib.sha256("".join(unit.content for unit in self.units).encode()).hexdigest()


def shard_name(unit: WorkUnit, root: str) -> str:
    """Name of a unit's shard, relative to its corpus."""
    return unit.path.removeprefix(root).lstrip("/")


def list_units(corpus: Corpus) -> tuple[WorkUnit, ...]:
    """Return the work units of a corpus in the order (shard name, row group); empty row groups are left out.

    Nothing is read: a corpus that is open knows its row groups.
    """
    return tuple(
        WorkUnit(
            corpus.shard_path(shard),
            number,
            group.rows,
            group.nonzeros,
            hashlib.sha256(f"{shard.sha256}:{number}".encode()).hexdigest(),
            sha256=shard.sha256,
        )
        for shard in corpus.shards
        for number, group in enumerate(shard.row_groups)
        if group.rows
    )


def partition_units(sizes: Sequence[int], budget: int) -> list[range]:
    """Group consecutive units of the given sizes into partitions of nearly equal size.

    As many partitions as the budget asks for, a unit going where its middle lies: no small rest at
    the end, and a partition exceeds the budget by less than its largest unit. Integers in, ranges of
    unit numbers out; the number of workers is not among the arguments.

    Parameters
    ----------
    sizes
        Nonzeros of each unit.
    budget
        Nonzeros of a partition, at least 1.
    """
    total = sum(sizes)
    count = max(1, -(-total // budget))
    ranges: list[range] = []
    start, before, current = 0, 0, 0
    for number, size in enumerate(sizes):
        middle = 2 * before + size
        # floor(middle / (2 total / count)) without rounding.
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
    """Return the partitions of a scan: ``partition_units`` applied to work units.

    With ``partition_by`` to the units of each value of that metadata column apart, in order of the values; the
    column is read once, and a row group that holds several values belongs to several partitions.

    Raises
    ------
    InputError
        If a shard has no such column, or it holds neither strings nor integers.
    """
    if partition_by is None:
        groups = partition_units([unit.nonzeros for unit in units], budget)
        return tuple(Partition(i, tuple(units[j] for j in group)) for i, group in enumerate(groups))
    by_value: dict[str | int | None, list[WorkUnit]] = {}
    for unit in units:
        for selected in split_by_value(unit, partition_by):
            assert selected.only is not None
            by_value.setdefault(selected.only.value, []).append(selected)
    partitions: list[Partition] = []
    for value in sorted(by_value, key=_sort_key):
        held = by_value[value]
        for group in partition_units([unit.nonzeros for unit in held], budget):
            partitions.append(Partition(len(partitions), tuple(held[j] for j in group), value))
    return tuple(partitions)


def split_by_value(unit: WorkUnit, column: str) -> list[WorkUnit]:
    """The unit once for each value of a metadata column; nonzeros by its share of the documents. Reads the column.

    Raises
    ------
    InputError
        If the shard has no such column, or it holds neither strings nor integers.
    """
    counts = Counter(read_labels(unit, column))
    return [
        replace(
            unit,
            rows=count,
            nonzeros=-(-unit.nonzeros * count // unit.rows),
            content=hashlib.sha256(f"{unit.content}:{column}={value!r}".encode()).hexdigest(),
            only=Selection(column, value, unit.nonzeros),
        )
        for value, count in counts.items()
    ]


def read_labels(unit: WorkUnit, column: str) -> list[str | int | None]:
    """Values of a metadata column in the row group of a unit, one for each document.

    Raises
    ------
    InputError
        If the shard has no such column, or it holds neither strings nor integers.
    """
    with open_parquet(unit.path, unit.path) as file:
        names = file.schema_arrow.names
        if column not in names:
            raise InputError(
                f"{unit.path} has no column {column!r} to make partitions by; it has {', '.join(names)}"
            )
        table = file.read_row_group(unit.row_group, columns=[column], use_threads=False)
    labels: list[str | int | None] = table.column(column).to_pylist()
    bad = next((x for x in labels if x is not None and type(x) not in (str, int)), None)
    if bad is not None:
        raise InputError(
            f"{unit.path}: column {column!r} holds {type(bad).__name__}; partitions are made by strings or integers"
        )
    return labels


def _sort_key(value: str | int | None) -> tuple[bool, bool, str | int]:
    """Integers in their order, then strings in theirs, then null."""
    return (value is None, isinstance(value, str), 0 if value is None else value)
