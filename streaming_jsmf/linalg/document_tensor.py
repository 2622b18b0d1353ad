"""Contributions of documents to STOD's moments of LDA in a basis.

Notation of Wang, Liu, Song, Han (ECML-PKDD 2014): c counts of a document, l its length. Q is an orthonormal basis (N x
m), p = Q'c, w the weight of the document, h = 1 / (l (l - 1)), rho = h / (l - 2). The corrections of the third moment
for repeated words depend only on sums of c p' and c (Eqs. 8 to 11), so they need no loop over documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import DocumentWeights
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.csr import document_weights, multiply_rows
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.tensor import CubeSum
from streaming_jsmf.linalg.typing import FloatArray, Floats, Integers
from streaming_jsmf.timing import span

#: A document with fewer tokens has no triple of words and is excluded from all three moments.
FEWEST_TOKENS = 3

#: Documents per block, so that products stay in the cache and float32 sums stay short.
DOCUMENT_BLOCK = 4096

#: Nonzeros per block; sorting them by word takes 8 bytes each.
NONZERO_BLOCK = 2**20

#: Projected documents are padded with zeros to a multiple of this, because remainders of compiled loops are slow.
COLUMN_STEP = 8

#: Words corrected at a time.
WORD_BLOCK = 1024


@dataclass(frozen=True)
class TensorSums:
    """Additive statistics of a set of documents for a given Q, not divided by ``total_weight``, the sum of w.

    ``third`` is the sum of w rho p (x) p (x) p, packed (``linalg.tensor``). ``triples`` and ``pairs`` (N, m) are the
    sums of w rho c p' and w h c p'; ``triple_counts``, ``pair_counts`` and ``shares`` (N,) those of w rho c, w h c and
    w c / l. ``n_documents`` counts documents of at least three tokens.
    """

    third: Floats
    triples: Floats
    pairs: Floats
    triple_counts: Floats
    pair_counts: Floats
    shares: Floats
    n_documents: int
    total_weight: float


def tensor_weights(lengths: Floats, scheme: DocumentWeights) -> Floats:
    """Weights of documents of the given lengths (tokens) in STOD's moments; 0 below three tokens."""
    return np.where(lengths < FEWEST_TOKENS, 0.0, document_weights(lengths, scheme))


@dataclass(frozen=True)
class WeightedShares:
    """Documents for ``tensor_sums``: ``shares`` c / l (documents x words, CSR), lengths and ``tensor_weights``.

    Unlike counts, shares stay far from the limits of float32.
    """

    shares: csr_array[Any]
    lengths: Floats
    weights: Floats


def tensor_sums(batches: Iterable[WeightedShares], basis: FloatArray) -> TensorSums:
    """Sum the contributions of documents in order, in one pass over the batches; ``basis`` is Q, N x m.

    Products have the precision of the shares and the basis, which must have the same type; sums are float64.
    """
    basis = np.ascontiguousarray(basis)
    n_words, width = basis.shape
    cubes = CubeSum(width, basis.dtype)
    triples, pairs, counts = np.zeros((n_words, width)), np.zeros((n_words, width)), np.zeros((n_words, 3))
    n_documents, total_weight = 0, 0.0
    for batch in batches:
        n_documents += int(np.count_nonzero(batch.weights))
        total_weight += float(batch.weights.sum())
        # Shorter documents have weight 0; the maximum only avoids division by 0.
        n = np.maximum(batch.lengths, FEWEST_TOKENS)
        single = batch.weights / (n - 1)
        double = single / (n - 2)
        cube_scales = double * n * n
        product_scales = np.stack([double * n, single * n], axis=1).astype(basis.dtype)
        count_scales = np.stack([double, single, batch.weights], axis=1)
        for rows in _blocks(batch.shares.indptr):
            with span("products"):
                block = _csr_rows(batch.shares, rows)
                projected = np.empty((len(block[0]) - 1, -(-width // COLUMN_STEP) * COLUMN_STEP), basis.dtype)
                multiply_rows(*block, basis, projected)
                # A separate function, so that the sorted nonzeros are freed when it returns.
                _add_word_sums(
                    block, projected, product_scales[rows], count_scales[rows], triples, pairs, counts
                )
            with span("cubes"):
                cubes.add_cubes(projected[:, :width], cube_scales[rows])
    triple_counts, pair_counts, mean = (np.ascontiguousarray(column) for column in counts.T)
    vectors = (triple_counts, pair_counts, mean)
    return TensorSums(cubes.packed(), triples, pairs, *vectors, n_documents, total_weight)


def _csr_rows(shares: csr_array[Any], rows: slice) -> tuple[NDArray[Any], NDArray[Any], FloatArray]:
    """CSR buffers of some rows as views, with ``indptr`` from 0; scipy's slicing would copy them."""
    indptr = shares.indptr[rows.start : rows.stop + 1]
    values = slice(indptr[0], indptr[-1])
    return indptr - indptr[0], shares.indices[values], shares.data[values]


def _add_word_sums(
    block: tuple[NDArray[Any], NDArray[Any], FloatArray],
    projected: FloatArray,
    product_scales: FloatArray,
    count_scales: Floats,
    triples: Floats,
    pairs: Floats,
    counts: Floats,
) -> None:
    """Add the documents of a block, given as CSR buffers, to the sums of their words."""
    _, words, values = block
    by_word = np.empty(len(counts), np.int64), np.empty(words.size, np.int32), np.empty_like(values)
    sort_by_word(*block, *by_word)
    add_products(*by_word, projected, product_scales, triples, pairs)
    add_counts(*by_word, count_scales, counts)


def _blocks(indptr: NDArray[Any]) -> Iterator[slice]:
    start, n_documents = 0, indptr.size - 1
    while start < n_documents:
        # At least one document, however long it is.
        fitting = int(np.searchsorted(indptr, indptr[start] + NONZERO_BLOCK, side="right")) - 1
        stop = min(max(fitting, start + 1), start + DOCUMENT_BLOCK, n_documents)
        yield slice(start, stop)
        start = stop


@dataclass(frozen=True)
class BasisMoments:
    """The first three moments of LDA for STOD: M1 (N,), the mean of c / l; E2 Q, N x m; E3(Q, Q, Q), packed."""

    word_mean: Floats
    pair_projection: Floats
    third: Floats


def basis_moments(sums: TensorSums, basis: Floats, dtype: type[np.floating[Any]]) -> BasisMoments:
    """Divide the sums of all documents by their weight and subtract the contribution of repeated words.

    E3 = [A1 - sym(A2) + 2 A3] / W. In the basis both corrections are sums over words of f (x) q (x) q over its three
    positions, where q is the word's row of Q and f its row of F = G - (2/3) diag(a) Q: A3 is symmetric, so each
    position gets a third of it. ``sums`` must have a positive total weight; its ``pairs`` are overwritten. ``basis`` is
    Q, N x m; ``dtype`` is the precision of the products over words.
    """
    corrections, pairs = CubeSum(basis.shape[1], dtype), sums.pairs
    for rows in panels(basis.shape[0], WORD_BLOCK):
        q = basis[rows]
        f = sums.triples[rows] - (2.0 / 3.0) * sums.triple_counts[rows, None] * q
        corrections.add_mixed(q.astype(dtype), f.astype(dtype))
        pairs[rows] -= sums.pair_counts[rows, None] * q
        pairs[rows] /= sums.total_weight
    third = (sums.third - corrections.packed()) / sums.total_weight
    return BasisMoments(sums.shares / sums.total_weight, pairs, third)


@compiled(nogil=True)
def sort_by_word(
    indptr: NDArray[Any],
    words: NDArray[Any],
    values: FloatArray,
    ends: Integers,
    documents: NDArray[np.int32],
    sorted_values: FloatArray,
) -> None:
    """Sort the nonzeros of a CSR matrix (``indptr`` from 0) by word: word x has ``ends[x - 1]`` (or 0) to ``ends[x]``.

    Fills ``ends`` (words,), ``documents`` (ascending within a word) and ``sorted_values`` (both nonzeros,).
    """
    # ``ends`` first holds the start of each word; every nonzero placed advances it towards the end.
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
    """Add the documents of one word to its two sums (m,); arguments as for ``add_products``."""
    # Four at a time, so that the sums are loaded and stored a quarter as often.
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
def add_products(
    ends: Integers,
    documents: NDArray[np.int32],
    values: FloatArray,
    projected: FloatArray,
    scales: FloatArray,
    triples: Floats,
    pairs: Floats,
) -> None:
    """triples += S' diag(s_0) P and pairs += S' diag(s_1) P, with S in the form of ``sort_by_word``.

    Sums of a word have the precision of ``values`` and are added in float64. P is ``projected`` (documents x m, or more
    columns, which are ignored); s_0 and s_1 are the columns of ``scales`` (documents x 2).
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
    ends: Integers, documents: NDArray[np.int32], values: FloatArray, weights: Floats, counts: Floats
) -> None:
    """counts += S' V in float64, with S in the form of ``sort_by_word`` and V = ``weights`` (documents x 3)."""
    first = 0
    for word in range(ends.size):
        # Local variables, because a sum in memory would wait for the previous store.
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
