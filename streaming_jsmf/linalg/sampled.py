"""Eigenpairs of C from a sample of the documents and C Q over all of them, with an error estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.linalg.eigen import (
    DENSE_WORDS,
    SMALLEST_SHIFT,
    Eigenpairs,
    RitzBlock,
    Times,
    block_width,
    subtract_diagonal,
    subtract_product,
    with_fixed_signs,
)
from streaming_jsmf.linalg.factor import apply_gram
from streaming_jsmf.linalg.gram import GRAM_FLOOR, gram, inverse_square_root, rotate, single_gram
from streaming_jsmf.linalg.panels import each, on_each, panels
from streaming_jsmf.linalg.typing import Floats, Integers, Single

#: One in this many documents of the sample is held out, to estimate the error of the eigenpairs.
HELD_OUT = 8

#: Most documents of a sample that determine the matrix, or one for every two words if that is more. They limit the cost
#: of products with the sample; three passes with these are more accurate than two with twice as many.
FITTED_DOCUMENTS = 40_000

#: Parts of a sample that may be multiplied in parallel. Products are added in order; the number affects the bits.
ROW_PARTS = 2

#: Ratio of the bound to the first-order estimate of the error, chosen so that the bound holds in nine of ten cases of
#: ``benchmarks.sample_error``. Corpora whose authors have their own topics need it most. The second number applies to a
#: basis with other than leading eigenvectors: what it leaves is small, so nearly tied eigenvalues dominate the error.
MARGIN, REFINED_MARGIN = 2.5, 4.0

#: Davidson steps; more would reduce the error by only a tenth of that due to the noise of the sample.
CORRECTION_STEPS = 1


@dataclass(frozen=True)
class SampleParts:
    """The documents of a sample by use, each part scaled to represent all documents: X'X ~ C + diag(D).

    ``fitted``, at most seven of eight documents, determine the matrix; ``held_out`` is one of eight. ``drawn`` is the
    fraction of the sample that is fitted.
    """

    fitted: csr_array[Any]
    held_out: csr_array[Any]
    drawn: float

    @classmethod
    def of(cls, sample: csr_array[Any]) -> SampleParts:
        """Split H_s: every eighth document, in the order of the corpus, is held out; the fitted ones spread evenly."""
        held_out = np.arange(sample.shape[0]) % HELD_OUT == HELD_OUT - 1
        others = np.flatnonzero(~held_out)
        count = min(others.size, max(FITTED_DOCUMENTS, sample.shape[1] // 2))
        fitted = others[np.arange(count) * others.size // max(count, 1)]
        drawn = count / max(sample.shape[0], 1)
        return cls(_part(sample, fitted), _part(sample, np.flatnonzero(held_out)), drawn)


def _part(sample: csr_array[Any], chosen: Integers) -> csr_array[Any]:
    part = csr_array(sample[chosen])
    part.data *= np.float32(np.sqrt(sample.shape[0] / max(part.shape[0], 1)))
    return part


def apply_sample(sample: csr_array[Any], vectors: Single) -> Single:
    """H_s'(H_s X), words x columns, like ``factor.apply_gram``, in ``ROW_PARTS`` parts."""
    height = -(-sample.shape[0] // ROW_PARTS)
    products = each(
        lambda rows: apply_gram(_rows(sample, rows), vectors), panels(sample.shape[0], max(height, 1))
    )
    total = next(products, None)
    if total is None:
        return np.zeros_like(vectors)
    for product in products:
        total += product
    return total


def _rows(sample: csr_array[Any], rows: slice) -> csr_array[Any]:
    """Consecutive documents, without a copy."""
    indptr = sample.indptr[rows.start : rows.stop + 1]
    held = slice(indptr[0], indptr[-1])
    parts = (sample.data[held], sample.indices[held], indptr - indptr[0])
    return csr_array(parts, shape=(indptr.size - 1, sample.shape[1]), copy=False)


def sample_eigenpairs(
    sample: csr_array[Any], diagonal: Floats, probes: Single, count: int, steps: int
) -> Eigenpairs:
    """The ``min(count, N, rank of H_s)`` largest algebraic eigenpairs of H_s'H_s - diag(D). No pass over the data.

    Block Davidson as in ``eigen.factor_eigenpairs``, starting from H_s'(H_s Omega), with ``steps`` corrections at most,
    each with one product with the sample. H_s is documents x words (CSR, float32), D (N,) the exact D of Eq. 1, Omega
    (``probes``) random, N x p, where p is the block width (``eigen.block_width``).
    """
    n_words = sample.shape[1]
    seen = np.flatnonzero(np.bincount(sample.indices, minlength=n_words))
    if seen.size < n_words:
        # Most rare words do not occur in the sample; their entries are zero.
        found = sample_eigenpairs(_of_words(sample, seen), diagonal[seen], probes[seen], count, steps)
        vectors = np.zeros((n_words, found.values.size))
        vectors[seen] = found.vectors
        return Eigenpairs(found.values, vectors)

    def times(vectors: Single, out: Single) -> None:
        out[:] = apply_sample(sample, vectors)
        subtract_diagonal(diagonal, vectors, out)

    if n_words <= DENSE_WORDS:
        return _dense_eigenpairs(times, n_words, count)
    return RitzBlock(times, diagonal, apply_sample(sample, probes), probes.shape[1]).leading(count, steps)


def _of_words(sample: csr_array[Any], words: Integers) -> csr_array[Any]:
    """Restrict the sample to the words that occur in it."""
    place = np.zeros(sample.shape[1], dtype=sample.indices.dtype)
    place[words] = np.arange(words.size)
    parts = (sample.data, place[sample.indices], sample.indptr)
    return csr_array(parts, shape=(sample.shape[0], words.size), copy=False)


def _dense_eigenpairs(times: Times, n_words: int, count: int) -> Eigenpairs:
    """Eigenpairs of a small symmetric matrix, from its product with the unit vectors."""
    dense = np.empty((n_words, n_words), np.float32)
    times(np.eye(n_words, dtype=np.float32), dense)
    values, vectors = np.linalg.eigh((dense.astype(np.float64) + dense.T) / 2)
    return with_fixed_signs(values[::-1][:count], vectors[:, ::-1][:, :count])


class CorrectedMatrix:
    """C estimated from a sample of the documents, corrected by the exact C Q.

    C_s = H_s'H_s - diag(D) equals C up to sampling noise, and C Q is exact. The matrix

        C^ = C_s + (C - C_s) P + P (C - C_s) - P (C - C_s) P = C_s + U Q' + Q U',   P = Q Q',

    with U = E - Q (Q'E) / 2 and E = C Q - C_s Q agrees with C on the span of Q, and with C_s between vectors that are
    orthogonal to it. H_s is documents x words (CSR, float32), scaled so that H_s'H_s ~ C + diag(D); ``diagonal`` is the
    exact D of Eq. 1, (N,); ``basis`` is Q, orthonormal, and ``product`` is C Q, N x m.
    """

    def __init__(self, sample: csr_array[Any], diagonal: Floats, basis: Floats, product: Floats) -> None:
        self._sample, self._diagonal = sample, diagonal
        self._basis, self._product = basis.astype(np.float32), product.astype(np.float32)

    def times(self, vectors: Single, out: Single) -> None:
        """Set ``out`` to C^ times the vectors, both N x k, float32.

        With X = Q A + W and W orthogonal to Q this is C Q A + C_s W + Q ((C Q)'W - Q'C_s W), so C_s Q is not needed.
        """
        inside = single_gram(self._basis, vectors).astype(np.float32)
        outside = subtract_product(vectors.copy(), self._basis, inside)
        out[:] = apply_sample(self._sample, outside)
        subtract_diagonal(self._diagonal, outside, out)
        across = (single_gram(self._product, outside) - single_gram(self._basis, out)).astype(np.float32)

        def correct(rows: slice) -> None:
            out[rows] += self._product[rows] @ inside
            out[rows] += self._basis[rows] @ across

        on_each(correct, panels(len(out)))


def corrected_eigenpairs(
    sample: csr_array[Any], diagonal: Floats, basis: Floats, product: Floats, count: int
) -> tuple[Eigenpairs, Floats]:
    """The ``min(count, m)`` largest algebraic eigenpairs of ``CorrectedMatrix`` C^, and their residual norms.

    No pass over the data. Outside the span of Q, the error of ``eigen.nystrom_eigenpairs`` is of the size of C there;
    the error of a sample is only its noise. Block Davidson as in ``eigen.factor_eigenpairs``, starting from (theta_j +
    D)^-1 (C + D) q_j of the Ritz pairs in the span of Q.
    """
    matrix, found = CorrectedMatrix(sample, diagonal, basis, product), min(count, basis.shape[1])
    if len(basis) <= DENSE_WORDS:
        return _dense_eigenpairs(matrix.times, len(basis), found), np.zeros(found)
    start = _stepped(basis, product, diagonal, block_width(found))
    block = RitzBlock(matrix.times, diagonal, start, start.shape[1])
    pairs = block.leading(found, CORRECTION_STEPS)
    return pairs, np.linalg.norm(block.residuals()[:, :found], axis=0).astype(np.float64)


def outside_directions(basis: Floats, vectors: Floats) -> Floats:
    """W (N x r, r <= k): an orthonormal basis of the parts of the ``vectors`` (N x k) outside the span of Q.

    For eigenvectors of C^, the span of Q and W is that of Q and a step of block Davidson; with C W, the step is one
    with C itself.
    """
    outside = vectors
    # Twice, because the parts are short and the first subtraction leaves rounding errors of the vectors.
    for _ in range(2):
        outside = outside - basis @ gram(basis, outside)
        outside = rotate(outside, inverse_square_root(gram(outside), GRAM_FLOOR))
    return outside


def _stepped(basis: Floats, product: Floats, diagonal: Floats, count: int) -> Single:
    """(theta_j + D)^-1 (C + D) q_j of the ``count`` largest Ritz pairs in the span of Q, as unit columns."""
    # Eigenvectors satisfy v = (lambda + D)^-1 (C + D) v. A power step C Q would also amplify large negative eigenvalues
    # of C, which are common for corpora of short documents.
    core = gram(basis, product)
    values, rotation = np.linalg.eigh((core + core.T) / 2)
    values, rotation = values[-count:], rotation[:, -count:]
    shifts = np.maximum(values, SMALLEST_SHIFT * values[-1])
    step = np.empty((len(basis), values.size), dtype=np.float32)

    def write(rows: slice) -> None:
        own = diagonal[rows, None]
        step[rows] = ((product[rows] + own * basis[rows]) @ rotation) / (own + shifts)

    on_each(write, panels(len(step)))
    step /= np.maximum(np.linalg.norm(step, axis=0), np.finfo(np.float32).tiny)
    return step


@dataclass(frozen=True)
class SampleCertificate:
    """Error estimate for eigenpairs from a sample.

    ``estimated_error`` is an approximate upper bound of ||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F, with Y from these pairs and
    Y* from as many of C. It holds in nine of ten cases and is typically 1.5 to 6 times the error, or up to 15 times
    after a third pass (``benchmarks.sample_error``). It fails if the last eigenvalues are nearly tied and few documents
    determine them.
    ``outside_basis`` is the share of ||Y Y'||_F^2 outside the span of Q.
    """

    estimated_error: float
    outside_basis: float


def certify(
    parts: SampleParts,
    share: float,
    basis: Floats,
    product: Floats,
    corrected: tuple[Eigenpairs, Floats],
    count: int,
    leading: int,
) -> SampleCertificate:
    """Estimate the error of the first ``count`` eigenpairs of ``CorrectedMatrix``. No pass over the data.

    For a Ritz pair of C^, the residual C v - lambda v is the sum of C^ v - lambda v, which is known, and (I - P)(C -
    C_s) w with w = (I - P) v. Documents enter the sample independently, so the expected square of the second term is a
    sum over documents, regardless of their order. The held-out documents, which are independent of w, estimate it.

    C^ must have been computed from ``parts.fitted``; ``share`` is the fraction of all documents in the sample.
    ``corrected`` is the result of ``corrected_eigenpairs`` with more than ``count`` pairs, since the last ones may mix
    with the next. ``leading`` is the number of columns of Q that approximate leading eigenvectors; others, such as W of
    ``outside_directions``, say nothing about the eigenvalues outside the span of Q.
    """
    pairs, residuals = corrected
    thin = basis.astype(np.float32)
    outside = pairs.vectors.astype(np.float32)
    subtract_product(outside, thin, single_gram(thin, outside).astype(np.float32))
    squared = residuals**2 + _sampling_variance(parts, share, thin, outside)
    values = pairs.values[:count]
    weight = np.linalg.norm(outside[:, :count] * values) / np.linalg.norm(values)
    # Eigenvalues outside the span of Q are smaller than those of leading eigenvectors.
    lost = _lost(pairs.values, squared, np.linalg.eigvalsh(gram(basis, product))[-leading], count)
    error = np.sqrt(2 * np.sum(values**2 * lost)) / np.linalg.norm(values)
    margin = REFINED_MARGIN if basis.shape[1] > leading else MARGIN
    return SampleCertificate(margin * float(error), float(weight) ** 2)


def _sampling_variance(parts: SampleParts, share: float, basis: Single, outside: Single) -> Floats:
    """E ||(I - P)(C - C_s) w||^2 of each column w, over random samples."""
    fitted, rows = parts.fitted.shape[0], parts.held_out
    squares = rows.multiply(rows).sum(axis=1) - np.square(rows @ basis).sum(axis=1)
    summed = np.square(rows @ outside).T @ np.maximum(squares, 0)
    return np.asarray((1 - share * parts.drawn) * rows.shape[0] / max(fitted, 1) * summed, dtype=np.float64)


def _lost(values: Floats, squared: Floats, bottom: float, count: int) -> Floats:
    """First-order squared sines of the angles between the first ``count`` Ritz vectors and their eigenvectors."""
    lengths = np.sqrt(squared)
    # A Ritz value differs from an eigenvalue by at most the norm of its residual.
    distances = np.maximum(np.maximum(values - bottom, lengths), np.finfo(float).tiny)
    missing = squared / distances
    # Two pairs mix by the angle that diagonalizes [[a, c], [c, b]]; |c| <= the geometric mean of the missing values.
    full = values + missing
    gaps = full[:count, None] - full[None, count:]
    couplings = np.sqrt(missing[:count, None] * missing[None, count:])
    mixed = (1 - gaps / np.maximum(np.hypot(gaps, 2 * couplings), np.finfo(float).tiny)) / 2
    return np.asarray(np.minimum((lengths / distances)[:count] ** 2 + mixed.sum(axis=1), 1.0))
