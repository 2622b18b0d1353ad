"""A model's topics as people read them: share, words with their probabilities, label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.stored_counts import StoredCounts, read_training_counts
from streaming_jsmf.inference.words import longer_lists
from streaming_jsmf.reporting.contents import Topic, Word
from streaming_jsmf.topics.edited_topics import (
    DEFAULT_WORDS,
    EditedTopics,
    read_edited_topics,
    require_word_count,
)
from streaming_jsmf.topics.store import AnyModel, Model, model_path

if TYPE_CHECKING:
    import pandas as pd

#: Arrays that every engine writes, and those that some do; ``word_topic`` comes in panels.
NEEDED = ("word", "prominent_words", "topic_probability")
OPTIONAL = ("alpha", "anchors", "characteristic_words", "duplicate_of", "label_words", "lambda")


def read_topics(path: AnyModel, words: int | None = None, *, probabilities: bool = True) -> tuple[Topic, ...]:
    """The topics of a model of any engine as they are shown (``EditedTopics``), by number. No pass over documents.

    Characteristic words are by exact rows of C where ``evaluate`` has counted the training corpus.

    Parameters
    ----------
    path
        Of the model.
    words
        Of each topic. None: 10.
    probabilities
        Whether those of the words are read, for which all of ``word_topic`` is; else they are NaN.

    Raises
    ------
    InputError
        If there is no model, or ``words`` is below 1.
    StoreError
        If it is damaged.
    """
    count = require_word_count(words)
    shown = read_edited_topics(model_path(path), NEEDED, OPTIONAL)
    listed = shown.listed_words(count)
    counts = read_training_counts(shown.path, shown.stored, ("characteristic_words",))
    known = shown.probabilities(listed) if probabilities else np.full(listed.shape, np.nan)
    return shown_topics(shown, listed, known, counts)


def shown_topics(
    shown: EditedTopics,
    listed: NDArray[np.int64],
    probability: NDArray[np.float64],
    counts: StoredCounts | None = None,
    npmi: Sequence[float] | None = None,
) -> tuple[Topic, ...]:
    """As ``topics_of``, of the topics that people are to see; ``counts`` and ``npmi`` are of the stored ones."""
    if counts is not None and counts.characteristic_words is not None:
        counts = replace(counts, characteristic_words=shown.rows(counts.characteristic_words, -1))
    scores = None if npmi is None else shown.rows(np.array(npmi, dtype=float), np.nan).tolist()
    topics = topics_of(shown.model, listed, probability, counts, scores)
    return tuple(
        replace(topic, number=number, label=(shown.edits.labels[number],))
        if number in shown.edits.labels
        else replace(topic, number=number)
        for topic, number in zip(topics, shown.numbers, strict=True)
    )


def topic_frame(model: Model, words: int = DEFAULT_WORDS) -> pd.DataFrame:
    """The topics of a model in memory as a table, see ``frame_of``.

    Raises
    ------
    InputError
        If ``words`` is below 1.
    """
    count = require_word_count(words)
    listed = np.asarray(model.arrays["prominent_words"][:, :count])
    if count > listed.shape[1]:
        listed = longer_lists(listed, [model.arrays["word_topic"]], count)
    probability = np.take_along_axis(model.arrays["word_topic"].T, listed, axis=1)
    return frame_of(topics_of(model, listed, probability))


def frame_of(topics: Sequence[Topic]) -> pd.DataFrame:
    """Topics as a table, by falling share: ``topic``, ``share``, ``label``, ``words``.

    ``words`` are pairs of a word and p(word | topic).
    """
    import pandas as pd

    ordered = by_share(topics)
    return pd.DataFrame(
        {
            "topic": [topic.number for topic in ordered],
            "share": [topic.share for topic in ordered],
            "label": [topic.name for topic in ordered],
            "words": [[(word.text, word.probability) for word in topic.words] for topic in ordered],
        }
    )


def by_share(topics: Sequence[Topic]) -> list[Topic]:
    """Topics by falling share; equal ones by number."""
    return sorted(topics, key=lambda topic: (-topic.share, topic.number))


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
        ids = np.atleast_1d(arrays[name][topic])[:shown] if name in arrays else ()
        return tuple(str(arrays["word"][word]) for word in ids if word >= 0)

    def number(name: str, topic: int) -> float | None:
        return number_or_none(float(arrays[name][topic])) if name in arrays else None

    def row(topic: int) -> Topic:
        words = zip(spell("prominent_words", topic), probability[topic].tolist(), strict=True)
        larger = int(arrays["duplicate_of"][topic]) if "duplicate_of" in arrays else -1
        return Topic(
            topic,
            float(arrays["topic_probability"][topic]),
            tuple(Word(text, value) for text, value in words),
            spell("characteristic_words", topic),
            spell("label_words", topic),
            next(iter(spell("anchors", topic)), None),
            number("alpha", topic),
            number("lambda", topic),
            None if larger < 0 else larger,
            None if npmi is None else number_or_none(npmi[topic]),
        )

    return tuple(row(topic) for topic in range(arrays["topic_probability"].size))


def number_or_none(value: float) -> float | None:
    """None for what is not a number, as merged topics have them."""
    return None if value != value else value
