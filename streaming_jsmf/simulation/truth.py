"""The topics of a simulated corpus: drawn from its settings, and stored as ``truth.zarr``, which xarray can open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from upath import UPath

from streaming_jsmf.config import SimulationSettings
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.linalg.probes import keyed_generator
from streaming_jsmf.storage.arrays import (
    ArrayDigest,
    Variable,
    create_group,
    read_array,
    read_attributes,
    write_arrays,
)
from streaming_jsmf.storage.kinds import unsuitable
from streaming_jsmf.storage.paths import AnyPath, StorePath, node_exists, store_path
from streaming_jsmf.storage.replace import store_written

TRUTH_NAME = "truth.zarr"
KIND, FORMAT_VERSION = "streaming_jsmf.truth", 1

DIRICHLET_MASS = 200.0  # sum of the Dirichlet parameters of a topic if beta is None
ANCHOR_PROBABILITY = 0.01

# Random streams of one seed; topics, anchors and batches never share a stream.
TOPICS, ANCHORS, BATCHES = 0, 1, 2

#: Dimensions and meaning of each array; a model store uses the same names.
_VARIABLES = {
    "word": Variable(("word",), "vocabulary"),
    "topic": Variable(("topic",), "topic number"),
    "topic_": Variable(("topic_",), "topic number, second axis of topic_topic"),
    "word_topic": Variable(("word", "topic"), "p(word | topic); columns sum to 1"),
    "alpha": Variable(("topic",), "Dirichlet prior of the topic shares of a document"),
    "topic_topic": Variable(("topic", "topic_"), "E[theta theta'] of the prior; entries sum to 1"),
    "anchors": Variable(("topic",), "word id that only this topic uses"),
}


@dataclass(frozen=True, eq=False)
class Truth:
    """The parameters from which a simulated corpus was drawn.

    Attributes
    ----------
    word_topic : (N, K) float64; p(word | topic), columns sum to 1.
    alpha : (K,) float64; Dirichlet prior of the topic shares of a document.
    anchors : (K,) int64; the word that only topic k uses; None if the topics are not separable.
    words : (N,) strings.
    mean_length : Mean of the Poisson distribution of document lengths (a length of 0 becomes 1).
    """

    word_topic: NDArray[np.float64]
    alpha: NDArray[np.float64]
    anchors: NDArray[np.int64] | None
    words: NDArray[Any]
    seed: int
    mean_length: float

    @property
    def topic_topic(self) -> NDArray[np.float64]:
        """(K, K) float64; E[theta theta'] of the Dirichlet prior, entries sum to 1."""
        total = self.alpha.sum()
        moment: NDArray[np.float64] = np.outer(self.alpha, self.alpha) + np.diag(self.alpha)
        moment /= total * (total + 1)
        return moment


def topic_rows(settings: SimulationSettings) -> NDArray[np.float64]:
    """Draw p(word | topic), (K, N) float64, rows sum to 1. Memory: 8 N K bytes."""
    ranks = np.arange(1, settings.n_words + 1, dtype=np.float64)
    weight = np.ones(settings.n_words) if settings.zipf is None else ranks**-settings.zipf
    mass = DIRICHLET_MASS if settings.beta is None else settings.beta * settings.n_words
    by_topic = keyed_generator(settings.seed, TOPICS).standard_gamma(
        weight * (mass / weight.sum()), size=(settings.n_topics, settings.n_words)
    )
    # With a tiny beta, all gammas of a topic can underflow to 0; adding tiny avoids 0 / 0.
    by_topic += np.finfo(np.float64).tiny
    if settings.separable:
        by_topic[:, anchor_words(settings)] = 0
    by_topic /= by_topic.sum(axis=1, keepdims=True)
    if settings.separable:
        by_topic *= 1 - ANCHOR_PROBABILITY
        by_topic[np.arange(settings.n_topics), anchor_words(settings)] = ANCHOR_PROBABILITY
    return by_topic


def anchor_words(settings: SimulationSettings) -> NDArray[np.int64]:
    """Draw the anchor word of each topic of separable topics, (K,) int64."""
    drawn = keyed_generator(settings.seed, ANCHORS).choice(
        settings.n_words, size=settings.n_topics, replace=False
    )
    return np.sort(drawn)


def word_names(n_words: int) -> list[str]:
    """Return the N words w0, w1, ... with leading zeros, so that they sort by id."""
    width = len(str(n_words - 1))
    return [f"w{i:0{width}d}" for i in range(n_words)]


def truth_of(settings: SimulationSettings) -> Truth:
    """Draw the topics. Memory: 16 N K bytes."""
    by_topic = topic_rows(settings)
    anchors = anchor_words(settings) if settings.separable else None
    return Truth(
        np.ascontiguousarray(by_topic.T),
        np.array(settings.prior),
        anchors,
        np.array(word_names(settings.n_words), dtype=object),
        settings.seed,
        settings.mean_length,
    )


def write_truth(path: StorePath, truth: Truth) -> None:
    """Write a truth store; deterministic. Memory: one 16 MiB chunk, and N words."""
    numbers = np.arange(len(truth.alpha), dtype=np.int64)
    arrays: dict[str, NDArray[Any]] = {
        "word": truth.words,
        "topic": numbers,
        "topic_": numbers,
        "word_topic": truth.word_topic,
        "alpha": truth.alpha,
        "topic_topic": truth.topic_topic,
        **({} if truth.anchors is None else {"anchors": truth.anchors}),
    }
    with store_written(path) as group:
        digests = write_arrays(group, arrays, _VARIABLES, compress=True)
        attributes = {"kind": KIND, "format_version": FORMAT_VERSION, "seed": truth.seed}
        create_group(group, {**attributes, "mean_length": truth.mean_length, "digests": digests})


def read_truth(corpus: AnyPath | UPath) -> Truth:
    """Read the truth of a simulated corpus, a path or URL, and compare each array with its digest.

    Raises ``InputError`` if the directory has no truth, or its format version is unknown; ``StoreError``, naming the
    array, if one is missing, truncated or altered.
    """
    path = store_path(corpus, "a simulated corpus") / TRUTH_NAME
    if not node_exists(path):
        raise unsuitable(path.parent, "a simulated corpus")
    attributes = read_attributes(path)
    kind, version = (attributes.get(name) for name in ("kind", "format_version"))
    if (kind, version) != (KIND, FORMAT_VERSION):
        raise InputError(
            f"{path}: {kind} of format version {version}; this release reads {KIND} of version {FORMAT_VERSION}"
        )
    try:
        digests = {name: ArrayDigest.from_fields(each) for name, each in attributes["digests"].items()}
        arrays = {
            name: read_array(path, name, digests[name])
            for name in ("word_topic", "alpha", "word", *(("anchors",) if "anchors" in digests else ()))
        }
        seed, mean_length = int(attributes["seed"]), float(attributes["mean_length"])
    except KeyError as error:
        raise StoreError(
            f"{path}/zarr.json: metadata are missing {error}; simulate the corpus again"
        ) from error
    return Truth(
        arrays["word_topic"], arrays["alpha"], arrays.get("anchors"), arrays["word"], seed, mean_length
    )
