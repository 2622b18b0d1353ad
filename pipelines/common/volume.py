"""LogRelativeVolume (LR-JSMF 2021, section 5): the convex hull of the anchors compared with random hulls.

The rows of C-bar are expressed as X = diag(d)^-1 Y R', an orthonormal change of coordinates, which preserves volumes
(Lemma 2).
"""

from __future__ import annotations

from math import lgamma

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.inputs import TopicArrays
from streaming_jsmf.linalg.panels import panels, stacked_qr
from streaming_jsmf.linalg.probes import Estimate, keyed_generator

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Number of random hulls.
HULLS = 16
#: Random numbers per hull, but at least two candidate rows per vertex.
DRAWS = 2**22
#: Number of columns of the random rows in memory at a time.
COLUMNS = 4096


def log_relative_volume(
    points: Floats, n_words: int, *, hulls: int = HULLS, seed: int = 0
) -> Estimate | None:
    """Log of the volume of the hull of K points, relative to the mean volume of random hulls of K rows of C-bar.

    The paper selects K of N random rows. Here they are selected from max(2 K, 2^22 / N) rows, at most N: random rows
    have almost equal lengths, so more candidates hardly change the result. ``points`` (K, any) are the vertices (see
    ``anchor_points``), ``n_words`` is N, and ``hulls`` at least 2. Returns None if the hull has no volume (repeated
    points, or K > N), and 0 for K = 1.

    Examples
    --------
    With two words and K = 2 the simplex is the segment from (1, 0) to (0, 1), which is also the largest hull.

    >>> log_relative_volume(np.eye(2), 2).value > 0
    True
    """
    n_topics = len(points)
    volume = log_volume(points)
    if n_topics == 1:
        return Estimate(0.0, 0.0)
    if volume is None or n_topics > n_words:
        return None
    logs = np.array([_random_log_volume(n_words, n_topics, seed, hull) for hull in range(hulls)])
    # High-dimensional volumes exceed the range of floats; compute only ratios to the largest.
    ratios = np.exp(logs - logs.max())
    mean = ratios.mean()
    error = float(ratios.std(ddof=1) / np.sqrt(hulls) / mean)
    return Estimate(float(volume - logs.max() - np.log(mean)), error)


def log_volume(points: Floats) -> float | None:
    """Log of the (K - 1)-dimensional volume of the simplex with vertices ``points`` (K, any); None if it is 0."""
    edges = points[1:] - points[0]
    if len(edges) > points.shape[1]:
        return None
    # Compare each pivot with its own edge because edges may differ in scale.
    diagonal = np.abs(np.diag(np.linalg.qr(edges.T).R)) if len(edges) else np.ones(0)
    if (diagonal <= 1e-12 * np.linalg.norm(edges, axis=1)).any():
        return None
    return float(np.log(diagonal).sum() - lgamma(len(points)))


def anchor_points(topics: TopicArrays, anchor_rows: Floats | None = None) -> Floats | None:
    """Rows of C-bar of the representatives in coordinates that preserve distances, (K, any).

    Uses the rows X_S of the rectified space if Y is known, otherwise ``anchor_rows`` (K, N) of C, each divided by its
    sum. Returns None without these inputs, or if a row sum is not positive.
    """
    if topics.rectified is not None:
        chosen = topics.rectified[topics.representatives]
        sums = chosen @ topics.rectified.sum(axis=0)
        rows = chosen @ stacked_qr(topics.rectified).T
    elif anchor_rows is not None:
        rows, sums = anchor_rows, anchor_rows.sum(axis=1)
    else:
        return None
    return rows / sums[:, None] if (sums > 0).all() else None


def _random_log_volume(n_words: int, n_topics: int, seed: int, hull: int) -> float:
    inner = _random_gram(n_words, min(n_words, max(2 * n_topics, DRAWS // n_words)), seed, hull)
    chosen = _pivots(inner, n_topics)
    inner = inner[np.ix_(chosen, chosen)]
    edges = inner[1:, 1:] - inner[1:, :1] - inner[:1, 1:] + inner[0, 0]
    return float(np.linalg.slogdet(edges).logabsdet / 2 - lgamma(n_topics))


def _random_gram(n_words: int, rows: int, seed: int, hull: int) -> Floats:
    """Inner products of uniform points of the simplex, (rows, rows); the generator is keyed by seed and hull."""
    generator = keyed_generator(seed, f"random hull:{hull}")
    inner, sums = np.zeros((rows, rows)), np.zeros(rows)
    for columns in panels(n_words, COLUMNS):
        block = generator.standard_exponential((rows, columns.stop - columns.start), dtype=np.float32)
        inner += block @ block.T
        sums += block.sum(axis=1, dtype=np.float64)
    return inner / np.outer(sums, sums)


def _pivots(inner: Floats, count: int) -> Integers:
    """Rows selected by pivoted Cholesky decomposition of inner products (n, n), (count,)."""
    residual = np.diag(inner).copy()
    columns = np.zeros((len(inner), count))
    chosen: list[int] = []
    for step in range(count):
        residual[chosen] = -np.inf
        pivot = int(np.argmax(residual))
        column = inner[:, pivot] - columns[:, :step] @ columns[pivot, :step]
        columns[:, step] = column / np.sqrt(residual[pivot])
        residual -= columns[:, step] ** 2
        chosen.append(pivot)
    return np.array(chosen, dtype=np.int64)
