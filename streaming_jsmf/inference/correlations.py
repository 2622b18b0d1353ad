"""Topic correlations A from topics B and Y Y' ~ B A B', and the Dirichlet prior that they imply."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_jsmf.linalg.gram import stacked_qr
from streaming_jsmf.linalg.typing import Floats

#: Iterations between two evaluations of the gap.
CHECK_EVERY = 20


@dataclass(frozen=True)
class RefinedCorrelations:
    """The joint-stochastic A nearest to Y Y' through B, and its certificate.

    Attributes
    ----------
    topic_topic
        A, K x K, symmetric, non-negative, sum 1.
    gap
        ||Y Y' - B A B'||_F^2 is at most this share of ||Y Y'||_F^2 above its minimum (Frank-Wolfe gap).
    iterations
        Number of iterations.
    """

    topic_topic: Floats
    gap: float
    iterations: int


def diagonal_correlations(block: Floats, anchor_mass: Floats, topic_mass: Floats) -> Floats:
    """A = B_S^-1 C_SS B_S^-1, K x K, non-negative; B_S is diagonal because an anchor belongs to one topic.

    ``block`` is C_SS between the anchors, whose negative entries become 0, as ENN's correction E makes them. B_S is the
    ``anchor_mass`` (d of the anchors) over the ``topic_mass``. The sum is 1 only as far as the anchors represent all
    words.
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

    Uses all words, ``diagonal_correlations`` only the anchors. With G = B'B and T = B'Y (B'Y)' the objective is
    <A, G A G> - 2 <A, T> plus a constant: O(N K^2) once and O(K^3) per iteration.

    Parameters
    ----------
    word_topic
        B, N x K.
    rectified
        Y, N x K.
    start
        K x K, non-negative, not zero.
    tolerance
        Of the gap, see ``RefinedCorrelations.gap``.
    max_iterations
        Maximum number of iterations; compare the gap.
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
        # Momentum is reset when it points uphill.
        momentum = 1.0 if np.sum((point - step) * (step - current)) > 0 else momentum
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2
        point = step + (momentum - 1.0) / following * (step - current)
        current, momentum = step, following
    return RefinedCorrelations(current / current.sum(), max(gap, 0.0), number)


def reconstruction_error(word_topic: Floats, topic_topic: Floats, rectified: Floats) -> float:
    """||Y Y' - B A B'||_F / ||Y Y'||_F, without N x N matrices."""
    # || [Y, B] diag(I, -A) [Y, B]' || = || R diag(I, -A) R' ||: exact where the two are close.
    upper, k = stacked_qr(rectified, word_topic), rectified.shape[1]
    own = upper[:, :k] @ upper[:, :k].T
    other = upper[:, k:] @ topic_topic @ upper[:, k:].T
    size = float(np.linalg.norm(own))
    return float(np.linalg.norm(own - other)) / size if size > 0 else 0.0


#: Range of an estimated sum of a prior.
LOWEST_SUM, HIGHEST_SUM = 0.01, 50.0

#: Smallest share of a topic in a prior: with 0 no document could have the topic.
LEAST_SHARE = 1e-6


def prior_sum(topic_topic: Floats, topic_probability: Floats) -> float:
    """Sum of the Dirichlet prior of mean p = ``topic_probability`` that gives the topic correlations A their trace.

    Under a prior of sum a the second moment of the shares, whose entries sum to 1, has the trace (1 + a |p|^2) / (1 +
    a): the smaller a, the more a document concentrates on one topic. Limited to ``LOWEST_SUM`` (each document has one
    topic, or K = 1) and ``HIGHEST_SUM`` (also for correlations that no prior has).
    """
    trace = float(np.trace(topic_topic) / topic_topic.sum())
    squared_mean = float(topic_probability @ topic_probability)
    if trace >= 1:
        return LOWEST_SUM
    if not trace > squared_mean:
        return HIGHEST_SUM
    return float(np.clip((1 - trace) / (trace - squared_mean), LOWEST_SUM, HIGHEST_SUM))


def dirichlet_prior(topic_probability: Floats, total: float) -> Floats:
    """alpha (K,) with the given sum, proportional to the shares of topics; no entry is 0."""
    shares = np.maximum(topic_probability, LEAST_SHARE)
    prior: Floats = total * shares / shares.sum()
    return prior


def _nearest_on_simplex(point: Floats) -> Floats:
    """Nearest point of the probability simplex to a vector, by sorting (Held et al. 1974)."""
    descending = -np.sort(-point)
    excess = np.cumsum(descending) - 1.0
    support = np.count_nonzero(descending * np.arange(1, point.size + 1) > excess)
    return np.asarray(np.maximum(point - excess[support - 1] / support, 0.0))
