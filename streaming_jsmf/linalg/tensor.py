"""Symmetric tensors of third order: sums of cubes by matrix products, their packed form, and changes of basis.

A symmetric m x m x m tensor has m (m + 1) (m + 2) / 6 free entries. What is added and stored is the packed form: the
entries with i <= j <= k in their order, (0, 0, 0), (0, 0, 1), ...
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.tensor_kernel import pair_products
from streaming_jsmf.linalg.typing import FloatArray

#: Summands multiplied at once: long enough for BLAS, few enough that their products of pairs stay in a cache near the
#: core at the usual widths.
ROW_BLOCK = 512

#: Middle indices of a slab. More make fewer and larger products, and more entries that are there already.
SLAB = 4


class CubeSum:
    """Adds up symmetric tensors slab by slab: a slab holds the entries (i, j, k) of some j, with i <= j and k >= j.

    One matrix product makes a slab from the products of columns i and j, and the columns k: a sixth of the m^3
    multiplications for each summand, plus those of k below j for all j but the first of a slab. Products have the
    precision of their operands, sums are float64.

    Parameters
    ----------
    width
        m.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._starts = range(0, width, SLAB)
        self._slabs = [np.zeros((_pairs(first, self._end(first)), width - first)) for first in self._starts]

    def add_cubes(self, rows: FloatArray, weights: NDArray[np.float64]) -> None:
        """Add the sum over rows x of weights_x r_x (x) r_x (x) r_x; ``rows`` is n x m, ``weights`` (n,)."""
        weights = weights.astype(rows.dtype)[:, None]
        for block in _blocks(rows.shape[0]):
            r = np.ascontiguousarray(rows[block])
            self._add(r * weights[block], r, r)

    def add_mixed(self, rows: FloatArray, other: FloatArray) -> None:
        """Add the sum over rows of f (x) q (x) q + q (x) f (x) q + q (x) q (x) f; q of ``rows``, f of ``other``.

        Both are n x m and of one type.
        """
        for block in _blocks(rows.shape[0]):
            q, f = (np.ascontiguousarray(part[block]) for part in (rows, other))
            for three in ((f, q, q), (q, f, q), (q, q, f)):
                self._add(*three)

    def _end(self, first: int) -> int:
        return min(first + SLAB, self.width)

    def _add(self, left: FloatArray, middle: FloatArray, right: FloatArray) -> None:
        """Add the sum over rows of middle_i left_j right_k for i <= j <= k; all are n x m in C order, n small."""
        # Fresh memory for each slab would cost as much as to fill it.
        pairs = np.empty(left.shape[0] * max((len(slab) for slab in self._slabs), default=0), left.dtype)
        product = np.empty(max((slab.size for slab in self._slabs), default=0), left.dtype)
        for first, slab in zip(self._starts, self._slabs, strict=True):
            part = pairs[: left.shape[0] * len(slab)].reshape(left.shape[0], len(slab))
            pair_products(left, middle, first, self._end(first), part)
            slab += np.matmul(part.T, right[:, first:], out=product[: slab.size].reshape(slab.shape))

    def packed(self) -> NDArray[np.float64]:
        """The sum, (m (m + 1) (m + 2) / 6,)."""
        m = self.width
        packed = np.empty(packed_size(m))
        for first, slab in zip(self._starts, self._slabs, strict=True):
            for j in range(first, self._end(first)):
                i, k = np.arange(j + 1)[:, None], np.arange(j, m)
                # Before (i, j, k) lie all of a smaller first index, and of the same the rows i to j - 1 of a triangle.
                place = packed_size(m) - packed_size(m - i) + _pairs(m - j, m - i) + k - j
                packed[place] = slab[_pairs(first, j) + i, k - first]
        return packed


def _pairs(first: Any, last: Any) -> Any:
    """How many pairs i <= j have first <= j < last; also the sum of first + 1, ..., last. Arrays as well."""
    return (last * (last + 1) - first * (first + 1)) // 2


def _blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, ROW_BLOCK):
        yield slice(start, start + ROW_BLOCK)


def packed_size(width: int) -> int:
    """Free entries of a symmetric tensor, m (m + 1) (m + 2) / 6."""
    return width * (width + 1) * (width + 2) // 6


def unpacked(packed: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    """The full m x m x m tensor of a packed one.

    Raises
    ------
    ValueError
        If the number of entries is not that of this width.
    """
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


def in_basis(tensor: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """T(W, W, W): the tensor (m x m x m, symmetric) in the columns of ``basis`` (m x k), k x k x k."""
    m, k = basis.shape
    # One mode at a time, the last: the tensor is symmetric, so its modes may be turned round in between.
    for _ in range(3):
        tensor = np.moveaxis((tensor.reshape(-1, m) @ basis).reshape(*tensor.shape[:2], k), 2, 0)
    return symmetrised(tensor)


def symmetrised(tensor: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean over the six orders of the modes."""
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    total = np.zeros_like(tensor)
    for order in orders:
        total += tensor.transpose(order)
    return total / len(orders)


def vector_product(matrix: NDArray[np.float64], vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """M (x) v summed over its three places: M_ij v_k + M_ik v_j + M_jk v_i, for a symmetric M."""
    outer = matrix[:, :, None] * vector
    return np.asarray(outer + outer.transpose(0, 2, 1) + outer.transpose(2, 0, 1))


def cube(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """v (x) v (x) v."""
    product: NDArray[np.float64] = vector[:, None, None] * vector[:, None] * vector
    return product
