"""Recovery and Approximation: how well B, A and the anchors explain C, without N x N arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.inputs import Cooccurrence, RowSketch, TopicArrays
from streaming_jsmf.evaluation.topic_shape import topic_given_word
from streaming_jsmf.linalg.panels import gram, panels, ratio
from streaming_jsmf.linalg.probes import Estimate
from streaming_jsmf.linalg.typing import Floats, Integers

#: Entries of the rows of a counted C that are compared at a time.
BLOCK_ENTRIES = 2**24


@dataclass(frozen=True)
class FactorizationErrors:
    """Errors of a model with respect to C, or estimates of them. Errors that need A are None without it.

    ``recovery`` is the mean over occurring words of ||C-bar_i - sum_k p(k | i) C-bar_{s_k}||_2, where C-bar has the
    rows of C divided by their sums, and ``approximation`` is ||C - B A B'||_F (JSMF 2015). The relative errors are
    divided by ||C-bar||_F and ||C||_F (LR-JSMF 2021, section 5).
    """

    recovery: float | Estimate
    relative_recovery: float | Estimate
    approximation: float | Estimate | None = None
    relative_approximation: float | Estimate | None = None


def factorization_errors(topics: TopicArrays, cooccurrence: Cooccurrence) -> FactorizationErrors:
    """Recovery and Approximation, absolute and relative, without a pass over the documents.

    Exact if C was counted. Otherwise C is represented by F F' - D' with D' = min(D, |F_i|^2), because truncating the
    factor to L columns would otherwise make the diagonal negative, in O(N L^2) time. Truncation also removes
    off-diagonal noise of rare words, so Recovery is underestimated; the other errors are exact up to rounding. Words
    that never occur (u = 0) are omitted.

    Examples
    --------
    Documents "a a" and "b b": C = D = diag(1/2, 1/2), C-bar = I and F = I. One topic (1/2, 1/2) with the anchor a: row
    a is recovered and row b is off by |(1, -1)|, so Recovery is sqrt(2) / 2, and ||C-bar||_F = sqrt(2). B A B' is 1/4
    everywhere: Approximation is sqrt(4 / 16), and ||C||_F = sqrt(1/2).

    >>> half = np.array([0.5, 0.5])
    >>> C = Cooccurrence(np.eye(2, dtype=np.float32), diagonal=half, row_sum=half)
    >>> one = TopicArrays(half[:, None], np.array([[0, 1]]), half, np.eye(1), np.ones(1), np.array([0]))
    >>> errors = factorization_errors(one, C)
    >>> print(f"{errors.recovery:.4f} {errors.relative_recovery:.4f} {errors.approximation:.4f}")
    0.7071 0.5000 0.5000
    """
    if (counted := cooccurrence.counted) is None:
        sizes = _of_factor(topics, cooccurrence)
    else:
        sizes = _of_counted(topics, counted, cooccurrence.row_sum)
    return FactorizationErrors(*_errors(sizes)[: 2 if topics.topic_topic is None else 4].tolist())


def kept_diagonal(factor: Floats, diagonal: Floats) -> Floats:
    """D' = min(D, |F_i|^2), (n,), for F (n, L) and D (n,); keeps the diagonal of C non-negative."""
    return np.asarray(np.minimum(diagonal, _rows_dot(factor, factor)))


def cooccurrence_rows(cooccurrence: Cooccurrence, words: Integers) -> Floats:
    """Rows of C for word ids (n,), as (n, N) float64; truncation of F F' - D' can make entries negative."""
    if cooccurrence.counted is not None:
        return np.asarray(cooccurrence.counted[words])
    chosen = cooccurrence.factor[words].astype(np.float64)
    rows = np.empty((len(words), len(cooccurrence.factor)))
    for panel in panels(len(cooccurrence.factor)):
        np.matmul(chosen, cooccurrence.factor[panel].astype(np.float64).T, out=rows[:, panel])
    rows[np.arange(len(words)), words] -= kept_diagonal(chosen, cooccurrence.diagonal[words])
    return rows


def cooccurrence_among(cooccurrence: Cooccurrence, words: Integers) -> Floats:
    """C restricted to distinct word ids (n,), as (n, n)."""
    if cooccurrence.counted is not None:
        return cooccurrence.counted[np.ix_(words, words)]
    chosen = cooccurrence.factor[words].astype(np.float64)
    return chosen @ chosen.T - np.diag(kept_diagonal(chosen, cooccurrence.diagonal[words]))


def _of_counted(topics: TopicArrays, C: Floats, row_sum: Floats) -> Floats:
    """Recovery, and the squares of ||C-bar||_F, ||C||_F and Approximation (0 without A), from blocks of rows of C."""
    A, B, scale = topics.topic_topic, topics.word_topic, ratio(1.0, row_sum)
    anchors = C[topics.representatives] * scale[topics.representatives, None]
    explained = None if A is None else A @ B.T
    squares, distance = np.zeros(3), 0.0
    for rows in panels(len(C), max(1, BLOCK_ENTRIES // len(C))):
        normalized = C[rows] * scale[rows, None]
        residual = normalized - topic_given_word(topics, rows) @ anchors
        distance += float(np.linalg.norm(residual[scale[rows] > 0], axis=1).sum())
        rest = np.zeros(0) if explained is None else C[rows] - B[rows] @ explained
        squares += [np.vdot(part, part) for part in (C[rows], normalized, rest)]
    norm, row_norm, approximation = squares
    return np.array([distance / max(int((scale > 0).sum()), 1), row_norm, norm, approximation])


class _Rows(NamedTuple):
    """Rows of C-bar in the coordinates of F: C-bar_i = F row_i - diagonal_i e_i; all 0 for words with u = 0.

    ``row``, ``image`` and ``pull`` (n, L) are F_i / u_i, F'F F_i / u_i and D'_i F_i / u_i; ``diagonal`` (n,) is D'_i /
    u_i and ``squares`` (n,) is ||C_i||^2.
    """

    row: Floats
    image: Floats
    pull: Floats
    diagonal: Floats
    squares: Floats


def _rows(cooccurrence: Cooccurrence, words: slice | Integers, inner: Floats) -> _Rows:
    """Rows of C-bar of the words; ``inner`` is F'F (L, L)."""
    f = cooccurrence.factor[words].astype(np.float64)
    d, scale = kept_diagonal(f, cooccurrence.diagonal[words]), ratio(1.0, cooccurrence.row_sum[words])
    image = f @ inner
    squares = _rows_dot(f, image) - 2.0 * d * _rows_dot(f, f) + d**2
    row = f * scale[:, None]
    return _Rows(row, image * scale[:, None], row * d[:, None], d * scale, np.maximum(squares, 0.0))


def _of_factor(topics: TopicArrays, cooccurrence: Cooccurrence) -> Floats:
    """The numbers of ``_of_counted`` in one pass over the rows of F, and one for Approximation."""
    norm = row_norm = distance = 0.0
    words = topics.representatives
    inner = gram(cooccurrence.factor)
    anchors = _rows(cooccurrence, words, inner)
    # Topics may share a representative, whose diagonal must be subtracted only once.
    same = (words[:, None] == words).astype(np.float64)
    for panel in panels(len(cooccurrence.factor)):
        u = cooccurrence.row_sum[panel]
        rows = _rows(cooccurrence, panel, inner)
        shares = topic_given_word(topics, panel)
        own = np.arange(panel.start, panel.stop)[:, None] == words
        norm += float(rows.squares.sum())
        row_norm += float((rows.squares * ratio(1.0, u) ** 2).sum())
        distance += float(np.sqrt(_squared_distances(rows, anchors, shares, own, same))[u > 0].sum())
    recovery = distance / max(int((cooccurrence.row_sum > 0).sum()), 1)
    return np.array([recovery, row_norm, norm, _approximation(topics, cooccurrence, norm)])


def _squared_distances(
    rows: _Rows, anchors: _Rows, shares: Floats, own: NDArray[np.bool_], same: Floats
) -> Floats:
    """||C-bar_i - shares_i C-bar_S||^2, (n,); ``own`` (n, K): word i is anchor k; ``same`` (K, K): equal anchors."""
    # The difference is F g - delta, where delta is nonzero only for the word and the anchors.
    g = rows.row - shares @ anchors.row
    image = rows.image - shares @ anchors.image
    pull = rows.pull - shares @ anchors.pull
    weights = shares * anchors.diagonal
    delta = rows.diagonal**2 + _rows_dot(weights @ same, weights)
    delta -= 2.0 * rows.diagonal * _rows_dot(weights, own.astype(np.float64))
    return np.maximum(_rows_dot(g, image) - 2.0 * _rows_dot(g, pull) + delta, 0.0)


def _approximation(topics: TopicArrays, cooccurrence: Cooccurrence, squared_norm: float) -> float:
    A, B = topics.topic_topic, topics.word_topic
    if A is None:
        return 0.0
    outer = gram(cooccurrence.factor, B)
    products = float(((outer.T @ outer) * A).sum())
    for rows in panels(len(B)):
        d = kept_diagonal(cooccurrence.factor[rows].astype(np.float64), cooccurrence.diagonal[rows])
        products -= float(d @ _rows_dot(B[rows] @ A, B[rows]))
    within = gram(B)
    return max(squared_norm - 2.0 * products + float(((A @ within) * (within @ A)).sum()), 0.0)


def estimated_errors(
    topics: TopicArrays, cooccurrence: Cooccurrence, sketch: RowSketch
) -> FactorizationErrors:
    """Recovery and Approximation, absolute and relative, with jackknife standard errors over probes.

    The products C G of ``sketch`` estimate norms: for standard normal g, E |r'g| = sqrt(2 / pi) ||r|| and E||X g||^2 =
    ||X||_F^2. The same norms of F F' - D' are known exactly and serve as control variates, so standard errors decrease
    as ``cooccurrence`` approaches the C of the sketch. Words that do not occur in the sketched documents, training or
    held-out, are omitted from Recovery.

    Examples
    --------
    As in ``factorization_errors``, but with a factor of zeros: Approximation is 1/2 and Recovery sqrt(2) / 2.

    >>> from streaming_jsmf.evaluation.inputs import sketch_probes
    >>> half = np.array([0.5, 0.5])
    >>> lost = Cooccurrence(np.zeros((2, 1), dtype=np.float32), diagonal=half, row_sum=half)
    >>> sketch = RowSketch(0.5 * sketch_probes(2, 10_000, seed=1), half, seed=1)
    >>> one = TopicArrays(half[:, None], np.array([[0, 1]]), half, np.eye(1), np.ones(1), np.array([0]))
    >>> errors = estimated_errors(one, lost, sketch)
    >>> abs(errors.approximation.value - 0.5) < 3 * errors.approximation.standard_error < 0.02
    True
    """
    recovery, exact, near = _products(topics, cooccurrence, sketch)
    known = _of_factor(topics, cooccurrence)[1:].tolist()
    samples = np.vstack([recovery, *map(_control_variate, exact, near, known)])
    width = samples.shape[1]
    # Column j: means over all probes except the j-th.
    without = (samples.sum(axis=1, keepdims=True) - samples) / (width - 1)
    values, replicates = _errors(samples.mean(axis=1)), _errors(without)
    centered = replicates - replicates.mean(axis=1, keepdims=True)
    deviations = np.sqrt((width - 1) / width * (centered**2).sum(axis=1))
    estimates = [Estimate(float(v), float(e)) for v, e in zip(values, deviations, strict=True)]
    return FactorizationErrors(*estimates[: 2 if topics.topic_topic is None else 4])


def _products(
    topics: TopicArrays, cooccurrence: Cooccurrence, sketch: RowSketch
) -> tuple[Floats, Floats, Floats]:
    """Per probe g: Recovery (s,), and |X g|^2 (3, s) for X = C-bar, C, C - B A B'; for documents and factor."""
    probes, words, A = sketch.probes, topics.representatives, topics.topic_topic
    scale, near_scale = ratio(1.0, sketch.row_sum), ratio(1.0, cooccurrence.row_sum)
    inner, explained = gram(cooccurrence.factor, probes), gram(topics.word_topic, probes)
    explained = np.zeros_like(explained) if A is None else A @ explained
    anchors = sketch.products[words] * scale[words, None]
    recovery, squares = np.zeros(probes.shape[1]), np.zeros((2, 3, probes.shape[1]))
    for rows in panels(len(scale)):
        factor = cooccurrence.factor[rows].astype(np.float64)
        near = factor @ inner - kept_diagonal(factor, cooccurrence.diagonal[rows])[:, None] * probes[rows]
        exact = sketch.products[rows].astype(np.float64)
        model = topics.word_topic[rows] @ explained
        normalized = exact * scale[rows, None]
        residual = normalized - topic_given_word(topics, rows) @ anchors
        recovery += np.abs(residual[scale[rows] > 0]).sum(axis=0)
        squares[0] += [_column_squares(x) for x in (normalized, exact, exact - model)]
        squares[1] += [_column_squares(x) for x in (near * near_scale[rows, None], near, near - model)]
    # E |r'g| = sqrt(2 / pi) ||r||.
    recovery *= np.sqrt(np.pi / 2) / max(int((scale > 0).sum()), 1)
    return recovery, squares[0], squares[1]


def _control_variate(exact: Floats, near: Floats, known: float) -> Floats:
    """Samples (s,) with those of the factor as control variate; ``known`` is the exact mean of the latter."""
    centered = near - near.mean()
    variance = float(centered @ centered)
    slope = float(centered @ exact) / variance if variance > 0 else 0.0
    return exact - slope * (near - known)


def _errors(means: Floats) -> Floats:
    """The four errors from Recovery and the squares of ||C-bar||_F, ||C||_F and Approximation."""
    recovery, (row_norm, norm, approximation) = means[0], np.sqrt(np.maximum(means[1:], 0.0))
    return np.array([recovery, ratio(recovery, row_norm), approximation, ratio(approximation, norm)])


def _rows_dot(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", left, right))


def _column_squares(products: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->j", products, products))
