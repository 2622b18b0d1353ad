"""Products of a sparse block with a tall, narrow matrix, added into memory that is there already.

Compiled: scipy's return each product in fresh memory, which is an array of words x columns more for each worker while
a block is multiplied in pieces, and are built for the oldest processors. Both are bound by the memory's speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streaming_jsmf.linalg.typing import FloatArray


@njit(cache=True, nogil=True, fastmath={"contract"})  # type: ignore[untyped-decorator]
def multiply_rows(
    indptr: NDArray[Any],
    words: NDArray[Any],
    values: FloatArray,
    vectors: FloatArray,
    out: FloatArray,
) -> None:
    """``out`` (rows x columns, C order) becomes H X; H is rows x words (CSR), X words x columns (C order)."""
    columns = vectors.shape[1]
    for row in range(indptr.size - 1):
        out[row, :] = 0.0
        for k in range(indptr[row], indptr[row + 1]):
            value, word = values[k], words[k]
            for column in range(columns):
                out[row, column] += value * vectors[word, column]


@njit(cache=True, nogil=True, fastmath={"contract"})  # type: ignore[untyped-decorator]
def add_transposed(
    indptr: NDArray[Any],
    words: NDArray[Any],
    values: NDArray[np.float32],
    rows: NDArray[np.float32],
    out: NDArray[np.float32],
) -> None:
    """Add H'Z to ``out`` (words x columns, C order); H is rows x words (CSR), Z rows x columns (C order)."""
    columns = rows.shape[1]
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            value, word = values[k], words[k]
            for column in range(columns):
                out[word, column] += value * rows[row, column]
