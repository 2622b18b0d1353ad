"""Eigenpairs of the co-occurrence matrix from what the scans leave. Always the largest algebraic ones.

C is indefinite from K = 20-50 on: its eigenvalues of largest magnitude include negative ones, which no
factorisation Y Y' can hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from streaming_jsmf.linalg.gram import inverse_square_root
from streaming_jsmf.linalg.typing import FloatArray

#: Relative accuracy of Lanczos. The operator is a float32 factor: more digits would be digits of its rounding.
LANCZOS_TOLERANCE = 1e-6

#: Core eigenvalues below this share of the first are noise of the basis (NUMERICS of the second scan).
NYSTROM_FLOOR = 1e-3


@dataclass(frozen=True)
class Eigenpairs:
    """Truncated eigenpairs: ``values`` (k,) falling, ``vectors`` (N, k) orthonormal, float64."""

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]

    def leading(self, count: int) -> Eigenpairs:
        """The first ``count`` of them, or all where there are fewer."""
        return Eigenpairs(self.values[:count], self.vectors[:, :count])

    @property
    def positive(self) -> int:
        """How many eigenvalues are above zero."""
        return int(np.count_nonzero(self.values > 0))


def with_fixed_signs(values: NDArray[np.float64], vectors: NDArray[np.float64]) -> Eigenpairs:
    """Sort by falling eigenvalue; the entry of largest magnitude of each vector becomes positive."""
    order = np.argsort(-values, kind="stable")
    vectors = vectors[:, order]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)
    return Eigenpairs(values[order], vectors * signs)


def factor_eigenpairs(
    factor: FloatArray, diagonal: NDArray[np.float64], count: int, start: NDArray[np.float64]
) -> Eigenpairs:
    """Largest algebraic eigenpairs of C ~ F F' - diag(D), by Lanczos. No pass over the data.

    Parameters
    ----------
    factor
        F, N x L.
    diagonal
        D of Eq. 1, (N,), exact.
    count
        Eigenpairs wanted; at most N.
    start
        First vector, (N,): the row sums are nearly the first eigenvector. Nothing here is random.
    """
    n = factor.shape[0]
    f = factor if factor.dtype == np.float32 else factor.astype(np.float64)

    def multiply(x: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = np.asarray(x, dtype=np.float64).ravel()
        product: NDArray[np.float64] = (f @ (f.T @ flat.astype(f.dtype))).astype(np.float64)
        return product - diagonal * flat

    if count >= n - 1:
        dense = f.astype(np.float64) @ f.T.astype(np.float64) - np.diag(diagonal)
        values, vectors = np.linalg.eigh(dense)
        return with_fixed_signs(values[::-1][:count], vectors[:, ::-1][:, :count])
    operator = LinearOperator((n, n), matvec=multiply, dtype=np.float64)
    space = min(n, max(2 * count + 1, count + 40))
    try:
        values, vectors = eigsh(operator, k=count, which="LA", v0=start, ncv=space, tol=LANCZOS_TOLERANCE)
    except ArpackNoConvergence as error:
        # The pairs that did converge are the leading ones; the caller sees how many there are.
        values, vectors = error.eigenvalues, error.eigenvectors
    return with_fixed_signs(np.real(values), np.real(vectors))


def nystrom_eigenpairs(basis: FloatArray, product: FloatArray) -> Eigenpairs:
    """Positive eigenpairs of C from C Q: G = (C Q)(Q'C Q)^(-1/2), eigenpairs from G'G.

    Half the error of Rayleigh-Ritz on the same data, because C Q holds one more multiplication by C than Q.

    Parameters
    ----------
    basis
        Q, N x m, orthonormal.
    product
        C Q, N x m.

    Returns
    -------
    Eigenpairs
        At most m: core eigenvalues below 1e-3 of the first are dropped, and so are the negative ones.
    """
    q, cq = basis.astype(np.float64), product.astype(np.float64)
    nystrom = cq @ inverse_square_root(q.T @ cq, NYSTROM_FLOOR)
    values, rotation = np.linalg.eigh(nystrom.T @ nystrom)
    keep = values > 0
    vectors = nystrom @ (rotation[:, keep] / np.sqrt(values[keep]))
    return with_fixed_signs(values[keep], vectors)


def single_view_eigenpairs(sketch: FloatArray, probes: FloatArray, rank: int) -> Eigenpairs:
    """The one-pass eigendecomposition that LR-JSMF names (Halko et al. 2011, sec. 5.5), range truncated.

    Q holds the ``rank`` leading left singular vectors of Y = C Omega, and B solves B (Q'Omega) = Q'Y. Without
    the truncation the solve is nearly singular, and more probes make the answer worse.

    Parameters
    ----------
    sketch
        Y = C Omega, N x L.
    probes
        Omega, N x L.
    rank
        Columns of Q, at most L.
    """
    y, omega = sketch.astype(np.float64), probes.astype(np.float64)
    left, _, _ = np.linalg.svd(y, full_matrices=False)
    q = left[:, :rank]
    solution, *_ = np.linalg.lstsq((q.T @ omega).T, (q.T @ y).T, rcond=None)
    values, rotation = np.linalg.eigh((solution + solution.T) / 2)
    return with_fixed_signs(values, q @ rotation)
