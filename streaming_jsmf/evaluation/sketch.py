"""Recovery and Approximation of the documents' own C, from a sketch C G that a scan leaves.

For standard normal g, C g holds sums over whole rows of C, also over what a factor of L columns has lost:
E |r'g| = sqrt(2 / pi) ||r|| for every row r, and E (r'g)(q'g) = r'q. The factor's part of the squared norms is known
exactly, so only its difference T = C - (F F' - D') to the documents is estimated, which keeps the variance low.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.factorization import (
    FactorizationErrors,
    factorization_errors,
    kept_diagonal,
    topic_given_word,
)
from streaming_jsmf.evaluation.inputs import Cooccurrence, Estimate, Floats, RowSketch, TopicArrays
from streaming_jsmf.linalg.gram import PANEL_ROWS, gram


@dataclass(frozen=True)
class EstimatedErrors:
    """The errors of ``FactorizationErrors`` against C of the sketch's documents; None without A."""

    recovery: Estimate
    relative_recovery: Estimate
    approximation: Estimate | None
    relative_approximation: Estimate | None


def estimated_errors(topics: TopicArrays, cooccurrence: Cooccurrence, sketch: RowSketch) -> EstimatedErrors:
    """Recovery and Approximation, absolute and relative, each with its standard error (jackknife over probes).

    Parameters
    ----------
    topics
        The model.
    cooccurrence
        A C near that of the sketch, such as that of the training corpus: the nearer, the smaller the errors. It
        does not bias them.
    sketch
        Of the documents to compare with, training or held out. Words that they lack are left out of Recovery.

    Raises
    ------
    ValueError
        If the three are not over the same words.

    Examples
    --------
    "a a" and "b b" as documents, C = diag(1/2, 1/2), and a factor that has lost it all. One topic (1/2, 1/2) with the
    anchor a: Approximation is 1/2 and Recovery sqrt(2) / 2, as in ``factorization_errors``.

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
    beside = Cooccurrence(cooccurrence.factor, cooccurrence.diagonal, sketch.row_sum)
    known = factorization_errors(topics, beside)
    sums = _sums(topics, beside, sketch)
    width = sums.shape[1]
    # Row j: the sums of all probes but the j-th, as means.
    without = (sums.sum(axis=1, keepdims=True) - sums) / (width - 1)
    values, spread = _errors(known, sums.mean(axis=1)), _errors(known, without)
    centred = spread - spread.mean(axis=1, keepdims=True)
    deviations = np.sqrt((width - 1) / width * (centred**2).sum(axis=1))
    estimates = [Estimate(float(v), float(e)) for v, e in zip(values, deviations, strict=True)]
    if topics.topic_topic is None:
        return EstimatedErrors(estimates[0], estimates[1], None, None)
    return EstimatedErrors(*estimates)


def _sums(topics: TopicArrays, cooccurrence: Cooccurrence, sketch: RowSketch) -> Floats:
    """Per probe (4, s): mean |(C-bar - shares C-bar_S) g|, and what T adds to ||C-bar||^2, ||C||^2, ||C - B A B'||^2.

    One pass over the rows; ``cooccurrence`` has the row sums of the sketch's documents.
    """
    u = cooccurrence.row_sum
    scale = np.divide(1.0, u, out=np.zeros_like(u), where=u > 0)
    probes, words = sketch.probes, topics.representatives
    inner, explained = gram(cooccurrence.factor, probes), _explained(topics, probes)
    anchors = sketch.products[words] * scale[words, None]
    total = np.zeros((4, probes.shape[1]))
    for start in range(0, len(u), PANEL_ROWS):
        rows = slice(start, start + PANEL_ROWS)
        factor = cooccurrence.factor[rows].astype(np.float64)
        near = factor @ inner - kept_diagonal(factor, cooccurrence.diagonal[rows])[:, None] * probes[rows]
        exact = sketch.products[rows].astype(np.float64)
        missing = exact - near
        added = missing * (2.0 * near + missing)
        recovered = exact * scale[rows, None] - topic_given_word(topics, rows) @ anchors
        total[0] += np.abs(recovered[u[rows] > 0]).sum(axis=0)
        total[1] += scale[rows] ** 2 @ added
        total[2] += added.sum(axis=0)
        total[3] += (added - 2.0 * missing * (topics.word_topic[rows] @ explained)).sum(axis=0)
    total[0] /= max(int((u > 0).sum()), 1)
    return total


def _explained(topics: TopicArrays, probes: NDArray[np.float32]) -> Floats:
    """A B'G, (K, s); 0 without A."""
    A, products = topics.topic_topic, gram(topics.word_topic, probes)
    return np.zeros_like(products) if A is None else np.asarray(A @ products)


def _errors(known: FactorizationErrors, sums: Floats) -> Floats:
    """The four errors, (4,) or (4, s), from means over probes and what is known of the factor."""
    recovery = np.sqrt(np.pi / 2) * sums[0]
    row_norm = np.sqrt(np.maximum(known.row_norm**2 + sums[1], 0.0))
    norm = np.sqrt(np.maximum(known.norm**2 + sums[2], 0.0))
    approximation = np.sqrt(np.maximum((known.approximation or 0.0) ** 2 + sums[3], 0.0))
    return np.array([recovery, _over(recovery, row_norm), approximation, _over(approximation, norm)])


def _over(value: Floats, size: Floats) -> Floats:
    """The ratio; 0 where C itself is 0."""
    ratio: Floats = np.divide(value, size, out=np.zeros_like(value), where=size > 0)
    return ratio
