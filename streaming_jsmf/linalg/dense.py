"""The whole co-occurrence matrix, for vocabularies that allow it: its sums over documents, and its eigenpairs."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import eigsh

from streaming_jsmf.linalg.eigen import DENSE_WORDS, Eigenpairs, with_fixed_signs

#: Pairs of words in the documents that are multiplied at once: bounds the sparse product, and is part of the bits.
PAIRS_AT_ONCE = 8_000_000

#: Lanczos stops at this residual, relative to the eigenvalue.
LANCZOS_TOLERANCE = 1e-10

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
        product = csr_array(part[:, rows].T @ part)
        # Each entry stands once in a product, so an indexed addition loses none.
        places = np.repeat(np.arange(total.shape[0]), np.diff(product.indptr))
        total[places, product.indices] += product.data
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
    generator = np.random.Generator(np.random.Philox(START_SEED))
    start: NDArray[np.float64] = generator.standard_normal((n,))
    # ARPACK draws further vectors where the rank is low; SciPy before 1.17 does that from a state of its own.
    seeded: dict[str, Any] = {"rng": generator} if "rng" in signature(eigsh).parameters else {}
    values, vectors = eigsh(matrix, count, which="LA", v0=start, tol=LANCZOS_TOLERANCE, **seeded)
    return with_fixed_signs(values, vectors)
