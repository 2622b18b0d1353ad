"""The complete co-occurrence matrix, for small vocabularies: sums over documents, and eigenpairs."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.linalg.eigen import DENSE_WORDS, Eigenpairs, with_fixed_signs
from streaming_jsmf.linalg.panels import on_each, panels
from streaming_jsmf.linalg.typing import Floats

if TYPE_CHECKING:
    # Importing it takes a twentieth of the start-up time, and only Lanczos needs it.
    from scipy.sparse.linalg import LinearOperator

#: Pairs of words in the documents of one sparse product: limits its memory and affects the bits.
PAIRS_AT_ONCE = 8_000_000

#: Residual at which Lanczos stops, relative to the eigenvalue.
LANCZOS_TOLERANCE = 1e-10

#: Residual at which block iteration stops, relative to the first eigenvalue, and maximum number of its steps before
#: Lanczos is used instead.
BLOCK_RESIDUAL, BLOCK_STEPS = 1e-9, 12

#: Singular values below this fraction of the largest are noise.
RANK_FLOOR = 1e-7

#: Rows that one thread multiplies at a time.
THREAD_ROWS = 512

#: Seed of the start vector of Lanczos.
START_SEED = 20210701


def gram_rows(block: csr_array[Any], rows: slice) -> Floats:
    """Rows of H'H, (rows, words) dense float64: products in the precision of H, added in float64.

    ``block`` is H, documents x words (CSR); ``rows`` is a slice of words with ``start`` and ``stop``. Entries (i, j)
    and (j, i) are summed in the same order for any ``rows``, so panels together form an exactly symmetric matrix.
    """
    total = np.zeros((rows.stop - rows.start, block.shape[1]))
    for part in _document_chunks(block):
        # A single document may have more pairs than the limit; then process a few rows at a time.
        large = int(np.sum(np.diff(part.indptr).astype(np.int64) ** 2)) > PAIRS_AT_ONCE
        height = max(1, PAIRS_AT_ONCE // block.shape[1]) if large else total.shape[0]
        for panel in panels(total.shape[0], height):
            target = total[panel]
            first = rows.start + panel.start
            product = csr_array(part[:, first : first + len(target)].T @ part)
            # Each entry occurs only once in a product, so indexed addition is safe.
            row_ids = np.repeat(np.arange(len(target)), np.diff(product.indptr))
            target[row_ids, product.indices] += product.data
    return total


def _document_chunks(block: csr_array[Any]) -> Iterator[csr_array[Any]]:
    lengths = np.diff(block.indptr).astype(np.int64)
    chunk = np.cumsum(lengths**2) // PAIRS_AT_ONCE
    starts = np.flatnonzero(np.diff(chunk, prepend=-1)).tolist()
    for start, stop in zip(starts, [*starts[1:], block.shape[0]], strict=True):
        yield block[start:stop]


def symmetric_eigenpairs(matrix: Floats, count: int) -> Eigenpairs:
    """The ``min(count, N)`` largest algebraic eigenpairs of a symmetric matrix, to 1e-10.

    Uses a dense solver if N is small or most pairs are wanted, otherwise Lanczos from a fixed start vector: with one
    BLAS thread the same matrix gives the same bits.
    """
    n = matrix.shape[0]
    if n <= DENSE_WORDS or 2 * count >= n:
        values, vectors = np.linalg.eigh(matrix)
        return with_fixed_signs(values[::-1][:count], vectors[:, ::-1][:, :count])
    return _lanczos(matrix, n, count)


def _lanczos(matrix: Floats | LinearOperator[np.float64], n: int, count: int) -> Eigenpairs:
    from scipy.sparse.linalg import eigsh

    generator = np.random.Generator(np.random.Philox(START_SEED))
    start: Floats = generator.standard_normal((n,))
    # ARPACK draws more vectors if the rank is low; SciPy before 1.17 draws them from its own state.
    seeded: dict[str, Any] = {"rng": generator} if "rng" in signature(eigsh).parameters else {}
    values, vectors = eigsh(matrix, count, which="LA", v0=start, tol=LANCZOS_TOLERANCE, **seeded)
    return with_fixed_signs(values, vectors)


def multiply(matrix: Floats, vectors: Floats) -> Floats:
    """``matrix @ vectors`` in panels of rows, on the threads of ``panels.panel_threads``."""
    product = np.empty((matrix.shape[0], vectors.shape[1]))

    def panel(rows: slice) -> None:
        np.matmul(matrix[rows], vectors, out=product[rows])

    on_each(panel, panels(matrix.shape[0], THREAD_ROWS))
    return product


def leading_pairs(matrix: Floats, block: Floats, count: int) -> Eigenpairs:
    """At least ``count`` of the largest algebraic eigenpairs of a symmetric matrix, from a block of nearby vectors.

    Alternates power and Rayleigh-Ritz steps until the first ``count`` pairs have small residuals. A few steps suffice
    if the matrix is of low rank up to a small remainder, as in alternating projections; otherwise falls back to
    ``symmetric_eigenpairs``.
    """
    product = multiply(matrix, block)
    for _ in range(BLOCK_STEPS):
        basis, _ = np.linalg.qr(product)
        image = multiply(matrix, basis)
        small = basis.T @ image
        values, rotation = np.linalg.eigh((small + small.T) / 2)
        pairs = with_fixed_signs(values, basis @ rotation)
        # The image of the Ritz vectors is also the next power step.
        product = image @ (basis.T @ pairs.vectors)
        residual = product[:, :count] - pairs.vectors[:, :count] * pairs.values[:count]
        if np.sqrt(np.max(np.sum(residual**2, axis=0))) <= BLOCK_RESIDUAL * pairs.values[0]:
            return pairs
    return symmetric_eigenpairs(matrix, block.shape[1])


def leading_left_vectors(matrix: Floats, count: int) -> Floats:
    """Left singular vectors of the ``count`` largest singular values, or fewer if the rank is lower."""
    if min(matrix.shape) <= max(DENSE_WORDS, 2 * count):
        left, values, _ = np.linalg.svd(matrix, full_matrices=False)
        return np.asarray(left[:, :count][:, values[:count] > RANK_FLOOR * values[0]])
    from scipy.sparse.linalg import LinearOperator

    n = matrix.shape[0]
    squared = LinearOperator((n, n), matvec=lambda x: matrix @ (matrix.T @ x), dtype=np.float64)
    pairs = _lanczos(squared, n, count)
    return pairs.vectors[:, pairs.values > RANK_FLOOR**2 * pairs.values[0]]
