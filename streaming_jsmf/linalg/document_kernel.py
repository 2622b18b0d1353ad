"""Compiled sparse product of the tensor scan: what documents in the basis add to the words they hold.

The plain products of a sparse matrix go through memory twice for each nonzero here. This loop sorts the nonzeros by
word and keeps the sum that grows, that of a word, in the cache. No BLAS is called, and each sum has one order, that of
the documents.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.typing import FloatArray


@compiled(nogil=True)
def sort_by_word(
    indptr: NDArray[Any],
    words: NDArray[Any],
    values: FloatArray,
    ends: NDArray[np.int64],
    documents: NDArray[np.int32],
    sorted_values: FloatArray,
) -> None:
    """From rows to columns: the nonzeros of word x become those from ``ends[x - 1]`` (or 0) up to ``ends[x]``.

    Parameters
    ----------
    indptr, words, values
        Documents x words (CSR); ``indptr`` from 0.
    ends
        (words,), filled.
    documents, sorted_values
        (nonzeros,), filled: document, rising within a word, and value of each nonzero.
    """
    # First where each word begins; every nonzero that is placed moves it, in the end to where the word ends.
    ends[:] = 0
    for word in words:
        ends[word] += 1
    first = 0
    for word in range(ends.size):
        first += ends[word]
        ends[word] = first - ends[word]
    for document in range(indptr.size - 1):
        for k in range(indptr[document], indptr[document + 1]):
            place = ends[words[k]]
            documents[place] = document
            sorted_values[place] = values[k]
            ends[words[k]] = place + 1


@compiled(nogil=True, forceinline=True)
def _add_documents(
    documents: NDArray[np.int32],
    values: FloatArray,
    projected: FloatArray,
    scales: FloatArray,
    triple: FloatArray,
    pair: FloatArray,
) -> None:
    """What the documents of one word add to its two sums (m,); the rest as in ``add_back``."""
    # Four at once, so that the sums are loaded and stored a quarter as often.
    fours = documents.size // 4 * 4
    for k in range(0, fours, 4):
        a, b, c, d = documents[k], documents[k + 1], documents[k + 2], documents[k + 3]
        p, q, r, s = projected[a], projected[b], projected[c], projected[d]
        a3, b3 = values[k] * scales[a, 0], values[k + 1] * scales[b, 0]
        c3, d3 = values[k + 2] * scales[c, 0], values[k + 3] * scales[d, 0]
        a2, b2 = values[k] * scales[a, 1], values[k + 1] * scales[b, 1]
        c2, d2 = values[k + 2] * scales[c, 1], values[k + 3] * scales[d, 1]
        for i in range(triple.size):
            triple[i] += (a3 * p[i] + b3 * q[i]) + (c3 * r[i] + d3 * s[i])
            pair[i] += (a2 * p[i] + b2 * q[i]) + (c2 * r[i] + d2 * s[i])
    for k in range(fours, documents.size):
        row = projected[documents[k]]
        three, two = values[k] * scales[documents[k], 0], values[k] * scales[documents[k], 1]
        for i in range(triple.size):
            triple[i] += three * row[i]
            pair[i] += two * row[i]


@compiled(nogil=True)
def add_back(
    ends: NDArray[np.int64],
    documents: NDArray[np.int32],
    values: FloatArray,
    projected: FloatArray,
    scales: FloatArray,
    triples: NDArray[np.float64],
    pairs: NDArray[np.float64],
) -> None:
    """triples += S' diag(s_0) P and pairs += S' diag(s_1) P, for S as ``sort_by_word`` leaves it.

    The sums of a word are made in the precision of ``values`` and added in float64. P is ``projected`` (documents x m,
    or more columns, which do not count), s_0 and s_1 are the columns of ``scales`` (documents x 2).
    """
    width = projected.shape[1]
    triple, pair = np.empty(width, projected.dtype), np.empty(width, projected.dtype)
    first = 0
    for word in range(ends.size):
        last = ends[word]
        if first == last:
            continue
        triple[:] = 0.0
        pair[:] = 0.0
        _add_documents(documents[first:last], values[first:last], projected, scales, triple, pair)
        for i in range(triples.shape[1]):
            triples[word, i] += triple[i]
            pairs[word, i] += pair[i]
        first = last


@compiled(nogil=True)
def add_counts(
    ends: NDArray[np.int64],
    documents: NDArray[np.int32],
    values: FloatArray,
    weights: NDArray[np.float64],
    counts: NDArray[np.float64],
) -> None:
    """counts += S' V in float64, for S as ``sort_by_word`` leaves it and V ``weights`` (documents x 3)."""
    first = 0
    for word in range(ends.size):
        # Apart from the array: a sum in memory would wait for the one before to be stored.
        x = y = z = 0.0
        for k in range(first, ends[word]):
            value, row = np.float64(values[k]), weights[documents[k]]
            x += value * row[0]
            y += value * row[1]
            z += value * row[2]
        counts[word, 0] += x
        counts[word, 1] += y
        counts[word, 2] += z
        first = ends[word]
