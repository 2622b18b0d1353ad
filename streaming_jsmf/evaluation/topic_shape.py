"""Metrics that need only B, A, p(topic) and the anchors, with their rows of C, or the topics to compare with.

As in the authors' code (github.com/moontae/JSMF), ``validity`` is in bits and ranks start at 1. LogRelativeVolume
(LR-JSMF 2021, section 5) compares the convex hull of the anchors with random hulls. The rows of C-bar are expressed as
X = diag(d)^-1 Y R', an orthonormal change of coordinates, which preserves volumes (Lemma 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma

import numpy as np
from scipy.special import xlogy

from streaming_jsmf.evaluation.inputs import TopicArrays
from streaming_jsmf.linalg.panels import panels, ratio, stacked_qr
from streaming_jsmf.linalg.probes import Estimate, keyed_generator
from streaming_jsmf.linalg.typing import Floats, Integers

#: Number of top words that Dissimilarity compares (both papers).
DISSIMILARITY_WORDS = 20
#: Replaces probabilities of 0 in the second argument of a divergence.
FLOOR = float(np.finfo(np.float64).eps)
#: Number of random hulls.
HULLS = 16
#: Random numbers per hull, but at least two candidate rows per vertex.
DRAWS = 2**22
#: Number of columns of the random rows in memory at a time.
COLUMNS = 4096


def dominancy(topic_topic: Floats) -> float:
    """Mean of p(z2 = k | z1 = k) = A_kk / sum_l A_kl (JSMF 2015); 1 if no two topics co-occur. Zero rows count as 0.

    Examples
    --------
    >>> print(f"{dominancy(np.array([[0.3, 0.1], [0.1, 0.5]])):.4f} = (0.3 / 0.4 + 0.5 / 0.6) / 2")
    0.7917 = (0.3 / 0.4 + 0.5 / 0.6) / 2
    """
    return float(ratio(np.diag(topic_topic), topic_topic.sum(axis=1)).mean())


def relative_dominancy(topic_topic: Floats) -> float:
    """(1 / K) sum_k A_kk / ||A||_F (LR-JSMF 2021, section 5), at most 1 / sqrt(K); 0 for A = 0.

    Examples
    --------
    (0.3 + 0.5) / 2 over sqrt(0.09 + 0.01 + 0.01 + 0.25) = 0.6.

    >>> print(f"{relative_dominancy(np.array([[0.3, 0.1], [0.1, 0.5]])):.4f}")
    0.6667
    """
    size = float(np.linalg.norm(topic_topic))
    return float(np.diag(topic_topic).mean()) / size if size > 0 else 0.0


def specificity(word_topic: Floats, word_probability: Floats) -> float:
    """Mean over topics of KL(B_k || p) in nats, for B (N, K); the authors' code uses bits.

    p (N,), with any positive sum, is the unigram distribution in JSMF 2015 and the row sums u of C in LR-JSMF 2021,
    which weights documents instead of tokens. Words with p = 0 would make the divergence infinite; they are omitted
    and the topic is renormalized. A topic without other words counts as 0.

    Examples
    --------
    The topic (1, 0) against (1/2, 1/2) is log 2; (1/2, 1/2) is 0.

    >>> print(f"{specificity(np.array([[1.0, 0.5], [0.0, 0.5]]), np.array([0.5, 0.5])):.4f}")
    0.3466
    """
    present = word_probability > 0
    log_p = np.log(word_probability, out=np.zeros_like(word_probability), where=present)
    mass = np.zeros(word_topic.shape[1])
    total = np.zeros(word_topic.shape[1])
    for rows in panels(len(word_topic)):
        b = word_topic[rows][present[rows]]
        mass += b.sum(axis=0)
        total += xlogy(b, b).sum(axis=0) - log_p[rows][present[rows]] @ b
    shift = np.log(word_probability.sum()) if present.any() else 0.0
    # With m the mass of the remaining words: KL(b / m || p / sum p).
    divergence = ratio(total, mass)
    divergence += np.where(mass > 0, shift - np.log(np.where(mass > 0, mass, 1.0)), 0.0)
    return float(np.maximum(divergence, 0.0).mean())


def dissimilarity(top_words: Integers) -> float:
    """Mean number of the first 20 words of a topic, of ids (K, n), that no other topic lists (both papers).

    Examples
    --------
    Of (1, 2) and (2, 3) one word each is unique; of (4, 5) both are.

    >>> print(f"{dissimilarity(np.array([[1, 2], [2, 3], [4, 5]])):.4f}")
    1.3333
    """
    words = top_words[:, :DISSIMILARITY_WORDS]
    _, inverse, times = np.unique(words, return_inverse=True, return_counts=True)
    return float((times[inverse].reshape(words.shape) == 1).sum(axis=1).mean())


def effective_topics(topic_probability: Floats) -> float:
    """Exponential of the entropy of p(topic), (K,): K for equal shares, near 1 if one topic dominates.

    Examples
    --------
    (1/2, 1/4, 1/4): the entropy is 1.5 log 2, so 2^1.5.

    >>> print(f"{effective_topics(np.array([0.5, 0.25, 0.25])):.4f}")
    2.8284
    """
    total = topic_probability.sum()
    if total <= 0:
        return float(topic_probability.size)
    p = topic_probability / total
    return float(np.exp(-xlogy(p, p).sum()))


def hoyer_sparsity(word_topic: Floats) -> float:
    """Mean over topics of (sqrt(N) - |b|_1 / |b|_2) / (sqrt(N) - 1) (Hoyer 2004): 0 if uniform, 1 for a single word.

    B is (N, K). A topic of zeros counts as 0. If N = 1, every nonzero topic counts as 1.

    Examples
    --------
    Over four words: all on one is 1; (1/2, 1/2, 0, 0) has norms 1 and sqrt(1/2), so 2 - sqrt(2).

    >>> print(f"{hoyer_sparsity(np.array([[1, 0.5], [0, 0.5], [0, 0], [0, 0]])):.4f}")
    0.7929
    """
    one = np.abs(word_topic).sum(axis=0)
    two = np.linalg.norm(word_topic, axis=0)
    root = np.sqrt(len(word_topic))
    if root == 1.0:
        return float((two > 0).mean())
    return float(np.clip((root - ratio(one, two, root)) / (root - 1.0), 0.0, 1.0).mean())


def validity(topic_topic: Floats, topic_probability: Floats) -> float:
    """Symmetric divergence in bits between the row sums of A (K, K) and p(topic) (K,); 0 if they are equal.

    Computes (D(a || p) + D(p || a)) / 2. Only the second argument of D is normalized, so the result also increases if
    A does not sum to 1.

    Examples
    --------
    Row sums (1/2, 1/2) against (1/4, 3/4): D = log2(4/3) / 2 = 0.2075 and (1/4) log2(1/2) + (3/4) log2(3/2) = 0.1887.

    >>> print(f"{validity(np.full((2, 2), 0.25), np.array([0.25, 0.75])):.4f}")
    0.1981
    """
    sums = topic_topic.sum(axis=1)
    return 0.5 * (_divergence(sums, topic_probability) + _divergence(topic_probability, sums))


def _divergence(p: Floats, q: Floats) -> float:
    """D(p || q / sum q) in bits, with zeros of q replaced by FLOOR."""
    lifted = np.maximum(q, FLOOR)
    return float((xlogy(p, p) - xlogy(p, lifted / lifted.sum())).sum() / np.log(2))


def topic_given_word(topics: TopicArrays, rows: slice | Integers) -> Floats:
    """p(topic | word) of a block of words by Bayes' rule, (n, K); rows of words without a topic are 0.

    p(topic) is ``topic_probability`` if available, otherwise the row sums of A, otherwise uniform.
    """
    prior = topics.topic_probability
    if prior is None and topics.topic_topic is not None:
        prior = topics.topic_topic.sum(axis=1)
    joint: Floats = topics.word_topic[rows] * (1.0 if prior is None else prior)
    return ratio(joint, joint.sum(axis=1, keepdims=True))


def word_entropy(topics: TopicArrays) -> float:
    """Mean entropy of p(topic | word) over words with a topic, divided by log K: 0 if certain, 1 if uniform.

    Examples
    --------
    Two topics with equal shares; the first word belongs to one topic, the second to both.

    >>> B = np.array([[0.5, 0.0], [0.5, 0.5], [0.0, 0.5]])
    >>> print(f"{word_entropy(TopicArrays(B, np.array([[0], [1]]), np.full(3, 1 / 3))):.4f}")
    0.3333
    """
    total, words = 0.0, 0
    for rows in panels(len(topics.word_topic)):
        shares = topic_given_word(topics, rows)
        total -= float(xlogy(shares, shares).sum())
        words += int((shares.max(axis=1) > 0).sum())
    width = topics.word_topic.shape[1]
    return total / (words * float(np.log(width))) if width > 1 and words else 0.0


def basis_rank(word_topic: Floats, anchors: Integers) -> dict[str, float | None]:
    """Measure whether the anchors (K,) are the most probable words of their own topics in B (N, K).

    ``hard`` is the mean rank of the anchors, from 1; ``soft`` is the mean log ratio of the largest probability to that
    of the anchor, or None if an anchor has probability 0.

    Examples
    --------
    The anchor of the first topic is its second word, with half the probability of the first.

    >>> B = np.array([[0.6, 0.0], [0.3, 0.0], [0.1, 1.0]])
    >>> {name: round(value, 4) for name, value in basis_rank(B, np.array([1, 2])).items()}
    {'hard': 1.5, 'soft': 0.3466}
    """
    own = word_topic[anchors, np.arange(len(anchors))]
    soft = float(np.log(word_topic.max(axis=0) / own).mean()) if (own > 0).all() else None
    return {"hard": float(np.diag(anchor_ranks(word_topic, anchors)).mean()), "soft": soft}


def basis_quality(word_topic: Floats, anchors: Integers) -> dict[str, float] | None:
    """Mean rank (``hard``, from 1) and mean probability (``soft``) of anchors in the other topics; None for one topic.

    Examples
    --------
    Each anchor is the last of three words in the other topic; only the second one has a probability there, 0.1.

    >>> basis_quality(np.array([[0.9, 0.0], [0.0, 0.5], [0.1, 0.5]]), np.array([0, 2]))
    {'hard': 2.5, 'soft': 0.05}
    """
    if len(anchors) == 1:
        return None
    others = ~np.eye(len(anchors), dtype=bool)
    ranks = anchor_ranks(word_topic, anchors)
    return {"hard": float(ranks[others].mean()), "soft": float(word_topic[anchors][others].mean())}


def anchor_ranks(word_topic: Floats, anchors: Integers) -> Floats:
    """Rank, from 1, of anchor k among the words of topic l, (K, K); ties are broken by word id."""
    ranks = np.empty((len(anchors), len(anchors)))
    for topic, probability in enumerate(word_topic.T):
        rank = np.empty(len(probability), dtype=np.int64)
        rank[np.argsort(-probability, kind="stable")] = np.arange(1, len(probability) + 1)
        ranks[:, topic] = rank[anchors]
    return ranks


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


def recovery_error(word_topic: Floats, truth: Floats) -> float:
    """Mean L1 distance to the true topics under the best matching (STOD paper, section 6.1); between 0 and 2.

    For (N, K) topics and (N, K*) true topics, only the best min(K, K*) pairs count, so compare errors only for equal K.

    Examples
    --------
    Half of the mass of the best topic is on the wrong word: |0.5 - 1| + |0.5 - 0|.

    >>> recovery_error(np.array([[0.0, 0.5], [1.0, 0.5]]), np.array([[1.0], [0.0]]))
    1.0
    """
    # Importing them takes a tenth of the start-up time, and few commands compare models.
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    distance = cdist(word_topic.T, truth.T, metric="cityblock")
    matched = distance[linear_sum_assignment(distance)]
    return float(matched.mean()) if matched.size else 0.0


def stability(word_topic: Floats, replicas: Sequence[Floats]) -> Estimate:
    """Mean over replicas (N, K') of 1 - L1 / 2 under the best matching: 0 without common words, 1 for equal topics.

    Replicas, at least one, are topics of models of resampled partitions; only the best min(K, K') pairs count.

    Examples
    --------
    One replica has the topics in reverse order; the other lost a quarter of one topic: (1 + 0.875) / 2.

    >>> B = np.eye(2)
    >>> stability(B, [B[:, ::-1], np.array([[1.0, 0.25], [0.0, 0.75]])])
    Estimate(value=0.9375, standard_error=0.0625)
    """
    agreement = np.array([1.0 - recovery_error(word_topic, replica) / 2.0 for replica in replicas])
    error = float(agreement.std(ddof=1) / np.sqrt(agreement.size)) if agreement.size > 1 else None
    return Estimate(float(agreement.mean()), error)
