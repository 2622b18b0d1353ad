"""Contents of a report: plain values for every engine, None where it lacks them; and their formatting."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.documents.groups import Groups
from streaming_jsmf.evaluation.choice import Choice
from streaming_jsmf.evaluation.metrics import Row
from streaming_jsmf.evaluation.verdicts import Check
from streaming_jsmf.reporting.topics import Topic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Longer lists of numbers are shown by their last value.
LONG = 8


@dataclass(frozen=True)
class WordLists:
    """Many words of every topic.

    ``vocabulary`` are the W words of all lists and ``probability`` (W,) their p(word) in the model. For each topic,
    ``ids`` are positions in ``vocabulary``, most probable first, and ``probabilities`` their p(word | topic).
    """

    vocabulary: tuple[str, ...]
    probability: Floats
    ids: tuple[Integers, ...]
    probabilities: tuple[Floats, ...]


class Document(NamedTuple):
    """A document: its id, its share of a topic or its gain, and the values of the metadata columns."""

    name: str
    value: float
    values: tuple[str, ...]


class Documents(NamedTuple):
    """Names of the metadata columns, and lists of documents: the first of each topic, or the outliers."""

    columns: tuple[str, ...]
    lists: tuple[tuple[Document, ...], ...]


@dataclass(frozen=True)
class Level:
    """Names and shares of the K topics of one of several models of the same moments, and its metrics as text."""

    names: tuple[str, ...]
    shares: Floats
    metrics: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Levels:
    """Models of an increasing number of topics.

    ``flows`` (K, K') between each model and the next say how the share of each topic is distributed over the next
    model's topics; rows sum to the shares. ``own`` is the index of the model that the page shows, ``choice`` the
    result of ``choose_k`` if it fitted these models, and ``missing`` the reason for each measure without values.
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


class Stage(NamedTuple):
    """Cost of an inference stage; ``peak_memory`` is the peak of the process so far, in bytes."""

    name: str
    seconds: float
    peak_memory: int


@dataclass(frozen=True)
class Contents:
    """Everything that a page shows about K topics. Raises ``ValueError`` if K is 0 or a matrix is not (K, K).

    Attributes
    ----------
    n_words, n_documents : size of the training corpus; the number of documents may be unknown (None)
    topics : by ascending number, with gaps for hidden topics
    affinity : (K, K) sums over words of sqrt(p(word | i) p(word | j)), from 0 for unrelated topics to 1 for equal ones
    topic_topic : (K, K) joint topic probabilities
    metrics, certificates, making, stages : tables of quality, inference certificates, sources and settings, and cost
    checks : certificates that have an explanation
    corpus, date : name of the corpus and creation date of the model; empty if unknown
    """

    engine: str
    n_words: int
    n_documents: int | None
    topics: tuple[Topic, ...]
    affinity: Floats
    lists: WordLists
    topic_topic: Floats | None = None
    warnings: tuple[str, ...] = ()
    metrics: tuple[Row, ...] = ()
    metrics_note: str = ""
    certificates: tuple[Fact, ...] = ()
    making: tuple[Section, ...] = ()
    stages: tuple[Stage, ...] = ()
    checks: tuple[Check, ...] = ()
    corpus: str = ""
    date: str = ""
    documents: Documents | None = None
    groups: Groups | None = None
    levels: Levels | None = None
    outliers: Documents | None = None

    def __post_init__(self) -> None:
        expected = (len(self.topics), len(self.topics))
        if not self.topics:
            raise ValueError("a page needs at least one topic")
        for name, matrix in (("affinity", self.affinity), ("topic_topic", self.topic_topic)):
            if matrix is not None and matrix.shape != expected:
                raise ValueError(f"{name} has the shape {matrix.shape}; {expected} is needed")


def percent(share: float) -> str:
    """Format a share as a percentage with two significant digits.

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
    """Format bytes as mebibytes.

    Examples
    --------
    >>> memory_text(1_500_000_000)
    '1,431 MiB'
    """
    return f"{size / 2**20:,.0f} MiB"


def value_text(value: Any) -> str:
    """Format a JSON value in one line: a hyphen for None and empty lists, the last value for long lists.

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
    """Flatten nested fields into rows; names of nested fields are prefixed by their parent and a dot."""

    def facts(fields: Mapping[str, Any], prefix: str) -> Iterator[Fact]:
        for name, value in fields.items():
            if isinstance(value, Mapping):
                yield from facts(value, f"{prefix}{name}.")
            else:
                yield Fact(f"{prefix}{name}", value_text(value))

    return tuple(facts(fields, ""))
