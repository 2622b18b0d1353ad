"""Recovery and Approximation: how well B, A and the anchors explain C, without any N x N array.

C is represented as F F' - D' with D' = min(D, |F_i|^2), because truncating the factor to L columns would otherwise
make the diagonal negative. Truncation also loses noise of rare words off the diagonal, so Recovery is too small;
``sketch.estimated_errors`` corrects this with products of C itself. Everything else is exact up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.inputs import Cooccurrence, Floats, Integers, TopicArrays
from streaming_jsmf.linalg.gram import gram
from streaming_jsmf.linalg.panels import panels


@dataclass(frozen=True)
class FactorizationErrors:
    """Errors of a model with respect to C.

    Attributes
    ----------
    recovery
        Mean over occurring words of ||C-bar_i - sum_k p(k | i) C-bar_{s_k}||_2 (JSMF 2015). Rows of C-bar are rows of C
        divided by their sums.
    relative_recovery
        Recovery divided by ||C-bar||_F (LR-JSMF 2021, section 5).
    approximation
        ||C - B A B'||_F (JSMF 2015); None without A.
    relative_approximation
        Approximation divided by ||C||_F (LR-JSMF 2021, section 5); None without A.
    norm, row_norm
        ||C||_F and ||C-bar||_F.
    """

    recovery: float
    relative_recovery: float
    approximation: float | None
    relative_approximation: float | None
    norm: float
    row_norm: float


def factorization_errors(topics: TopicArrays, cooccurrence: Cooccurrence) -> FactorizationErrors:
    """Recovery and Approximation, absolute and relative, in O(N L^2) and row blocks; no pass over documents.

    p(topic | word) follows from B and p(topic) by Bayes' rule; anchors are ``topics.representatives``. Words that never
    occur (u = 0) are omitted.

    Raises
    ------
    ValueError
        If the vocabularies differ.

    Examples
    --------
    Documents "a a" and "b b": C = D = diag(1/2, 1/2), C-bar = I and F = I. One topic (1/2, 1/2) with the anchor a: row
    a is recovered and row b is off by |(1, -1)|, so Recovery is sqrt(2) / 2, and ||C-bar||_F = sqrt(2). B A B' is 1/4
    everywhere: Approximation is sqrt(4 / 16), and ||C||_F = sqrt(1/2).

    >>> half = np.array([0.5, 0.5])
    >>> C = Cooccurrence(np.eye(2, dtype=np.float32), diagonal=half, row_sum=half)
    >>> one = TopicArrays(half[:, None], np.array([[0, 1]]), half, np.eye(1), np.ones(1), np.array([0]))
    >>> errors = factorization_errors(one, C)
    >>> print(f"{errors.recovery:.4f} {errors.relative_recovery:.4f}")
    0.7071 0.5000
    >>> print(f"{errors.approximation:.4f} {errors.relative_approximation:.4f}")
    0.5000 0.7071
    """
    if len(cooccurrence.factor) != len(topics.word_topic):
        raise ValueError(f"{len(cooccurrence.factor)} words in C, {len(topics.word_topic)} in the model")
    inner = gram(cooccurrence.factor)
    recovered = _recovery(topics, cooccurrence, inner)
    approximation = _approximation(topics, cooccurrence, recovered.squared_norm)
    words = max(recovered.words, 1)
    return FactorizationErrors(
        recovered.distance / words,
        _ratio(recovered.distance / words, recovered.squared_row_norm),
        approximation,
        None if approximation is None else _ratio(approximation, recovered.squared_norm),
        float(np.sqrt(recovered.squared_norm)),
        float(np.sqrt(recovered.squared_row_norm)),
    )


def kept_diagonal(factor: Floats, diagonal: Floats) -> Floats:
    """D' = min(D, |F_i|^2), (n,), for rows of F (n, L) and D (n,), so that C keeps a non-negative diagonal."""
    return np.asarray(np.minimum(diagonal, np.einsum("ij,ij->i", factor, factor)))


def cooccurrence_rows(cooccurrence: Cooccurrence, words: Integers) -> Floats:
    """Rows of C = F F' - D' for word ids (n,), as (n, N) float64; truncation can make entries negative."""
    chosen = cooccurrence.factor[words].astype(np.float64)
    rows = np.empty((len(words), len(cooccurrence.factor)))
    for panel in panels(len(cooccurrence.factor)):
        np.matmul(chosen, cooccurrence.factor[panel].astype(np.float64).T, out=rows[:, panel])
    rows[np.arange(len(words)), words] -= kept_diagonal(chosen, cooccurrence.diagonal[words])
    return rows


def topic_given_word(topics: TopicArrays, rows: slice) -> Floats:
    """p(topic | word), (n, K), of a block of words by Bayes' rule; rows of words without a topic are 0.

    p(topic) is ``topic_probability``, or the row sums of A, or uniform.
    """
    prior = topics.topic_probability
    if prior is None and topics.topic_topic is not None:
        prior = topics.topic_topic.sum(axis=1)
    joint: Floats = topics.word_topic[rows] * (1.0 if prior is None else prior)
    mass = joint.sum(axis=1, keepdims=True)
    shares: Floats = np.divide(joint, mass, out=np.zeros_like(joint), where=mass > 0)
    return shares


@dataclass
class _Recovered:
    """Sums over words: ||C_i||^2, ||C-bar_i||^2, distances of rows from their reconstruction; number of words."""

    squared_norm: float = 0.0
    squared_row_norm: float = 0.0
    distance: float = 0.0
    words: int = 0


@dataclass(frozen=True)
class _Rows:
    """Rows of C-bar in the coordinates of F: C-bar_i = F row_i - diagonal_i e_i; all 0 for words with u = 0.

    Attributes
    ----------
    row, image, pull
        (n, L): F_i / u_i, F'F F_i / u_i and D'_i F_i / u_i.
    diagonal
        (n,) D'_i / u_i.
    squares
        (n,) ||C_i||^2.
    """

    row: Floats
    image: Floats
    pull: Floats
    diagonal: Floats
    squares: Floats


def _rows(cooccurrence: Cooccurrence, words: slice | Integers, inner: Floats) -> _Rows:
    """Rows of C-bar of the words; ``inner`` is F'F (L, L)."""
    f = cooccurrence.factor[words].astype(np.float64)
    d, u = kept_diagonal(f, cooccurrence.diagonal[words]), cooccurrence.row_sum[words]
    scale = np.divide(1.0, u, out=np.zeros_like(u), where=u > 0)
    image = f @ inner
    squares = _rows_dot(f, image) - 2.0 * d * _rows_dot(f, f) + d**2
    row = f * scale[:, None]
    return _Rows(row, image * scale[:, None], row * d[:, None], d * scale, np.maximum(squares, 0.0))


def _recovery(topics: TopicArrays, cooccurrence: Cooccurrence, inner: Floats) -> _Recovered:
    """Sums of ``_Recovered`` in one pass over the rows of F."""
    total = _Recovered()
    words = topics.representatives
    anchors = _rows(cooccurrence, words, inner)
    # Two topics may share a representative, whose diagonal must be subtracted once.
    same = (words[:, None] == words).astype(np.float64)
    for panel in panels(len(cooccurrence.factor)):
        u = cooccurrence.row_sum[panel]
        occurs, scale = u > 0, np.divide(1.0, u, out=np.zeros_like(u), where=u > 0)
        rows = _rows(cooccurrence, panel, inner)
        shares = topic_given_word(topics, panel)
        own = np.arange(panel.start, panel.stop)[:, None] == words
        distance = np.sqrt(_squared_distances(rows, anchors, shares, own, same))
        total.squared_norm += float(rows.squares.sum())
        total.squared_row_norm += float((rows.squares * scale**2).sum())
        total.distance += float(distance[occurs].sum())
        total.words += int(occurs.sum())
    return total


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


def _approximation(topics: TopicArrays, cooccurrence: Cooccurrence, squared_norm: float) -> float | None:
    """||C - B A B'||_F from ||C||^2 - 2 <C, B A B'> + ||B A B'||^2."""
    A, B = topics.topic_topic, topics.word_topic
    if A is None:
        return None
    outer = gram(cooccurrence.factor, B)
    products = float(((outer.T @ outer) * A).sum())
    for rows in panels(len(B)):
        d = kept_diagonal(cooccurrence.factor[rows].astype(np.float64), cooccurrence.diagonal[rows])
        products -= float(d @ _rows_dot(B[rows] @ A, B[rows]))
    within = gram(B)
    squared = squared_norm - 2.0 * products + float(((A @ within) * (within @ A)).sum())
    return float(np.sqrt(max(squared, 0.0)))


def _rows_dot(left: Floats, right: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", left, right))


def _ratio(value: float, squared: float) -> float:
    """``value`` divided by the root of ``squared``; 0 if C is 0."""
    return float(value / np.sqrt(squared)) if squared > 0 else 0.0
