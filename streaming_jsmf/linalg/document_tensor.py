"""What documents add to the moments of LDA in a basis: the sums behind STOD's second and third moment.

Letters of Wang, Liu, Song, Han (ECML-PKDD 2014): c counts of a document, l its length. Q is an orthonormal basis
(N x m), p = Q'c, w the weight of the document, h = 1 / (l (l - 1)), rho = h / (l - 2). The corrections of the third
moment for repeated words leave the loop over documents: they hang on c p' and c alone (Eqs. 8 to 11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import DocumentWeights
from streaming_jsmf.linalg.document_kernel import add_back, add_counts, sort_by_word
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.products import multiply_rows
from streaming_jsmf.linalg.tensor import CubeSum
from streaming_jsmf.linalg.typing import FloatArray
from streaming_jsmf.linalg.weights import document_weights
from streaming_jsmf.timing import span

#: A document of fewer tokens has no triple of words. It counts in none of the three moments, so that summing one
#: gives the next.
SHORTEST_DOCUMENT = 3

#: Documents whose products are held at once: within a cache near the core at the usual widths, and few enough that
#: the sums of float32 stay short.
DOCUMENT_BLOCK = 4096

#: Nonzeros of these documents, at most: they are sorted by word, which takes 8 bytes for each.
NONZERO_BLOCK = 2**20

#: Columns of documents in the basis are filled up with zeros to a multiple of this: the compiler's loops take the last
#: few one by one.
COLUMN_STEP = 8

#: Words corrected at once.
WORD_BLOCK = 1024


@dataclass(frozen=True)
class TensorSums:
    """Additive statistics of a set of documents, given Q; none is divided by ``total_weight``.

    Attributes
    ----------
    third
        (m (m + 1) (m + 2) / 6,) sum of w rho p (x) p (x) p, packed (``linalg.tensor``).
    triples, pairs
        (N, m) sums of w rho c p' and of w h c p'.
    triple_counts, pair_counts, shares
        (N,) sums of w rho c, of w h c and of w c / l.
    n_documents, total_weight
        Documents of three tokens or more, and the sum of w.
    """

    third: NDArray[np.float64]
    triples: NDArray[np.float64]
    pairs: NDArray[np.float64]
    triple_counts: NDArray[np.float64]
    pair_counts: NDArray[np.float64]
    shares: NDArray[np.float64]
    n_documents: int
    total_weight: float


def tensor_weights(lengths: NDArray[np.float64], scheme: DocumentWeights) -> NDArray[np.float64]:
    """Weights of documents of these lengths (tokens) in STOD's moments: 0 below three tokens."""
    return np.where(lengths < SHORTEST_DOCUMENT, 0.0, document_weights(lengths, scheme))


@dataclass(frozen=True)
class Documents:
    """Some documents as the tensor sums take them.

    Attributes
    ----------
    shares
        c / l, documents x words (CSR). Shares instead of counts keep float32 far from its limits, whatever the length
        of a document.
    lengths, weights
        Of the documents; see ``tensor_weights``.
    """

    shares: csr_array[Any]
    lengths: NDArray[np.float64]
    weights: NDArray[np.float64]


def tensor_sums(batches: Iterable[Documents], basis: FloatArray) -> TensorSums:
    """Add up what documents contribute. One pass over the batches, of which one at a time is looked at.

    Products have the precision of the shares and of ``basis``, which have one type; sums are float64.

    Parameters
    ----------
    batches
        Documents, in the order in which they are added.
    basis
        Q, N x m.
    """
    basis = np.ascontiguousarray(basis)
    width = basis.shape[1]
    cubes, words = CubeSum(width, basis.dtype), _WordSums(*basis.shape)
    n_documents, total_weight = 0, 0.0
    for batch in batches:
        factors = _factors(batch.lengths, batch.weights)
        n_documents += int(np.count_nonzero(batch.weights))
        total_weight += float(batch.weights.sum())
        for rows in _blocks(batch.shares.indptr):
            block = _rows(batch.shares, rows)
            with span("products"):
                padded = np.empty(
                    (block.indptr.size - 1, -(-width // COLUMN_STEP) * COLUMN_STEP), basis.dtype
                )
                multiply_rows(block.indptr, block.words, block.values, basis, padded)
                words.add(block, padded, factors.products[rows], factors.counts[rows])
            with span("cubes"):
                cubes.add_cubes(padded[:, :width], factors.cubes[rows])
    triple_counts, pair_counts, mean = (np.ascontiguousarray(column) for column in words.counts.T)
    vectors = (triple_counts, pair_counts, mean)
    return TensorSums(cubes.packed(), words.triples, words.pairs, *vectors, n_documents, total_weight)


@dataclass(frozen=True)
class _Block:
    """Some documents as CSR buffers, ``indptr`` from 0."""

    indptr: NDArray[Any]
    words: NDArray[Any]
    values: FloatArray


class _WordSums:
    """Sums of the words over documents: ``triples`` and ``pairs`` N x m, ``counts`` N x 3, as in ``TensorSums``."""

    def __init__(self, n_words: int, width: int) -> None:
        self.triples, self.pairs = np.zeros((n_words, width)), np.zeros((n_words, width))
        self.counts = np.zeros((n_words, 3))

    def add(
        self,
        block: _Block,
        projected: FloatArray,
        products: NDArray[np.float64],
        counts: NDArray[np.float64],
    ) -> None:
        """Add the documents of a block, which are ``projected`` in the basis; the rest as in ``_Factors``."""
        ends = np.empty(self.counts.shape[0], np.int64)
        documents, values = np.empty(block.words.size, np.int32), np.empty_like(block.values)
        sort_by_word(block.indptr, block.words, block.values, ends, documents, values)
        by_word = (ends, documents, values)
        add_back(*by_word, projected, products.astype(values.dtype), self.triples, self.pairs)
        add_counts(*by_word, counts, self.counts)


@dataclass(frozen=True)
class _Factors:
    """What each document's products of shares are multiplied by.

    ``cubes`` (documents,), ``products`` (documents, 2) for triples and pairs, ``counts`` (documents, 3).
    """

    cubes: NDArray[np.float64]
    products: NDArray[np.float64]
    counts: NDArray[np.float64]


def _factors(lengths: NDArray[np.float64], weights: NDArray[np.float64]) -> _Factors:
    # Shorter documents have weight 0; the maximum only spares them a division by 0.
    n = np.maximum(lengths, SHORTEST_DOCUMENT)
    single = weights / (n - 1)
    double = single / (n - 2)
    return _Factors(
        double * n * n,
        np.stack([double * n, single * n], axis=1),
        np.stack([double, single, weights], axis=1),
    )


def _blocks(indptr: NDArray[Any]) -> Iterator[slice]:
    start, n_documents = 0, indptr.size - 1
    while start < n_documents:
        # One document at least, however long it is.
        fitting = int(np.searchsorted(indptr, indptr[start] + NONZERO_BLOCK, side="right")) - 1
        stop = min(max(fitting, start + 1), start + DOCUMENT_BLOCK, n_documents)
        yield slice(start, stop)
        start = stop


def _rows(shares: csr_array[Any], rows: slice) -> _Block:
    """Some rows as views; scipy's own slicing copies them."""
    indptr = shares.indptr[rows.start : rows.stop + 1]
    values = slice(indptr[0], indptr[-1])
    return _Block(indptr - indptr[0], shares.indices[values], shares.data[values])


@dataclass(frozen=True)
class BasisMoments:
    """The first three moments of LDA as STOD needs them: exact in words where they are vectors, else in the basis.

    Attributes
    ----------
    word_mean
        M1, (N,): mean of c / l.
    pair_projection
        E2 Q, N x m.
    third
        E3(Q, Q, Q), packed.
    """

    word_mean: NDArray[np.float64]
    pair_projection: NDArray[np.float64]
    third: NDArray[np.float64]


def basis_moments(
    sums: TensorSums, basis: NDArray[np.float64], dtype: type[np.floating[Any]]
) -> BasisMoments:
    """Divide the sums of all documents by their weight, and take off what repeated words add.

    E3 = [A1 - sym(A2) + 2 A3] / W. In the basis both corrections are sums over words of f (x) q (x) q over its three
    places, with q the word's row of Q and f that of F = G - (2/3) diag(a) Q: A3 is symmetric, so a third of it goes
    to each place.

    Parameters
    ----------
    sums
        Of documents with a total weight above 0. The second moment takes the place of ``pairs``: both are as large as
        the basis.
    basis
        Q, N x m.
    dtype
        Precision of the products over words.
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
