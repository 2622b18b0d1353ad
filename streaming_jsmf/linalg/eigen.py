"""Largest algebraic eigenpairs of the co-occurrence matrix from the results of the scans.

C is indefinite for K above 20 to 50: its eigenvalues of largest magnitude then include negative ones, which no
factorisation Y Y' can represent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from streaming_jsmf.linalg.gram import (
    GRAM_FLOOR,
    gram,
    inverse_square_root,
    multiply_into,
    single_gram,
)
from streaming_jsmf.linalg.panels import on_each, panels
from streaming_jsmf.linalg.typing import FloatArray, Floats, Single

#: Vocabularies up to this size use a dense eigensolver.
DENSE_WORDS = 400

#: Block Davidson: additional vectors iterated, and smallest shift.
GUARD_VECTORS, SMALLEST_SHIFT = 10, 1e-4

#: Block widths are a multiple of this, because compiled products process remaining columns one by one.
BLOCK_COLUMNS = 32

#: Residual at which to stop, relative to the first eigenvalue. With float32 products, residuals below the second number
#: may stop decreasing, so there another step follows only if the last one halved them.
RESIDUAL_TOLERANCE, RESIDUAL_NOISE = 5e-6, 1e-4

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
    """Sort by descending eigenvalue; the first entry of largest magnitude of each vector becomes positive."""
    order = np.argsort(-values, kind="stable")
    if not np.array_equal(order, np.arange(values.size)):
        vectors = vectors[:, order]
    largest = np.zeros(vectors.shape[1])
    for rows in panels(len(vectors)):
        panel = vectors[rows]
        found = panel[np.abs(panel).argmax(axis=0), np.arange(panel.shape[1])]
        largest = np.where(np.abs(found) > np.abs(largest), found, largest)
    return Eigenpairs(values[order], vectors * np.where(largest < 0, -1.0, 1.0))


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
        self.vectors, self.product = (np.empty(shape, dtype=np.float32) for _ in range(2))
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
        refined = np.asarray(vectors.astype(np.float64) @ np.linalg.inv(lower).T)
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

        def divide(rows: slice) -> None:
            corrections[rows] /= self.diagonal[rows] + shifts

        on_each(divide, panels(len(self.vectors)))
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

    def subtract(rows: slice) -> None:
        out[rows] -= own[rows] * vectors[rows]

    on_each(subtract, panels(len(out)))


def subtract_product(out: Single, tall: Single, small: Single) -> Single:
    """Subtract a tall matrix times a small one from ``out``, and return ``out``."""

    def subtract(rows: slice) -> None:
        out[rows] -= tall[rows] @ small

    on_each(subtract, panels(len(out)))
    return out


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

    def assemble(rows: slice) -> None:
        factor[rows] = product[rows] @ whiten

    on_each(assemble, panels(len(product)))
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
