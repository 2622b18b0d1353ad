"""What a step of ENN adds to Y Y': the sparse E and r w w', multiplied block by block, so that E is never stored.

Stored, E reached 48 M nonzeros at N = 40,000 and K = 100. Recomputed where it is multiplied, it costs the same time
and no memory. Where few entries of a block are negative, as in most, only Y_b Y_I' itself is a dense product: the two
with E are sparse.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    y: NDArray[np.float64], own_gram: NDArray[np.float64], size: int, left_out: float | None = None
) -> Checked:
    """The ``size`` longest rows of Y, or as many more as it takes for ``Checked.left_out`` to fall to ``left_out``.

    Ties go to the lowest id. ``own_gram`` is Y'Y.
    """
    squares = np.einsum("ij,ij->i", y, y)
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
        Y, N x K.
    checked
        I.
    shares
        w, (N,): how the missing mass r is spread over the words.
    dtype
        Of the blocks of Y Y_I', and of the products.
    pool
        Its threads take groups of blocks. The bits do not depend on their number.

    Attributes
    ----------
    rows
        Y, rounded to ``dtype``.
    """

    def __init__(
        self,
        y: NDArray[np.float64],
        checked: NDArray[np.int64],
        shares: NDArray[np.float64],
        dtype: type[np.floating[Any]],
        pool: ThreadPoolExecutor,
    ) -> None:
        n = y.shape[0]
        self.y, self.checked, self.shares, self.pool = y, checked, shares, pool
        self.outside = np.ones((n, 1), dtype=dtype)
        self.outside[checked] = 0.0
        self.rows = y.astype(dtype, order="C")
        self.columns = np.ascontiguousarray(self.rows[checked].T)
        blocks = -(-n // BLOCK_ROWS)
        self.group_rows = BLOCK_ROWS * -(-blocks // min(blocks, LARGEST_GROUPS))

    def times(self, x: NDArray[np.float64]) -> Correction:
        """Multiply N x c vectors; one walk over the blocks of Y Y_I'."""
        # In C order, so that the compiled products walk along rows.
        x_rows = self.rows if x is self.y else x.astype(self.rows.dtype, order="C")
        # The column of ones gives the row sums of E in the same product.
        ones = np.ones((self.checked.size, 1), dtype=x_rows.dtype)
        x_checked, total = np.hstack([x_rows[self.checked], ones]), 0.0
        product, mirrored = np.empty_like(x_rows), np.zeros((self.checked.size, x.shape[1]))

        def group(start: int) -> tuple[FloatArray, float]:
            return self._group(start, x_rows, x_checked, product)

        for part, mass in self.pool.map(group, range(0, x.shape[0], self.group_rows)):
            mirrored -= part
            total += mass
        product[self.checked] += mirrored
        uniform = 1.0 - float(np.sum(self.y.sum(axis=0) ** 2)) - total
        spread = (uniform * (self.shares @ x)).astype(product.dtype)
        for rows in panels(len(product)):
            product[rows] += np.outer(self.shares[rows].astype(product.dtype), spread)
        return Correction(product, total, uniform)

    def _group(
        self, start: int, x: FloatArray, x_checked: FloatArray, product: FloatArray
    ) -> tuple[FloatArray, float]:
        """Write E X in the group's own rows; return what the mirror image takes off rows I, and its share of sum(E)."""
        part, mass = np.zeros((self.checked.size, x.shape[1]), dtype=x.dtype), 0.0
        negative = _NegativePart(min(BLOCK_ROWS, x.shape[0]), self.checked.size, x.dtype)
        for first in range(start, min(start + self.group_rows, len(x)), BLOCK_ROWS):
            rows = slice(first, min(first + BLOCK_ROWS, len(x)))
            outside = self.outside[rows]
            taken = negative.products(self.rows[rows], self.columns, x_checked, x[rows] * outside, part)
            np.negative(taken[:, :-1], out=product[rows])
            row_mass = taken[:, -1].astype(np.float64)
            mass -= float(row_mass.sum() + row_mass @ outside[:, 0])
        return part, mass


class _NegativePart:
    """Multiplies by N = min(Y_b Y_I', 0), in memory that serves one block after the other."""

    def __init__(self, height: int, width: int, dtype: np.dtype[Any]) -> None:
        self.block = np.empty((height, width), dtype)
        self.signs = self.block.view(f"i{dtype.itemsize}")
        room = int(SPARSE_SHARE * self.block.size) + width + 1
        self.indptr, self.columns = np.empty(height + 1, np.int64), np.empty(room, np.int32)
        self.values = np.empty(room, dtype)

    def products(
        self, rows: FloatArray, columns: FloatArray, right: FloatArray, left: FloatArray, mirrored: FloatArray
    ) -> FloatArray:
        """N ``right``; adds N' ``left`` to ``mirrored``. ``rows`` are Y_b, ``columns`` Y_I'."""
        size = len(rows)
        block, indptr = self.block[:size], self.indptr[: size + 1]
        np.matmul(rows, columns, out=block)
        if negative_entries(block, self.signs[:size], indptr, self.columns, self.values):
            product = np.empty((size, right.shape[1]), right.dtype)
            multiply_rows(indptr, self.columns, self.values, right, product)
            add_transposed(indptr, self.columns, self.values, left, mirrored)
            return product
        np.minimum(block, 0.0, out=block)
        mirrored += block.T @ left
        return block @ right
