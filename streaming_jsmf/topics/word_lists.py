"""The words listed for each topic, as many as are asked for, and their probabilities, read panel by panel."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.words import longer_lists
from streaming_jsmf.topics.shown import ShownTopics

#: Words of a topic that people read, unless they ask for more.
DEFAULT_WORDS = 10


def require_word_count(words: int | None) -> int:
    """How many words of each topic are meant; None: 10.

    Raises
    ------
    InputError
        If it is below 1.
    """
    if words is not None and words < 1:
        raise InputError(f"--words is {words}; give a whole number of at least 1")
    return DEFAULT_WORDS if words is None else words


def read_listed(shown: ShownTopics, count: int) -> NDArray[np.int64]:
    """Word ids of each topic, (K', count) or fewer columns where there are fewer words.

    Beyond those that the model lists by their probability; ``word_topic`` is read for those only.

    Raises
    ------
    StoreError
        If an array that is read is damaged.
    """
    listed = shown.model.arrays["prominent_words"]
    if count <= listed.shape[1]:
        return np.asarray(listed[:, :count])
    return longer_lists(listed, shown.panels(), count)


def read_probabilities(shown: ShownTopics, listed: NDArray[np.int64]) -> NDArray[np.float64]:
    """p(word | topic) of listed words, in the shape of ``listed``. Errors as ``read_model_panels``."""
    found, start = np.zeros(listed.shape), 0
    for panel in shown.panels():
        topics, ranks = np.nonzero((listed >= start) & (listed < start + len(panel)))
        found[topics, ranks] = panel[listed[topics, ranks] - start, topics]
        start += len(panel)
    return found
