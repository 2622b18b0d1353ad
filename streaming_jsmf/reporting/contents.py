"""What a page says of a model: plain values, the same for every engine, and None where an engine has no such thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.choice import Choice

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
        Words; empty where the model lists none. The label may be the one name that somebody gave the topic.
    anchor
        Of LR-JSMF.
    alpha, strength, duplicate_of
        Of the tensor engine: prior, lambda*, and the larger topic with nearly the same words.
    npmi
        Of the first words, from -1 to 1, where they were counted.
    doubts
        Why it may be no topic, a phrase each; empty as a rule.
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
    doubts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called where there is room for a few words."""
        return ", ".join(self.name_words)

    @property
    def name_words(self) -> tuple[str, ...]:
        """The words of its name: its label, else its first three words."""
        return self.label or tuple(word.text for word in self.words[:3])


@dataclass(frozen=True)
class WordLists:
    """Many words of every topic.

    Attributes
    ----------
    vocabulary
        Words that any list has, W.
    probability
        (W,), p(word) by the model: the sum of p(word | topic) p(topic).
    ids, probabilities
        For each topic its words as numbers in ``vocabulary``, the most probable first, and their p(word | topic).
    """

    vocabulary: tuple[str, ...]
    probability: Floats
    ids: tuple[Integers, ...]
    probabilities: tuple[Floats, ...]


@dataclass(frozen=True)
class Document:
    """A document in which a topic is large: its id, the share, and the values of the metadata columns."""

    name: str
    share: float
    values: tuple[str, ...]


@dataclass(frozen=True)
class Documents:
    """For each topic the documents in which it is largest, the largest share first; names of the metadata columns."""

    columns: tuple[str, ...]
    of_topic: tuple[tuple[Document, ...], ...]


@dataclass(frozen=True)
class Groups:
    """Mean topic shares of G groups of documents.

    Attributes
    ----------
    column
        The metadata column whose values make the groups, or what was taken of it: ``year of date``.
    names, documents
        Of each group, its value and its number of documents; G.
    ordered
        The values are numbers or times, so that a line may join them.
    shares, errors
        (G, K); errors are standard errors of the means, 0 where there is one document only.
    """

    column: str
    names: tuple[str, ...]
    documents: tuple[int, ...]
    ordered: bool
    shares: Floats
    errors: Floats


@dataclass(frozen=True)
class Level:
    """One of several models of the same moments: names and shares of its K topics, and its metrics as text."""

    names: tuple[str, ...]
    shares: Floats
    metrics: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Levels:
    """Models of a rising number of topics.

    Attributes
    ----------
    models
        By rising K.
    flows
        Between each and the next, (K, K'): shares of the corpus that go from a topic to those it is made of in the
        next. Rows sum to the shares of the topics.
    own
        Which of the models the page is about.
    choice, missing
        What ``choose_k`` found out about them, if it made them; and by measure why it has no values.
    """

    models: tuple[Level, ...]
    flows: tuple[Floats, ...]
    own: int
    choice: Choice | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


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
class Check:
    """A certificate in plain words: what was asked, the answer, what would be good, and whether it is."""

    question: str
    answer: str
    good: str
    passed: bool


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
        By rising number; what is not shown leaves a gap.
    affinity
        (K, K): sum over words of sqrt(p(word | i) p(word | j)), 1 for equal topics and 0 for strangers.
    topic_topic
        (K, K), joint topic probabilities.
    warnings, metrics_note
        Plain sentences; the note may be empty.
    metrics, certificates, making, stages
        Tables: how good the model is, what its inference says of itself, what it was made of and how.
    checks
        The certificates that can be explained.
    corpus, date
        What the page is about, at its top: the corpus, and the day on which the model was made; empty where unknown.
    lists, documents, groups, levels
        Many words of each topic, documents, groups of them, models of other K; None where they are not known.

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
    checks: tuple[Check, ...] = ()
    corpus: str = ""
    date: str = ""
    lists: WordLists | None = None
    documents: Documents | None = None
    groups: Groups | None = None
    levels: Levels | None = None

    def __post_init__(self) -> None:
        wanted = (len(self.topics), len(self.topics))
        if not self.topics:
            raise ValueError("a page needs at least one topic")
        for name, matrix in (("affinity", self.affinity), ("topic_topic", self.topic_topic)):
            if matrix is not None and matrix.shape != wanted:
                raise ValueError(f"{name} has the shape {matrix.shape}; {wanted} is needed")
