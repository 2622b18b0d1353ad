"""Base of readers of files of records, and batches of records from Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streaming_jsmf.ingestion.readers.base import BadRecords, Reader, Unit, limits
from streaming_jsmf.ingestion.readers.files import (
    is_divisible,
    is_parquet,
    open_parquet_source,
    open_stream,
    size_of,
)
from streaming_jsmf.ingestion.readers.values import as_json

_MOST_ROWS = 100_000


class RecordFiles(Reader):
    """Base of readers whose files are Parquet (by suffix) or lines."""

    def splittable(self, path: str) -> bool:  # noqa: ARG002
        """Return whether each line of the file is a record, so that it can be split at any line."""
        return True

    def parts(self, path: str) -> Sequence[Unit]:
        """Return runs of row groups, byte ranges of lines, or a file as a whole that cannot be split."""
        if is_parquet(path):
            with open_parquet_source(path) as file:
                groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
                return group_units(path, [group.total_byte_size for group in groups], limits.UNIT_BYTES)
        size, step = size_of(path), limits.UNIT_BYTES
        if size <= step or not self.splittable(path) or not is_divisible(path):
            return [Unit(path, size=size)]
        return [
            Unit(path, start, min(start + step, size), min(step, size - start))
            for start in range(0, size, step)
        ]

    def first_row(self, unit: Unit) -> int:
        """Return the row (Parquet) or line at which the unit starts; reads the lines before it."""
        if is_parquet(unit.path):
            with open_parquet_source(unit.path) as file:
                return sum(file.metadata.row_group(g).num_rows for g in range(unit.start))
        if not unit.start:
            return 0
        lines, left = 1, unit.start - 1
        with open_stream(unit.path) as stream:
            while left and (block := stream.read(min(left, 1 << 20))):
                lines += block.count(b"\n")
                left -= len(block)
        return lines

    def place(self, unit: Unit, row: int) -> str:
        if not is_parquet(unit.path):
            return f"{unit.path}, line {self.first_row(unit) + row + 1}"
        with open_parquet_source(unit.path) as file:
            for g in range(unit.start, unit.stop):
                rows = file.metadata.row_group(g).num_rows
                if row < rows:
                    return f"{unit.path}, row group {g}, row {row} from 0"
                row -= rows
        return unit.path


def group_units(path: str, weights: Sequence[int], target: int, size: int | None = None) -> list[Unit]:
    """Group consecutive row groups until their weights reach ``target``; weights are bytes, or shares of ``size``."""
    units, start, weight = [], 0, 0
    for g, of_group in enumerate(weights):
        weight += of_group
        if weight >= target or g == len(weights) - 1:
            held = weight if size is None else int(size * weight / max(sum(weights), 1))
            units.append(Unit(path, start, g + 1, held))
            start, weight = g + 1, 0
    return units or [Unit(path)]


def drop_bad_rows(
    batch: Any,
    reasons: Mapping[int, str],
    first: int,
    bad: BadRecords,
    as_record: Callable[[Any, int], bytes | None] = as_json,
) -> tuple[Any, NDArray[np.int64]]:
    """Return the good rows of a batch and their numbers from ``first``; the others go to ``bad`` in order."""
    rows = np.arange(first, first + batch.num_rows)
    if not reasons:
        return batch, rows
    for row in sorted(reasons):
        bad.refuse(first + row, reasons[row], as_record(batch, row))
    keep = np.ones(batch.num_rows, bool)
    keep[list(reasons)] = False
    return batch.filter(pa.array(keep)), rows[keep]


def parquet_batches(file: Any, unit: Unit, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Yield non-empty record batches of about ``BATCH_BYTES`` of a unit, with the number of their first row."""
    row = 0
    for g in range(unit.start, unit.stop):
        group = file.metadata.row_group(g)
        # The footer counts encoded bytes, in which repeated values are stored once; hence the upper bound on rows.
        share = limits.BATCH_BYTES * group.num_rows / max(group.total_byte_size, 1)
        size = max(1, min(_MOST_ROWS, int(share)))
        for batch in file.iter_batches(size, row_groups=[g], columns=list(columns), use_threads=False):
            if batch.num_rows:
                yield row, batch
                row += batch.num_rows
