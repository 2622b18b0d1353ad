"""Compiled sparse product of the tensor scan: what documents in the basis add to the words they hold.

The plain products of a sparse matrix go through memory twice for each nonzero here. This loop keeps the sum that grows,
that of a word, in the cache. No BLAS is called, and each sum has one order, that of the documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from streaming_jsmf.linalg.typing import FloatArray


@njit(cache=True, nogil=True)
def add_back(
    data: FloatArray,
    documents: NDArray[Any],
    starts: NDArray[Any],
    projected: FloatArray,
    scales: FloatArray,
    triples: NDArray[np.float64],
    pairs: NDArray[np.float64],
    weights: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """triples += S' diag(s_0) P, pairs += S' diag(s_1) P and counts += S' V, for S as CSC arrays.

    The sums of a word over P are made in the precision of ``data`` and added in float64. P is ``projected``
    (documents x m), s_0 and s_1 are the columns of ``scales`` (documents x 2), V is ``weights`` (documents x 3).
    """
    width = projected.shape[1]
    triple, pair = np.empty(width, projected.dtype), np.empty(width, projected.dtype)
    for word in range(starts.size - 1):
        first, last = starts[word], starts[word + 1]
        if first == last:
            continue
        triple[:] = 0.0
        pair[:] = 0.0
        for place in range(first, last):
            document = documents[place]
            row = projected[document]
            one, two = data[place] * scales[document, 0], data[place] * scales[document, 1]
            for i in range(width):
                triple[i] += one * row[i]
                pair[i] += two * row[i]
            share = np.float64(data[place])
            for i in range(weights.shape[1]):
                counts[word, i] += share * weights[document, i]
        for i in range(width):
            triples[word, i] += triple[i]
            pairs[word, i] += pair[i]
