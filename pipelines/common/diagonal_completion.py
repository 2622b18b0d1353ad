"""DC: completion of the diagonal of C (Lee, Bindel and Mimno 2015) from its other entries.

Bursty words make C_ii too large; words that never repeat make it zero. If C = Y Y' has rank K, the block C_AB of two
disjoint halves A and B of the words does not contain the diagonal and has the column space of Y_A. With the projection
P onto it, C_AA = P C_AA P, so the diagonal d solves

    d_i - sum_j P_ij^2 d_j = (P C_off P)_ii

where C_off is C_AA without its diagonal. Each word gets the median over random halvings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from streaming_jsmf.linalg.eigen import DENSE_WORDS, lanczos, symmetric_eigenpairs
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.rectification.result import Rectification, positive_half

Floats = NDArray[np.float64]

#: Number of halvings, each with its own permutation.
HALVINGS = 30
#: A word is in the subspace if 1 - P_ii is at most this. Its equation is then 0 = 0, up to rounding.
INSIDE = 1e-10
#: Conjugate gradients stop at this relative residual, or after this many steps.
SOLVER_TOLERANCE, SOLVER_STEPS = 1e-12, 500
#: Singular values below this fraction of the largest are noise.
RANK_FLOOR = 1e-7


def diagonal_completion(
    matrix: Floats,
    n_topics: int,
    *,
    halvings: int = HALVINGS,
    seed: int = 0,
) -> Rectification:
    """C with a completed, non-negative diagonal, scaled to sum 1; O(N^2 K) per halving.

    ``matrix`` is C, N x N, symmetric, and is overwritten; ``seed`` determines the random halvings. Returns
    C* as ``matrix``, the nearest Y Y' as ``rectified``, and the change of the diagonal, relative to ||C||_F. Raises
    ``ValueError`` if there are fewer than 2 K words, or C has no entries outside its diagonal.
    """
    n = matrix.shape[0]
    if n < 2 * n_topics:
        raise ValueError(
            f"diagonal completion halves the words, and {n} words are too few for {n_topics} topics"
        )
    if np.count_nonzero(matrix) == np.count_nonzero(np.diagonal(matrix)):
        raise ValueError("diagonal completion needs pairs of different words, and no document has two")
    old, norm = np.diagonal(matrix).copy(), float(np.linalg.norm(matrix))
    estimates = np.empty((halvings, n))
    for number in range(halvings):
        estimates[number] = _halving_estimate(matrix, old, n_topics, _permutation(n, seed, number))
    completed = np.maximum(np.median(estimates, axis=0), 0.0)
    np.fill_diagonal(matrix, completed)
    matrix /= matrix.sum()
    y = positive_half(symmetric_eigenpairs(matrix, n_topics), n_topics)
    change = float(np.linalg.norm(completed - old)) / norm
    return Rectification(y, halvings, change, True, checked_words=n, matrix=matrix)


def _permutation(n_words: int, seed: int, number: int) -> NDArray[np.int64]:
    return keyed_generator(seed, 0x6469_6167, number).permutation(n_words)


def _halving_estimate(matrix: Floats, old: Floats, n_topics: int, permutation: NDArray[np.int64]) -> Floats:
    """Completed diagonal from one halving, in the order of the words."""
    middle = permutation.size // 2
    halves = permutation[:middle], permutation[middle:]
    block = matrix[np.ix_(*halves)]
    estimate = np.empty(permutation.size)
    for half, other in zip(halves, (block, block.T), strict=True):
        basis = leading_left_vectors(other, n_topics)
        own = matrix[np.ix_(half, half)]
        np.fill_diagonal(own, 0.0)
        # Indexed by word, which undoes the permutation.
        estimate[half] = completed_diagonal(own, basis, old[half])
    return estimate


def completed_diagonal(matrix: Floats, basis: Floats, start: Floats) -> Floats:
    """The d for which M + diag(d) has the same diagonal as its projection by U U' (``basis``, n x r, orthonormal).

    M is n x n, symmetric with a zero diagonal. Words in the subspace (P_ii = 1) keep their values of ``start`` (n,).
    """
    free = 1 - np.einsum("ij,ij->i", basis, basis) > INSIDE
    if not free.all():
        # P_ij = 0 for these words, so the others do not depend on them, and I - P o P of the others is regular.
        completed = start.copy()
        if free.any():
            completed[free] = completed_diagonal(matrix[np.ix_(free, free)], basis[free], start[free])
        return completed
    target = np.einsum("ij,ij->i", basis, basis @ (basis.T @ (matrix @ basis)))

    def apply(d: Floats) -> Floats:
        inner = basis.T @ (d.reshape(-1, 1) * basis)
        return np.asarray(d.ravel() - np.einsum("ij,ij->i", basis @ inner, basis))

    operator = LinearOperator((start.size, start.size), matvec=apply, dtype=np.float64)
    d, _ = cg(operator, target, x0=start, rtol=SOLVER_TOLERANCE, maxiter=SOLVER_STEPS)
    return np.asarray(d)


def leading_left_vectors(matrix: Floats, count: int) -> Floats:
    """Left singular vectors of the ``count`` largest singular values, or fewer if the rank is lower."""
    if min(matrix.shape) <= max(DENSE_WORDS, 2 * count):
        left, values, _ = np.linalg.svd(matrix, full_matrices=False)
        return np.asarray(left[:, :count][:, values[:count] > RANK_FLOOR * values[0]])
    n = matrix.shape[0]
    squared = LinearOperator((n, n), matvec=lambda x: matrix @ (matrix.T @ x), dtype=np.float64)
    pairs = lanczos(squared, n, count)
    return pairs.vectors[:, pairs.values > RANK_FLOOR**2 * pairs.values[0]]
