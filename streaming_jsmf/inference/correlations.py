"""Topic correlations A from topics B and the compressed co-occurrence Y Y' ~ B A B'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_jsmf.linalg.gram import stacked_qr
from streaming_jsmf.linalg.typing import Floats

#: Steps between two looks at the gap.
CHECK_EVERY = 20


@dataclass(frozen=True)
class RefinedCorrelations:
    """The joint-stochastic A nearest to Y Y' through B, and its certificate.

    Attributes
    ----------
    topic_topic
        A, K x K, symmetric, not negative, sum 1.
    gap
        ||Y Y' - B A B'||_F^2 is at most this share of ||Y Y'||_F^2 above its minimum (Frank-Wolfe gap).
    iterations
        Steps taken.
    """

    topic_topic: Floats
    gap: float
    iterations: int


def diagonal_correlations(block: Floats, anchor_mass: Floats, topic_mass: Floats) -> Floats:
    """A = B_S^-1 C_SS B_S^-1, where B_S is diagonal because an anchor belongs to one topic.

    Parameters
    ----------
    block
        C_SS, K x K, between the anchors. Negative entries become 0: that is where ENN's correction E lifts them.
    anchor_mass
        (K,), d of the anchors.
    topic_mass
        (K,), mass of all words by topic; B_S is anchor mass over topic mass.

    Returns
    -------
    K x K, symmetric and not negative. Sums to 1 only as far as the anchors represent all words.
    """
    scale = topic_mass / anchor_mass
    correlations = scale[:, None] * np.maximum(block, 0.0) * scale
    joint: Floats = (correlations + correlations.T) / 2
    return joint


def refined_correlations(
    word_topic: Floats,
    rectified: Floats,
    start: Floats,
    *,
    tolerance: float = 1e-8,
    max_iterations: int = 20_000,
) -> RefinedCorrelations:
    """Minimise ||Y Y' - B A B'||_F over non-negative A of sum 1, by accelerated projected gradients.

    Uses all words where ``diagonal_correlations`` uses the anchors alone. With G = B'B and T = B'Y (B'Y)' the
    objective is <A, G A G> - 2 <A, T> and a constant: O(N K^2) once and O(K^3) a step. Gradient and projection
    keep A symmetric.

    Parameters
    ----------
    word_topic
        B, N x K.
    rectified
        Y, N x K.
    start
        K x K, not negative, not zero.
    tolerance
        Of the gap, see ``RefinedCorrelations.gap``.
    max_iterations
        Where to end at the latest; look at the gap.
    """
    gram, half = word_topic.T @ word_topic, word_topic.T @ rectified
    target, own = half @ half.T, rectified.T @ rectified
    scale = float(np.sum(own * own)) or 1.0
    lipschitz = 2.0 * float(np.linalg.eigvalsh(gram)[-1]) ** 2 or 1.0
    current = (start + start.T) / (2 * start.sum())
    point, momentum, gap = current, 1.0, np.inf
    for number in range(max_iterations + 1):
        if number % CHECK_EVERY == 0:
            slope = 2.0 * (gram @ current @ gram - target)
            gap = float(np.sum(slope * current) - slope.min()) / scale
            if gap <= tolerance:
                break
        slope = 2.0 * (gram @ point @ gram - target)
        step = _nearest_on_simplex((point - slope / lipschitz).ravel()).reshape(gram.shape)
        step = (step + step.T) / 2
        # Momentum that points uphill is forgotten.
        momentum = 1.0 if np.sum((point - step) * (step - current)) > 0 else momentum
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2
        point = step + (momentum - 1.0) / following * (step - current)
        current, momentum = step, following
    return RefinedCorrelations(current / current.sum(), max(gap, 0.0), number)


def reconstruction_error(word_topic: Floats, topic_topic: Floats, rectified: Floats) -> float:
    """||Y Y' - B A B'||_F / ||Y Y'||_F, without N x N matrices."""
    # || [Y, B] diag(I, -A) [Y, B]' || is that of R diag(I, -A) R': exact where the two are close.
    upper, k = stacked_qr(rectified, word_topic), rectified.shape[1]
    own = upper[:, :k] @ upper[:, :k].T
    other = upper[:, k:] @ topic_topic @ upper[:, k:].T
    size = float(np.linalg.norm(own))
    return float(np.linalg.norm(own - other)) / size if size > 0 else 0.0


#: Range of the sum of a prior that is found.
LOWEST_SUM, HIGHEST_SUM = 0.01, 50.0

#: Least share of a topic in a prior: one of 0 would keep a document from having the topic at all.
LEAST_SHARE = 1e-6


def prior_sum(topic_topic: Floats, topic_probability: Floats) -> float:
    """Sum of the Dirichlet prior with these shares that gives the topic correlations their trace.

    Under a prior of sum a with mean p the second moment of the shares, whose entries sum to 1, has the trace
    (1 + a |p|^2) / (1 + a). The smaller a, the more of a document is one topic. Held in the range of ``LOWEST_SUM`` to
    ``HIGHEST_SUM``: the lower end where each document is one topic, as with K = 1, the upper end also for correlations
    that no prior has.

    Parameters
    ----------
    topic_topic
        K x K, A.
    topic_probability
        (K,) p, sum 1.
    """
    trace = float(np.trace(topic_topic) / topic_topic.sum())
    spread = float(topic_probability @ topic_probability)
    if trace >= 1:
        return LOWEST_SUM
    if not trace > spread:
        return HIGHEST_SUM
    return float(np.clip((1 - trace) / (trace - spread), LOWEST_SUM, HIGHEST_SUM))


def dirichlet_prior(topic_probability: Floats, total: float) -> Floats:
    """alpha (K,) of the given sum, in proportion to the shares of topics, none of them 0."""
    shares = np.maximum(topic_probability, LEAST_SHARE)
    prior: Floats = total * shares / shares.sum()
    return prior


def _nearest_on_simplex(point: Floats) -> Floats:
    """Nearest point of the probability simplex to a vector, by sorting (Held et al. 1974)."""
    descending = -np.sort(-point)
    excess = np.cumsum(descending) - 1.0
    support = np.count_nonzero(descending * np.arange(1, point.size + 1) > excess)
    return np.asarray(np.maximum(point - excess[support - 1] / support, 0.0))
