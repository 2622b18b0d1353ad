"""Components of the whitened tensor by the power method with deflation (lines 1.6 to 1.16 of STOD), and what follows.

Components give topics, their shares of the corpus, and scores for word lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.linalg.tensor import pair_products
from streaming_jsmf.linalg.typing import Floats, Integers, Single

#: A restart stops when a step moves it less than this; only the best one is polished. Restarts use float32, which
#: halves their time.
RESTART_TOLERANCE = 1e-4
#: The best restart is iterated until a step moves it less than this, or this many times.
POLISH_TOLERANCE, POLISH_STEPS = 1e-12, 5000

Float = TypeVar("Float", np.float32, np.float64)

#: Topics whose word distributions have a cosine above this are duplicates.
DUPLICATE_COSINE = 0.9
#: Rounding tolerance for the eigenvalue 1 of a component that covers the whole corpus.
SHARE_ROUNDING = 1e-9
#: Grid of multiples of the noise from which ``best_multiple`` selects; its maximum is far above any optimum.
NOISE_STEP, NOISE_STEPS = 0.1, 30
#: Steps for the mixture weights of topics. The likelihood hardly increases after ten; in the limit some topics would
#: have zero weight, with no better perplexity.
MIXING_STEPS = 50


@dataclass(frozen=True)
class Components:
    """T ~ sum over t of ``values[t]`` v_t (x) v_t (x) v_t, in the order in which the components were found.

    ``values`` (k,) are non-negative, ``vectors`` (k, k) have unit columns v_t, and ``largest_step`` is the largest last
    step of a polished vector.
    """

    values: Floats
    vectors: Floats
    largest_step: float


def decompose(
    tensor: Floats, *, restarts: int, iterations: int, seed: int, tolerance: float = POLISH_TOLERANCE
) -> Components:
    """Find as many components as the width of the symmetric k x k x k tensor, the strongest first.

    The active restarts of a component form one matrix, so a step is one product. At most k x ``iterations`` x
    ``restarts`` x k^3 / 2 multiplications. The best restart is iterated until a step moves it by less than
    ``tolerance``; the error of its value is then about ``tolerance`` squared.
    """
    k = tensor.shape[0]
    random = keyed_generator(seed, 0)
    # Rows T(i, j, :), i <= j, in the order of ``_pairs``, times their multiplicity in T, so that T(I, v, v) is their
    # product with the pairs of v.
    j, i = np.tril_indices(k)
    multiplicity = np.where(i == j, 1.0, 2.0)
    rest = tensor[i, j] * multiplicity[:, None]
    values, vectors, largest = np.zeros(k), np.zeros((k, k)), 0.0
    for t in range(k):
        start = _best_start(rest.astype(np.float32), random.standard_normal((restarts, k)), iterations)
        vector, step = _polished(rest, start, tolerance)
        value = float((_step(rest, vector) @ vector.T)[0, 0])
        rest -= (value * multiplicity * _pairs(vector)[0])[:, None] * vector[0]
        values[t], vectors[:, t], largest = value, vector[0], max(largest, step)
    return Components(values, vectors, largest)


def _pairs(rows: NDArray[Float]) -> NDArray[Float]:
    """v_i v_j of each row v, i <= j."""
    k = rows.shape[1]
    products = np.empty((len(rows), k * (k + 1) // 2), rows.dtype)
    pair_products(rows, rows, 0, 0, k, products)
    return products


def _step(rest: NDArray[Float], rows: NDArray[Float]) -> NDArray[Float]:
    """T(I, v, v) for each row v."""
    return np.asarray(_pairs(rows) @ rest)


def _best_start(rest: Single, starts: Floats, steps: int) -> Floats:
    """Iterate each row until it converges; return the one with the largest T(v, v, v), 1 x k."""
    rows = _unit(starts).astype(np.float32)
    moving = np.arange(len(rows))
    for _ in range(steps):
        following = _unit(_step(rest, rows[moving]))
        moved = np.abs(following - rows[moving]).max(axis=1)
        rows[moving] = following
        moving = moving[moved >= RESTART_TOLERANCE]
        if not moving.size:
            break
    best = int(np.argmax(np.einsum("ri,ri->r", _step(rest, rows), rows)))
    return rows[best : best + 1].astype(np.float64)


def _unit(rows: NDArray[Float]) -> NDArray[Float]:
    lengths = np.sqrt(np.einsum("ri,ri->r", rows, rows))
    # A zero tensor maps everything to zero.
    lengths[lengths == 0] = 1
    return np.asarray(rows / lengths[:, None])


def _polished(rest: Floats, vector: Floats, tolerance: float) -> tuple[Floats, float]:
    """Iterate a vector (1 x k) until it converges; also return the length of its last step."""
    moved = 0.0
    for _ in range(POLISH_STEPS):
        following = _unit(_step(rest, vector))
        moved = float(np.linalg.norm(following - vector))
        vector = following
        if moved < tolerance:
            break
    return vector, moved


@dataclass(frozen=True)
class Recovered:
    """Topics by descending probability.

    word_topic, probability : phi, N x k, columns sum to 1, and the share of each topic in the corpus, (k,), sum 1.
        Mixed, they reproduce the word probabilities of the corpus exactly, so every word of the corpus has a topic.
    eigenvalues, shares : (k,), lambda* of each topic's component, and 1 / lambda*^2, the paper's topic shares. These
        sum to 1 if K and alpha0 match the corpus; noise components have large ones.
    listing : N x k, float32, scores for word lists; see ``listing_scores``.
    noise_taken_off : Multiple of the noise subtracted from each entry of ``word_topic``; see ``best_multiple``.
    mass_without_topic : Share of the tokens of the corpus whose word is in no component.
    discarded : Number of components that are not topics: with a share above 1, or without a positive entry.
    """

    word_topic: Floats
    probability: Floats
    eigenvalues: Floats
    shares: Floats
    listing: Single
    noise_taken_off: float
    mass_without_topic: float
    discarded: int

    @property
    def duplicate_of(self) -> Integers:
        """(k,), the first larger topic with nearly the same words, or -1."""
        unit = self.word_topic / np.linalg.norm(self.word_topic, axis=0)
        close = np.tril(np.abs(unit.T @ unit) > DUPLICATE_COSINE, k=-1)
        return np.where(close.any(axis=1), close.argmax(axis=1), -1).astype(np.int64)


def shares_of(values: Floats) -> Floats:
    """1 / lambda*^2; infinite for lambda* = 0."""
    return ratio(1.0, values * values, np.inf)


def recover(
    product: Floats, components: Components, word_mean: Floats, word_probability: Floats, threshold: float
) -> Recovered:
    """phi_t = lambda*_t M2 W v_t (line 1.13, corrected), denoised, non-negative, and scaled to mix to the corpus.

    ``product`` is M2 W, N x k; ``components`` are those of M3(W, W, W); ``word_mean`` is M1, (N,). Where M1 is 0, for
    words that occur only in documents too short for the moments, the word frequencies ``word_probability`` (N,) are
    used. Words lead the list of a topic if they exceed ``threshold`` times the noise.
    """
    values = components.values
    # The eigenvalue of a single component is 1 up to noise.
    kept = np.flatnonzero(values >= 1.0 - SHARE_ROUNDING) if values.size > 1 else np.arange(values.size)
    topics = product @ (components.vectors[:, kept] * values[kept])
    topics[word_mean <= 0.0] = 0.0
    deviation, noise = np.sqrt(np.maximum(word_mean, 0.0)), noise_of(topics, word_mean)
    listing = listing_scores(topics, deviation, threshold * noise)
    multiple = best_multiple(topics, deviation, noise)
    for column, s in zip(topics.T, noise, strict=True):
        np.maximum(column - multiple * s * deviation, 0.0, out=column)
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
        multiple,
        float(word_probability[without].sum()),
        values.size - kept.size,
    )


def noise_of(topics: Floats, word_mean: Floats) -> Floats:
    """Noise level s of each topic, (k,): root mean square of its negative entries over sqrt(M1), or 0 if none."""
    scale = np.sqrt(np.where(word_mean > 0, word_mean, 1.0))
    found = np.zeros(topics.shape[1])
    for topic, column in enumerate(topics.T):
        below = column < 0
        if below.any():
            found[topic] = np.sqrt(np.mean((column[below] / scale[below]) ** 2))
    return found


def best_multiple(topics: Floats, deviation: Floats, noise: Floats) -> float:
    """The multiple of the noise to subtract from the entries of all topics, by Stein's unbiased risk estimate.

    With z an entry over its noise, max(z - c, 0) has the squared error z^2 - 1 for z <= c, otherwise 1 + c^2 (one-sided
    SureShrink, Donoho and Johnstone 1995), summed over words and topics, words weighted by M1. The result is large
    where topics have few of many words, and nearly 0 where they have many, as in text. ``topics`` (N x k) are as
    computed from the tensor, ``deviation`` is sqrt(M1), ``noise`` is from ``noise_of``.
    """
    there, bins = deviation > 0, NOISE_STEPS + 2
    weight = deviation[there] ** 2
    kept, dropped = np.zeros(bins), np.zeros(bins)
    for column, s in zip(topics.T, noise, strict=True):
        if s == 0.0:
            continue
        z = column[there] / (s * deviation[there])
        # Bin i contains the entries that multiple i removes and multiple i - 1 keeps.
        place = np.ceil(np.clip(z / NOISE_STEP, 0.0, bins - 1)).astype(np.int64)
        kept += np.bincount(place, weight, minlength=bins)
        dropped += np.bincount(place, weight * (z * z - 1.0), minlength=bins)
    multiples = NOISE_STEP * np.arange(NOISE_STEPS + 1)
    error = np.cumsum(dropped)[:-1] + (kept.sum() - np.cumsum(kept)[:-1]) * (1.0 + multiples**2)
    return float(multiples[error.argmin()])


def listing_scores(topics: Floats, deviation: Floats, noise: Floats) -> Single:
    """Scores of words in the topics of the tensor, N x k: the part above ``noise`` (k,) times ``deviation`` (N,).

    Words below their noise get negative scores, in order of probability. Frequent words have more noise, so fewer lead.
    """
    scores = np.empty(topics.shape, dtype=np.float32)
    for topic, column in enumerate(topics.T):
        above, positive = column - noise[topic] * deviation, np.maximum(column, 0.0)
        scores[:, topic] = np.where(above > 0, above, positive / (positive.sum() or 1.0) - 1.0)
    return scores


def mix(topics: Floats, word_probability: Floats, start: Floats) -> Floats:
    """Weights of topics, (k,), sum 1, with which the topics (N x k, changed in place) mix to the corpus exactly.

    Expectation-maximization from the weights ``start``: with p(t | w) proportional to p_t phi_wt, the weight of a topic
    is the mean of p(t | w) over the words of the corpus. The last step also updates the topics, phi_wt ~ p(w) p(t | w).
    A word without a topic is distributed over all topics, p(t | w) = p_t.
    """
    if not topics.shape[1]:
        return np.zeros(0)
    wanted = word_probability / word_probability.sum()
    ratio, weights = np.zeros_like(wanted), start / start.sum()
    for _ in range(MIXING_STEPS):
        # Words without a topic are ignored: their ratios stay 0.
        mixture = topics @ weights
        np.divide(wanted, mixture, out=ratio, where=mixture > 0)
        weights = weights * (topics.T @ ratio)
        weights /= weights.sum()
    mixture = topics @ weights
    np.divide(wanted, mixture, out=ratio, where=mixture > 0)
    topics *= ratio[:, None]
    orphans = mixture <= 0
    topics[orphans] = wanted[orphans, None]
    sums = topics.sum(axis=0)
    topics /= sums
    weights = weights * sums
    return np.asarray(weights / weights.sum())
