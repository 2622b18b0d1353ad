"""Topic shares of documents by CVB0 (Asuncion, Welling, Smyth and Teh 2009): near the mean of the posterior.

The rounds are those of polish (``cvb0``), topics and prior given, until they settle; the shares are then
(n_k + alpha_k) / (n + sum(alpha)). No function is known to rise, so neither is how far there is to go: a document is
done when a round changes its shares by little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.cvb0 import (
    FLOOR,
    LANE,
    first_shares,
    next_shares,
    weigh_topics,
)
from streaming_jsmf.linalg.compiled import compiled

Floats = NDArray[np.float64]
Single = NDArray[np.float32]

#: Parts of a word's largest probability below this are 0: products with ``FLOOR`` would leave the normal numbers of
#: single precision, which slows a processor down many times over.
NOTHING = 1e-30


def padded_topics(word_topic: Floats, prior: Floats) -> tuple[Single, Single]:
    """B and alpha as the kernel wants them; each word's probabilities are over their largest, which nothing feels."""
    n_words, n_topics = word_topic.shape
    width = -(-n_topics // LANE) * LANE
    topics, alpha = np.zeros((n_words, width), np.float32), np.zeros(width, np.float32)
    largest = word_topic.max(axis=1, keepdims=True)
    scaled = np.divide(word_topic, largest, out=np.zeros_like(word_topic), where=largest > 0)
    topics[:, :n_topics] = np.where(scaled > NOTHING, scaled, 0.0)
    alpha[:n_topics] = prior
    return topics, alpha


@compiled(nogil=True)
def settle(
    starts: NDArray[np.int64],
    words: NDArray[np.int64],
    numbers: Single,
    topics: Single,
    prior: Single,
    tolerance: float,
    most: int,
    shares: Floats,
    rounds: NDArray[np.int64],
    changes: Floats,
) -> None:
    """Shares of each document of a block, rounds taken and the change of the last, into the last three arguments."""
    longest = 0
    for document in range(starts.size - 1):
        longest = max(longest, starts[document + 1] - starts[document])
    owned, scales = np.empty((longest, prior.size), np.float32), np.empty(longest, np.float32)
    weights, before, prior_sum = np.empty_like(prior), np.empty_like(prior), prior.sum()
    for document in range(starts.size - 1):
        here = slice(starts[document], starts[document + 1])
        ids, counts = words[here], numbers[here]
        length = counts.sum()
        for k in range(prior.size):
            before[k] = max(prior[k] * (np.float32(1) + length / prior_sum), FLOOR)
        first_shares(ids, topics, before, owned, scales)
        for number in range(most):
            weigh_topics(counts, owned, scales, prior, weights)
            total, moved = 0.0, 0.0
            for k in range(prior.size):
                total += weights[k]
                moved += abs(weights[k] - before[k])
                before[k] = weights[k]
            rounds[document], changes[document] = number + 1, moved / total
            if moved <= tolerance * total:
                break
            next_shares(ids, counts, topics, weights, owned, scales)
        for k in range(shares.shape[1]):
            shares[document, k] = weights[k] / total
