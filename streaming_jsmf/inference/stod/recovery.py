"""From components of the whitened tensor to topics, their shares of the corpus, and the words that stand for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.stod.power import Components

Floats = NDArray[np.float64]

#: Topics whose word distributions have a cosine above this are the same topic twice.
DUPLICATE_COSINE = 0.9

#: Rounding that a component of the whole corpus, whose eigenvalue is 1, may fall short of it.
SHARE_ROUNDING = 1e-9

#: Steps to the weights with which topics mix to the corpus. The likelihood hardly rises after ten; in the limit some
#: topics of real corpora would end with no weight at all, for no gain in perplexity.
MIXING_STEPS = 50


@dataclass(frozen=True)
class Recovered:
    """Topics by falling probability.

    Attributes
    ----------
    word_topic
        phi, N x k; columns sum to 1. With ``probability`` they mix to the word probabilities of the corpus exactly,
        so that every word of the corpus has a topic.
    probability
        (k,) share of each topic in the corpus; sums to 1.
    eigenvalues
        lambda* of each topic's component, (k,).
    shares
        1 / lambda*^2, (k,): the paper's shares of the topics. They sum to 1 where K and alpha0 are those of the
        corpus; components of noise have large ones.
    listing
        N x k, float32, to list words by; see ``listing_scores``.
    mass_without_topic
        Share of the corpus' tokens that are of words which no component had.
    discarded
        Components that are no topic: of a share above 1, or without a positive entry.
    """

    word_topic: Floats
    probability: Floats
    eigenvalues: Floats
    shares: Floats
    listing: NDArray[np.float32]
    mass_without_topic: float
    discarded: int

    @property
    def duplicate_of(self) -> NDArray[np.int64]:
        """(k,) the first larger topic with nearly the same words, or -1."""
        unit = self.word_topic / np.linalg.norm(self.word_topic, axis=0)
        close = np.tril(np.abs(unit.T @ unit) > DUPLICATE_COSINE, k=-1)
        return np.where(close.any(axis=1), close.argmax(axis=1), -1).astype(np.int64)


def shares_of(values: Floats) -> Floats:
    """1 / lambda*^2; infinite for a component of no strength."""
    squares = values * values
    shares = np.full(values.size, np.inf)
    np.divide(1.0, squares, out=shares, where=squares > 0)
    return shares


def recover(
    product: Floats,
    components: Components,
    word_mean: Floats,
    word_probability: Floats,
    threshold: float,
) -> Recovered:
    """phi_t = lambda*_t M2 W v_t (line 1.13, mended), without negative entries, and made to mix to the corpus.

    Parameters
    ----------
    product
        M2 W, N x k.
    components
        Of M3(W, W, W).
    word_mean
        M1, (N,): the noise of a word grows with the square root of it.
    word_probability
        (N,) share of each word in the tokens. It stands for M1 where that is 0: words of documents that are too short
        for the moments.
    threshold
        Times the noise that a word must be above to lead the list of a topic.
    """
    values = components.values
    # Where there is one component only, its eigenvalue is 1 up to noise.
    kept = np.flatnonzero(values >= 1.0 - SHARE_ROUNDING) if values.size > 1 else np.arange(values.size)
    topics = product @ (components.vectors[:, kept] * values[kept])
    topics[word_mean <= 0.0] = 0.0
    listing = listing_scores(topics, word_mean, threshold)
    np.maximum(topics, 0.0, out=topics)
    sums = topics.sum(axis=0)
    there = np.flatnonzero(sums > 0)
    kept, topics = kept[there], topics[:, there] / sums[there]
    without = ~topics.any(axis=1)
    probability = mix(topics, np.where(word_mean > 0, word_mean, word_probability), shares_of(values[kept]))
    order = np.argsort(-probability, kind="stable")
    kept = kept[order]
    return Recovered(
        topics[:, order],
        probability[order],
        values[kept],
        shares_of(values[kept]),
        listing[:, there[order]],
        float(word_probability[without].sum()),
        values.size - kept.size,
    )


def listing_scores(topics: Floats, word_mean: Floats, times: float) -> NDArray[np.float32]:
    """Scores of words in topics as they come out of the tensor, N x k: by what is above ``times`` s sqrt(M1).

    s is the noise of a topic: negative entries are noise alone, so it is the root mean square of (negative entry /
    sqrt(M1)). The noise of a frequent word is larger, so that lists by these scores have fewer of them. Words that are
    not above the noise follow, below 0, by their probability.
    """
    deviation = np.sqrt(np.maximum(word_mean, 0.0))
    scale = np.where(deviation > 0, deviation, 1.0)
    scores = np.empty(topics.shape, dtype=np.float32)
    for topic, column in enumerate(topics.T):
        below = column < 0
        s = np.sqrt(np.mean((column[below] / scale[below]) ** 2)) if below.any() else 0.0
        above = column - times * s * deviation
        positive = np.maximum(column, 0.0)
        scores[:, topic] = np.where(above > 0, above, positive / (positive.sum() or 1.0) - 1.0)
    return scores


def mix(topics: Floats, word_probability: Floats, start: Floats) -> Floats:
    """Weights of topics, (k,), sum 1; the topics (N x k, changed in place) then mix to the words of the corpus exactly.

    Steps of expectation-maximisation from the weights ``start`` on: under p(t | w) = p_t phi_wt / sum of these over t,
    the weight of a topic is the mean of p(t | w) over the words of the corpus. The last step takes the topics along,
    phi_wt ~ p(w) p(t | w). A word that no topic has is shared out as the topics are, p(t | w) = p_t.
    """
    if not topics.shape[1]:
        return np.zeros(0)
    wanted = word_probability / word_probability.sum()
    ratio, weights = np.zeros_like(wanted), start / start.sum()
    for _ in range(MIXING_STEPS):
        weights = _next_weights(topics, wanted, weights, ratio)
    mixture = topics @ weights
    np.divide(wanted, mixture, out=ratio, where=mixture > 0)
    topics *= ratio[:, None]
    orphans = mixture <= 0
    topics[orphans] = wanted[orphans, None]
    sums = topics.sum(axis=0)
    topics /= sums
    return _over_sum(weights * sums)


def _next_weights(topics: Floats, wanted: Floats, weights: Floats, ratio: Floats) -> Floats:
    """One step; words that no topic has say nothing. ``ratio`` is room for N numbers, 0 where it stays 0."""
    mixture = topics @ weights
    np.divide(wanted, mixture, out=ratio, where=mixture > 0)
    return _over_sum(weights * (topics.T @ ratio))


def _over_sum(weights: Floats) -> Floats:
    return np.asarray(weights / weights.sum())
