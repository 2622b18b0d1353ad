"""Largest algebraic eigenpairs of the co-occurrence matrix from the results of the scans, and of counted matrices.

C is indefinite for K above 20 to 50: its eigenvalues of largest magnitude then include negative ones, which no
factorisation Y Y' can represent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from streaming_jsmf.linalg.panels import (
    GRAM_FLOOR,
    InSingle,
    gram,
    inverse_square_root,
    multiply_into,
    on_each,
    panels,
    single_gram,
)
from streaming_jsmf.linalg.typing import FloatArray, Floats, Single
from streaming_jsmf.storage.large_arrays import large_copy, large_empty

if TYPE_CHECKING:
    # Importing it takes a twentieth of the start-up time, and only Lanczos needs it.
    from scipy.sparse.linalg import LinearOperator

#: Vocabularies up to this size use a dense eigensolver.
DENSE_WORDS = 400
#: Block Davidson: additional vectors iterated, and smallest shift.
GUARD_VECTORS, SMALLEST_SHIFT = 10, 1e-4
#: Block widths are a multiple of this, because compiled products process remaining columns one by one.
BLOCK_COLUMNS = 32
#: Residual at which to stop, relative to the first eigenvalue. With float32 products, residuals below the second number
#: may stop decreasing, so there another step follows only if the last one halved them.
RESIDUAL_TOLERANCE, RESIDUAL_NOISE = 5e-6, 1e-4
#: Residual at which Lanczos stops, relative to the eigenvalue.
LANCZOS_TOLERANCE = 1e-10
#: Residual at which block iteration stops, relative to the first eigenvalue, and maximum number of its steps before
#: Lanczos is used instead.
BLOCK_RESIDUAL, BLOCK_STEPS = 1e-9, 12
#: Rows that one thread multiplies at a time.
THREAD_ROWS = 512
#: Seed of the start vector of Lanczos.
START_SEED = 20210701
#: Writes the product of a symmetric matrix and its first argument (N x k, float32) to its second argument.
Times: TypeAlias = Callable[[Single, Single], None]


@dataclass(frozen=True)
class Eigenpairs:
    """Truncated eigenpairs: ``values`` (k,) in descending order, ``vectors`` (N, k) orthonormal, float64."""

    values: Floats
    vectors: Floats

    def leading(self, count: int) -> Eigenpairs:
        """The first ``count`` pairs, or all if there are fewer."""
        return Eigenpairs(self.values[:count], self.vectors[:, :count])

    @property
    def positive(self) -> int:
        """Number of positive eigenvalues."""
        return int(np.count_nonzero(self.values > 0))


def block_width(count: int) -> int:
    """Number of vectors to iterate for at least ``count`` pairs."""
    return -(-count // BLOCK_COLUMNS) * BLOCK_COLUMNS


def with_fixed_signs(values: Floats, vectors: Floats) -> Eigenpairs:
    """Sort by descending eigenvalue; the first entry of largest magnitude of each vector becomes positive.

    The ``vectors`` may be overwritten.
    """
    order = np.argsort(-values, kind="stable")
    largest = np.zeros(vectors.shape[1])
    for rows in panels(len(vectors)):
        panel = vectors[rows]
        found = panel[np.abs(panel).argmax(axis=0), np.arange(panel.shape[1])]
        largest = np.where(np.abs(found) > np.abs(largest), found, largest)
    signs = np.where(largest < 0, -1.0, 1.0)[order]
    if np.array_equal(order, np.arange(values.size)):
        ordered = vectors if vectors.flags.c_contiguous else np.empty_like(vectors)
    else:
        # In the memory order of columns, on which the bits of later products depend.
        ordered = large_empty(vectors.shape[::-1]).T
    for rows in panels(len(vectors)):
        ordered[rows] = vectors[rows][:, order] * signs
    return Eigenpairs(values[order], ordered)


class RitzBlock:
    """Block Davidson: the ``count`` largest Ritz pairs of the symmetric matrix ``times``.

    The first space is spanned by ``start`` (N x p, float32). ``diagonal`` is the D whose subtraction makes the matrix
    indefinite. The first ``count`` columns of ``vectors`` and ``product`` hold the Ritz vectors X and C X, the others
    the extension; both arrays are reused, because allocating memory costs as much as the arithmetic.
    """

    def __init__(self, times: Times, diagonal: Floats, start: Single, count: int) -> None:
        self.diagonal, self.count = diagonal[:, None].astype(np.float32), count
        self._times = times
        whiten = inverse_square_root(gram(start), GRAM_FLOOR)
        shape = (start.shape[0], max(whiten.shape[1], 2 * count))
        self.vectors, self.product = (large_empty(shape, np.float32) for _ in range(2))
        span = self.vectors[:, : whiten.shape[1]]
        multiply_into(start, whiten, span)
        self._times(span, self.product[:, : whiten.shape[1]])
        self.values, self.residual = np.zeros(0), np.inf
        self.values = self._ritz(whiten.shape[1])

    def leading(self, count: int, steps: int) -> Eigenpairs:
        """Iterate ``steps`` times at most, then return the ``count`` largest pairs, or as many as are iterated."""
        for _ in range(steps):
            if not self.correct(count):
                break
        found = min(count, self.values.size)
        vectors = self.vectors[:, :found]
        # The Cholesky factor of the Gram matrix turns float32 orthonormality into float64.
        lower = np.linalg.cholesky(gram(vectors))
        refined = large_empty(vectors.shape)
        np.matmul(large_copy(vectors, np.float64), np.linalg.inv(lower).T, out=refined)
        return with_fixed_signs(self.values[:found], refined)

    def residuals(self) -> Single:
        """C x - lambda x of the Ritz pairs, N x k, in columns that the next correction overwrites."""
        k = self.values.size
        columns = self.vectors[:, k : 2 * k]
        np.multiply(self.vectors[:, :k], -self.values.astype(np.float32), out=columns)
        columns += self.product[:, :k]
        return columns

    def correct(self, count: int) -> bool:
        """Extend the space by unit columns (lambda_j + D)^-1 r_j of the residuals r_j, and recompute the Ritz pairs.

        Returns False, without a step, if the residuals of the first ``count`` pairs are small or have stopped
        decreasing.
        """
        k, corrections = self.values.size, self.residuals()
        worst = float(column_lengths(corrections)[:count].max(initial=0.0))
        if (
            worst < RESIDUAL_TOLERANCE * self.values[0]
            or self.residual / 2 < worst < RESIDUAL_NOISE * self.values[0]
        ):
            return False
        self.residual = worst
        # A positive shift keeps the denominators positive if a wanted eigenvalue is not.
        shifts = np.maximum(self.values, SMALLEST_SHIFT * self.values[0]).astype(np.float32)
        divide_by_shifted(corrections, self.diagonal, shifts)
        # Without scaling, short columns would be treated as noise.
        corrections /= np.maximum(column_lengths(corrections), np.finfo(np.float32).tiny)
        self._times(corrections, self.product[:, k : 2 * k])
        self.values = self._ritz(2 * k)
        return True

    def _ritz(self, width: int) -> Floats:
        """Rotate the Ritz vectors of the first ``width`` columns to the front; return their values, descending."""
        vectors, product = self.vectors[:, :width], self.product[:, :width]
        k = self.values.size
        new, new_product = vectors[:, k:], product[:, k:]
        # The previous Ritz vectors X are orthonormal and X'C X is diagonal, so multiply only the new columns.
        overlap = _bordered(np.ones(k), gram(vectors[:, :k], new), gram(new))
        small = _bordered(
            self.values, single_gram(vectors[:, :k], new_product), single_gram(new, new_product)
        )
        whiten = inverse_square_root(overlap, GRAM_FLOOR)
        small = whiten.T @ small @ whiten
        values, rotation = np.linalg.eigh((small + small.T) / 2)
        keep = np.arange(values.size)[::-1][: self.count]
        mix = whiten @ rotation[:, keep]
        for columns in (vectors, product):
            multiply_into(columns, mix, columns[:, : keep.size])
        return np.asarray(values[keep])


def subtract_diagonal(diagonal: Floats, vectors: Single, out: Single) -> None:
    """Subtract diag(D) X from ``out``."""
    own = diagonal[:, None].astype(np.float32)
    on_each(lambda rows: np.subtract(out[rows], own[rows] * vectors[rows], out=out[rows]), panels(len(out)))


def subtract_product(out: Single, tall: Single | InSingle, small: Single) -> None:
    """Subtract a tall matrix times a small one from ``out``."""
    on_each(lambda rows: np.subtract(out[rows], tall[rows] @ small, out=out[rows]), panels(len(out)))


def subtract_scaled(out: Single, columns: Single, scales: Single) -> None:
    """Subtract columns times their scales from ``out``."""
    on_each(lambda rows: np.subtract(out[rows], columns[rows] * scales, out=out[rows]), panels(len(out)))


def divide_by_shifted(columns: Single, own: Single, shifts: Single) -> None:
    """Divide by D + theta_j, in place."""
    on_each(
        lambda rows: np.divide(columns[rows], own[rows] + shifts, out=columns[rows]), panels(len(columns))
    )


def _bordered(diagonal: Floats, border: Floats, corner: Floats) -> Floats:
    """[[diag, border], [border', corner]]."""
    return np.block([[np.diag(diagonal), border], [border.T, corner]])


def column_lengths(columns: Single) -> Single:
    """Euclidean norms of the columns."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", columns, columns)))


def nystrom_factor(basis: FloatArray, product: FloatArray) -> Single:
    """F (N x r, float32, r <= m) with F F' the Nystrom form of A from Q and A Q: F = (A Q) (Q'A Q)^(-1/2).

    Q (N x m) is orthonormal and A positive semidefinite, such as C + diag(D). F F'Q = A Q, and A - F F' is positive
    semidefinite. Directions below 1e-7 of the strongest are dropped.
    """
    whiten = inverse_square_root(gram(basis, product))
    factor: Single = np.empty((len(product), whiten.shape[1]), dtype=np.float32)
    multiply_into(product, whiten, factor)
    return factor


def single_view_eigenpairs(sketch: FloatArray, probes: FloatArray, rank: int) -> Eigenpairs:
    """The one-pass eigendecomposition cited by LR-JSMF (Halko et al. 2011, sec. 5.5), with a truncated range.

    ``sketch`` is Y = C Omega, ``probes`` is Omega, both N x L. Q holds the ``rank`` leading left singular vectors of Y,
    and B solves B (Q'Omega) = Q'Y. Without truncation the system is nearly singular, and more probes make it worse.
    """
    y, omega = sketch.astype(np.float64), probes.astype(np.float64)
    left, _, _ = np.linalg.svd(y, full_matrices=False)
    q = left[:, :rank]
    solution, *_ = np.linalg.lstsq((q.T @ omega).T, (q.T @ y).T, rcond=None)
    values, rotation = np.linalg.eigh((solution + solution.T) / 2)
    return with_fixed_signs(values, q @ rotation)


def dense_eigenpairs(matrix: Floats, count: int) -> Eigenpairs:
    """The ``min(count, N)`` largest algebraic eigenpairs of a symmetric matrix, by LAPACK."""
    values, vectors = np.linalg.eigh(matrix)
    return with_fixed_signs(values[::-1][:count], vectors[:, ::-1][:, :count])


def symmetric_eigenpairs(matrix: Floats, count: int) -> Eigenpairs:
    """The ``min(count, N)`` largest algebraic eigenpairs of a symmetric matrix, to 1e-10.

    Uses a dense solver if N is small or most pairs are wanted, otherwise Lanczos from a fixed start vector: with one
    BLAS thread the same matrix gives the same bits.
    """
    n = matrix.shape[0]
    if n <= DENSE_WORDS or 2 * count >= n:
        return dense_eigenpairs(matrix, count)
    return lanczos(matrix, n, count)


def lanczos(matrix: Floats | LinearOperator[np.float64], n: int, count: int) -> Eigenpairs:
    """The ``count`` largest algebraic eigenpairs of a symmetric n x n operator, as in ``symmetric_eigenpairs``."""
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
    on_each(
        lambda rows: np.matmul(matrix[rows], vectors, out=product[rows]), panels(matrix.shape[0], THREAD_ROWS)
    )
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
