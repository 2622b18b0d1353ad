"""What a report shows of a model: plain values, the same for every engine, and None where an engine has no such thing.

Also how numbers and settings are formatted for people.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation.choice import Choice
from streaming_jsmf.evaluation.verdicts import Check

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Lists of numbers that are longer are shown by their last value.
LONG = 8


class Word(NamedTuple):
    """A word of a topic and p(word | topic)."""

    text: str
    probability: float


@dataclass(frozen=True)
class Topic:
    """A row of the table of topics.

    Attributes
    ----------
    number, share
        From 0; p(topic), from 0 to 1.
    words
        Most probable ones, best first; at least one.
    characteristic, label
        Words; empty if the model lists none. The label may be a single name that a user gave the topic.
    anchor
        Of LR-JSMF.
    alpha, strength, duplicate_of
        Of the tensor engine: prior, lambda*, and the larger topic with nearly the same words.
    npmi
        Of the first words, from -1 to 1, if they were counted.
    warnings
        Why it may not be a topic, a phrase each; usually empty.
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
    warnings: tuple[str, ...] = ()

    @property
    def name_words(self) -> tuple[str, ...]:
        """The words of its name: its label, else its first three words."""
        return self.label or tuple(word.text for word in self.words[:3])

    @property
    def name(self) -> str:
        """A short name."""
        return ", ".join(self.name_words)


@dataclass(frozen=True)
class WordLists:
    """Many words of every topic.

    ``vocabulary`` has the W words that any list has, ``probability`` (W,) their p(word) by the model. ``ids`` and
    ``probabilities`` are for each topic its words as positions in ``vocabulary``, most probable first, and p(word |
    topic).
    """

    vocabulary: tuple[str, ...]
    probability: Floats
    ids: tuple[Integers, ...]
    probabilities: tuple[Floats, ...]


class Document(NamedTuple):
    """A document in which a topic is large: its id, the share, and the values of the metadata columns."""

    name: str
    share: float
    values: tuple[str, ...]


class Documents(NamedTuple):
    """Names of the metadata columns; for each topic the documents with its largest shares, in descending order."""

    columns: tuple[str, ...]
    of_topic: tuple[tuple[Document, ...], ...]


@dataclass(frozen=True)
class Groups:
    """Mean topic shares of G groups of documents, defined by the values of ``column`` (or ``year of date``).

    ``names`` and ``documents`` are value and size of each group. ``ordered``: the values are numbers or times, so that
    a line may join them. ``shares`` and their standard ``errors`` are (G, K); errors are 0 for a single document.
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
    """Models of an increasing number of topics.

    Attributes
    ----------
    models
        By ascending K.
    flows
        Between each model and the next, (K, K'): how the share of a topic is distributed over the topics of the next
        model of which it is a mixture. Rows sum to the shares of the topics.
    own
        Index of the model that the page is about.
    choice, missing
        The result of ``choose_k``, if it fitted them; and for each measure without values the reason.
    """

    models: tuple[Level, ...]
    flows: tuple[Floats, ...]
    own: int
    choice: Choice | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


class Fact(NamedTuple):
    """A row of a table of names and values."""

    name: str
    value: str


class Section(NamedTuple):
    """A table of facts with a heading."""

    title: str
    facts: tuple[Fact, ...]


class Metric(NamedTuple):
    """A row of the table of metrics: its path, value as text, which direction is better, and its meaning."""

    name: str
    value: str
    better: str
    meaning: str


class Stage(NamedTuple):
    """Cost of a stage of the inference; ``peak_memory`` is in bytes, of the process so far."""

    name: str
    seconds: float
    peak_memory: int


@dataclass(frozen=True)
class Contents:
    """Everything that a page shows. K topics.

    Attributes
    ----------
    engine
        Its name.
    n_words, n_documents
        Of the training corpus; None if the number of documents is not known.
    topics
        By ascending number; hidden topics leave gaps.
    affinity
        (K, K): sum over words of sqrt(p(word | i) p(word | j)), 1 for equal topics and 0 for unrelated ones.
    topic_topic
        (K, K), joint topic probabilities.
    warnings, metrics_note
        Sentences; the note may be empty.
    metrics, certificates, making, stages
        Tables: quality, what the inference reports, sources and settings, cost.
    checks
        The certificates that can be explained.
    corpus, date
        Name of the corpus and day on which the model was made; empty if unknown.
    lists, documents, groups, levels
        Many words of each topic, documents, groups of them, models of other K; None if not known.

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
        expected = (len(self.topics), len(self.topics))
        if not self.topics:
            raise ValueError("a page needs at least one topic")
        for name, matrix in (("affinity", self.affinity), ("topic_topic", self.topic_topic)):
            if matrix is not None and matrix.shape != expected:
                raise ValueError(f"{name} has the shape {matrix.shape}; {expected} is needed")


def percent(share: float) -> str:
    """A share of 1 as a percentage with two significant digits.

    Examples
    --------
    >>> percent(0.1234), percent(0.01234), percent(0.00001234), percent(1.0), percent(0.0)
    ('12%', '1.2%', '0.0012%', '100%', '0%')
    >>> percent(0.0099999), percent(0.004), percent(-0.05)
    ('1.0%', '0.40%', '-5.0%')
    >>> percent(0.0009)
    '0.090%'
    """
    for least, digits in ((0.0995, 0), (0.00995, 1), (0.000995, 2), (0.0000995, 3)):
        if abs(share) >= least:
            return f"{share:.{digits}%}"
    return f"{100 * share:.2g}%"


def memory_text(size: int) -> str:
    """Bytes as mebibytes.

    Examples
    --------
    >>> memory_text(1_500_000_000)
    '1,431 MiB'
    """
    return f"{size / 2**20:,.0f} MiB"


def value_text(value: Any) -> str:
    """A JSON value in a line; None and an empty list are a hyphen, a long list is shown by its last value.

    Examples
    --------
    >>> value_text(0.000012345), value_text(True), value_text(None), value_text([["a", "b"]])
    ('1.234e-05', 'yes', '-', '[["a", "b"]]')
    >>> value_text([0.5] * 19 + [0.25]), value_text([{"step": 1}, {"step": 2}])
    ('20 values, the last 0.25', '2 values, the last {"step": 2}')
    """
    match value:
        case None | [] | ():
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case [_, *_, Mapping() as last]:
            return f"{len(value)} values, the last {value_text(last)}"
        case [*_, int() | float() as last] if len(value) > LONG:
            return f"{len(value)} values, the last {value_text(last)}"
        case str():
            return value
    return json.dumps(value, ensure_ascii=False)


def facts_of(fields: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Names and values as rows, in their order; a nested mapping's name and a dot precede the names in it."""

    def facts(fields: Mapping[str, Any], prefix: str) -> Iterator[Fact]:
        for name, value in fields.items():
            if isinstance(value, Mapping):
                yield from facts(value, f"{prefix}{name}.")
            else:
                yield Fact(f"{prefix}{name}", value_text(value))

    return tuple(facts(fields, ""))
