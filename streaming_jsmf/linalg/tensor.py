"""Symmetric third-order tensors: sums of cubes by matrix products, their packed form, and changes of basis.

The packed form of a symmetric m x m x m tensor has its m (m + 1) (m + 2) / 6 entries with i <= j <= k in the order (0,
0, 0), (0, 0, 1), ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import FloatArray, Floats

#: Summands multiplied at a time: enough for BLAS, and few enough that pair products stay in the cache.
ROW_BLOCK = 512

#: Number of values of j in a slab. Larger slabs mean fewer, larger products, but more redundant entries.
SLAB = 8


@dataclass(frozen=True)
class _Slab:
    """Entries (i, j, k) for start <= i <= j, first <= j < last and k from ``first`` on (then the first half)."""

    start: int
    first: int
    last: int
    total: Floats


class CubeSum:
    """Sum of symmetric tensors of width m, in slabs: each is one matrix product of pairs of columns with columns.

    Two of three indices are in the same half of 0, ..., m - 1, so pairs within the halves suffice: half of all pairs,
    each with twice as many third indices. This matters because forming and packing pairs slows BLAS down. A summand
    needs about m^3 / 6 multiplications. Products have the given precision, sums are float64.
    """

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self.width, self._half = width, (width + 1) // 2
        self._slabs = [*_slabs(0, self._half, width), *_slabs(self._half, width, width + self._half)]
        # Reused, because allocating memory for each product would cost as much as filling it.
        self._pairs = np.empty(ROW_BLOCK * max((len(slab.total) for slab in self._slabs), default=0), dtype)
        self._product = np.empty(max((slab.total.size for slab in self._slabs), default=0), dtype)

    def add_cubes(self, rows: FloatArray, weights: Floats) -> None:
        """Add the sum over rows x of weights_x r_x (x) r_x (x) r_x; ``rows`` is n x m, ``weights`` (n,)."""
        factors = weights.astype(rows.dtype)[:, None]
        for block in panels(rows.shape[0], ROW_BLOCK):
            r = self._extended(rows[block])
            self._add(rows[block] * factors[block], r, r)

    def add_mixed(self, rows: FloatArray, other: FloatArray) -> None:
        """Add the sum, over rows q and f of the two (n x m), of f (x) q (x) q + q (x) f (x) q + q (x) q (x) f."""
        for block in panels(rows.shape[0], ROW_BLOCK):
            q, f = self._extended(rows[block]), self._extended(other[block])
            for three in ((f, q, q), (q, f, q), (q, q, f)):
                self._add(*three)

    def _add(self, left: FloatArray, right: FloatArray, third: FloatArray) -> None:
        """Add the sum over rows of left_j right_i third_k to each slab; arguments are from ``_extended``."""
        n = len(third)
        for slab in self._slabs:
            total = slab.total
            pairs = self._pairs[: n * len(total)].reshape(n, len(total))
            pair_products(left, right, slab.start, slab.first, slab.last, pairs)
            product = self._product[: total.size].reshape(total.shape)
            np.matmul(pairs.T, third[:, slab.first : slab.first + total.shape[1]], out=product)
            np.add(total, product, out=total)

    def _extended(self, rows: FloatArray) -> FloatArray:
        """``rows`` with their first half appended."""
        return np.concatenate([rows, rows[:, : self._half]], axis=1)

    def packed(self) -> Floats:
        """The packed sum, (m (m + 1) (m + 2) / 6,)."""
        m = self.width
        packed = np.empty(packed_size(m))
        for slab in self._slabs:
            row = 0
            for j in range(slab.first, slab.last):
                i = np.arange(slab.start, j + 1)[:, None]
                values = slab.total[row : row + i.size]
                packed[_position(i, j, np.arange(j, m), m)] = values[:, j - slab.first : m - slab.first]
                if slab.start:
                    # The first half has the smaller indices.
                    packed[_position(np.arange(slab.start), i, j, m)] = values[:, m - slab.first :]
                row += i.size
        return packed


def _slabs(start: int, end: int, columns: int) -> list[_Slab]:
    slabs = []
    for first in range(start, end, SLAB):
        last = min(first + SLAB, end)
        pairs = sum(range(first - start + 1, last - start + 1))
        slabs.append(_Slab(start, first, last, np.zeros((pairs, columns - first))))
    return slabs


def _position(i: Any, j: Any, k: Any, width: int) -> Any:
    """Position of the entries (i, j, k), i <= j <= k, in the packed form; arrays are broadcast."""
    # Preceded by all entries of smaller first index, then rows i to j - 1 of a triangle, then part of row j.
    rest = width - i
    triangle = (rest * (rest + 1) - (width - j) * (width - j + 1)) // 2
    return packed_size(width) - rest * (rest + 1) * (rest + 2) // 6 + triangle + k - j


def packed_size(width: int) -> int:
    """Size of the packed form, m (m + 1) (m + 2) / 6."""
    return width * (width + 1) * (width + 2) // 6


def unpacked(packed: Floats, width: int) -> Floats:
    """The full m x m x m tensor of a packed one. Raises ``ValueError`` if its size does not match the width."""
    if packed.shape != (packed_size(width),):
        raise ValueError(f"a symmetric tensor of width {width} has {packed_size(width)} entries")
    full = np.empty((width, width, width))
    first = 0
    for a in range(width):
        rows, columns = np.triu_indices(width - a)
        part = np.empty((width - a, width - a))
        part[rows, columns] = part[columns, rows] = packed[first : first + rows.size]
        first += rows.size
        full[a, a:, a:] = full[a:, a, a:] = full[a:, a:, a] = part
    return full


def in_basis(tensor: Floats, basis: Floats) -> Floats:
    """T(W, W, W), k x k x k, of a symmetric m x m x m tensor; ``basis`` is W, m x k."""
    m, k = basis.shape
    # Transform the last mode and rotate the modes, three times.
    for _ in range(3):
        tensor = np.moveaxis((tensor.reshape(-1, m) @ basis).reshape(*tensor.shape[:2], k), 2, 0)
    return symmetrised(tensor)


def symmetrised(tensor: Floats) -> Floats:
    """Mean over the six permutations of the modes."""
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    total = np.zeros_like(tensor)
    for order in orders:
        total += tensor.transpose(order)
    return total / len(orders)


def vector_product(matrix: Floats, vector: Floats) -> Floats:
    """M (x) v summed over its three positions: M_ij v_k + M_ik v_j + M_jk v_i, for a symmetric M."""
    outer = matrix[:, :, None] * vector
    return np.asarray(outer + outer.transpose(0, 2, 1) + outer.transpose(2, 0, 1))


def cube(vector: Floats) -> Floats:
    """v (x) v (x) v."""
    product: Floats = vector[:, None, None] * vector[:, None] * vector
    return product


@compiled(nogil=True)
def pair_products(
    left: FloatArray, right: FloatArray, start: int, first: int, last: int, out: FloatArray
) -> None:
    """Set ``out`` (rows x pairs) to left_xj right_xi for first <= j < last and start <= i <= j; arrays in C order."""
    for row in range(left.shape[0]):
        place = 0
        for j in range(first, last):
            factor = left[row, j]
            # Slices, because LLVM cannot prove that the index place + i never wraps around.
            others = right[row, start : j + 1]
            products = out[row, place : place + others.size]
            for i in range(others.size):
                products[i] = factor * others[i]
            place += others.size
