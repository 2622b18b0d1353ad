"""Products of a sparse block with a tall, narrow matrix, added into memory that is there already.

Compiled: scipy's return each product in fresh memory, which is an array of words x columns more for each worker while
a block is multiplied in pieces, and are built for the oldest processors. Both are bound by the memory's speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.typing import FloatArray


@compiled(nogil=True)
def multiply_rows(
    indptr: NDArray[Any],
    words: NDArray[Any],
    values: FloatArray,
    vectors: FloatArray,
    out: FloatArray,
) -> None:
    """``out`` (rows x columns, C order) becomes H X; H is rows x words (CSR), X words x columns (C order).

    Columns that ``out`` has more become 0. Four nonzeros are taken at once, so that a row of ``out`` goes through the
    registers a quarter as often.
    """
    columns = vectors.shape[1]
    for row in range(indptr.size - 1):
        total = out[row]
        total[:] = 0.0
        fours = indptr[row] + (indptr[row + 1] - indptr[row]) // 4 * 4
        for k in range(indptr[row], fours, 4):
            a, b, c, d = values[k], values[k + 1], values[k + 2], values[k + 3]
            x, y, z, w = words[k], words[k + 1], words[k + 2], words[k + 3]
            p, q, r, s = vectors[x], vectors[y], vectors[z], vectors[w]
            for column in range(columns):
                total[column] += (a * p[column] + b * q[column]) + (c * r[column] + d * s[column])
        for k in range(fours, indptr[row + 1]):
            value, vector = values[k], vectors[words[k]]
            for column in range(columns):
                total[column] += value * vector[column]


@compiled(nogil=True)
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
