"""Groups of documents that a report and figures show: by a year or date, or by the columns that are asked for."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streaming_jsmf.documents.cells import Cells, count_cells
from streaming_jsmf.documents.groups import TIMES, Groups, has_groups
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.errors import InputError, option

#: Maximum number of values of a column in a chart, and of combinations of values of several columns.
MOST_GROUPS, MOST_CELLS = 200, 1000


def cells_of(shares: SharesFile, by: str | Sequence[str] | None) -> Cells | None:
    """Sums of topic shares by columns, by default the year if a column contains times. Up to two passes.

    Raises ``InputError`` if there is no such column, or there are too many values.
    """
    columns = _time_column(shares) if by is None else by
    if columns is None:
        return None
    cells = count_cells(shares, columns)
    for place, column in enumerate(cells.columns):
        if (values := len({cell[place] for cell in cells.sums})) > MOST_GROUPS:
            if by is None:
                return None
            raise InputError(
                f"column {column.name!r} has {values} values; {option.by} takes one of at most {MOST_GROUPS}, such as "
                "a year or a class"
            )
    if len(cells.sums) > MOST_CELLS:
        raise InputError(
            f"the columns of {option.by} have {len(cells.sums):,} combinations of values; give columns with at most "
            f"{MOST_CELLS:,}"
        )
    return cells


def views_of(shares: SharesFile, by: str | Sequence[str] | None) -> list[tuple[Groups, ...]]:
    """Mean topic shares by each of the columns, that of times first, and by all of them; as ``cells_of``."""
    cells = cells_of(shares, by)
    if cells is None:
        return []
    last = cells.time_last
    views = [cells.groups([place]) for place in [*last[-1:], *last[:-1]]]
    return [*views, cells.groups(last)] if len(last) > 1 else views


def _time_column(shares: SharesFile) -> str | None:
    first = next(iter(shares.tables(shares.columns)), None)
    schema = pa.schema([]) if first is None else first.schema
    typed = [field.name for field in schema if pa.types.is_temporal(field.type)]
    plain = [field.name for field in schema if has_groups(field.type)]
    named = [name for known in TIMES for name in plain if name.lower() == known]
    return next(iter([*named, *typed]), None)
