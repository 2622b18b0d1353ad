"""A Dirichlet prior of topic shares from what anchor words tell: shares and correlations of topics."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
