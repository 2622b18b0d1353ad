"""What a page says of a model: plain values, the same for every engine, and None where an engine has no such thing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Word:
    """A word of a topic and p(word | topic)."""

    text: str
    probability: float


@dataclass(frozen=True)
class Topic:
    """A topic's row of the table.

    Attributes
    ----------
    number
        From 0.
    share
        p(topic), from 0 to 1.
    words
        Most probable ones, best first; at least one.
    characteristic, label
        Words; empty where the model lists none.
    anchor
        Of LR-JSMF.
    alpha, strength, duplicate_of
        Of the tensor engine: prior, lambda*, and the larger topic with nearly the same words.
    npmi
        Of the first words, from -1 to 1, where they were counted.
    """

    number: int
    share: float
    words: tuple[Word, ...]
    characteristic: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    anchor: str | None = None
    alpha: float | None = None
    strength: float | None = None
    duplicate_of: int | None = None
    npmi: float | None = None


@dataclass(frozen=True)
class Fact:
    """A line of a table of names and values."""

    name: str
    value: str


@dataclass(frozen=True)
class Section:
    """A table of facts with a heading."""

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Metric:
    """A line of the table of metrics: its key, its value as text, which direction is good, and what it tells."""

    name: str
    value: str
    better: str
    meaning: str


@dataclass(frozen=True)
class Stage:
    """What a stage of the inference took; ``peak_memory`` is in bytes, of the process so far."""

    name: str
    seconds: float
    peak_memory: int


@dataclass(frozen=True)
class Contents:
    """All that a page says. K topics.

    Attributes
    ----------
    engine
        Its name.
    n_words, n_documents
        Of the training corpus; None for documents that are not known.
    topics
        By number, without gaps.
    affinity
        (K, K): sum over words of sqrt(p(word | i) p(word | j)), 1 for equal topics and 0 for strangers.
    topic_topic
        (K, K), joint topic probabilities.
    warnings, metrics_note
        Plain sentences; the note may be empty.
    metrics, certificates, making, stages
        Tables: how good the model is, what its inference says of itself, what it was made of and how.

    Raises
    ------
    ValueError
        If there is no topic, or a matrix is not (K, K).
    """

    engine: str
    n_words: int
    n_documents: int | None
    topics: tuple[Topic, ...]
    affinity: Floats
    topic_topic: Floats | None = None
    warnings: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    metrics_note: str = ""
    certificates: tuple[Fact, ...] = ()
    making: tuple[Section, ...] = ()
    stages: tuple[Stage, ...] = ()

    def __post_init__(self) -> None:
        wanted = (len(self.topics), len(self.topics))
        if not self.topics:
            raise ValueError("a page needs at least one topic")
        for name, matrix in (("affinity", self.affinity), ("topic_topic", self.topic_topic)):
            if matrix is not None and matrix.shape != wanted:
                raise ValueError(f"{name} has the shape {matrix.shape}; {wanted} is needed")
