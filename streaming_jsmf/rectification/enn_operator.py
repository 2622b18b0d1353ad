"""What a step of ENN adds to Y Y': the sparse E and r w w', multiplied block by block: E is never stored whole.

Stored, E reached 48 M nonzeros at N = 40,000 and K = 100. Recomputed where it is multiplied, it costs the same time
and no memory. Where few entries of a block are negative, as in most, only Y_b Y_I' itself is a dense product: the two
with E are sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.gram import single_gram
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.products import add_transposed, multiply_rows
from streaming_jsmf.linalg.typing import FloatArray
from streaming_jsmf.rectification.enn_kernel import negative_entries

#: Rows of Y Y_I' made at a time: the block stays in the cache between its three uses.
BLOCK_ROWS = 256

#: Share of negative entries up to which sparse products of a block are faster than dense ones.
SPARSE_SHARE = 1 / 8

#: Entries of Y Y_I' that are always affordable: small vocabularies are checked nearly whole.
CHECKED_ENTRIES = 15_000_000

#: Most groups of blocks; each leaves one |I| x columns sum, added in order. Part of the bits.
LARGEST_GROUPS = 64


@dataclass(frozen=True)
class Correction:
    """(E + r w w') X, N x c; the sum of E; and r, which is 1 minus the mass of Y Y' + E."""

    product: FloatArray
    correction_mass: float
    uniform_mass: float


@dataclass(frozen=True)
class Checked:
    """The rows that are kept non-negative, and what bounds the others.

    Attributes
    ----------
    words
        I, ids of the longest rows of Y, rising.
    epsilon
        Largest squared length of another row: no entry outside the rows and columns of I is below -epsilon.
    left_out
        Sum of the squared lengths of the others over ||Y Y'||_F, which bounds the Frobenius norm of their block.
    """

    words: NDArray[np.int64]
    epsilon: float
    left_out: float


def checked_rows(
    y: FloatArray, own_gram: NDArray[np.float64], size: int, left_out: float | None = None
) -> Checked:
    """The ``size`` longest rows of Y, or as many more as it takes for ``Checked.left_out`` to fall to ``left_out``.

    Ties go to the lowest id. ``own_gram`` is Y'Y.
    """
    squares = np.einsum("ij,ij->i", y, y).astype(np.float64)
    order = np.argsort(-squares, kind="stable")
    norm = float(np.linalg.norm(own_gram))
    # Entry i: what is left out if i rows are checked.
    rest = np.append(np.cumsum(squares[order][::-1])[::-1], 0.0)
    if left_out is not None:
        size = max(size, int(np.argmax(rest <= left_out * norm)))
    size = min(size, y.shape[0])
    epsilon = float(squares[order[size]]) if size < y.shape[0] else 0.0
    # Sorted, so that gathers walk forward.
    return Checked(np.sort(order[:size]), epsilon, float(rest[size]) / norm if norm > 0 else 0.0)


class Corrections:
    """X -> E X + r w(w'X) with E_ij = max(-Y_i Y_j', 0) wherever i or j is in I.

    Parameters
    ----------
    y
        Y, N x K, C order. Its type is that of the blocks of Y Y_I', of what is multiplied and of the products.
    checked
        I.
    shares
        w, (N,): how the missing mass r is spread over the words.
    pool
        Its threads take groups of blocks. The bits do not depend on their number.
    keep
        E for a second product, as far as it has no more entries than Y. The bits do not depend on it.
    """

    def __init__(
        self,
        y: FloatArray,
        checked: NDArray[np.int64],
        shares: NDArray[np.float64],
        pool: ThreadPoolExecutor,
        keep: bool = False,
    ) -> None:
        self.y, self.checked, self.pool = y, checked, pool
        self.shares = shares.astype(y.dtype)[:, None]
        self.outside = np.ones((len(y), 1), y.dtype)
        self.outside[checked] = 0.0
        self.columns = np.ascontiguousarray(y[checked].T)
        blocks = -(-len(y) // BLOCK_ROWS)
        self.group_rows = BLOCK_ROWS * -(-blocks // min(blocks, LARGEST_GROUPS))
        self._starts = range(0, len(y), self.group_rows)
        # By first row: what is kept of the blocks, and how many entries a group may still keep.
        self._kept: dict[int, _NegativePart] = {}
        self._room = dict.fromkeys(self._starts, self.group_rows * y.shape[1] if keep else 0)

    def times(self, x: FloatArray) -> Correction:
        """Multiply N x c vectors in C order; one walk over the blocks of Y Y_I'."""
        right, product = -x[self.checked], np.empty_like(x)
        mirrored, total, ones = np.zeros(right.shape), 0.0, np.ones((len(right), 1), x.dtype)

        def group(start: int) -> tuple[FloatArray, float]:
            """Write E X in the group's own rows; return what the others give to rows I, and its share of sum(E)."""
            part, mass = np.zeros_like(right), 0.0
            for rows, negative in self._negative_parts(start):
                negative.multiply(right, product[rows])
                negative.add_transposed(x[rows] * -self.outside[rows], part)
                sums = np.empty_like(x[rows, :1])
                negative.multiply(ones, sums)
                mass -= float(np.sum(sums * (1 + self.outside[rows]), dtype=np.float64))
            return part, mass

        for part, mass in self.pool.map(group, self._starts):
            mirrored += part
            total += mass
        product[self.checked] += mirrored
        uniform = 1.0 - float(np.sum(self.y.sum(axis=0, dtype=np.float64) ** 2)) - total
        spread = (uniform * single_gram(self.shares, x)).astype(x.dtype)
        for rows in panels(len(x)):
            product[rows] += self.shares[rows] * spread
        return Correction(product, total, uniform)

    def between(self, x: FloatArray, uniform_mass: float) -> NDArray[np.float64]:
        """X'(E + r w w')X, c x c. E is symmetric, so what rows I take from the others is counted twice instead."""
        right, total = -x[self.checked], np.zeros((x.shape[1], x.shape[1]))

        def group(start: int) -> FloatArray:
            part = np.zeros(total.shape, x.dtype)
            for rows, negative in self._negative_parts(start):
                product = np.empty_like(x[rows])
                negative.multiply(right, product)
                part += (x[rows] * (1 + self.outside[rows])).T @ product
            return part

        for part in self.pool.map(group, self._starts):
            total += part
        spread = single_gram(self.shares, x)
        return (total + total.T) / 2 + uniform_mass * spread.T @ spread

    def _negative_parts(self, start: int) -> Iterator[tuple[slice, _NegativePart]]:
        """The blocks of a group and their negative parts, each in the memory of the one before unless it is kept."""
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
    """N = min(Y_b Y_I', 0) of a block: its nonzeros (CSR) or, where they are too many, all of it."""

    indptr: NDArray[np.int64]
    columns: NDArray[np.int32]
    values: FloatArray
    dense: FloatArray | None

    def multiply(self, right: FloatArray, out: FloatArray) -> None:
        """``out`` becomes N ``right``."""
        if self.dense is None:
            multiply_rows(self.indptr, self.columns, self.values, right, out)
        else:
            np.matmul(self.dense, right, out=out)

    def add_transposed(self, left: FloatArray, out: FloatArray) -> None:
        """Add N' ``left`` to ``out``."""
        if self.dense is None:
            add_transposed(self.indptr, self.columns, self.values, left, out)
        else:
            out += self.dense.T @ left

    def copy(self) -> _NegativePart:
        """The nonzeros, in memory of their own."""
        found = self.indptr[-1]
        return _NegativePart(
            self.indptr.copy(), self.columns[:found].copy(), self.values[:found].copy(), None
        )


class _Workspace:
    """Memory that serves one block after the other."""

    def __init__(self, height: int, width: int, dtype: np.dtype[Any]) -> None:
        self.block = np.empty((height, width), dtype)
        self.signs = self.block.view(f"i{dtype.itemsize}")
        room = int(SPARSE_SHARE * self.block.size) + width + 1
        self.indptr, self.columns = np.empty(height + 1, np.int64), np.empty(room, np.int32)
        self.values = np.empty(room, dtype)

    def negative_part(self, rows: FloatArray, columns: FloatArray) -> _NegativePart:
        """Of Y_b and Y_I'; valid until the next one is asked for."""
        size = len(rows)
        block, indptr = self.block[:size], self.indptr[: size + 1]
        np.matmul(rows, columns, out=block)
        sparse = negative_entries(block, self.signs[:size], indptr, self.columns, self.values)
        dense = None if sparse else np.minimum(block, 0.0, out=block)
        return _NegativePart(indptr, self.columns, self.values, dense)
