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
def given_back(counts: NDArray[Any]) -> NDArray[np.float64]:
    """max(c - c^2, 0) of each count: what Eq. 1 takes too much from the diagonal where c is below 1."""
    back = np.zeros(counts.size)
    for k in range(counts.size):
        if counts[k] < 1:
            back[k] = counts[k] - np.float64(counts[k]) * counts[k]
    return back


@compiled(nogil=True)
def pair_totals(indptr: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.float64]:
    """(rows,) ordered pairs of two tokens of a document: n (n - 1), and ``given_back`` where counts are below 1.

    This is the sum of the entries of h h' - diag(min(h, h^2)), the document's part of C before it is divided.
    """
    totals = np.zeros(indptr.size - 1)
    for row in range(totals.size):
        length, back = 0.0, 0.0
        for k in range(indptr[row], indptr[row + 1]):
            length += counts[k]
            if counts[k] < 1:
                back += counts[k] - np.float64(counts[k]) * counts[k]
        totals[row] = length * (length - 1.0) + back
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
    """Add sums over documents to the words of each, and to ``document_frequency`` the documents of each word.

    With X = ``factors`` and g = ``given_back(counts)`` these are, of a word with count c in a document,
    c X_0 + g X_1, (c - g) X_1 and c X_2.

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
            word, count, back = words[k], np.float64(counts[k]), 0.0
            if count < 1.0:
                back = count - count * count
            sums[word, 0] += count * factors[row, 0] + back * factors[row, 1]
            sums[word, 1] += (count - back) * factors[row, 1]
            sums[word, 2] += count * factors[row, 2]
            document_frequency[word] += 1
