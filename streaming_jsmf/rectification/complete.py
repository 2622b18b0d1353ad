"""Rectifications of the complete C: alternating projections (LR-JSMF, Algorithm 2), Dykstra's, diagonal completion.

Alternating projections project onto: positive semidefinite of rank K, sum 1, non-negative. Each iteration recomputes C
from Y in place, panel by panel, so only one N x N matrix is in memory (two for Dykstra's variant).

Diagonal completion (Lee, Bindel and Mimno 2015) replaces only the diagonal of C, from the other entries. Bursty words
make C_ii too large; words that never repeat make it zero. If C = Y Y' has rank K, the block C_AB of two disjoint halves
A and B of the words does not contain the diagonal and has the column space of Y_A. With the projection P onto it, C_AA
= P C_AA P, so the diagonal d solves

    d_i - sum_j P_ij^2 d_j = (P C_off P)_ii

where C_off is C_AA without its diagonal. Each word gets the median over random halvings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streaming_jsmf.linalg.eigen import Eigenpairs, leading_left_vectors, leading_pairs, symmetric_eigenpairs
from streaming_jsmf.linalg.panels import each, panels
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.rectification.result import OnIteration, Rectification, iterated, positive_half

#: Rows of C recomputed at a time. Affects the bits, because the norm of the step is summed over panels.
PANEL_ROWS = 512
#: Number of halvings, each with its own permutation.
HALVINGS = 30
#: A word is in the subspace if 1 - P_ii is at most this. Its equation is then 0 = 0, up to rounding.
INSIDE = 1e-10
#: Conjugate gradients stop at this relative residual, or after this many steps.
SOLVER_TOLERANCE, SOLVER_STEPS = 1e-12, 500


def alternating_projection(
    matrix: Floats,
    pairs: Eigenpairs,
    n_topics: int,
    *,
    dykstra: bool = False,
    **stopping: Any,
) -> Rectification:
    """AP on the complete C, O(N^2 K) per iteration, warm-started from the eigenvectors of the previous one.

    ``matrix`` is C, N x N, symmetric, and is overwritten; ``pairs`` are its leading algebraic eigenpairs, at least K
    (more speed up the iteration). ``stopping`` are keyword arguments of ``iterated``; the change is that of C_t,
    ||C_t+1 - C_t||_F / ||C_t||_F. Returns C*, non-negative, as ``matrix`` and its nearest Y Y' as ``rectified``.

    With ``dykstra`` each projection first restores what it last removed. For convex sets this finds the nearest common
    point instead of any one. Matrices of rank K are not convex, so nothing is guaranteed. Iterations are slower,
    because the restored spectrum has no gap, and two N x N matrices are in memory.
    """
    # For Dykstra, the positive part is C_t, the negative part is what the non-negative projection removed.
    c = matrix
    # C_t plus what the rank-K projection removed.
    restored = c.copy() if dykstra else None
    n, shift = c.shape[0], 0.0

    def step(_: int) -> float:
        nonlocal pairs, shift
        y = positive_half(pairs, n_topics)
        # The constant that makes the sum of Y Y' 1, which gives the nearest such matrix.
        shift = (1.0 - float(np.sum(y.sum(axis=0) ** 2))) / len(y) ** 2
        if restored is None:
            change = _replace(c, y, shift)
            pairs = leading_pairs(c, pairs.vectors, n_topics)
        else:
            change = _replace_both(c, restored, y, shift)
            pairs = symmetric_eigenpairs(restored, n_topics)
        return change

    ended = iterated(step, **stopping)
    if dykstra:
        np.maximum(c, 0.0, out=c)
        pairs = symmetric_eigenpairs(c, n_topics)
    y = positive_half(pairs, n_topics)
    return Rectification(y, **ended, uniform_mass=shift * n**2, checked_words=n, matrix=c)


def _replace(c: Floats, y: Floats, shift: float) -> float:
    """Set C to max(Y Y' + shift, 0); return the relative change."""

    def panel(rows: slice) -> tuple[float, float]:
        new = y[rows] @ y.T
        new += shift
        np.maximum(new, 0.0, out=new)
        old = c[rows]
        lengths = float(np.sum((new - old) ** 2)), float(np.sum(old**2))
        c[rows] = new
        return lengths

    return _relative_change(panel, c.shape[0])


def _replace_both(signed: Floats, restored: Floats, y: Floats, shift: float) -> float:
    def panel(rows: slice) -> tuple[float, float]:
        low_rank = y[rows] @ y.T
        old = np.maximum(signed[rows], 0.0)
        new = np.minimum(signed[rows], 0.0)
        new += low_rank
        new += shift
        signed[rows] = new
        np.maximum(new, 0.0, out=new)
        lengths = float(np.sum((new - old) ** 2)), float(np.sum(old**2))
        restored[rows] -= low_rank
        restored[rows] += new
        return lengths

    return _relative_change(panel, signed.shape[0])


def _relative_change(panel: Callable[[slice], tuple[float, float]], n: int) -> float:
    """Relative change of a matrix; ``panel`` replaces rows and returns squared norms of the change and the old rows."""
    moved = norm = 0.0
    for part, old in each(panel, panels(n, PANEL_ROWS)):
        moved += part
        norm += old
    return float(np.sqrt(moved / norm)) if norm > 0 else 0.0


def diagonal_completion(
    matrix: Floats,
    n_topics: int,
    *,
    halvings: int = HALVINGS,
    seed: int = 0,
    on_iteration: OnIteration | None = None,
) -> Rectification:
    """C with a completed, non-negative diagonal, scaled to sum 1; O(N^2 K) per halving.

    ``matrix`` is C, N x N, symmetric, and is overwritten; ``seed`` determines the random halvings. ``on_iteration``
    receives the number of each halving and the change of its diagonal, relative to ||C||_F. Returns C* as ``matrix``,
    the nearest Y Y' as ``rectified``, and the final relative change of the diagonal. There are at least 2 K words.
    """
    n = matrix.shape[0]
    old, norm = np.diagonal(matrix).copy(), float(np.linalg.norm(matrix))
    estimates = np.empty((halvings, n))
    for number in range(halvings):
        estimates[number] = _halving_estimate(matrix, old, n_topics, _permutation(n, seed, number))
        if on_iteration is not None:
            on_iteration(number + 1, float(np.linalg.norm(estimates[number] - old)) / norm)
    completed = np.maximum(np.median(estimates, axis=0), 0.0)
    np.fill_diagonal(matrix, completed)
    matrix /= matrix.sum()
    y = positive_half(symmetric_eigenpairs(matrix, n_topics), n_topics)
    change = float(np.linalg.norm(completed - old)) / norm
    return Rectification(y, halvings, change, True, checked_words=n, matrix=matrix)


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
