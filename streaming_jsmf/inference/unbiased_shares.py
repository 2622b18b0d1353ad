"""Unbiased estimates of the topic shares of documents, linear in their word counts.

The expected frequencies of the words of a document are B theta. Any A (K x N) with A B = I therefore gives an unbiased
estimate A c / n of theta from the counts c of its n tokens, whatever the distribution of theta and however short the
document; that of least squares weighted by the frequencies p = B pi of the words in the corpus is

    A = (B'D^-1 B)^-1 B'D^-1,    D = diag(p)

Its rows sum to 1, as shares do, but single estimates may be negative or above 1: they are for means and regressions.
Posterior means of theta are nearer to theta, but lie between it and the prior, the nearer to the prior the shorter a
document is, and effects on them are too small by as much.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.typing import Floats

#: Eigenvalues of the scaled B'D^-1 B, whose largest is 1, below which topics are mixtures of the others.
DEPENDENT = 1e-9
#: How far the estimate of a topic may depend on the others.
MIXED = 1e-6


def estimating(
    word_topic: Floats, share: Floats, groups: Sequence[Sequence[int]]
) -> tuple[Floats, list[int]]:
    """A' (N, G) for sums over groups of topics, and the positions of groups that cannot be told from others.

    ``word_topic`` is B (N, K), ``share`` are the shares pi of the topics in the corpus (K,). Words without a topic have
    no weight. Topics that are mixtures of others have no estimate of their own; their sum has one.
    """
    share = np.maximum(share / share.sum(), 1e-12)
    weighted = ratio(word_topic, (word_topic @ share)[:, None])
    scale = np.sqrt(share)
    values, vectors = np.linalg.eigh(scale[:, None] * (word_topic.T @ weighted) * scale)
    used = values > DEPENDENT
    inverse = scale[:, None] * (vectors[:, used] / values[used]) @ vectors[:, used].T * scale
    sums = np.zeros((share.size, len(groups)))
    for column, group in enumerate(groups):
        sums[list(group), column] = 1.0
    found = weighted @ (inverse @ sums)
    apart = np.abs(word_topic.T @ found - sums).max(axis=0)
    return found, np.flatnonzero(apart > MIXED).tolist()
