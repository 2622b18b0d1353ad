"""Eigenpairs of C from a sample of the documents and C Q over all of them, and how far they are off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.linalg.eigen import (
    DENSE_WORDS,
    GUARD_VECTORS,
    SMALLEST_SHIFT,
    Eigenpairs,
    RitzBlock,
    subtract_diagonal,
    with_fixed_signs,
)
from streaming_jsmf.linalg.factor import apply_gram
from streaming_jsmf.linalg.gram import gram, single_gram
from streaming_jsmf.linalg.panels import panels

#: One document of the sample in so many is kept out of the matrix, to check its eigenpairs with.
CHECKED_EACH = 8

#: What the residual of eigenvectors becomes in the vectors where eigenvalues are as near to each other as those of
#: text: 1.7 to 1.9 where it was measured.
GAPS = 2.0

#: Davidson steps; what is left to gain by more is a quarter of what the sample's noise leaves open.
CORRECTION_STEPS = 2


@dataclass(frozen=True)
class SampleParts:
    """The documents of a sample by their use, each part scaled to stand for all documents: X'X ~ C + diag(D).

    Attributes
    ----------
    fitted
        Seven of eight: what the matrix is made of.
    checks
        Two halves of the others.
    """

    fitted: csr_array[Any]
    checks: tuple[csr_array[Any], csr_array[Any]]

    @classmethod
    def of(cls, sample: csr_array[Any]) -> SampleParts:
        """Parts of H_s by the places of the documents, which are there in random order as far as one can tell."""
        place = np.arange(sample.shape[0]) % (2 * CHECKED_EACH)
        ends = (CHECKED_EACH - 1, 2 * CHECKED_EACH - 1)
        return cls(
            _part(sample, ~np.isin(place, ends)),
            (_part(sample, place == ends[0]), _part(sample, place == ends[1])),
        )


def _part(sample: csr_array[Any], chosen: NDArray[np.bool_]) -> csr_array[Any]:
    part = csr_array(sample[np.flatnonzero(chosen)])
    part.data *= np.float32(np.sqrt(sample.shape[0] / max(part.shape[0], 1)))
    return part


class CorrectedMatrix:
    """C as a sample of the documents tells it, corrected to what all documents tell of C Q.

    C_s = H_s'H_s - diag(D) is C but for the noise of the sample, and of C Q nothing is left to be guessed. So

        C^ = C_s + (C - C_s) P + P (C - C_s) - P (C - C_s) P = C_s + U Q' + Q U',   P = Q Q',

    with U = E - Q (Q'E) / 2 and E = C Q - C_s Q. It agrees with C on the span of Q, and with C_s between vectors that
    are orthogonal to it.

    Parameters
    ----------
    sample
        H_s, documents x words (CSR, float32), scaled so that H_s'H_s ~ C + diag(D).
    diagonal
        D of Eq. 1, (N,), exact.
    basis, product
        Q, orthonormal, and C Q, exact, N x m.
    """

    def __init__(
        self,
        sample: csr_array[Any],
        diagonal: NDArray[np.float64],
        basis: NDArray[np.float64],
        product: NDArray[np.float64],
    ) -> None:
        self._sample, self._diagonal, self._basis = sample, diagonal, basis.astype(np.float32)
        # What is subtracted from what is like it is float64; the rest is small beside C Q.
        error = (product - apply_gram(sample, self._basis)).astype(np.float32)
        subtract_diagonal(-diagonal, self._basis, error)
        inside = (single_gram(self._basis, error) / 2).astype(np.float32)
        for rows in panels(len(error)):
            error[rows] -= self._basis[rows] @ inside
        self._correction = error

    def times(self, vectors: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        """``out`` becomes C^ times the vectors, both N x k, float32."""
        inside, across = (
            single_gram(thin, vectors).astype(np.float32) for thin in (self._basis, self._correction)
        )
        out[:] = apply_gram(self._sample, vectors)
        subtract_diagonal(self._diagonal, vectors, out)
        for rows in panels(len(out)):
            out[rows] += self._correction[rows] @ inside
            out[rows] += self._basis[rows] @ across


def corrected_eigenpairs(
    sample: csr_array[Any],
    diagonal: NDArray[np.float64],
    basis: NDArray[np.float64],
    product: NDArray[np.float64],
    count: int,
) -> Eigenpairs:
    """Largest algebraic eigenpairs of ``CorrectedMatrix``, ``min(count, m)`` of them. No pass over the data.

    ``eigen.nystrom_eigenpairs`` takes what C does outside of the span of Q from C Q alone, and is wrong by about as
    much as C has there. A sample is wrong by its noise only. Block Davidson as in ``eigen.factor_eigenpairs``, from
    (theta_j + D)^-1 (C + D) q_j of the Ritz pairs in the span of Q on.
    """
    n = len(basis)
    matrix = CorrectedMatrix(sample, diagonal, basis, product)
    if n <= DENSE_WORDS:
        dense = np.empty((n, n), np.float32)
        matrix.times(np.eye(n, dtype=np.float32), dense)
        values, vectors = np.linalg.eigh((dense.astype(np.float64) + dense.T) / 2)
        found = min(count, basis.shape[1])
        return with_fixed_signs(values[::-1][:found], vectors[:, ::-1][:, :found])
    start = _stepped(basis, product, diagonal)
    block = RitzBlock(matrix.times, diagonal, start, min(count + GUARD_VECTORS, start.shape[1]))
    return block.leading(count, CORRECTION_STEPS)


def _stepped(
    basis: NDArray[np.float64], product: NDArray[np.float64], diagonal: NDArray[np.float64]
) -> NDArray[np.float32]:
    """(theta_j + D)^-1 (C + D) q_j of the Ritz pairs of C in the span of Q, columns of unit length.

    An eigenvector satisfies v = (lambda + D)^-1 (C + D) v. A power step C Q instead also brings in what C has of large
    negative eigenvalues, and documents of a few words make many.
    """
    core = gram(basis, product)
    values, rotation = np.linalg.eigh((core + core.T) / 2)
    shifts = np.maximum(values, SMALLEST_SHIFT * values[-1])
    step = np.empty(basis.shape, dtype=np.float32)
    for rows in panels(len(step)):
        own = diagonal[rows, None]
        step[rows] = ((product[rows] + own * basis[rows]) @ rotation) / (own + shifts)
    step /= np.maximum(np.linalg.norm(step, axis=0), np.finfo(np.float32).tiny)
    return step


@dataclass(frozen=True)
class SampleCertificate:
    """How far eigenpairs from a sample can be trusted.

    Attributes
    ----------
    estimated_error
        Of ||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F for the pairs asked about, Y* those of C. 0 where the noise of the check
        is larger than what it finds.
    outside_basis
        Share of C's energy in these pairs, ||Y Y'||_F^2, that lies outside of the span of Q.
    """

    estimated_error: float
    outside_basis: float


def certify(parts: SampleParts, basis: NDArray[np.float64], pairs: Eigenpairs) -> SampleCertificate:
    """Compare eigenpairs of ``CorrectedMatrix`` with documents that it was not made of. No pass over the data.

    For an eigenvector v of C^ the residual C v - lambda v is (I - P)(C - C_s) w, with w = (I - P) v: C and C^ differ
    nowhere else. Documents kept out tell C w up to their noise, and the noise of two halves of them is independent, so
    that the scalar product of both residuals estimates the square of that of C without bias. If the eigenvalues wanted
    were far from all others, the error of Y Y' would be that residual, on both sides. They are not: see ``GAPS``.

    Parameters
    ----------
    parts
        Of the sample; C^ was made of ``fitted``.
    basis
        Q, N x m, orthonormal.
    pairs
        Of C^, those that are asked about.
    """
    vectors, thin = pairs.vectors.astype(np.float32), basis.astype(np.float32)
    outside = _outside(thin, vectors.copy())
    own = apply_gram(parts.fitted, outside)
    residuals = [_outside(thin, apply_gram(check, outside) - own) for check in parts.checks]
    inside = [single_gram(vectors, residual) for residual in residuals]
    squared = max(2 * float(np.trace(single_gram(*residuals))) - float(np.vdot(*inside)), 0.0)
    size, share = np.linalg.norm(pairs.values), np.linalg.norm(outside * pairs.values)
    return SampleCertificate(GAPS * float(np.sqrt(squared) / size), float(share / size) ** 2)


def _outside(basis: NDArray[np.float32], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(I - Q Q') X, in the place of X."""
    inside = single_gram(basis, vectors).astype(np.float32)
    for rows in panels(len(vectors)):
        vectors[rows] -= basis[rows] @ inside
    return vectors
