"""Parquet as a format of records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from streaming_jsmf.ingestion.sources.protocol import (
    BadRecords,
    Format,
    Records,
    Unit,
    distinct_names,
    group_units,
    limits,
)
from streaming_jsmf.ingestion.sources.streams import (
    open_parquet_source,
)
from streaming_jsmf.ingestion.sources.values import decoded

_MOST_ROWS = 100_000  # of Parquet at once


class ParquetFormat(Format):
    """Rows of Parquet. A unit is a range of row groups; columns have no dictionaries and views."""

    def names(self, path: str, options: Any = None) -> list[str]:  # noqa: ARG002
        with open_parquet_source(path) as file:
            return list(file.schema_arrow.names)

    def units(self, path: str, options: Any = None) -> list[Unit]:  # noqa: ARG002
        with open_parquet_source(path) as file:
            groups = map(file.metadata.row_group, range(file.metadata.num_row_groups))
            return group_units(path, [group.total_byte_size for group in groups], limits.UNIT_BYTES)

    def records(
        self, unit: Unit, options: Any, bad: BadRecords, wanted: Collection[str] | None = None  # noqa: ARG002
    ) -> Iterator[Records]:  # fmt: skip
        with open_parquet_source(unit.path) as file:
            names = file.schema_arrow.names
            places = enumerate(distinct_names(names))
            kept = {name: place for place, name in places if wanted is None or name in wanted}
            # A name cannot select one of several columns that have it.
            unique = [*kept] if len({*names}) == len(names) else None
            for first, batch in parquet_batches(file, unit, unique):
                columns = {name: batch.column(name if unique else place) for name, place in kept.items()}
                rows = np.arange(first, first + batch.num_rows)
                yield Records(rows, {name: decoded(values) for name, values in columns.items()})

    def place(self, unit: Unit, row: int) -> str:
        with open_parquet_source(unit.path) as file:
            for g in range(unit.start, unit.stop):
                rows = file.metadata.row_group(g).num_rows
                if row < rows:
                    return f"{unit.path}, row group {g}, row {row} from 0"
                row -= rows
        return unit.path

    def first_row(self, unit: Unit) -> int:
        with open_parquet_source(unit.path) as file:
            return sum(file.metadata.row_group(g).num_rows for g in range(unit.start))


PARQUET = ParquetFormat()


def parquet_batches(file: Any, unit: Unit, columns: Sequence[str] | None) -> Iterator[tuple[int, Any]]:
    """Yield non-empty record batches of about ``BATCH_BYTES`` of a unit, with the number of their first row."""
    row = 0
    for g in range(unit.start, unit.stop):
        group = file.metadata.row_group(g)
        # The footer counts encoded bytes, in which repeated values are stored once; hence the upper bound on rows.
        share = limits.BATCH_BYTES * group.num_rows / max(group.total_byte_size, 1)
        size = max(1, min(_MOST_ROWS, int(share)))
        for batch in file.iter_batches(size, row_groups=[g], columns=columns, use_threads=False):
            if batch.num_rows:
                yield row, batch
                row += batch.num_rows
