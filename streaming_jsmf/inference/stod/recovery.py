"""From components of the whitened tensor to topics and their Dirichlet prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.stod.power import Components

#: Topics whose word distributions have a cosine above this are the same topic twice.
DUPLICATE_COSINE = 0.9

#: Rounding that a component of the whole corpus, whose eigenvalue is 1, may fall short of it.
SHARE_ROUNDING = 1e-9


@dataclass(frozen=True)
class Recovered:
    """Topics by falling share.

    Attributes
    ----------
    word_topic
        phi, N x k; columns sum to 1.
    eigenvalues
        lambda* of each topic's component, (k,): its share of the corpus is 1 / lambda*^2.
    shares
        (k,) these shares as they come; they sum to about 1.
    discarded
        Components that are no topic: of a share above 1, or with nothing above the noise.
    """

    word_topic: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    shares: NDArray[np.float64]
    discarded: int

    @property
    def duplicate_of(self) -> NDArray[np.int64]:
        """(k,) the first larger topic with nearly the same words, or -1."""
        unit = self.word_topic / np.linalg.norm(self.word_topic, axis=0)
        close = np.tril(np.abs(unit.T @ unit) > DUPLICATE_COSINE, k=-1)
        return np.where(close.any(axis=1), close.argmax(axis=1), -1).astype(np.int64)


def shares_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / lambda*^2; infinite for a component of no strength."""
    squares = values * values
    shares = np.full(values.size, np.inf)
    np.divide(1.0, squares, out=shares, where=squares > 0)
    return shares


def recover(
    product: NDArray[np.float64], components: Components, word_mean: NDArray[np.float64], threshold: float
) -> Recovered:
    """phi_t = lambda*_t M2 W v_t (line 1.13, mended), cleaned of noise and normalised.

    Parameters
    ----------
    product
        M2 W, N x k.
    components
        Of M3(W, W, W).
    word_mean
        M1, (N,): the noise of a word grows with the square root of its frequency.
    threshold
        Times the noise that is taken off; see ``soft_threshold``.
    """
    values = components.values
    # The strongest components come first out of the power method, and are the rarest topics.
    order = np.argsort(values, kind="stable")
    if values.size > 1:
        order = order[values[order] >= 1.0 - SHARE_ROUNDING]
    topics = soft_threshold(product @ (components.vectors[:, order] * values[order]), word_mean, threshold)
    sums = topics.sum(axis=0)
    there = sums > 0
    order = order[there]
    return Recovered(
        topics[:, there] / sums[there], values[order], shares_of(values[order]), values.size - order.size
    )


def soft_threshold(
    topics: NDArray[np.float64], word_mean: NDArray[np.float64], times: float
) -> NDArray[np.float64]:
    """Take ``times`` s sqrt(M1) off each entry, and no more than there is; s is the noise of the topic.

    Negative entries are noise alone, so s is the root mean square of (negative entry / sqrt(M1)), for each topic.
    Words of no weight get nothing. Takes the place of ``topics`` (N x k).
    """
    noise = np.sqrt(np.maximum(word_mean, 0.0))
    topics[noise == 0.0] = 0.0
    scale = np.where(noise > 0, noise, 1.0)
    for column in topics.T:
        below = column < 0
        s = np.sqrt(np.mean((column[below] / scale[below]) ** 2)) if below.any() else 0.0
        column -= times * s * noise
    return np.maximum(topics, 0.0, out=topics)
