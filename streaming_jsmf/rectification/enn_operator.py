"""The matrix that a step of ENN adds to Y Y': the sparse E and r w w', multiplied block by block without storing E.

Few entries are negative (3 to 15 % on text in the first step, under 1 % at the end), so Y_b Y_I' is usually the only
dense product. Compiled loops find these entries, because numpy needs more time for that than for multiplying the block.
A stored E reached 48 M nonzeros at N = 40,000 and K = 100, so it is kept only as far as it fits into a limited memory:
for a second product, or for a nearby Y, whose negative entries are at almost the same positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.csr import add_transposed, multiply_rows
from streaming_jsmf.linalg.gram import single_gram
from streaming_jsmf.linalg.lanes import dot
from streaming_jsmf.linalg.panels import each, on_each, panels
from streaming_jsmf.linalg.typing import FloatArray, Floats, Integers

#: Rows of Y Y_I' computed at a time, so that the block stays in the cache between its three uses.
BLOCK_ROWS = 256

#: Fraction of negative entries up to which sparse products of a block are faster than dense ones.
SPARSE_SHARE = 1 / 8

#: Number of entries of Y Y_I' that is always affordable, so small vocabularies are checked almost completely.
CHECKED_ENTRIES = 15_000_000

#: Entries of E that are kept for each word and column of Y: as much memory as two float64 arrays of the shape of Y.
KEPT_PER_ENTRY = 2

#: Maximum number of groups of blocks. Each yields an |I| x columns sum, added in order; affects the bits.
LARGEST_GROUPS = 64


@dataclass(frozen=True)
class Correction:
    """(E + r w w') X, N x c; the sum of E; and r = 1 minus the mass of Y Y' + E."""

    product: FloatArray
    correction_mass: float
    uniform_mass: float


@dataclass(frozen=True)
class Checked:
    """The rows that are kept non-negative, and bounds for the others.

    ``words`` is I, the ids of the longest rows of Y, ascending. ``epsilon`` is the largest squared norm of the other
    rows: no entry outside the rows and columns of I is below -epsilon. ``left_out`` is the sum of their squared norms
    over ||Y Y'||_F, which bounds the relative Frobenius norm of their block.
    """

    words: Integers
    epsilon: float
    left_out: float


def checked_rows(y: FloatArray, own_gram: Floats, size: int, left_out: float | None = None) -> Checked:
    """The ``size`` longest rows of Y, or as many as needed for ``Checked.left_out`` to be at most ``left_out``.

    Ties go to the lowest id. ``own_gram`` is Y'Y.
    """
    squares = np.einsum("ij,ij->i", y, y).astype(np.float64)
    order = np.argsort(-squares, kind="stable")
    norm = float(np.linalg.norm(own_gram))
    # Entry i is the sum that is left out if i rows are checked.
    rest = np.append(np.cumsum(squares[order][::-1])[::-1], 0.0)
    if left_out is not None:
        size = max(size, int(np.argmax(rest <= left_out * norm)))
    size = min(size, y.shape[0])
    epsilon = float(squares[order[size]]) if size < y.shape[0] else 0.0
    return Checked(np.sort(order[:size]), epsilon, float(rest[size]) / norm if norm > 0 else 0.0)


class Corrections:
    """X -> E X + r w(w'X) with E_ij = max(-Y_i Y_j', 0) if i or j is in I.

    Y is N x K in C order and determines the type of all products. ``shares`` is w, (N,), the distribution of the
    missing mass r over the words. With ``keep``, E is kept for a second product or for ``move_to``, up to
    ``KEPT_PER_ENTRY`` entries for each of Y. Groups of blocks run on the threads of ``panels.panel_threads``. Neither
    option changes the bits of a product.
    """

    def __init__(self, y: FloatArray, checked: Integers, shares: Floats, keep: bool = False) -> None:
        self.y, self.checked = y, checked
        self.shares = shares.astype(y.dtype)[:, None]
        self.outside = np.ones((len(y), 1), y.dtype)
        self.outside[checked] = 0.0
        self.columns = np.ascontiguousarray(y[checked].T)
        blocks = -(-len(y) // BLOCK_ROWS)
        self.group_rows = BLOCK_ROWS * -(-blocks // min(blocks, LARGEST_GROUPS))
        self._starts = range(0, len(y), self.group_rows)
        # By first row: kept negative parts of blocks, and the number of entries that a group may still keep.
        self._kept: dict[int, _NegativePart] = {}
        room = KEPT_PER_ENTRY * self.group_rows * y.shape[1]
        self._room = dict.fromkeys(self._starts, room if keep else 0)

    def move_to(self, y: FloatArray) -> None:
        """Replace Y by a nearby one: I stays, and in the kept blocks so do the positions at which E may be nonzero."""
        self.y, rows = y, y[self.checked]
        self.columns = np.ascontiguousarray(rows.T)

        def update(first: int) -> None:
            kept = self._kept[first]
            entries_at(kept.indptr, kept.columns, y[first : first + BLOCK_ROWS], rows, kept.values)

        on_each(update, self._kept)

    def times(self, x: FloatArray) -> Correction:
        """Multiply N x c vectors in C order; one pass over the blocks of Y Y_I'."""
        right, product = -x[self.checked], np.empty_like(x)
        mirrored, total, ones = np.zeros(right.shape), 0.0, np.ones((len(right), 1), x.dtype)

        def group(start: int) -> tuple[FloatArray, float]:
            """Write E X to the rows of the group; return its contribution to rows I and to sum(E)."""
            part, mass = np.zeros_like(right), 0.0
            for rows, negative in self._negative_parts(start):
                negative.multiply(right, product[rows])
                negative.add_transposed(x[rows] * -self.outside[rows], part)
                sums = np.empty_like(x[rows, :1])
                negative.multiply(ones, sums)
                mass -= float(np.sum(sums * (1 + self.outside[rows]), dtype=np.float64))
            return part, mass

        for part, mass in each(group, self._starts):
            mirrored += part
            total += mass
        product[self.checked] += mirrored
        uniform = 1.0 - float(np.sum(self.y.sum(axis=0, dtype=np.float64) ** 2)) - total
        added = (uniform * single_gram(self.shares, x)).astype(x.dtype)
        for rows in panels(len(x)):
            product[rows] += self.shares[rows] * added
        return Correction(product, total, uniform)

    def between(self, x: FloatArray, uniform_mass: float) -> Floats:
        """X'(E + r w w')X, c x c. E is symmetric, so rows outside I are counted twice instead of their columns."""
        right, total = -x[self.checked], np.zeros((x.shape[1], x.shape[1]))

        def group(start: int) -> FloatArray:
            part = np.zeros(total.shape, x.dtype)
            for rows, negative in self._negative_parts(start):
                product = np.empty_like(x[rows])
                negative.multiply(right, product)
                part += (x[rows] * (1 + self.outside[rows])).T @ product
            return part

        for part in each(group, self._starts):
            total += part
        weighted = single_gram(self.shares, x)
        return (total + total.T) / 2 + uniform_mass * weighted.T @ weighted

    def _negative_parts(self, start: int) -> Iterator[tuple[slice, _NegativePart]]:
        """Blocks of a group with their negative parts; each overwrites the previous one unless that is kept."""
        workspace = _Workspace(min(BLOCK_ROWS, len(self.y)), self.checked.size, self.y.dtype)
        for first in range(start, min(start + self.group_rows, len(self.y)), BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, len(self.y)))
            negative = self._kept.get(first)
            if negative is None:
                negative = workspace.negative_part(self.y[rows], self.columns)
                if negative.dense is None and negative.indptr[-1] <= self._room[start]:
                    self._room[start] -= int(negative.indptr[-1])
                    self._kept[first] = negative.copy()
            yield rows, negative


@dataclass(frozen=True)
class _NegativePart:
    """min(Y_b Y_I', 0) of a block: its nonzeros (CSR), or the dense block if there are too many."""

    indptr: Integers
    columns: NDArray[np.int32]
    values: FloatArray
    dense: FloatArray | None

    def multiply(self, right: FloatArray, out: FloatArray) -> None:
        if self.dense is None:
            multiply_rows(self.indptr, self.columns, self.values, right, out)
        else:
            np.matmul(self.dense, right, out=out)

    def add_transposed(self, left: FloatArray, out: FloatArray) -> None:
        if self.dense is None:
            add_transposed(self.indptr, self.columns, self.values, left, out)
        else:
            out += self.dense.T @ left

    def copy(self) -> _NegativePart:
        found = self.indptr[-1]
        return _NegativePart(
            self.indptr.copy(), self.columns[:found].copy(), self.values[:found].copy(), None
        )


class _Workspace:
    """Memory reused for all blocks of a group."""

    def __init__(self, height: int, width: int, dtype: np.dtype[Any]) -> None:
        self.block = np.empty((height, width), dtype)
        self.signs = self.block.view(f"i{dtype.itemsize}")
        room = int(SPARSE_SHARE * self.block.size) + width + 1
        self.indptr, self.columns = np.empty(height + 1, np.int64), np.empty(room, np.int32)
        self.values = np.empty(room, dtype)

    def negative_part(self, rows: FloatArray, columns: FloatArray) -> _NegativePart:
        """Negative part of ``rows @ columns``; valid until the next call."""
        size = len(rows)
        block, indptr = self.block[:size], self.indptr[: size + 1]
        np.matmul(rows, columns, out=block)
        sparse = negative_entries(block, self.signs[:size], indptr, self.columns, self.values)
        dense = None if sparse else np.minimum(block, 0.0, out=block)
        return _NegativePart(indptr, self.columns, self.values, dense)


#: Entries whose combined sign bits are tested together; most groups contain no negative entry and are skipped.
GROUP = 8


@compiled(nogil=True)
def negative_entries(
    block: FloatArray, signs: NDArray[Any], indptr: Integers, columns: NDArray[np.int32], values: FloatArray
) -> bool:
    """Write the negative entries of a block (C order) as CSR; return False if there is not enough room.

    ``signs`` is the memory of the block as integers of the same width. ``columns`` and ``values`` need room for the
    entries found and one more row. To avoid unpredictable branches, every entry (and group of entries) is written, and
    the position advances only if it is negative.
    """
    found, width = 0, block.shape[1]
    whole = width // GROUP
    groups = np.empty(whole + 1, np.int32)
    for row in range(block.shape[0]):
        indptr[row] = found
        if found + width >= values.size:
            return False
        entries, bits = block[row], signs[row]
        with_negatives = 0
        for group in range(whole):
            together = bits[group * GROUP]
            for column in range(group * GROUP + 1, (group + 1) * GROUP):
                together |= bits[column]
            groups[with_negatives] = group
            with_negatives += together < 0
        for group in groups[:with_negatives]:
            for column in range(group * GROUP, (group + 1) * GROUP):
                columns[found] = column
                values[found] = entries[column]
                found += entries[column] < 0
        for column in range(whole * GROUP, width):
            columns[found] = column
            values[found] = entries[column]
            found += entries[column] < 0
    indptr[block.shape[0]] = found
    return True


@compiled(nogil=True)
def entries_at(
    indptr: Integers, columns: NDArray[np.int32], rows: FloatArray, others: FloatArray, values: FloatArray
) -> None:
    """Set ``values`` to the entries of min(Y_b Y_I', 0) at the positions of a CSR matrix.

    ``rows`` is Y_b and ``others`` Y_I, both in C order.
    """
    width, zero = rows.shape[1], values.dtype.type(0)
    for i in range(indptr.size - 1):
        row = rows[i]
        for k in range(indptr[i], indptr[i + 1]):
            values[k] = min(dot(row, others[columns[k]], width), zero)
