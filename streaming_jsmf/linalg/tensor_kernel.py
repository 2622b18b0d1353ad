"""Compiled products of pairs of columns, from which the tensor's slabs are made by BLAS."""

from __future__ import annotations

from numba import njit

from streaming_jsmf.linalg.typing import FloatArray


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def pair_products(left: FloatArray, right: FloatArray, first: int, last: int, out: FloatArray) -> None:
    """``out`` (rows x pairs, C order) becomes left_xj right_xi for first <= j < last and i <= j, in that order.

    ``left`` and ``right`` are rows x m (C order).
    """
    for row in range(left.shape[0]):
        start = 0
        for j in range(first, last):
            factor = left[row, j]
            # A slice, because LLVM does not see that an index start + i never wraps around.
            products = out[row, start : start + j + 1]
            for i in range(products.size):
                products[i] = factor * right[row, i]
            start += j + 1
