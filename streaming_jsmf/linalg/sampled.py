"""Eigenpairs of C from the documents that a store holds and C Q over all of them, with an error estimate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streaming_jsmf.linalg.csr import apply_gram, contiguous
from streaming_jsmf.linalg.eigen import (
    DENSE_WORDS,
    SMALLEST_SHIFT,
    Eigenpairs,
    RitzBlock,
    block_width,
    column_lengths,
    dense_eigenpairs,
    divide_by_shifted,
    subtract_diagonal,
    subtract_product,
    subtract_scaled,
    with_fixed_signs,
)
from streaming_jsmf.linalg.panels import (
    GRAM_FLOOR,
    InSingle,
    each,
    gram,
    inverse_square_root,
    multiply_into,
    on_each,
    panels,
    rotate,
    single_gram,
)
from streaming_jsmf.linalg.typing import Floats, Integers, Single
from streaming_jsmf.storage.large_arrays import large_copy, large_empty, large_zeros

#: Davidson steps to the basis Q.
BASIS_STEPS = 3
#: One in this many documents is held out, to estimate the error of the eigenpairs, unless all are fitted.
HELD_OUT = 8
#: Most documents that are fitted, or one for every word if that is more. They limit the cost of products with them;
#: what they leave is corrected by products with all documents.
FITTED_DOCUMENTS = 80_000
#: Parts of a sample that may be multiplied in parallel. Products are added in order; the number affects the bits.
ROW_PARTS = 2
#: Ratio of the bound to the first-order estimate of the error, chosen so that the bound holds in nine of ten cases of
#: ``benchmarks.sample_error``. Corpora whose authors have their own topics need it most. The second number applies to a
#: basis with other than leading eigenvectors: what it leaves is small, so nearly tied eigenvalues dominate the error.
MARGIN, REFINED_MARGIN = 2.5, 4.0
#: Blocks outside the span of Q. With one, the error is two to four times as large.
OUTSIDE_STEPS = 2
#: Directions of T whose squared length is a smaller fraction of the largest are dropped, since float32 rounds them too
#: coarsely; those of texts are above .01.
STEP_FLOOR = 1e-4


#: Eigenvalues below this fraction of the first are rounding errors of float32 products, and their signs are random.
VALUE_FLOOR = 1e-6


@dataclass(frozen=True)
class SampleParts:
    """The documents of a sample by use, each part scaled to represent all documents: X'X ~ C + diag(D).

    ``fitted`` determine the matrix: all documents of a small corpus, and at most seven of eight others, of which
    ``held_out`` is one of eight. ``drawn`` is the fraction of the sample that is fitted.
    """

    fitted: csr_array[Any]
    held_out: csr_array[Any]
    drawn: float

    @classmethod
    def of(cls, documents: csr_array[Any], share: float) -> SampleParts:
        """Split H_s, in which the fraction ``share`` of all documents is.

        Every eighth document, in the order of the corpus, is held out, or fewer of many; the fitted ones spread evenly
        over the others.
        """
        if fits_all(documents.shape, share):
            return cls.whole(documents)
        count, most = documents.shape[0], max(FITTED_DOCUMENTS, documents.shape[1])
        eighth = np.arange(count) % HELD_OUT == HELD_OUT - 1
        uses = _spread(np.flatnonzero(~eighth), most), _spread(np.flatnonzero(eighth), most // HELD_OUT)
        fitted, held_out = (documents[rows] for rows in uses)
        for part in fitted, held_out:
            part.data *= np.float32(np.sqrt(count / max(part.shape[0], 1)))
        return cls(fitted, held_out, fitted.shape[0] / max(count, 1))

    @classmethod
    def whole(cls, documents: csr_array[Any]) -> SampleParts:
        """All documents of a corpus are fitted."""
        return cls(documents, documents[:0], 1.0)


def fits_all(shape: tuple[int, int], share: float) -> bool:
    """Whether all documents of a corpus are fitted: H_s has this shape and the fraction ``share`` of them."""
    return share == 1 and shape[0] <= max(FITTED_DOCUMENTS, shape[1])


def _spread(rows: Integers, most: int) -> Integers:
    number = min(rows.size, most)
    return rows[np.arange(number) * rows.size // max(number, 1)]


def apply_sample(sample: csr_array[Any], vectors: Single) -> Single:
    """H_s'(H_s X), words x columns, like ``csr.apply_gram``, in ``ROW_PARTS`` parts."""
    height, vectors = -(-sample.shape[0] // ROW_PARTS), contiguous(vectors)
    products = each(
        lambda rows: apply_gram(sample, vectors, documents=rows), panels(sample.shape[0], max(height, 1))
    )
    total = next(products, None)
    if total is None:
        return large_zeros(vectors.shape, np.float32)
    for product in products:
        total += product
    return total


def sample_eigenpairs(
    sample: csr_array[Any], diagonal: Floats, probes: Single, count: int, steps: int = BASIS_STEPS
) -> Eigenpairs:
    """The ``min(count, N, rank of H_s)`` largest algebraic eigenpairs of H_s'H_s - diag(D). No pass over the data.

    Block Davidson from H_s'(H_s Omega), with ``steps`` corrections at most, each with one product with the sample.
    Eigenvectors satisfy v = (lambda + D)^-1 (C_s + D) v, so the correction (lambda_j + D)^-1 r_j of a residual r_j is
    the fixed-point step of that equation. H_s is documents x words (CSR, float32), D (N,) the exact D of Eq. 1, Omega
    (``probes``) random, N x p, where p is the block width (``eigen.block_width``).
    """
    n_words = sample.shape[1]
    seen = np.flatnonzero(np.bincount(sample.indices, minlength=n_words))
    if seen.size < n_words:
        # Most rare words do not occur in the sample; their entries are zero.
        rows = large_copy(probes, rows=seen)
        found = sample_eigenpairs(_of_words(sample, seen), diagonal[seen], rows, count, steps)
        vectors = large_zeros((n_words, found.values.size))
        vectors[seen] = found.vectors
        return Eigenpairs(found.values, vectors)

    def times(vectors: Single, out: Single) -> None:
        out[:] = apply_sample(sample, vectors)
        subtract_diagonal(diagonal, vectors, out)

    if n_words <= DENSE_WORDS:
        return dense_eigenpairs(_sample_matrix(sample, diagonal), count)
    return RitzBlock(times, diagonal, apply_sample(sample, probes), probes.shape[1]).leading(count, steps)


def _of_words(sample: csr_array[Any], words: Integers) -> csr_array[Any]:
    """Restrict the sample to the words that occur in it."""
    place = np.zeros(sample.shape[1], dtype=sample.indices.dtype)
    place[words] = np.arange(words.size)
    parts = (sample.data, place[sample.indices], sample.indptr)
    return csr_array(parts, shape=(sample.shape[0], words.size), copy=False)


def _sample_matrix(sample: csr_array[Any], diagonal: Floats) -> Floats:
    """C_s of a small vocabulary, N x N."""
    unit = np.eye(diagonal.size, dtype=np.float32)
    product = apply_sample(sample, unit)
    subtract_diagonal(diagonal, unit, product)
    return np.asarray((product.astype(np.float64) + product.T) / 2)


@dataclass(frozen=True)
class CorrectedPairs:
    """Ritz pairs of C^ (``corrected_eigenpairs``), and what their error estimate needs.

    ``residuals`` are the norms of C^ v - lambda v, (k,); ``outside`` is (I - P) V, N x k; ``inside`` holds the
    eigenvalues of Q'C Q in ascending order, (m,).
    """

    pairs: Eigenpairs
    residuals: Floats
    outside: Single
    inside: Floats

    def leading(self, count: int) -> CorrectedPairs:
        return CorrectedPairs(
            self.pairs.leading(count), self.residuals[:count], self.outside[:, :count], self.inside
        )


def corrected_eigenpairs(
    sample: csr_array[Any], diagonal: Floats, basis: Floats, product: Floats, count: int
) -> CorrectedPairs:
    """The ``min(count, m)`` largest algebraic eigenpairs of C^, estimated from a sample and corrected by the exact C Q.

    C_s = H_s'H_s - diag(D) equals C up to sampling noise, and C Q is exact. The matrix

        C^ = C_s + (C - C_s) P + P (C - C_s) - P (C - C_s) P,   P = Q Q',

    agrees with C on the span of Q, and with C_s between vectors that are orthogonal to it. It is C if the sample is all
    documents. H_s is
    documents x words (CSR, float32), scaled so that H_s'H_s ~ C + diag(D); ``diagonal`` is the exact D of Eq. 1, (N,);
    ``basis`` is Q, orthonormal, and ``product`` is C Q, N x m.

    Rayleigh-Ritz in the span of Q and of two blocks T. Eigenvectors satisfy v = (lambda + D)^-1 (C + D) v; the first
    block has the parts outside the span of Q of (theta_j + D)^-1 (C + D) q_j for the Ritz pairs in the span of Q, the
    second those of (theta_j + D)^-1 H_s'H_s t_j. For T orthogonal to Q,

        C^ T = C_s T + Q ((C Q)'T - Q'C_s T),

    so only T is multiplied with the sample. No pass over the data.
    """
    found = min(count, basis.shape[1])
    core = gram(basis, product)
    inside, rotation = np.linalg.eigh((core + core.T) / 2)
    if len(basis) <= DENSE_WORDS:
        dense = _corrected_matrix(_sample_matrix(sample, diagonal), basis, product)
        pairs = _without_noise(dense_eigenpairs(dense, found))
        beyond = pairs.vectors - basis @ (basis.T @ pairs.vectors)
        return CorrectedPairs(pairs, np.zeros(found), beyond.astype(np.float32), inside)
    thin, image = InSingle(basis), InSingle(product)
    width = min(block_width(found), inside.size)
    shifts = np.maximum(inside[-width:], SMALLEST_SHIFT * inside[-1]).astype(np.float32)
    steps, products = _outside_steps(sample, diagonal, thin, image, rotation[:, -width:], shifts)
    values, inner, outer = _ritz_values(core, single_gram(image, steps), steps, products, found)
    outside: Single = large_empty((len(basis), found), np.float32)
    multiply_into(steps, outer, outside)
    del steps
    vectors = large_empty(outside.shape)
    on_each(lambda rows: np.add(basis[rows] @ inner, outside[rows], out=vectors[rows]), panels(len(basis)))
    # C^ V in the span of Q is (Q V) Lambda.
    rest: Single = large_empty(outside.shape, np.float32)
    multiply_into(image, inner, rest)
    subtract_product(rest, products, -outer.astype(np.float32))
    del products
    subtract_scaled(rest, outside, values.astype(np.float32))
    subtract_product(rest, thin, single_gram(thin, rest).astype(np.float32))
    residuals = column_lengths(rest).astype(np.float64)
    return CorrectedPairs(_without_noise(with_fixed_signs(values, vectors)), residuals, outside, inside)


def _without_noise(pairs: Eigenpairs) -> Eigenpairs:
    noise = np.abs(pairs.values) < VALUE_FLOOR * pairs.values[:1]
    return Eigenpairs(np.where(noise, 0.0, pairs.values), pairs.vectors)


def _corrected_matrix(of_sample: Floats, basis: Floats, product: Floats) -> Floats:
    """C^ = C_s + U Q' + Q U' with U = E - Q (Q'E) / 2 and E = C Q - C_s Q."""
    error = product - of_sample @ basis
    half = error - basis @ (basis.T @ error) / 2
    return np.asarray(of_sample + half @ basis.T + basis @ half.T)


def _outside_steps(
    sample: csr_array[Any],
    diagonal: Floats,
    basis: InSingle,
    product: InSingle,
    rotation: Floats,
    shifts: Single,
) -> tuple[Single, Single]:
    """Blocks T of ``corrected_eigenpairs`` side by side, unit columns orthogonal to Q, and C_s T."""
    # A power step C Q would also amplify large negative eigenvalues of C, which are common for corpora of short
    # documents.
    own, small = diagonal[:, None].astype(np.float32), rotation.astype(np.float32)
    width = shifts.size
    steps, products = (large_empty((len(basis), OUTSIDE_STEPS * width), np.float32) for _ in range(2))
    power: Single = large_empty((len(basis), width), np.float32)
    on_each(
        lambda rows: np.matmul(product[rows] + own[rows] * basis[rows], small, out=power[rows]),
        panels(len(basis)),
    )
    for number in range(OUTSIDE_STEPS):
        step = power
        divide_by_shifted(step, own, shifts)
        # Twice, because the parts may be short and the first subtraction leaves rounding errors of the step.
        for _ in range(2):
            subtract_product(step, basis, single_gram(basis, step).astype(np.float32))
            step /= np.maximum(column_lengths(step), np.finfo(np.float32).tiny)
        power = apply_sample(sample, step)
        columns = slice(number * width, (number + 1) * width)
        steps[:, columns], products[:, columns] = step, power
    subtract_diagonal(diagonal, steps, products)
    return steps, products


def _ritz_values(
    core: Floats, across: Floats, steps: Single, products: Single, count: int
) -> tuple[Floats, Floats, Floats]:
    """The ``count`` largest Ritz values in the span of [Q, T], and coefficients of Q and of T of their vectors."""
    whiten = inverse_square_root(single_gram(steps), STEP_FLOOR)
    across, corner = across @ whiten, whiten.T @ single_gram(steps, products) @ whiten
    small = np.block([[core, across], [across.T, corner]])
    values, rotation = np.linalg.eigh((small + small.T) / 2)
    leading = rotation[:, ::-1][:, :count]
    return values[::-1][:count], leading[: len(core)], whiten @ leading[len(core) :]


def outside_directions(basis: Floats, vectors: Floats) -> Floats:
    """W (N x r, r <= k): an orthonormal basis of the parts of the ``vectors`` (N x k) outside the span of Q.

    For eigenvectors of C^, the span of Q and W is that of Q and a step of block Davidson; with C W, the step is one
    with C itself.
    """
    outside = vectors
    # Twice, because the parts are short and the first subtraction leaves rounding errors of the vectors.
    for _ in range(2):
        within = np.matmul(basis, gram(basis, outside), out=large_empty(outside.shape))
        outside = np.subtract(outside, within, out=within)
        outside = rotate(outside, inverse_square_root(gram(outside), GRAM_FLOOR))
    return outside


@dataclass(frozen=True)
class SampleCertificate:
    """Error estimate for eigenpairs from a sample.

    ``estimated_error`` is an approximate upper bound of ||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F, with Y from these pairs and
    Y* from as many of C. It holds in nine of ten cases. Typically it is 2.5 to 6 times the error if the store holds all
    documents, and 1.5 to 20 times with a sample (``benchmarks.sample_error``). It fails if the last eigenvalues are
    nearly tied and few documents of a sample determine them.
    ``outside_basis`` is the share of ||Y Y'||_F^2 outside the span of Q.
    """

    estimated_error: float
    outside_basis: float


def certify(
    parts: SampleParts, share: float, basis: Floats, corrected: CorrectedPairs, count: int, leading: int
) -> SampleCertificate:
    """Estimate the error of the first ``count`` of the corrected eigenpairs. No pass over the data.

    For a Ritz pair of C^, the residual C v - lambda v is the sum of C^ v - lambda v, which is known, and (I - P)(C -
    C_s) w with w = (I - P) v. Documents enter the sample independently, so the expected square of the second term is a
    sum over documents, regardless of their order. The held-out documents, which are independent of w, estimate it.

    C^ must have been computed from ``parts.fitted`` and Q = ``basis``; ``share`` is the fraction of all documents in
    the sample. ``corrected`` has more than ``count`` pairs, since the last ones may mix with the next. ``leading`` is
    the number of columns of Q that approximate leading eigenvectors; others, such as W of ``outside_directions``, say
    nothing about the eigenvalues outside the span of Q.
    """
    outside, values = corrected.outside, corrected.pairs.values[:count]
    squared = corrected.residuals**2 + _sampling_variance(
        parts, share, large_copy(basis, np.float32), outside
    )
    scaled = np.multiply(outside[:, :count], values, out=large_empty((len(outside), values.size)))
    weight = np.linalg.norm(scaled) / np.linalg.norm(values)
    # Eigenvalues outside the span of Q are smaller than those of leading eigenvectors.
    lost = _lost(corrected.pairs.values, squared, corrected.inside[-leading], count)
    error = np.sqrt(2 * np.sum(values**2 * lost)) / np.linalg.norm(values)
    margin = REFINED_MARGIN if basis.shape[1] > leading else MARGIN
    return SampleCertificate(margin * float(error), float(weight) ** 2)


def _sampling_variance(parts: SampleParts, share: float, basis: Single, outside: Single) -> Floats:
    """E ||(I - P)(C - C_s) w||^2 of each column w, over random samples."""
    fitted, rows = parts.fitted.shape[0], parts.held_out
    squares = rows.multiply(rows).sum(axis=1)
    for some in panels(rows.shape[0]):
        squares[some] -= np.square(rows[some] @ basis).sum(axis=1)
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
