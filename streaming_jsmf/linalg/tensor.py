"""Contributions of documents to STOD's moments of LDA in a basis, and sums of symmetric third-order tensors.

Notation of Wang, Liu, Song, Han (ECML-PKDD 2014): c counts of a document, l its length. Q is an orthonormal basis (N x
m), p = Q'c, w the weight of the document, h = 1 / (l (l - 1)), rho = h / (l - 2). The corrections of the third moment
for repeated words depend only on sums of c p' and c (Eqs. 8 to 11), so they need no loop over documents.

The packed form of a symmetric m x m x m tensor has its m (m + 1) (m + 2) / 6 entries with i <= j <= k in the order (0,
0, 0), (0, 0, 1), ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import DocumentWeights
from streaming_jsmf.linalg.compiled import compiled
from streaming_jsmf.linalg.csr import document_weights, multiply_rows
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import FloatArray, Floats

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
#: Summands multiplied at a time: enough for BLAS, and few enough that pair products stay in the cache.
ROW_BLOCK = 512
#: Number of values of j in a slab. Larger slabs mean fewer, larger products, but more redundant entries.
SLAB = 8


@dataclass(frozen=True)
class TensorSums:
    """Additive statistics of a set of documents for a given Q, not divided by ``total_weight``, the sum of w.

    ``third`` is the sum of w rho p (x) p (x) p, packed. ``triples`` and ``pairs`` (N, m) are the
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


def tensor_sums(
    batches: Iterable[tuple[csr_array[Any], Floats]], basis: FloatArray, scheme: DocumentWeights
) -> TensorSums:
    """Sum the contributions of documents in order, in one pass over the batches; ``basis`` is Q, N x m.

    A batch has the shares c / l (documents x words, CSR), which stay far from the limits of float32, and the lengths l.
    Products have the precision of the shares and the basis, which must have the same type; sums are float64.
    """
    basis = np.ascontiguousarray(basis)
    n_words, width = basis.shape
    cubes = CubeSum(width, basis.dtype)
    triples, pairs, counts = np.zeros((n_words, width)), np.zeros((n_words, width)), np.zeros((n_words, 3))
    n_documents, total_weight = 0, 0.0
    for shares, lengths in batches:
        weights = tensor_weights(lengths, scheme)
        n_documents += int(np.count_nonzero(weights))
        total_weight += float(weights.sum())
        # Shorter documents have weight 0; the maximum only avoids division by 0.
        n = np.maximum(lengths, FEWEST_TOKENS)
        single = weights / (n - 1)
        double = single / (n - 2)
        cube_scales = double * n * n
        product_scales = np.stack([double * n, single * n], axis=1).astype(basis.dtype)
        count_scales = np.stack([double, single, weights], axis=1)
        for rows in _blocks(shares.indptr):
            block = _rows(shares, rows)
            projected = np.empty((block.shape[0], -(-width // COLUMN_STEP) * COLUMN_STEP), basis.dtype)
            multiply_rows(block.indptr, block.indices, block.data, basis, projected)
            # A separate function, so that the sorted nonzeros are freed when it returns.
            _add_products(block, projected, product_scales[rows], triples, pairs)
            counts += block.T @ count_scales[rows]
            cubes.add_cubes(projected[:, :width], cube_scales[rows])
    triple_counts, pair_counts, mean = (np.ascontiguousarray(column) for column in counts.T)
    vectors = (triple_counts, pair_counts, mean)
    return TensorSums(cubes.packed(), triples, pairs, *vectors, n_documents, total_weight)


def _rows(shares: csr_array[Any], rows: slice) -> csr_array[Any]:
    """Some rows as views; SciPy's slicing would copy them."""
    indptr = shares.indptr[rows.start : rows.stop + 1]
    values = slice(indptr[0], indptr[-1])
    buffers = (shares.data[values], shares.indices[values], indptr - indptr[0])
    return csr_array(buffers, shape=(indptr.size - 1, shares.shape[1]), copy=False)


def _add_products(
    block: csr_array[Any], projected: FloatArray, scales: FloatArray, triples: Floats, pairs: Floats
) -> None:
    """Add the documents of a block to the sums of their words."""
    by_word = block.tocsc()
    add_products(by_word.indptr, by_word.indices, by_word.data, projected, scales, triples, pairs)


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
    """The first three moments of LDA in Q (N x m): M1 (N,), the mean of c / l; E2 Q, N x m; E3(Q, Q, Q), packed."""

    basis: Floats
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
    return BasisMoments(basis, sums.shares / sums.total_weight, pairs, third)


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
    bounds: NDArray[Any],
    documents: NDArray[np.int32],
    values: FloatArray,
    projected: FloatArray,
    scales: FloatArray,
    triples: Floats,
    pairs: Floats,
) -> None:
    """triples += S' diag(s_0) P and pairs += S' diag(s_1) P, with S (documents x words) in CSC form.

    Sums of a word have the precision of ``values`` and are added in float64. P is ``projected`` (documents x m, or more
    columns, which are ignored); s_0 and s_1 are the columns of ``scales`` (documents x 2).
    """
    width = projected.shape[1]
    triple, pair = np.empty(width, projected.dtype), np.empty(width, projected.dtype)
    for word in range(bounds.size - 1):
        first, last = bounds[word], bounds[word + 1]
        if first == last:
            continue
        triple[:] = 0.0
        pair[:] = 0.0
        _add_documents(documents[first:last], values[first:last], projected, scales, triple, pair)
        for i in range(triples.shape[1]):
            triples[word, i] += triple[i]
            pairs[word, i] += pair[i]


@dataclass(frozen=True)
class _Slab:
    """Entries (i, j, k) for start <= i <= j, first <= j < last and k from ``first`` on (then the first half)."""

    start: int
    first: int
    last: int
    total: Floats


class CubeSum:
    """Sum of symmetric tensors of width m, in slabs: each is one matrix product of pairs of columns with columns.

    Two of three indices are in the same half of 0, ..., m - 1, so pairs within the halves suffice: half of all pairs,
    each with twice as many third indices. This matters because forming and packing pairs slows BLAS down. A summand
    needs about m^3 / 6 multiplications. Products have the given precision, sums are float64.
    """

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self.width, self._half = width, (width + 1) // 2
        self._slabs = [*_slabs(0, self._half, width), *_slabs(self._half, width, width + self._half)]
        # Reused, because allocating memory for each product would cost as much as filling it.
        self._pairs = np.empty(ROW_BLOCK * max((len(slab.total) for slab in self._slabs), default=0), dtype)
        self._product = np.empty(max((slab.total.size for slab in self._slabs), default=0), dtype)

    def add_cubes(self, rows: FloatArray, weights: Floats) -> None:
        """Add the sum over rows x of weights_x r_x (x) r_x (x) r_x; ``rows`` is n x m, ``weights`` (n,)."""
        factors = weights.astype(rows.dtype)[:, None]
        for block in panels(rows.shape[0], ROW_BLOCK):
            r = self._extended(rows[block])
            self._add(rows[block] * factors[block], r, r)

    def add_mixed(self, rows: FloatArray, other: FloatArray) -> None:
        """Add the sum, over rows q and f of the two (n x m), of f (x) q (x) q + q (x) f (x) q + q (x) q (x) f."""
        for block in panels(rows.shape[0], ROW_BLOCK):
            q, f = self._extended(rows[block]), self._extended(other[block])
            for three in ((f, q, q), (q, f, q), (q, q, f)):
                self._add(*three)

    def _add(self, left: FloatArray, right: FloatArray, third: FloatArray) -> None:
        """Add the sum over rows of left_j right_i third_k to each slab; arguments are from ``_extended``."""
        n = len(third)
        for slab in self._slabs:
            total = slab.total
            pairs = self._pairs[: n * len(total)].reshape(n, len(total))
            pair_products(left, right, slab.start, slab.first, slab.last, pairs)
            product = self._product[: total.size].reshape(total.shape)
            np.matmul(pairs.T, third[:, slab.first : slab.first + total.shape[1]], out=product)
            np.add(total, product, out=total)

    def _extended(self, rows: FloatArray) -> FloatArray:
        """``rows`` with their first half appended."""
        return np.concatenate([rows, rows[:, : self._half]], axis=1)

    def packed(self) -> Floats:
        """The packed sum, (m (m + 1) (m + 2) / 6,)."""
        m = self.width
        packed = np.empty(packed_size(m))
        for slab in self._slabs:
            row = 0
            for j in range(slab.first, slab.last):
                i = np.arange(slab.start, j + 1)[:, None]
                values = slab.total[row : row + i.size]
                packed[_position(i, j, np.arange(j, m), m)] = values[:, j - slab.first : m - slab.first]
                if slab.start:
                    # The first half has the smaller indices.
                    packed[_position(np.arange(slab.start), i, j, m)] = values[:, m - slab.first :]
                row += i.size
        return packed


def _slabs(start: int, end: int, columns: int) -> list[_Slab]:
    slabs = []
    for first in range(start, end, SLAB):
        last = min(first + SLAB, end)
        pairs = sum(range(first - start + 1, last - start + 1))
        slabs.append(_Slab(start, first, last, np.zeros((pairs, columns - first))))
    return slabs


def _position(i: Any, j: Any, k: Any, width: int) -> Any:
    """Position of the entries (i, j, k), i <= j <= k, in the packed form; arrays are broadcast."""
    # Preceded by all entries of smaller first index, then rows i to j - 1 of a triangle, then part of row j.
    rest = width - i
    triangle = (rest * (rest + 1) - (width - j) * (width - j + 1)) // 2
    return packed_size(width) - rest * (rest + 1) * (rest + 2) // 6 + triangle + k - j


def packed_size(width: int) -> int:
    """Size of the packed form, m (m + 1) (m + 2) / 6."""
    return width * (width + 1) * (width + 2) // 6


@compiled(nogil=True)
def pair_products(
    left: FloatArray, right: FloatArray, start: int, first: int, last: int, out: FloatArray
) -> None:
    """Set ``out`` (rows x pairs) to left_xj right_xi for first <= j < last and start <= i <= j; arrays in C order."""
    for row in range(left.shape[0]):
        place = 0
        for j in range(first, last):
            factor = left[row, j]
            # Slices, because LLVM cannot prove that the index place + i never wraps around.
            others = right[row, start : j + 1]
            products = out[row, place : place + others.size]
            for i in range(others.size):
                products[i] = factor * others[i]
            place += others.size
