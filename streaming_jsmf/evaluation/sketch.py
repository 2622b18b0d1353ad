"""Recovery and Approximation with respect to the C of the documents, estimated from products C G with random probes.

For standard normal g, E |r'g| = sqrt(2 / pi) ||r|| for every row r, and E |X g|^2 = ||X||_F^2 for every matrix X. The
same norms of F F' - D' are known exactly and vary with the same probes, so they serve as control variates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.factorization import (
    factorization_errors,
    kept_diagonal,
    topic_given_word,
)
from streaming_jsmf.evaluation.inputs import Cooccurrence, Estimate, Floats, RowSketch, TopicArrays
from streaming_jsmf.linalg.gram import gram
from streaming_jsmf.linalg.panels import panels


@dataclass(frozen=True)
class EstimatedErrors:
    """Estimates of ``FactorizationErrors`` with respect to C of the sketched documents; None without A."""

    recovery: Estimate
    relative_recovery: Estimate
    approximation: Estimate | None
    relative_approximation: Estimate | None


def estimated_errors(topics: TopicArrays, cooccurrence: Cooccurrence, sketch: RowSketch) -> EstimatedErrors:
    """Recovery and Approximation, absolute and relative, with standard errors (jackknife over probes).

    Parameters
    ----------
    topics
        The model.
    cooccurrence
        C of the training corpus; the closer it is to C of the sketch, the smaller the standard errors.
    sketch
        Sketch of training or held-out documents. Words that they lack are omitted from Recovery.

    Raises
    ------
    ValueError
        If the vocabularies differ.

    Examples
    --------
    Documents "a a" and "b b", C = diag(1/2, 1/2), and a factor of zeros. One topic (1/2, 1/2) with the anchor a:
    Approximation is 1/2 and Recovery sqrt(2) / 2, as in ``factorization_errors``.

    >>> from streaming_jsmf.evaluation.inputs import sketch_probes
    >>> half = np.array([0.5, 0.5])
    >>> lost = Cooccurrence(np.zeros((2, 1), dtype=np.float32), diagonal=half, row_sum=half)
    >>> sketch = RowSketch(0.5 * sketch_probes(2, 10_000, seed=1), half, seed=1)
    >>> one = TopicArrays(half[:, None], np.array([[0, 1]]), half, np.eye(1), np.ones(1), np.array([0]))
    >>> errors = estimated_errors(one, lost, sketch)
    >>> abs(errors.approximation.value - 0.5) < 3 * errors.approximation.standard_error < 0.02
    True
    >>> abs(errors.recovery.value - 0.5**0.5) < 3 * errors.recovery.standard_error < 0.02
    True
    """
    if len(sketch.products) != len(topics.word_topic):
        raise ValueError(f"{len(sketch.products)} words in the sketch, {len(topics.word_topic)} in the model")
    samples = _samples(topics, cooccurrence, sketch)
    width = samples.shape[1]
    # Column j: means over all probes except the j-th.
    without = (samples.sum(axis=1, keepdims=True) - samples) / (width - 1)
    values, spread = _errors(samples.mean(axis=1)), _errors(without)
    centred = spread - spread.mean(axis=1, keepdims=True)
    deviations = np.sqrt((width - 1) / width * (centred**2).sum(axis=1))
    estimates = [Estimate(float(v), float(e)) for v, e in zip(values, deviations, strict=True)]
    if topics.topic_topic is None:
        return EstimatedErrors(estimates[0], estimates[1], None, None)
    return EstimatedErrors(*estimates)


def _samples(topics: TopicArrays, cooccurrence: Cooccurrence, sketch: RowSketch) -> Floats:
    """Unbiased samples per probe, (4, s): Recovery, ||C-bar||_F^2, ||C||_F^2 and ||C - B A B'||_F^2."""
    recovery, exact, near = _products(topics, cooccurrence, sketch)
    known = factorization_errors(topics, cooccurrence)
    squares = np.array([known.row_norm, known.norm, known.approximation or 0.0]) ** 2
    return np.vstack([recovery, *map(_steadied, exact, near, squares)])


def _steadied(exact: Floats, near: Floats, known: float) -> Floats:
    """Samples with those of the factor as control variate, (s,); ``known`` is the exact mean of the latter.

    The regression coefficient is 1 for a factor close to C and 0 for an unrelated one.
    """
    centred = near - near.mean()
    variance = float(centred @ centred)
    slope = float(centred @ exact) / variance if variance > 0 else 0.0
    return exact - slope * (near - known)


def _products(
    topics: TopicArrays, cooccurrence: Cooccurrence, sketch: RowSketch
) -> tuple[Floats, Floats, Floats]:
    """Per probe g: Recovery (s,), and |X g|^2 (3, s) for X = C-bar, C and C - B A B', of documents and factor.

    One pass over the rows. Rows of the factor are normalized by their own sums.
    """
    probes, words = sketch.probes, topics.representatives
    scale, near_scale = _inverse(sketch.row_sum), _inverse(cooccurrence.row_sum)
    inner, explained = gram(cooccurrence.factor, probes), _explained(topics, probes)
    anchors = sketch.products[words] * scale[words, None]
    recovery, squares = np.zeros(probes.shape[1]), np.zeros((2, 3, probes.shape[1]))
    for rows in panels(len(scale)):
        factor = cooccurrence.factor[rows].astype(np.float64)
        near = factor @ inner - kept_diagonal(factor, cooccurrence.diagonal[rows])[:, None] * probes[rows]
        exact = sketch.products[rows].astype(np.float64)
        model = topics.word_topic[rows] @ explained
        normalised = exact * scale[rows, None]
        residual = normalised - topic_given_word(topics, rows) @ anchors
        recovery += np.abs(residual[scale[rows] > 0]).sum(axis=0)
        squares[0] += [_squares(x) for x in (normalised, exact, exact - model)]
        squares[1] += [_squares(x) for x in (near * near_scale[rows, None], near, near - model)]
    # E |r'g| = sqrt(2 / pi) ||r||.
    recovery *= np.sqrt(np.pi / 2) / max(int((scale > 0).sum()), 1)
    return recovery, squares[0], squares[1]


def _squares(products: Floats) -> Floats:
    """Sums of squares of the columns."""
    return np.asarray(np.einsum("ij,ij->j", products, products))


def _inverse(row_sum: Floats) -> Floats:
    """1 / u, (N,); 0 for words that never occur."""
    inverse: Floats = np.divide(1.0, row_sum, out=np.zeros_like(row_sum), where=row_sum > 0)
    return inverse


def _explained(topics: TopicArrays, probes: NDArray[np.float32]) -> Floats:
    """A B'G, (K, s); 0 without A."""
    A, products = topics.topic_topic, gram(topics.word_topic, probes)
    return np.zeros_like(products) if A is None else np.asarray(A @ products)


def _errors(means: Floats) -> Floats:
    """The four errors, (4,) or (4, s), from means of samples."""
    row_norm, norm, approximation = np.sqrt(np.maximum(means[1:], 0.0))
    return np.array([means[0], _over(means[0], row_norm), approximation, _over(approximation, norm)])


def _over(value: Floats, size: Floats) -> Floats:
    """The ratio; 0 if C is 0."""
    ratio: Floats = np.divide(value, size, out=np.zeros_like(value), where=size > 0)
    return ratio
