"""The units of work of a scan, and how they are grouped. Planning reads footers and decides with integers only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from streaming_jsmf.corpus.footer import leaf_columns
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.storage import open_parquet


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
        At most this many: the footer counts an empty document as one.
    content
        sha256 of the shard and the row group's number: known by what it holds, not by its name.
    """

    path: str
    row_group: int
    rows: int
    nonzeros: int
    content: str


@dataclass(frozen=True)
class Partition:
    """Consecutive units that one task holds in memory and commits at once."""

    index: int
    units: tuple[WorkUnit, ...]

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


def list_units(corpus: Corpus) -> tuple[WorkUnit, ...]:
    """Return the work units of a corpus in the order (shard name, row group); empty row groups are left out.

    Reads the footers, no data.

    Raises
    ------
    StoreError
        If a shard cannot be read; the message names it.
    """
    units = []
    for shard in corpus.shards:
        path = corpus.shard_path(shard)
        with open_parquet(path, path) as file:
            metadata = file.metadata
            column = leaf_columns(metadata)["ids"]
            for group in range(metadata.num_row_groups):
                row_group = metadata.row_group(group)
                if row_group.num_rows:
                    units.append(
                        WorkUnit(
                            path,
                            group,
                            int(row_group.num_rows),
                            int(row_group.column(column).num_values),
                            hashlib.sha256(f"{shard.sha256}:{group}".encode()).hexdigest(),
                        )
                    )
    return tuple(units)


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


def plan_partitions(units: Sequence[WorkUnit], budget: int) -> tuple[Partition, ...]:
    """Return the partitions of a scan: ``partition_units`` applied to work units."""
    groups = partition_units([unit.nonzeros for unit in units], budget)
    return tuple(Partition(i, tuple(units[j] for j in group)) for i, group in enumerate(groups))
