"""One walk over the counts of a block: its rows scaled, its words summed up.

Compiled, because numpy makes a temporary of the size of the block for every step of it; together they took as long
as reading and decompressing the file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled


@compiled(nogil=True)
def row_totals(indptr: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float64]:
    """Sum of each row of a CSR matrix, (rows,), in float64."""
    totals = np.zeros(indptr.size - 1)
    for row in range(totals.size):
        for k in range(indptr[row], indptr[row + 1]):
            totals[row] += counts[k]
    return totals


@compiled(nogil=True)
def scale_rows(
    indptr: NDArray[Any], counts: NDArray[Any], scale: NDArray[np.float64], out: NDArray[np.float32]
) -> None:
    """``out`` (nonzeros,) becomes the counts, those of each row times its ``scale``; rounded once."""
    for row in range(indptr.size - 1):
        for k in range(indptr[row], indptr[row + 1]):
            out[k] = np.float32(counts[k] * scale[row])


@compiled(nogil=True)
def add_word_sums(
    indptr: NDArray[Any],
    words: NDArray[Any],
    counts: NDArray[Any],
    factors: NDArray[np.float64],
    sums: NDArray[np.float64],
    document_frequency: NDArray[np.int64],
) -> None:
    """Add H'X to ``sums`` and the documents of each word to ``document_frequency``.

    Parameters
    ----------
    indptr, words, counts
        H, rows x words (CSR).
    factors
        X, rows x 3. Rows whose first entry is 0 are passed over, in both sums.
    sums
        words x 3.
    document_frequency
        (words,).
    """
    for row in range(indptr.size - 1):
        if factors[row, 0] == 0.0:
            continue
        for k in range(indptr[row], indptr[row + 1]):
            word = words[k]
            for column in range(3):
                sums[word, column] += counts[k] * factors[row, column]
            document_frequency[word] += 1
