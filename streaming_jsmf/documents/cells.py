"""Sums of topic shares over documents by the values of metadata columns, in one pass, and the groups made of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streaming_jsmf.config import column_names
from streaming_jsmf.documents.groups import Grouping, Groups, are_times, is_exact
from streaming_jsmf.documents.shares import SharesFile
from streaming_jsmf.errors import InputError
from streaming_jsmf.linalg.typing import Floats, Integers

#: A value of each column; None where a document has none.
Cell: TypeAlias = tuple[Any, ...]

#: Maximum number of cells times topics, since their sums are in memory.
MOST_SUMS = 20_000_000


@dataclass(frozen=True)
class Cells:
    """Documents by the values of C columns: how many each cell has, and their sums of shares and of squares, (2, K).

    Without columns, there is one cell of all documents.
    """

    columns: tuple[Grouping, ...]
    documents: Mapping[Cell, int]
    sums: Mapping[Cell, Floats]

    @property
    def time(self) -> int | None:
        """The column of times: one of dates or years by its type or name, or else the first with times or numbers."""
        known = [{cell[place] for cell in self.sums} - {None} for place in range(len(self.columns))]
        times = [place for place, values in enumerate(known) if are_times(values, fewest=1)]
        return min(
            times,
            key=lambda place: (not self.columns[place].is_dated, not are_times(known[place]), place),
            default=None,
        )

    @property
    def time_last(self) -> list[int]:
        """All columns, the one of times last."""
        time = self.time
        return sorted(range(len(self.columns)), key=lambda place: place == time)

    def groups(self, columns: Sequence[int] | None = None) -> tuple[Groups, ...]:
        """Groups by the last of these columns within each combination of values of the others; by default of all."""
        chosen = range(len(self.columns)) if columns is None else columns
        kept = [self.columns[place] for place in chosen]
        documents: dict[Cell, int] = {}
        sums: dict[Cell, Floats] = {}
        for cell, total in self.sums.items():
            key = tuple(cell[place] for place in chosen)
            documents[key] = documents.get(key, 0) + self.documents[cell]
            sums[key] = sums[key] + total if key in sums else total
        whole = [_is_whole(one.kind, [cell[place] for cell in sums]) for place, one in enumerate(kept)]
        kinds = [pa.int64() if exact else one.kind for exact, one in zip(whole, kept, strict=True)]
        split: dict[Cell, list[Cell]] = {}
        for cell in sorted(sums, key=_order):
            split.setdefault(cell[:-1], []).append(cell)
        return tuple(
            _groups(kept, kinds, cells, [documents[cell] for cell in cells], [sums[cell] for cell in cells])
            for cells in split.values()
        )


def _order(cell: Cell) -> list[tuple[bool, Any]]:
    """Cells in ascending order, those without a value last."""
    return [(value is None, value) for value in cell]


def _is_whole(kind: Any, values: Sequence[Any]) -> bool:
    """Whether all are whole numbers: years beside missing ones are floating-point numbers in pandas."""
    return pa.types.is_floating(kind) and all(value is None or is_exact(value) for value in values)


def _groups(
    columns: Sequence[Grouping],
    kinds: Sequence[Any],
    cells: Sequence[Cell],
    documents: Sequence[int],
    sums: Sequence[Floats],
) -> Groups:
    sizes = np.array(documents, dtype=np.int64)
    means, squares = np.stack(sums, axis=1) / sizes[:, None]
    errors = np.sqrt(np.maximum(squares - means**2, 0.0) / np.maximum(sizes - 1, 1)[:, None])
    errors[sizes < 2] = np.nan
    if not columns:
        return Groups("", (None,), sizes, means, errors)
    rows = [[_typed(value, kind) for value, kind in zip(cell, kinds, strict=True)] for cell in cells]
    outer = zip((one.name for one in columns), rows[0], kinds, strict=True)
    within = tuple(outer)[:-1]
    return Groups(columns[-1].name, tuple(row[-1] for row in rows), sizes, means, errors, kinds[-1], within)


def _typed(value: Any, kind: Any) -> Any:
    return int(value) if isinstance(value, float) and pa.types.is_integer(kind) else value


def count_cells(shares: SharesFile, by: str | Sequence[str] | None) -> Cells:
    """Add up the topic shares of the documents with each combination of values of metadata columns. One pass.

    ``COLUMN:year``, ``:quarter``, ``:month`` and ``:day`` make periods of typed dates and of texts that start with a
    year, month and day. A column of typed dates, or of texts with one of the names ``TIMES``, is grouped by year by
    default. ``by`` is read by ``column_names``; None stands for no columns. Raises ``InputError`` if there is no such
    column, there are too many values, or periods are of other values; ``StoreError`` if the shares are damaged.
    """
    columns = tuple(Grouping.of(shares, one) for one in column_names(by) or ())
    documents: dict[Cell, int] = {}
    sums: dict[Cell, Floats] = {}
    for theta, table in shares.dense([*dict.fromkeys(one.column for one in columns)]):
        for cell, rows in rows_of_cells(columns, table):
            own = theta[rows]
            documents[cell] = documents.get(cell, 0) + len(own)
            total = sums.setdefault(cell, np.zeros((2, theta.shape[1])))
            total += own.sum(axis=0), np.square(own).sum(axis=0)
            if columns and len(sums) * theta.shape[1] > MOST_SUMS:
                named = " and ".join(repr(one.name) for one in columns)
                column = "columns" if len(columns) > 1 else "column"
                has = f"{'have' if len(columns) > 1 else 'has'} more than {len(sums) - 1:,} values"
                raise InputError(
                    f"{shares.path}: {column} {named} {has}; give one that makes groups of documents"
                )
    return Cells(columns, documents, sums)


def rows_of_cells(columns: Sequence[Grouping], table: Any) -> Iterator[tuple[Cell, Integers]]:
    """Yield the cells of the documents in a table, and their rows in order."""
    coded = [one.coded(table) for one in columns]
    codes: Integers = np.zeros(table.num_rows, np.int64)
    for own, names in coded:
        codes = np.unique(codes * len(names) + own, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if rows.size:
            yield tuple(names[own[rows[0]]] for own, names in coded), rows
