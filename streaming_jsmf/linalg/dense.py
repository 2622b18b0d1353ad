"""The whole co-occurrence matrix, for vocabularies that allow it: its sums over documents, and its eigenpairs."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import LinearOperator, eigsh

from streaming_jsmf.linalg.eigen import DENSE_WORDS, Eigenpairs, with_fixed_signs
from streaming_jsmf.linalg.panels import panels

#: Pairs of words in the documents that are multiplied at once: bounds the sparse product, and is part of the bits.
PAIRS_AT_ONCE = 8_000_000

#: Lanczos stops at this residual, relative to the eigenvalue.
LANCZOS_TOLERANCE = 1e-10

#: A block of vectors is good enough at this residual of the wanted pairs, relative to the first eigenvalue; if it is
#: not after so many steps, Lanczos takes over.
BLOCK_RESIDUAL, BLOCK_STEPS = 1e-9, 12

#: Singular values below this share of the first are noise.
RANK_FLOOR = 1e-7

#: Rows multiplied by one thread at a time.
THREAD_ROWS = 512

#: Seed of the vector that Lanczos starts from.
START_SEED = 20210701


def gram_rows(block: csr_array[Any], rows: slice) -> NDArray[np.float64]:
    """Rows of H'H, dense: products in the precision of H, added in float64.

    Entry (i, j) is added up in the same order as (j, i) whatever rows are asked for, so that panels put together
    are symmetric to the bit.

    Parameters
    ----------
    block
        H, documents x words (CSR).
    rows
        Words whose rows are wanted, ``start`` and ``stop`` given.

    Returns
    -------
    (rows, words) float64.
    """
    total = np.zeros((rows.stop - rows.start, block.shape[1]))
    for part in _document_chunks(block):
        # A single document may have more pairs than that; its rows are then taken a few at a time.
        many = int(np.sum(np.diff(part.indptr).astype(np.int64) ** 2)) > PAIRS_AT_ONCE
        height = max(1, PAIRS_AT_ONCE // block.shape[1]) if many else total.shape[0]
        for panel in panels(total.shape[0], height):
            some = total[panel]
            first = rows.start + panel.start
            product = csr_array(part[:, first : first + len(some)].T @ part)
            # Each entry stands once in a product, so an indexed addition loses none.
            places = np.repeat(np.arange(len(some)), np.diff(product.indptr))
            some[places, product.indices] += product.data
    return total


def _document_chunks(block: csr_array[Any]) -> Iterator[csr_array[Any]]:
    lengths = np.diff(block.indptr).astype(np.int64)
    chunk = np.cumsum(lengths**2) // PAIRS_AT_ONCE
    starts = np.flatnonzero(np.diff(chunk, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], block.shape[0]], strict=True):
        yield block[start:stop]


def symmetric_eigenpairs(matrix: NDArray[np.float64], count: int) -> Eigenpairs:
    """Largest algebraic eigenpairs of a symmetric matrix: ``min(count, N)`` of them, to 1e-10.

    Lanczos from a fixed start vector, so the same matrix gives the same bits with one BLAS thread; dense where N is
    small or most pairs are wanted.
    """
    n = matrix.shape[0]
    if n <= DENSE_WORDS or 2 * count >= n:
        values, vectors = np.linalg.eigh(matrix)
        return with_fixed_signs(values[::-1][:count], vectors[:, ::-1][:, :count])
    return _lanczos(matrix, n, count)


def _lanczos(matrix: NDArray[np.float64] | LinearOperator[np.float64], n: int, count: int) -> Eigenpairs:
    generator = np.random.Generator(np.random.Philox(START_SEED))
    start: NDArray[np.float64] = generator.standard_normal((n,))
    # ARPACK draws further vectors where the rank is low; SciPy before 1.17 does that from a state of its own.
    seeded: dict[str, Any] = {"rng": generator} if "rng" in signature(eigsh).parameters else {}
    values, vectors = eigsh(matrix, count, which="LA", v0=start, tol=LANCZOS_TOLERANCE, **seeded)
    return with_fixed_signs(values, vectors)


def multiply(
    matrix: NDArray[np.float64], vectors: NDArray[np.float64], pool: ThreadPoolExecutor
) -> NDArray[np.float64]:
    """``matrix @ vectors`` in panels of rows, which the threads of a pool share."""
    product = np.empty((matrix.shape[0], vectors.shape[1]))

    def panel(start: int) -> None:
        rows = slice(start, start + THREAD_ROWS)
        np.matmul(matrix[rows], vectors, out=product[rows])

    for _ in pool.map(panel, range(0, matrix.shape[0], THREAD_ROWS)):
        pass
    return product


def leading_pairs(
    matrix: NDArray[np.float64], block: NDArray[np.float64], count: int, pool: ThreadPoolExecutor
) -> Eigenpairs:
    """Largest algebraic eigenpairs of a symmetric matrix, ``count`` of them or more, from vectors that are near them.

    Power steps with a Rayleigh-Ritz step each, until the first ``count`` pairs have small residuals. Where the matrix
    is of low rank but for a small rest, as in alternating projections, a few multiplications are enough; Lanczos takes
    over where they are not.
    """
    product = multiply(matrix, block, pool)
    for _ in range(BLOCK_STEPS):
        basis, _ = np.linalg.qr(product)
        image = multiply(matrix, basis, pool)
        small = basis.T @ image
        values, rotation = np.linalg.eigh((small + small.T) / 2)
        pairs = with_fixed_signs(values, basis @ rotation)
        # The image of the Ritz vectors is the next power step too.
        product = image @ (basis.T @ pairs.vectors)
        residual = product[:, :count] - pairs.vectors[:, :count] * pairs.values[:count]
        if np.sqrt(np.max(np.sum(residual**2, axis=0))) <= BLOCK_RESIDUAL * pairs.values[0]:
            return pairs
    return symmetric_eigenpairs(matrix, block.shape[1])


def leading_left_vectors(matrix: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Left singular vectors of the ``count`` largest singular values, or of fewer where the rank is lower."""
    if min(matrix.shape) <= max(DENSE_WORDS, 2 * count):
        left, values, _ = np.linalg.svd(matrix, full_matrices=False)
        return np.asarray(left[:, :count][:, values[:count] > RANK_FLOOR * values[0]])
    n = matrix.shape[0]
    squared = LinearOperator((n, n), matvec=lambda x: matrix @ (matrix.T @ x), dtype=np.float64)
    pairs = _lanczos(squared, n, count)
    return pairs.vectors[:, pairs.values > RANK_FLOOR**2 * pairs.values[0]]
