"""The arrays of a model: dimensions, symbols in the papers and meaning; and the parameters of topics made of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.vocabulary import word_ids
from streaming_jsmf.errors import InputError
from streaming_jsmf.fingerprint import fingerprint
from streaming_jsmf.inference.correlations import dirichlet_prior, prior_sum
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.storage.arrays import Variable, digest

if TYPE_CHECKING:
    from streaming_jsmf.topics.store import Model


def _variable(dimensions: str, symbol: str, meaning: str) -> Variable:
    return Variable(tuple(dimensions.split()), meaning, symbol)


# fmt: off
#: Arrays of every engine; ``alpha`` of LR-JSMF and ``topic_topic_of_documents`` exist only after polish.
_COMMON = {
    "word": _variable("word", "", "vocabulary"),
    "shown_word": _variable("word", "", "the most frequent form of each word, if words are stems"),
    "topic_": _variable("topic_", "", "topic number, second axis of topic_topic"),
    "rank": _variable("rank", "", "place in a word list, from 0"),
    "topic_probability": _variable("topic", "", "share of each topic in the corpus; sums to 1"),
    "alpha": _variable("topic", "alpha", "Dirichlet prior of the topic shares of documents"),
    "term_count": _variable("word", "", "tokens in the corpus"),
    "document_frequency": _variable("word", "", "documents that hold the word"),
    "label_words": _variable("topic label", "",
        "word ids both prominent and characteristic, of one topic only; -1 for none"),
    "origin_words": _variable("topic rank", "", "after updates: prominent word ids of each topic when it was found"),
    "origin_probability": _variable("topic rank", "", "p(word | topic) of the origin words at that time"),
    "topic_topic_of_documents": _variable("topic topic_", "A",
        "joint topic probabilities, by the topic shares of the documents"),
}

#: Arrays of LR-JSMF models.
MODEL_VARIABLES: dict[str, Variable] = {
    **_COMMON,
    "topic": _variable("topic", "", "topic number, in the order in which anchors were chosen"),
    "anchors": _variable("topic", "S", "word id of the anchor of each topic"),
    "pivots": _variable("topic", "", "distance of each anchor from the span of those before it"),
    "cliques": _variable("clique topic_", "", "word ids of all cliques found, the lightest first"),
    "clique_weight": _variable("clique", "", "total co-occurrence of the words of each clique"),
    "word_topic": _variable("word topic", "B", "p(word | topic); columns sum to 1"),
    "topic_given_word": _variable("word topic", "B-breve", "p(topic | word); rows sum to 1, or 0"),
    "topic_topic": _variable("topic topic_", "A", "joint topic probabilities, as recovered"),
    "eigenvalues": _variable("topic", "D", "leading algebraic eigenvalues of C"),
    "rectified": _variable("word component", "Y", "rectified co-occurrence is Y Y'"),
    "row_sum": _variable("word", "u", "row sums of C before rectification, exact"),
    "rectified_row_sum": _variable("word", "d", "row sums of Y Y'"),
    "prominent_words": _variable("topic rank", "", "most probable word ids of each topic"),
    "characteristic_words": _variable("topic rank", "", "word ids that co-occur most with the anchor of each topic"),
}

#: Arrays of models of the tensor engine.
STOD_VARIABLES: dict[str, Variable] = {
    **_COMMON,
    "topic": _variable("topic", "", "topic number, by falling probability"),
    "component": _variable("component", "", "number of an eigenpair of M2, by falling eigenvalue"),
    "word_topic": _variable("word topic", "phi", "p(word | topic); columns sum to 1"),
    "lambda": _variable("topic", "lambda*",
        "strength of the topic's component; 1 / lambda*^2 is its share in exact moments"),
    "duplicate_of": _variable("topic", "", "a larger topic with nearly the same words, or -1"),
    "eigenvalues": _variable("component", "sigma", "leading algebraic eigenvalues of M2"),
    "eigengap": _variable("component", "", "each eigenvalue over the next; infinite where that is not positive"),
    "ritz_residual": _variable("component", "", "||M2 v - sigma v|| / sigma: how far the basis is from holding v"),
    "word_mean": _variable("word", "M1", "mean share of the word in documents of three tokens or more"),
    "prominent_words": _variable("topic rank", "",
        "word ids of each topic, by what of p(word | topic) is above the noise"),
    "characteristic_words": _variable("topic rank", "",
        "word ids that co-occur most with the first prominent word of each topic"),
}
# fmt: on

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
