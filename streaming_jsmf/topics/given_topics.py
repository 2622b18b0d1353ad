"""Model store -> what a pass over documents needs of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.correlations import dirichlet_prior, prior_sum
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.parameters import GivenTopics
from streaming_jsmf.topics.store import Model, read_model

#: Arrays that ``given_topics`` asks for: those every model has, and those that only some engines make.
NEEDED = ("word", "word_topic", "topic_probability", "term_count")
OPTIONAL = ("alpha", "topic_topic")


def read_given_topics(path: StorePath) -> GivenTopics:
    """The topics and the prior of a model store; errors as ``read_model``."""
    return given_topics(read_model(path, NEEDED, OPTIONAL))


def given_topics(model: Model) -> GivenTopics:
    """The topics and the prior of a model in memory."""
    arrays = model.arrays
    return GivenTopics(
        tuple(map(str, arrays["word"])),
        np.ascontiguousarray(arrays["word_topic"], np.float64),
        prior_of(model),
        np.asarray(arrays["term_count"], np.float64),
    )


def lacks_topics(model: Model) -> str | None:
    """The first array that ``given_topics`` needs and a model in memory lacks; None if it lacks none."""
    lacking = [name for name in NEEDED if name not in model.arrays]
    if not any(name in model.arrays for name in OPTIONAL):
        lacking.append("alpha")
    return lacking[0] if lacking else None


def prior_of(model: Model) -> NDArray[np.float64]:
    """alpha (K,) of a model: its own where its engine finds one, else what its topic correlations imply."""
    arrays = model.arrays
    if "alpha" in arrays:
        return np.asarray(arrays["alpha"], np.float64)
    shares = arrays["topic_probability"]
    return dirichlet_prior(shares, prior_sum(arrays["topic_topic"], shares))
