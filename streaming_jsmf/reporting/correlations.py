"""Which topics go together: joint topic probabilities as what a reader asks."""

from __future__ import annotations

import numpy as np

from streaming_jsmf.reporting.contents import Floats


def conditional(topic_topic: Floats) -> Floats:
    """p(j | i) = A_ij / sum_l A_il, (K, K); rows sum to 1, and are 0 where the sum is not positive.

    Examples
    --------
    >>> print(conditional(np.array([[3.0, 1.0], [0.0, 0.0]])).tolist())
    [[0.75, 0.25], [0.0, 0.0]]
    """
    sums = topic_topic.sum(axis=1, keepdims=True)
    given: Floats = np.divide(topic_topic, sums, out=np.zeros_like(topic_topic), where=sums > 0)
    return given


def times_chance(topic_topic: Floats) -> Floats:
    """A_ij sum A / (A_i. A_.j), (K, K): how many times as often two topics meet as they would by chance; never below 0.

    Estimates of what hardly ever meets may be a little below 0; 1 where a topic has no probability.

    Examples
    --------
    >>> print(np.round(times_chance(np.array([[0.5, 0.0], [0.0, 0.5]])), 3).tolist())
    [[2.0, 0.0], [0.0, 2.0]]
    """
    rows, columns = topic_topic.sum(axis=1, keepdims=True), topic_topic.sum(axis=0, keepdims=True)
    expected = rows * columns
    ratio: Floats = np.divide(
        topic_topic * topic_topic.sum(), expected, out=np.ones_like(topic_topic), where=expected > 0
    )
    return np.maximum(ratio, 0.0)
