"""Diagonal completion (Lee, Bindel and Mimno 2015): replace only the diagonal of C, from the other entries.

Bursty words make C_ii too large; words that never repeat make it zero. If C = Y Y' has rank K, the block C_AB of two
disjoint halves A and B of the words does not contain the diagonal and has the column space of Y_A. With the projection
P onto it, C_AA = P C_AA P, so the diagonal d solves

    d_i - sum_j P_ij^2 d_j = (P C_off P)_ii

where C_off is C_AA without its diagonal. Each word gets the median over random halvings.
"""

from __future__ import annotations

import numpy as np

from streaming_jsmf.linalg.dense import leading_left_vectors, symmetric_eigenpairs
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.rectification.result import OnIteration, Rectification, positive_half

#: Number of halvings, each with its own permutation.
HALVINGS = 30

#: A word is in the subspace if 1 - P_ii is at most this. Its equation is then 0 = 0, up to rounding.
INSIDE = 1e-10

#: Conjugate gradients stop at this relative residual, or after this many steps.
SOLVER_TOLERANCE, SOLVER_STEPS = 1e-12, 500


def diagonal_completion(
    matrix: Floats,
    n_topics: int,
    *,
    halvings: int = HALVINGS,
    seed: int = 0,
    overwrite: bool = False,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """C with a completed, non-negative diagonal, scaled to sum 1; O(N^2 K) per halving.

    ``matrix`` is C, N x N, symmetric, and is overwritten if ``overwrite``; ``seed`` determines the random halvings.
    ``on_iteration`` receives the number of each halving and the change of its diagonal, relative to ||C||_F. Returns C*
    as ``matrix``, the nearest Y Y' as ``rectified``, and the final relative change of the diagonal. Raises
    ``ValueError`` if there are fewer than 2 K words.
    """
    n = matrix.shape[0]
    if n < 2 * n_topics:
        raise ValueError(f"{n} words cannot be halved for {n_topics} topics")
    old, norm = np.diagonal(matrix).copy(), float(np.linalg.norm(matrix))
    estimates = np.empty((halvings, n))
    for number in range(halvings):
        estimates[number] = _halving_estimate(matrix, old, n_topics, _permutation(n, seed, number))
        if on_iteration is not None:
            on_iteration(number + 1, float(np.linalg.norm(estimates[number] - old)) / norm)
    completed = np.maximum(np.median(estimates, axis=0), 0.0)
    c = matrix if overwrite else matrix.copy()
    np.fill_diagonal(c, completed)
    c /= c.sum()
    y = positive_half(symmetric_eigenpairs(c, n_topics), n_topics)
    change = float(np.linalg.norm(completed - old)) / norm
    return Rectification(y, halvings, change, True, checked_words=n, matrix=c)


def _permutation(n_words: int, seed: int, number: int) -> Integers:
    return keyed_generator(seed, 0x6469_6167, number).permutation(n_words)


def _halving_estimate(matrix: Floats, old: Floats, n_topics: int, permutation: Integers) -> Floats:
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
    # Importing it takes a twentieth of the start-up time.
    from scipy.sparse.linalg import LinearOperator, cg

    target = np.einsum("ij,ij->i", basis, basis @ (basis.T @ (matrix @ basis)))

    def apply(d: Floats) -> Floats:
        inner = basis.T @ (d.reshape(-1, 1) * basis)
        return np.asarray(d.ravel() - np.einsum("ij,ij->i", basis @ inner, basis))

    operator = LinearOperator((start.size, start.size), matvec=apply, dtype=np.float64)
    d, _ = cg(operator, target, x0=start, rtol=SOLVER_TOLERANCE, maxiter=SOLVER_STEPS)
    return np.asarray(d)
