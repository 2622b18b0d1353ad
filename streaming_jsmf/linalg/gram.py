"""Gram matrices and changes of basis of tall matrices, panel by panel.

Tall matrices are float32 (a scan is bound by memory traffic); everything that is squared is
accumulated in float64, which is what keeps eigenvalues below 1e-7 of the largest meaningful. Where the
columns are orthogonal or nearly so, squares do not cancel, and panels may be multiplied in float32.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.panels import each, on_each, panels
from streaming_jsmf.linalg.typing import FloatArray

#: A matrix whose own memory and type a result takes.
Tall = TypeVar("Tall", NDArray[np.float32], NDArray[np.float64])

#: Rows of a panel that is multiplied in float32: short, so that its rounding stays that of its entries.
SINGLE_ROWS = 1024

#: Eigenvalues of X'AX below this share of the first are noise of float32 products.
CORE_FLOOR = 1e-7

#: The same for a Gram matrix, whose eigenvalues are squares: columns down to 1e-6 of the strongest are kept.
GRAM_FLOOR = 1e-12


def gram(left: FloatArray, right: FloatArray | None = None) -> NDArray[np.float64]:
    """Return left' right (left' left if ``right`` is None) in float64; ``left`` is N x p, ``right`` N x q."""
    other = left if right is None else right
    total = np.zeros((left.shape[1], other.shape[1]))

    def product(rows: slice) -> NDArray[np.float64]:
        panel = left[rows].astype(np.float64, copy=False)
        # The same object on both sides lets BLAS use the symmetric product: half the work.
        other_panel = panel if right is None else right[rows].astype(np.float64, copy=False)
        return np.asarray(panel.T @ other_panel)

    for part in each(product, panels(left.shape[0])):
        total += part
    return total


def single_gram(left: FloatArray, right: FloatArray | None = None) -> NDArray[np.float64]:
    """As ``gram``, with panels multiplied in their own type (float32) and added in float64: a quarter of the time.

    Each entry is off by about 1e-7 of the lengths of its two columns. That is harmless where weak directions have
    short columns of their own, as in a factor, and ruinous where they hide in long ones, as after a power step.
    """
    other = left if right is None else right
    total = np.zeros((left.shape[1], other.shape[1]))

    def product(rows: slice) -> FloatArray:
        panel = left[rows]
        return np.asarray(panel.T @ (panel if right is None else right[rows]))

    for part in each(product, panels(left.shape[0], SINGLE_ROWS)):
        total += part
    return total


def triangle(*parts: FloatArray) -> NDArray[np.float64]:
    """R of the QR decomposition of ``parts`` (each N x p_i) side by side, min(N, p) x p with p the sum of p_i.

    Q is not made. R'R is the Gram matrix, but small differences of long columns are in R to rounding, and in the Gram
    matrix only to its square root.
    """
    upper = np.empty((0, sum(part.shape[1] for part in parts)))
    for rows in panels(parts[0].shape[0]):
        panel = np.hstack([part[rows] for part in parts])
        # asarray: numpy's type hints know nothing of a mode without Q.
        upper = np.asarray(np.linalg.qr(np.vstack([upper, panel]), mode="r"))
    return upper


def inverse_square_root(core: FloatArray, floor: float = CORE_FLOOR) -> NDArray[np.float64]:
    """Return R (n x r) with R' core R = I over the directions of ``core`` stronger than ``floor`` x the first.

    ``core`` is n x n, symmetric up to rounding; r <= n counts the directions kept, strongest first.
    r is 0 for a zero matrix.
    """
    values, vectors = np.linalg.eigh((core + core.T) / 2)
    order = np.arange(values.size)[::-1]
    keep = order[values[order] > max(floor * values[-1], 0.0)] if values.size else order
    return np.asarray(vectors[:, keep] / np.sqrt(values[keep]))


def multiply_into(matrix: FloatArray, small: FloatArray, out: FloatArray) -> None:
    """``out`` (N x r) becomes ``matrix @ small`` (N x p, p x r) in the type of ``matrix``; it may be a part of that."""
    small = small.astype(matrix.dtype, copy=False)

    def product(rows: slice) -> None:
        out[rows] = matrix[rows] @ small

    on_each(product, panels(matrix.shape[0]))


def rotate(matrix: Tall, basis: FloatArray) -> Tall:
    """``matrix @ basis`` in the memory and type of ``matrix`` (N x p, overwritten); ``basis`` is p x r, r <= p.

    A matrix of another size would be fresh memory, which costs as much as the product.
    """
    width = basis.shape[1]
    multiply_into(matrix, basis, matrix[:, :width])
    return matrix if width == matrix.shape[1] else np.ascontiguousarray(matrix[:, :width])


def orthonormalise(matrix: NDArray[np.float32], floor: float = GRAM_FLOOR) -> NDArray[np.float32]:
    """Return an orthonormal basis (N x r, float32) of the columns of ``matrix`` (N x p, overwritten), r <= p.

    By one Gram matrix, not by QR: three times the speed, and a rank-deficient matrix loses columns
    instead of gaining arbitrary ones. Orthonormal to about 1e-4 when the condition number is 1e3,
    which is all that a power step asks for.
    """
    return rotate(matrix, inverse_square_root(gram(matrix), floor))
