"""Validated parameters of a simulated corpus, and the topics drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import SimulationSettings
from streaming_jsmf.corpus.manifest import Json
from streaming_jsmf.errors import InputError
from streaming_jsmf.linalg.probes import keyed_generator

#: Key of the settings of a simulated corpus.
SIMULATED = "simulated"

DIRICHLET_MASS = 200.0  # sum of the Dirichlet parameters of a topic if beta is None
ANCHOR_PROBABILITY = 0.01

# Random streams of one seed; topics, anchors and batches never share a stream.
TOPICS, ANCHORS, BATCHES = 0, 1, 2


@dataclass(frozen=True)
class Law:
    """Parameters of latent Dirichlet allocation: small, picklable, and sufficient to draw the documents.

    They are those of ``truth.simulate_truth``, with ``alpha`` as K numbers.
    """

    n_words: int
    n_topics: int
    mean_length: float
    alpha: tuple[float, ...]
    beta: float | None
    separable: bool
    zipf: float | None
    seed: int

    def settings(self) -> dict[str, Json]:
        """Return the parameters as a flat table, for a manifest."""
        return {
            SIMULATED: "lda",
            "n_topics": self.n_topics,
            "mean_length": self.mean_length,
            "alpha": " ".join(repr(value) for value in self.alpha),
            "beta": self.beta,
            "separable": self.separable,
            "zipf": self.zipf,
            "seed": self.seed,
        }


def make_law(
    n_words: int,
    n_topics: int,
    mean_length: float,
    alpha: float | Sequence[float] | None,
    beta: float | None,
    separable: bool,
    zipf: float | None,
    seed: int,
) -> Law:
    """Return the law for the arguments of ``truth.simulate_truth``; ``InputError`` if one is out of range."""
    return law_of(
        SimulationSettings(1, n_words, n_topics, seed, None, beta, mean_length, separable, zipf), alpha
    )


def law_of(settings: SimulationSettings, alpha: float | Sequence[float] | None) -> Law:
    """Return the law of these settings with this ``alpha``, one number or one for each topic."""
    prior, mean_length = _prior(settings.n_topics, alpha), float(settings.mean_length)
    own = {
        name: getattr(settings, name) for name in ("n_words", "n_topics", "beta", "separable", "zipf", "seed")
    }
    return Law(**own, mean_length=mean_length, alpha=prior)


def topic_rows(law: Law) -> NDArray[np.float64]:
    """Draw p(word | topic), (K, N) float64, rows sum to 1. Memory: 8 N K bytes."""
    ranks = np.arange(1, law.n_words + 1, dtype=np.float64)
    weight = np.ones(law.n_words) if law.zipf is None else ranks**-law.zipf
    mass = DIRICHLET_MASS if law.beta is None else law.beta * law.n_words
    by_topic = keyed_generator(law.seed, TOPICS).standard_gamma(
        weight * (mass / weight.sum()), size=(law.n_topics, law.n_words)
    )
    # With a tiny beta, all gammas of a topic can underflow to 0; adding tiny avoids 0 / 0.
    by_topic += np.finfo(np.float64).tiny
    if law.separable:
        by_topic[:, anchor_words(law)] = 0
    by_topic /= by_topic.sum(axis=1, keepdims=True)
    if law.separable:
        by_topic *= 1 - ANCHOR_PROBABILITY
        by_topic[np.arange(law.n_topics), anchor_words(law)] = ANCHOR_PROBABILITY
    return by_topic


def anchor_words(law: Law) -> NDArray[np.int64]:
    """Draw the anchor word of each topic of a separable law, (K,) int64."""
    drawn = keyed_generator(law.seed, ANCHORS).choice(law.n_words, size=law.n_topics, replace=False)
    return np.sort(drawn)


def word_names(n_words: int) -> list[str]:
    """Return the N words w0, w1, ... with leading zeros, so that they sort by id."""
    width = len(str(n_words - 1))
    return [f"w{i:0{width}d}" for i in range(n_words)]


def _prior(n_topics: int, alpha: float | Sequence[float] | None) -> tuple[float, ...]:
    given = np.asarray(1.0 / n_topics if alpha is None else alpha, dtype=np.float64)
    if given.ndim > 1 or given.size not in (1, n_topics):
        raise InputError(
            f"alpha has {given.size} values; give one number or one for each of {n_topics} topics"
        )
    prior = np.broadcast_to(given, (n_topics,))
    if not (np.isfinite(prior) & (prior > 0)).all():
        raise InputError("alpha must be positive and finite")
    return tuple(prior.tolist())
