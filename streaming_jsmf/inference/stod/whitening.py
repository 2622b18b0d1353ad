"""Whitening of the second moment M2, and the third moment in its coordinates, for any alpha0 and K. No data.

Wang, Liu, Song, Han (ECML-PKDD 2014), Eqs. 4 to 6 and 16, within the span of the basis Q of the scan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.document_tensor import BasisMoments
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.tensor import cube, in_basis, symmetrised, unpacked, vector_product

#: Eigenvalues of M2 below this share of the largest are noise: whitening would blow them up.
EIGENVALUE_FLOOR = 1e-6


@dataclass(frozen=True)
class CoreMoments:
    """The moments with all words in the basis; free of alpha0 and K.

    Attributes
    ----------
    mean
        Q'M1, (m,).
    pairs
        Q'E2 Q, m x m, symmetric.
    third
        E3(Q, Q, Q), m x m x m, symmetric.
    """

    mean: NDArray[np.float64]
    pairs: NDArray[np.float64]
    third: NDArray[np.float64]


def core_moments(moments: BasisMoments, basis: NDArray[np.float64]) -> CoreMoments:
    """Take the moments into the basis Q (N x m)."""
    pairs = basis.T @ moments.pair_projection
    third = unpacked(moments.third, basis.shape[1])
    return CoreMoments(basis.T @ moments.word_mean, (pairs + pairs.T) / 2, third)


@dataclass(frozen=True)
class Whitening:
    """Leading eigenpairs of M2 in the basis.

    Attributes
    ----------
    values
        (k,) largest algebraic eigenvalues, falling, all above the floor; k may be less than what was asked for.
    vectors
        (m, k) in the basis.
    rest
        The eigenvalues after them, falling.
    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    rest: NDArray[np.float64]

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """W in the basis, m x k: W'M2 W = I."""
        return np.asarray(self.vectors / np.sqrt(self.values))

    @property
    def gaps(self) -> NDArray[np.float64]:
        """(k,) each eigenvalue over the next; infinite where the next is not positive."""
        following = np.concatenate([self.values, self.rest, [0.0]])[1 : self.values.size + 1]
        gaps = np.full(self.values.size, np.inf)
        np.divide(self.values, following, out=gaps, where=following > 0)
        return gaps


def second_moment(core: CoreMoments, alpha0: float) -> NDArray[np.float64]:
    """M2 in the basis (Eq. 4), m x m."""
    return (alpha0 + 1) * core.pairs - alpha0 * np.outer(core.mean, core.mean)


def whiten(core: CoreMoments, alpha0: float, n_topics: int) -> Whitening:
    """The ``n_topics`` largest algebraic eigenpairs of M2, or as many as are above the floor.

    E2 is indefinite, so its eigenvalues of largest magnitude would not do.
    """
    values, vectors = np.linalg.eigh(second_moment(core, alpha0))
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = EIGENVALUE_FLOOR * np.abs(values).max(initial=0.0)
    kept = min(n_topics, int(np.count_nonzero(values > floor)))
    return Whitening(values[:kept], vectors[:, :kept], values[kept:])


def whitened_tensor(core: CoreMoments, whitening: Whitening, alpha0: float) -> NDArray[np.float64]:
    """M3(W, W, W) of Eqs. 6 and 16, k x k x k, symmetric."""
    w = whitening.matrix
    mean, pairs = w.T @ core.mean, w.T @ core.pairs @ w
    tensor = (alpha0 + 1) * (alpha0 + 2) / 2 * in_basis(core.third, w)
    tensor -= alpha0 * (alpha0 + 1) / 2 * vector_product(pairs, mean)
    tensor += alpha0**2 * cube(mean)
    return symmetrised(tensor)


def whitened_product(
    moments: BasisMoments, core: CoreMoments, whitening: Whitening, alpha0: float
) -> NDArray[np.float64]:
    """M2 W, N x k: with one multiplication by E2 more than Q W."""
    w = whitening.matrix
    product: NDArray[np.float64] = (alpha0 + 1) * (moments.pair_projection @ w)
    product -= alpha0 * np.outer(moments.word_mean, core.mean @ w)
    return product


def ritz_residuals(
    product: NDArray[np.float64], basis: NDArray[np.float64], whitening: Whitening
) -> NDArray[np.float64]:
    """||M2 v - sigma v|| / sigma for each eigenpair, (k,), from M2 W: how far the basis is from holding them."""
    roots = np.sqrt(whitening.values)
    squares = np.zeros(roots.size)
    for rows in panels(basis.shape[0]):
        # M2 v = sqrt(sigma) M2 W, and v = Q u: both over sigma.
        residual = product[rows] / roots - basis[rows] @ whitening.vectors
        squares += np.einsum("ij,ij->j", residual, residual)
    return np.asarray(np.sqrt(squares))
