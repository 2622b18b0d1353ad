"""LogRelativeVolume (LR-JSMF 2021, section 5): the anchors' convex hull beside random ones.

The hull is that of the anchors' rows of C-bar, measured in X = diag(d)^-1 Y R' (Lemma 2: an orthonormal change of
coordinates, so volumes are kept). The random hulls have vertices drawn evenly from the simplex of all words and chosen
by the same greedy pivoting.
"""

from __future__ import annotations

import hashlib
from math import lgamma

import numpy as np

from streaming_jsmf.evaluation.factorization import cooccurrence_rows
from streaming_jsmf.evaluation.inputs import Cooccurrence, Estimate, Floats, Integers, TopicArrays
from streaming_jsmf.linalg.gram import triangle

#: Random hulls that are averaged.
HULLS = 16

#: Numbers drawn for one random hull, where that gives at least two candidates for each vertex.
DRAWS = 2**22

#: Columns of the random rows that are in memory at a time.
COLUMNS = 4096


def log_relative_volume(
    points: Floats, n_words: int, *, hulls: int = HULLS, seed: int = 0
) -> Estimate | None:
    """Log of the volume of the hull of K points over the mean volume of random hulls of K rows of C-bar.

    The paper draws a random row for every word and picks K of them. Here they are picked from a sample of
    max(2 K, 2^22 / N) rows (N at most): all random rows are nearly of one length, so more of them add little.

    Parameters
    ----------
    points
        (K, any) vertices, see ``anchor_points``.
    n_words
        N, the dimension of the simplex that random rows are drawn from.
    hulls
        Random hulls, at least 2.
    seed
        Of the random rows; equal arguments give equal bits.

    Returns
    -------
    None for a hull without volume: repeated points, or more than N of them. For K = 1 every hull is a point of
    volume 1, and the value is 0.

    Raises
    ------
    ValueError
        For fewer than two random hulls.

    Examples
    --------
    With two words and K = 2 the simplex is the segment from (1, 0) to (0, 1), and the whole of it is the largest hull.

    >>> log_relative_volume(np.eye(2), 2).value > 0
    True
    >>> log_relative_volume(np.ones((2, 3)), 3) is None
    True
    """
    if hulls < 2:
        raise ValueError(f"hulls is {hulls}; a standard error needs at least 2")
    n_topics = len(points)
    volume = log_volume(points)
    if n_topics == 1:
        return Estimate(0.0, 0.0)
    if volume is None or n_topics > n_words:
        return None
    logs = np.array([_random_log_volume(n_words, n_topics, seed, hull) for hull in range(hulls)])
    # Volumes of many dimensions leave the range of floats: only their ratios to the largest are formed.
    ratios = np.exp(logs - logs.max())
    mean = ratios.mean()
    error = float(ratios.std(ddof=1) / np.sqrt(hulls) / mean)
    return Estimate(float(volume - logs.max() - np.log(mean)), error)


def log_volume(points: Floats) -> float | None:
    """Log of the (K - 1)-dimensional volume of the simplex with K vertices, (K, any); None if it is 0.

    Examples
    --------
    The triangle of the three unit vectors has sides sqrt(2), hence the area sqrt(3) / 2.

    >>> print(f"{np.exp(log_volume(np.eye(3))):.4f}")
    0.8660
    """
    edges = points[1:] - points[0]
    if len(edges) > points.shape[1]:
        return None
    # Edges that differ in scale do not make a hull flat: rows of QR are compared with their own edge.
    diagonal = np.abs(np.diag(np.linalg.qr(edges.T).R)) if len(edges) else np.ones(0)
    if (diagonal <= 1e-12 * np.linalg.norm(edges, axis=1)).any():
        return None
    return float(np.log(diagonal).sum() - lgamma(len(points)))


def anchor_points(
    topics: TopicArrays, cooccurrence: Cooccurrence | None = None, anchor_rows: Floats | None = None
) -> Floats | None:
    """Rows of C-bar of the representatives in coordinates that keep distances, (K, any).

    From Y where the engine has it: X_S, the rectified space in which LAW chose the anchors. Otherwise the exact
    ``anchor_rows`` (K, N) of C, or those of F F' - D', each over its sum.

    Returns
    -------
    None where there is none of the three, or a representative's row has no positive sum.

    Examples
    --------
    Y = diag(1/2, 1/2)^(1/2): C* = diag(1/2, 1/2), whose normalised rows are the unit vectors, sqrt(2) apart.

    >>> half = np.array([0.5, 0.5])
    >>> two = TopicArrays(np.eye(2), np.array([[0, 1], [1, 0]]), half, rectified=np.diag(half**0.5))
    >>> points = anchor_points(two)
    >>> print(f"{np.linalg.norm(points[0] - points[1]):.4f}")
    1.4142
    """
    words = topics.representatives
    if topics.rectified is not None:
        chosen = topics.rectified[words]
        sums = chosen @ topics.rectified.sum(axis=0)
        rows = chosen @ triangle(topics.rectified).T
    elif anchor_rows is not None:
        rows, sums = anchor_rows, anchor_rows.sum(axis=1)
    elif cooccurrence is not None:
        rows, sums = cooccurrence_rows(cooccurrence, words), cooccurrence.row_sum[words]
    else:
        return None
    return rows / sums[:, None] if (sums > 0).all() else None


def _random_log_volume(n_words: int, n_topics: int, seed: int, hull: int) -> float:
    """Log-volume of one random hull: K of a sample of rows, by pivoting on their Gram matrix."""
    inner = _random_gram(n_words, min(n_words, max(2 * n_topics, DRAWS // n_words)), seed, hull)
    chosen = _pivots(inner, n_topics)
    inner = inner[np.ix_(chosen, chosen)]
    edges = inner[1:, 1:] - inner[1:, :1] - inner[:1, 1:] + inner[0, 0]
    return float(np.linalg.slogdet(edges).logabsdet / 2 - lgamma(n_topics))


def _random_gram(n_words: int, rows: int, seed: int, hull: int) -> Floats:
    """Inner products (rows, rows) of rows drawn evenly from the simplex of ``n_words`` corners, block by block.

    Exponential variables over their sum are even on the simplex. The key of the generator is a hash of the seed and
    the hull's number, so that hulls can be drawn in any order.
    """
    digest = hashlib.sha256(f"{seed}:random hull:{hull}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], dtype=np.uint64)))
    inner, sums = np.zeros((rows, rows)), np.zeros(rows)
    for start in range(0, n_words, COLUMNS):
        block = generator.standard_exponential((rows, min(COLUMNS, n_words - start)), dtype=np.float32)
        inner += block @ block.T
        sums += block.sum(axis=1, dtype=np.float64)
    return inner / np.outer(sums, sums)


def _pivots(inner: Floats, count: int) -> Integers:
    """Rows that greedy pivoting takes, (count,), from inner products (n, n): a pivoted Cholesky decomposition."""
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
