"""Parquet files in units of row groups and batches of bounded size; their columns are for the readers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from streaming_jsmf.corpus.format import PARQUET_SUFFIXES
from streaming_jsmf.ingestion.readers import limits
from streaming_jsmf.ingestion.readers.base import Unit
from streaming_jsmf.ingestion.readers.streams import UnreadableError, bare_suffix, open_parquet_source

_MOST_ROWS = 100_000


def is_parquet(path: str) -> bool:
    """Whether the name is that of a Parquet file."""
    return bare_suffix(path) in PARQUET_SUFFIXES


def parquet_units(path: str) -> list[Unit]:
    """Runs of row groups of about ``UNIT_BYTES``; one whole-file unit if the footer cannot be read (reading tells)."""
    try:
        with open_parquet_source(path) as file:
            sizes = [file.metadata.row_group(g).total_byte_size for g in range(file.metadata.num_row_groups)]
    except UnreadableError:
        return [Unit(path)]
    units, start, size = [], 0, 0
    for g, group_bytes in enumerate(sizes):
        size += group_bytes
        if size >= limits.UNIT_BYTES or g == len(sizes) - 1:
            units.append(Unit(path, start, g + 1, size))
            start, size = g + 1, 0
    return units or [Unit(path)]


def parquet_batches(file: Any, unit: Unit, columns: Sequence[str]) -> Iterator[Any]:
    """Record batches of about ``BATCH_BYTES`` from the row groups of a unit; none is empty."""
    for g in range(unit.start, unit.stop):
        size = _batch_rows(file.metadata.row_group(g))
        for batch in file.iter_batches(size, row_groups=[g], columns=list(columns), use_threads=False):
            if batch.num_rows:
                yield batch


def _batch_rows(group: Any) -> int:
    """Rows of a row group that are about ``BATCH_BYTES``.

    The footer gives bytes as encoded: values that come again and again are written once, so there is an upper bound.
    """
    share = limits.BATCH_BYTES * group.num_rows / max(group.total_byte_size, 1)
    return max(1, min(_MOST_ROWS, int(share)))


def parquet_place(unit: Unit, row: int) -> str:
    """File, row group and row of a record of a unit."""
    with open_parquet_source(unit.path) as file:
        for g in range(unit.start, unit.stop):
            rows = file.metadata.row_group(g).num_rows
            if row < rows:
                return f"{unit.path}, row group {g}, row {row} from 0"
            row -= rows
    return unit.path


def parquet_first_row(unit: Unit) -> int:
    """Rows of the file before the unit."""
    with open_parquet_source(unit.path) as file:
        return sum(file.metadata.row_group(g).num_rows for g in range(unit.start))
