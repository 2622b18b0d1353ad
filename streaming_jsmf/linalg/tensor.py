"""Symmetric tensors of third order: sums of cubes by matrix products, their packed form, and changes of basis.

A symmetric m x m x m tensor has m (m + 1) (m + 2) / 6 free entries. What is added and stored is the packed form: the
entries with i <= j <= k in their order, (0, 0, 0), (0, 0, 1), ...
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.typing import FloatArray

#: Columns multiplied at once: long enough for BLAS, short enough that a slice's operands stay in the cache.
COLUMN_BLOCK = 1024


class CubeSum:
    """Adds up symmetric tensors slice by slice: slice a holds the entries (a, j, k) with j, k >= a.

    That is a third of the m^3 multiplications for each summand, all of them in matrix products. Products have the
    precision of their operands, sums are float64.

    Parameters
    ----------
    width
        m.
    """

    def __init__(self, width: int) -> None:
        self._slices = [np.zeros((width - a, width - a)) for a in range(width)]

    def add_cubes(self, rows: FloatArray, weights: FloatArray) -> None:
        """Add the sum over columns x of weights_x r_x (x) r_x (x) r_x; ``rows`` is m x n, ``weights`` (n,)."""
        for columns in _column_blocks(rows.shape[1]):
            r = np.ascontiguousarray(rows[:, columns])
            weighted = r * weights[columns].astype(r.dtype)
            # Fresh memory for each slice would cost as much as its products.
            scaled = np.empty_like(r)
            for a, total in enumerate(self._slices):
                total += r[a:] @ np.multiply(r[a:], weighted[a], out=scaled[a:]).T

    def add_mixed(self, rows: FloatArray, other: FloatArray) -> None:
        """Add the sum over columns of f (x) q (x) q + q (x) f (x) q + q (x) q (x) f; q of ``rows``, f of ``other``.

        Both are m x n and of one type.
        """
        for columns in _column_blocks(rows.shape[1]):
            q, f = (np.ascontiguousarray(part[:, columns]) for part in (rows, other))
            half = f / 2
            for a, total in enumerate(self._slices):
                # q diag(f_a) q' + f diag(q_a) q' + q diag(q_a) f' is a product and its transpose.
                product = (q[a:] @ (q[a:] * half[a] + f[a:] * q[a]).T).astype(np.float64)
                total += product + product.T

    def packed(self) -> NDArray[np.float64]:
        """The sum, (m (m + 1) (m + 2) / 6,)."""
        if not self._slices:
            return np.zeros(0)
        return np.concatenate([total[np.triu_indices(total.shape[0])] for total in self._slices])


def _column_blocks(n: int) -> Iterator[slice]:
    for start in range(0, n, COLUMN_BLOCK):
        yield slice(start, start + COLUMN_BLOCK)


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
