"""Diagonal completion (Lee, Bindel and Mimno 2015): only the diagonal of C is doubted, and made anew from the rest.

Bursty words make C_ii too large, words that never repeat make it zero. If C = Y Y' has rank K, any block C_AB of
disjoint halves A and B of the words is free of the diagonal and has the column space of Y_A; so with the projection P
onto it, C_AA = P C_AA P. The diagonal d that keeps this where it must, on the diagonal itself, solves

    d_i - sum_j P_ij^2 d_j = (P C_off P)_ii

with C_off the half without its diagonal. Both halves are completed so; each word gets the median over random halvings.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, cg

from streaming_jsmf.linalg.dense import leading_left_vectors, symmetric_eigenpairs
from streaming_jsmf.rectification.result import OnIteration, Rectification, positive_half

#: Halvings, each with a permutation of its own.
HALVINGS = 30

#: Conjugate gradients stop at this relative residual, or after so many steps.
SOLVER_TOLERANCE, SOLVER_STEPS = 1e-12, 500


def diagonal_completion(
    matrix: NDArray[np.float64],
    n_topics: int,
    *,
    halvings: int = HALVINGS,
    seed: int = 0,
    overwrite: bool = False,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """C with a completed diagonal that is not negative, scaled to sum 1; O(N^2 K) for each halving.

    Parameters
    ----------
    matrix
        C, N x N, symmetric, N >= 2 K.
    n_topics
        K.
    halvings, seed
        Random halvings of the words, from a counter-based generator.
    overwrite
        Work in the memory of ``matrix``.
    on_iteration
        Told the number of each halving, and how far it would move the diagonal, relative to ||C||_F.

    Returns
    -------
    Rectification
        ``matrix`` is C*; ``rectified`` the nearest Y Y'; ``change`` what the completion moved, relative to ||C||_F.

    Raises
    ------
    ValueError
        If there are fewer than 2 K words.
    """
    n = matrix.shape[0]
    if n < 2 * n_topics:
        raise ValueError(f"{n} words cannot be halved for {n_topics} topics")
    old, norm = np.diagonal(matrix).copy(), float(np.linalg.norm(matrix))
    estimates = np.empty((halvings, n))
    for number in range(halvings):
        estimates[number] = _one_halving(matrix, old, n_topics, _permutation(n, seed, number))
        if on_iteration is not None:
            on_iteration(number + 1, float(np.linalg.norm(estimates[number] - old)) / norm)
    completed = np.maximum(np.median(estimates, axis=0), 0.0)
    c = matrix if overwrite else matrix.copy()
    np.fill_diagonal(c, completed)
    c /= c.sum()
    y = positive_half(symmetric_eigenpairs(c, n_topics), n_topics)
    change = float(np.linalg.norm(completed - old)) / norm
    return Rectification(y, halvings, change, True, checked_words=n, matrix=c)


def _permutation(n_words: int, seed: int, number: int) -> NDArray[np.int64]:
    """A permutation for each halving; another number gives an independent one."""
    bits = np.random.Philox(key=np.array([seed, 0x6469_6167], np.uint64), counter=[0, 0, number, 0])
    return np.random.Generator(bits).permutation(n_words)


def _one_halving(
    matrix: NDArray[np.float64], old: NDArray[np.float64], n_topics: int, permutation: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The completed diagonal, in the order of the words."""
    middle = permutation.size // 2
    halves = permutation[:middle], permutation[middle:]
    block = matrix[np.ix_(*halves)]
    estimate = np.empty(permutation.size)
    for half, towards in zip(halves, (block, block.T), strict=True):
        basis = leading_left_vectors(towards, n_topics)
        own = matrix[np.ix_(half, half)]
        np.fill_diagonal(own, 0.0)
        # Written back by word, so the permutation is undone here and nowhere else.
        estimate[half] = completed_diagonal(own, basis, old[half])
    return estimate


def completed_diagonal(
    matrix: NDArray[np.float64], basis: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The d for which M + diag(d) has the diagonal of its projection onto a subspace.

    Parameters
    ----------
    matrix
        M, n x n, symmetric, with a diagonal of zeros.
    basis
        U, n x r, orthonormal: the projection is P = U U'.
    start
        (n,): d of words that the subspace holds wholly (P_ii = 1), about which nothing can be said.
    """
    target = np.einsum("ij,ij->i", basis, basis @ (basis.T @ (matrix @ basis)))

    def apply(d: NDArray[np.float64]) -> NDArray[np.float64]:
        inner = basis.T @ (d.reshape(-1, 1) * basis)
        return np.asarray(d.ravel() - np.einsum("ij,ij->i", basis @ inner, basis))

    operator = LinearOperator((start.size, start.size), matvec=apply, dtype=np.float64)
    d, _ = cg(operator, target, x0=start, rtol=SOLVER_TOLERANCE, maxiter=SOLVER_STEPS)
    return np.asarray(d)
