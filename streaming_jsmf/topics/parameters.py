"""What a pass over documents needs of a model: words, topics and prior; and a corpus' counts over the model's words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import fingerprint
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.storage.arrays import digest

Floats = NDArray[np.float64]

#: Bytes that a nonzero takes while its row group is read and matched to the model's words.
BYTES_PER_NONZERO_READ = 48


@dataclass(frozen=True)
class GivenTopics:
    """Topics of a model.

    Attributes
    ----------
    words
        N words.
    word_topic
        B, N x K, p(word | topic).
    prior
        alpha, (K,), positive: of the topic shares of a document.
    term_count
        (N,) tokens of each word in the training corpus.
    """

    words: tuple[str, ...]
    word_topic: Floats
    prior: Floats
    term_count: Floats

    @cached_property
    def fingerprint(self) -> str:
        """sha256 over the words, topics and prior: the same shares for the same documents."""
        arrays = (np.array(self.words, dtype=object), self.word_topic, self.prior)
        return fingerprint({"arrays": [digest(values).sha256 for values in arrays]})

    def places(self, words: Sequence[str]) -> NDArray[np.int64]:
        """The id in this model of each of ``words``, matched by string; -1 for those it lacks."""
        ids = {word: place for place, word in enumerate(self.words)}
        return np.array([ids.get(word, -1) for word in words], dtype=np.int64)


def require_known_words(topics: GivenTopics, corpus: Corpus) -> NDArray[np.int64]:
    """``GivenTopics.places`` of the words of a corpus.

    Raises
    ------
    InputError
        If the model has none of them.
    """
    places = topics.places(corpus.vocabulary().words)
    if not (places >= 0).any():
        raise InputError(
            f"{corpus.root} has none of the {len(topics.words)} words of the model; give a corpus with the same kind "
            "of words"
        )
    return places


def over_model_words(block: csr_array[Any], places: NDArray[np.int64], n_words: int) -> csr_array[Any]:
    """Counts over the words of a corpus as counts over those of a model (documents x ``n_words``).

    Words that the model lacks are left out, documents stay. The block itself where the words are the same.
    """
    if len(places) == n_words and np.array_equal(places, np.arange(n_words)):
        return block
    ids = places[block.indices]
    known = ids >= 0
    before = np.concatenate([[0], np.cumsum(known)])
    return csr_array((block.data[known], ids[known], before[block.indptr]), shape=(block.shape[0], n_words))
