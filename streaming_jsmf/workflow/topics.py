"""A model's topics as people read them: share, words with their probabilities, label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.words import longer_lists
from streaming_jsmf.model.counts import StoredCounts, read_training_counts
from streaming_jsmf.model.store import Model, read_model
from streaming_jsmf.model.word_lists import DEFAULT_WORDS, read_listed, read_probabilities, require_word_count
from streaming_jsmf.reporting.contents import Topic, Word
from streaming_jsmf.storage.paths import StorePath, store_path

if TYPE_CHECKING:
    import pandas as pd

#: Arrays that every engine writes, and those that some do; ``word_topic`` comes in panels.
NEEDED = ("word", "prominent_words", "topic_probability")
OPTIONAL = ("alpha", "anchors", "characteristic_words", "duplicate_of", "label_words", "lambda")


def read_topics(path: str | Path | StorePath, words: int | None = None) -> tuple[Topic, ...]:
    """The topics of a model of any engine, by number. No pass over documents.

    Characteristic words are by exact rows of C where ``evaluate`` has counted the training corpus.

    Parameters
    ----------
    path
        Of the model.
    words
        Of each topic. None: 10.

    Raises
    ------
    InputError
        If there is no model, or ``words`` is below 1.
    StoreError
        If it is damaged.
    """
    count, place = require_word_count(words), store_path(path, "a model")
    model = read_model(place, NEEDED, OPTIONAL)
    listed = read_listed(place, model, count)
    counts = read_training_counts(place, model, ("characteristic_words",))
    return topics_of(model, listed, read_probabilities(place, listed), counts)


def topic_frame(model: Model, words: int = DEFAULT_WORDS) -> pd.DataFrame:
    """The topics of a model in memory as a table, by falling share: ``topic``, ``share``, ``label``, ``words``.

    ``words`` are pairs of a word and p(word | topic).

    Raises
    ------
    InputError
        If ``words`` is below 1.
    """
    import pandas as pd

    count = require_word_count(words)
    listed = np.asarray(model.arrays["prominent_words"][:, :count])
    if count > listed.shape[1]:
        listed = longer_lists(listed, [model.arrays["word_topic"]], count)
    probability = np.take_along_axis(model.arrays["word_topic"].T, listed, axis=1)
    topics = sorted(topics_of(model, listed, probability), key=lambda topic: (-topic.share, topic.number))
    return pd.DataFrame(
        {
            "topic": [topic.number for topic in topics],
            "share": [topic.share for topic in topics],
            "label": [", ".join(topic.label) for topic in topics],
            "words": [[(word.text, word.probability) for word in topic.words] for topic in topics],
        }
    )


def topics_of(
    model: Model,
    listed: NDArray[np.int64],
    probability: NDArray[np.float64],
    counts: StoredCounts | None = None,
    npmi: list[float] | None = None,
) -> tuple[Topic, ...]:
    """The topics of a model in memory, with the words ``listed`` and their ``probability``, both (K, n)."""
    arrays, shown = {**model.arrays, "prominent_words": listed}, listed.shape[1]
    if counts is not None and counts.characteristic_words is not None:
        arrays["characteristic_words"] = counts.characteristic_words

    def spell(name: str, topic: int) -> tuple[str, ...]:
        ids = arrays[name][topic, :shown] if name in arrays else ()
        return tuple(str(arrays["word"][word]) for word in ids if word >= 0)

    def number(name: str, topic: int) -> float | None:
        return float(arrays[name][topic]) if name in arrays else None

    def row(topic: int) -> Topic:
        words = zip(spell("prominent_words", topic), probability[topic].tolist(), strict=True)
        larger = int(arrays["duplicate_of"][topic]) if "duplicate_of" in arrays else -1
        return Topic(
            topic,
            float(arrays["topic_probability"][topic]),
            tuple(Word(text, value) for text, value in words),
            spell("characteristic_words", topic),
            spell("label_words", topic),
            str(arrays["word"][arrays["anchors"][topic]]) if "anchors" in arrays else None,
            number("alpha", topic),
            number("lambda", topic),
            None if larger < 0 else larger,
            None if npmi is None else npmi[topic],
        )

    return tuple(row(topic) for topic in range(arrays["topic_probability"].size))
