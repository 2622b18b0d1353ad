"""Compiled products of pairs of columns, from which the tensor's slabs are made by BLAS."""

from __future__ import annotations

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.typing import FloatArray


@compiled(nogil=True)
def pair_products(
    left: FloatArray, right: FloatArray, start: int, first: int, last: int, out: FloatArray
) -> None:
    """``out`` (rows x pairs, C order) becomes left_xj right_xi, first <= j < last and start <= i <= j, in that order.

    ``left`` and ``right`` are rows x m (C order).
    """
    for row in range(left.shape[0]):
        place = 0
        for j in range(first, last):
            factor = left[row, j]
            # Slices, because LLVM does not see that an index place + i never wraps around.
            others = right[row, start : j + 1]
            products = out[row, place : place + others.size]
            for i in range(others.size):
                products[i] = factor * others[i]
            place += others.size
