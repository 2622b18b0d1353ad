"""Topic correlations A from topics B and Y Y' ~ B A B', and the Dirichlet prior that they imply."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_jsmf.linalg.panels import stacked_qr
from streaming_jsmf.linalg.typing import Floats

#: Iterations between evaluations of the gap.
CHECK_EVERY = 20


@dataclass(frozen=True)
class RefinedCorrelations:
    """The joint-stochastic A (K x K) that minimizes ||Y Y' - B A B'||_F, with its optimality gap.

    ``gap`` is the Frank-Wolfe gap: it bounds how far ||Y Y' - B A B'||_F^2 is above its minimum, relative to ||Y
    Y'||_F^2.
    """

    topic_topic: Floats
    gap: float
    iterations: int


def diagonal_correlations(block: Floats, anchor_mass: Floats, topic_mass: Floats) -> Floats:
    """A = B_S^-1 C_SS B_S^-1, K x K, non-negative, where B_S is diagonal because each anchor belongs to one topic.

    ``block`` is C_SS between the anchors; its negative entries become 0, as with ENN's correction E. B_S is
    ``anchor_mass`` (d of the anchors) over ``topic_mass``. The sum of A is near 1 only if the anchors represent all
    words.
    """
    scale = topic_mass / anchor_mass
    correlations = scale[:, None] * np.maximum(block, 0.0) * scale
    return np.asarray((correlations + correlations.T) / 2)


def refined_correlations(
    word_topic: Floats,
    rectified: Floats,
    start: Floats,
    *,
    tolerance: float = 1e-8,
    max_iterations: int = 20_000,
) -> RefinedCorrelations:
    """Minimize ||Y Y' - B A B'||_F over non-negative A of sum 1, by accelerated projected gradients.

    Unlike ``diagonal_correlations`` it uses all words. With G = B'B and T = B'Y (B'Y)' the objective is <A, G A G> - 2
    <A, T> plus a constant: O(N K^2) once and O(K^3) per iteration. B and Y are N x K, ``start`` is K x K, non-negative
    and not zero. Iterations stop when ``RefinedCorrelations.gap`` is at most ``tolerance``, or after
    ``max_iterations``.
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
        # Restart the momentum when it points uphill.
        momentum = 1.0 if np.sum((point - step) * (step - current)) > 0 else momentum
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2
        point = step + (momentum - 1.0) / following * (step - current)
        current, momentum = step, following
    return RefinedCorrelations(current / current.sum(), max(gap, 0.0), number)


def reconstruction_error(word_topic: Floats, topic_topic: Floats, rectified: Floats) -> float:
    """||Y Y' - B A B'||_F / ||Y Y'||_F, without N x N matrices."""
    # || [Y, B] diag(I, -A) [Y, B]' || = || R diag(I, -A) R' || is accurate even where the two matrices are close.
    upper, k = stacked_qr(rectified, word_topic), rectified.shape[1]
    own = upper[:, :k] @ upper[:, :k].T
    other = upper[:, k:] @ topic_topic @ upper[:, k:].T
    size = float(np.linalg.norm(own))
    return float(np.linalg.norm(own - other)) / size if size > 0 else 0.0


#: Limits for the estimated sum of a prior.
LOWEST_SUM, HIGHEST_SUM = 0.01, 50.0
#: Minimum share of a topic in a prior; with 0, no document could have the topic.
LEAST_SHARE = 1e-6


def prior_sum(topic_topic: Floats, topic_probability: Floats) -> float:
    """Sum of the Dirichlet prior with mean p = ``topic_probability`` that reproduces the trace of the correlations A.

    Under a prior of sum a, the second moment of the shares (normalized to sum 1) has the trace (1 + a |p|^2) / (1 + a).
    The result is clipped to [``LOWEST_SUM``, ``HIGHEST_SUM``]: a trace of 1 or more gives the lower limit, a trace that
    no prior can produce the upper limit.
    """
    trace = float(np.trace(topic_topic) / topic_topic.sum())
    squared_mean = float(topic_probability @ topic_probability)
    if trace >= 1:
        return LOWEST_SUM
    if not trace > squared_mean:
        return HIGHEST_SUM
    return float(np.clip((1 - trace) / (trace - squared_mean), LOWEST_SUM, HIGHEST_SUM))


def dirichlet_prior(topic_probability: Floats, total: float) -> Floats:
    """Return alpha (K,) with the given sum, proportional to the topic probabilities; all entries are positive."""
    shares = np.maximum(topic_probability, LEAST_SHARE)
    return np.asarray(total * shares / shares.sum())


def _nearest_on_simplex(point: Floats) -> Floats:
    """Project a vector onto the probability simplex by sorting (Held et al. 1974)."""
    descending = -np.sort(-point)
    excess = np.cumsum(descending) - 1.0
    support = np.count_nonzero(descending * np.arange(1, point.size + 1) > excess)
    return np.asarray(np.maximum(point - excess[support - 1] / support, 0.0))
