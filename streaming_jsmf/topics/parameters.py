"""The parameters of the topics of a model: words, p(word | topic), prior and counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.vocabulary import word_ids
from streaming_jsmf.errors import InputError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.correlations import dirichlet_prior, prior_sum
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.storage.arrays import digest
from streaming_jsmf.topics.store import Model

#: Arrays of a model from which its parameters are made: those of every engine, and those of some engines.
NEEDED = ("word", "word_topic", "topic_probability", "term_count")
OPTIONAL = ("alpha", "topic_topic")


@dataclass(frozen=True)
class TopicParameters:
    """Words, topics B (N, K), Dirichlet prior alpha (K,) and training word counts (N,) of a model."""

    words: tuple[str, ...]
    word_topic: Floats
    prior: Floats
    term_count: Floats

    @classmethod
    def of(cls, model: Model) -> TopicParameters:
        """Read the parameters of a model that has the arrays ``NEEDED`` and one of ``OPTIONAL``."""
        arrays = model.arrays
        return cls(
            tuple(map(str, arrays["word"])),
            np.ascontiguousarray(arrays["word_topic"], np.float64),
            prior_of(model),
            np.asarray(arrays["term_count"], np.float64),
        )

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the words, topics and prior, which determine the shares of documents."""
        return _fingerprint(self.words, self.word_topic, self.prior)

    @cached_property
    def topics_fingerprint(self) -> str:
        """sha256 of the words and topics, which determine the meaning of topic numbers."""
        return _fingerprint(self.words, self.word_topic)


def ids_of_corpus(corpus: Corpus, words: Any) -> NDArray[np.int64]:
    """Ids of the words of a corpus in ``words`` of a model, matched as strings; -1 for missing words.

    Raises ``InputError`` if the model has none of the words.
    """
    ids = word_ids(corpus.vocabulary().words, words)
    if not (ids >= 0).any():
        raise InputError(
            f"{corpus.root} has none of the {len(words)} words of the model; give a corpus with the same kind of words"
        )
    return ids


def _fingerprint(words: tuple[str, ...], *arrays: Floats) -> str:
    hashed = (np.array(words, dtype=object), *arrays)
    return fingerprint({"arrays": [digest(values).sha256 for values in hashed]})


def missing_parameter(model: Model) -> str | None:
    """The first array that ``TopicParameters.of`` needs and the model lacks; None if it has all."""
    missing = [name for name in NEEDED if name not in model.arrays]
    if not any(name in model.arrays for name in OPTIONAL):
        missing.append("alpha")
    return missing[0] if missing else None


def prior_of(model: Model) -> Floats:
    """The prior alpha (K,) that a model stores, or else the one implied by its topic correlations."""
    arrays = model.arrays
    if "alpha" in arrays:
        return np.asarray(arrays["alpha"], np.float64)
    shares = arrays["topic_probability"]
    return dirichlet_prior(shares, prior_sum(arrays["topic_topic"], shares))
