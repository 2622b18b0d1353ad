"""The matrix that a step of ENN multiplies by: Y Y' + E + r w w', fused, so that the sparse E is never stored.

Stored, E reached 48 M nonzeros at N = 40,000 and K = 100. Recomputed block by block where it is multiplied, it costs
the same time and no memory. Few entries of a block are negative, so that only Y_b Y_I' itself is a dense product: the
two with E are sparse.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.gram import gram
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.products import add_transposed, multiply_rows
from streaming_jsmf.linalg.typing import FloatArray
from streaming_jsmf.rectification.enn_kernel import negative_entries

#: Rows of Y Y_I' made at a time: the block stays in the cache between its three uses.
BLOCK_ROWS = 1024

#: Entries of Y Y_I' that are always affordable: small vocabularies are checked nearly whole.
CHECKED_ENTRIES = 15_000_000

#: Most groups of blocks; each leaves one |I| x columns sum, added in order. Part of the bits.
LARGEST_GROUPS = 64


@dataclass(frozen=True)
class Applied:
    """A X, N x c; sum of E; and 1 minus the mass of Y Y' + E, which the operator adds as r w w'."""

    product: NDArray[np.float64]
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


def checked_rows(y: NDArray[np.float64], size: int, left_out: float | None = None) -> Checked:
    """The ``size`` longest rows of Y, or as many more as it takes for ``Checked.left_out`` to fall to ``left_out``.

    Ties go to the lowest id.
    """
    squares = np.einsum("ij,ij->i", y, y)
    order = np.argsort(-squares, kind="stable")
    norm = float(np.linalg.norm(gram(y)))
    # Entry i: what is left out if i rows are checked.
    rest = np.append(np.cumsum(squares[order][::-1])[::-1], 0.0)
    if left_out is not None:
        size = max(size, int(np.argmax(rest <= left_out * norm)))
    size = min(size, y.shape[0])
    epsilon = float(squares[order[size]]) if size < y.shape[0] else 0.0
    # Sorted, so that gathers walk forward.
    return Checked(np.sort(order[:size]), epsilon, float(rest[size]) / norm if norm > 0 else 0.0)


class CorrectedOperator:
    """X -> Y(Y'X) + E X + r w(w'X) with E_ij = max(-Y_i Y_j', 0) wherever i or j is in I.

    Parameters
    ----------
    y
        Y, N x K.
    checked
        I.
    shares
        w, (N,), sums to 1: how the missing mass r is spread over the words. None: evenly.
    dtype
        Of the blocks of Y Y_I'.
    pool
        Its threads take groups of blocks. The bits do not depend on their number.

    Attributes
    ----------
    gram
        Y'Y, (K, K).
    """

    def __init__(
        self,
        y: NDArray[np.float64],
        checked: NDArray[np.int64],
        shares: NDArray[np.float64] | None,
        dtype: type[np.floating[Any]],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.y, self.checked, self.shares, self.dtype, self.pool = y, checked, shares, dtype, pool
        n = y.shape[0]
        self.unchecked = np.ones(n, dtype=dtype)
        self.unchecked[checked] = 0.0
        self.gram = gram(y)
        self.rows = y.astype(dtype, order="C")
        self.columns = np.ascontiguousarray(self.rows[checked].T)
        blocks = -(-n // BLOCK_ROWS)
        self.group_rows = BLOCK_ROWS * -(-blocks // min(blocks, LARGEST_GROUPS))

    def apply(self, x: NDArray[np.float64]) -> Applied:
        """Multiply N x c vectors; one walk over the blocks of Y Y_I'."""
        product = self.y @ (self.gram if x is self.y else self.y.T @ x)
        # In C order, so that the compiled products walk along rows.
        x_block = self.rows if x is self.y else x.astype(self.dtype, order="C")
        # The column of ones gives the row sums of E in the same product.
        ones = np.ones((self.checked.size, 1), dtype=self.dtype)
        x_checked, total = np.hstack([x_block[self.checked], ones]), 0.0
        mirrored = np.zeros((self.checked.size, x.shape[1]))

        def group(start: int) -> tuple[FloatArray, float]:
            return self._group(start, x_block, x_checked, product)

        for part, mass in self.pool.map(group, range(0, self.y.shape[0], self.group_rows)):
            mirrored += part
            total += mass
        product[self.checked] -= mirrored
        uniform = 1.0 - float(np.sum(self.y.sum(axis=0) ** 2)) - total
        self._spread(uniform, x, product)
        return Applied(product, total, uniform)

    def _spread(self, mass: float, x: NDArray[np.float64], product: NDArray[np.float64]) -> None:
        """Add mass w (w'X)."""
        n = self.y.shape[0]
        if self.shares is None:
            product += (mass / n**2) * x.sum(axis=0)
            return
        row = mass * (self.shares @ x)
        for rows in panels(n):
            product[rows] += np.outer(self.shares[rows], row)

    def _group(
        self, start: int, x: FloatArray, x_checked: FloatArray, product: NDArray[np.float64]
    ) -> tuple[FloatArray, float]:
        """Take min(Y_b Y_I', 0) X_I off the group's own rows; return what the mirror image adds to rows I."""
        height, width = min(BLOCK_ROWS, self.y.shape[0]), self.checked.size
        block = np.empty((height, width), dtype=self.dtype)
        signs = block.view(np.dtype(f"i{block.itemsize}"))
        indptr, columns = np.empty(height + 1, dtype=np.int64), np.empty(block.size + 1, dtype=np.int32)
        values, taken = (
            np.empty(block.size + 1, dtype=self.dtype),
            np.empty((height, x_checked.shape[1]), self.dtype),
        )
        part, mass = np.zeros((width, x.shape[1]), dtype=self.dtype), 0.0
        for rows in self._blocks(start):
            size = rows.stop - rows.start
            np.matmul(self.rows[rows], self.columns, out=block[:size])
            negative_entries(block[:size], signs[:size], indptr[: size + 1], columns, values)
            entries = (indptr[: size + 1], columns, values)
            multiply_rows(*entries, x_checked, taken[:size])
            product[rows] -= taken[:size, :-1]
            outside = self.unchecked[rows]
            add_transposed(*entries, x[rows] * outside[:, None], part)
            row_mass = taken[:size, -1].astype(np.float64)
            mass -= float(row_mass.sum() + row_mass @ outside)
        return part, mass

    def _blocks(self, start: int) -> Iterator[slice]:
        end = min(start + self.group_rows, self.y.shape[0])
        for first in range(start, end, BLOCK_ROWS):
            yield slice(first, min(first + BLOCK_ROWS, end))
