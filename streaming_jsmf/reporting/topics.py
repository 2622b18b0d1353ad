"""Topics of a model for display: share, label and words of each, as values, text, HTML and data frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.display import printable, wrapped
from streaming_jsmf.evaluation.verdicts import Frequency, doubt, topic_warnings
from streaming_jsmf.inference.words import unlike
from streaming_jsmf.reporting.words import read_listed
from streaming_jsmf.topics.edits import EditedTopics, require_word_count, shown_topics
from streaming_jsmf.topics.store import AnyModel, Model

if TYPE_CHECKING:
    import pandas as pd

#: Arrays of every engine, and those of some engines; ``word_topic`` is read in panels.
NEEDED = ("word", "prominent_words", "topic_probability")
OPTIONAL = (
    "alpha",
    "anchors",
    "characteristic_words",
    "document_frequency",
    "duplicate_of",
    "label_words",
    "lambda",
    "shown_word",
)

#: Indentation of the words in a terminal.
_INDENT = " " * 14

_HTML = """\
<table>
<caption>{{ caption }}</caption>
<thead><tr><th>topic</th><th>share</th><th>label</th><th>words</th></tr></thead>
<tbody>
{% for topic in topics %}
<tr><th>{{ topic.number }}</th><td>{{ "%.1f"|format(100 * topic.share) }}%</td>\
<td>{{ topic.name }}</td><td style="text-align: left">{{ topic.words|join(", ", attribute="text") }}\
{% for warning in topic.warnings %}
<br>warning: {{ warning }}{% endfor %}
</td></tr>
{% endfor %}
</tbody>
</table>
"""


class Word(NamedTuple):
    """A word of a topic and p(word | topic)."""

    text: str
    probability: float


@dataclass(frozen=True)
class Topic:
    """A row of the table of topics; values that the engine lacks are None or empty.

    Attributes
    ----------
    number, share : number, from 0, and p(topic)
    words : the most probable words in descending order; at least one
    label : label words, or a single name given by a user
    alpha, strength, duplicate_of : prior, lambda*, and the larger topic with nearly the same words (tensor engine)
    npmi : NPMI of the first words, from -1 to 1, if counted
    warnings : reasons to doubt the topic, one phrase each
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
        """Words of its name: its label, or its first three words."""
        return self.label or unlike(word.text for word in self.words)

    @property
    def name(self) -> str:
        return ", ".join(self.name_words)


def read_topics(
    model: AnyModel, words: int | None = None, *, probabilities: bool = True
) -> tuple[Topic, ...]:
    """Read the topics of a model of any engine with edits applied, by number. No pass over documents.

    ``words`` is the number of words of each topic, by default 10. Without ``probabilities``, which need all of
    ``word_topic``, those of the words are NaN, and there are no characteristic words. Raises ``InputError`` if there is
    no model or ``words`` is below 1; ``StoreError`` if it is damaged.
    """
    count = require_word_count(words)
    shown = shown_topics(model, NEEDED, OPTIONAL)
    listed = shown.listed_words(count)
    known, characteristic = np.full(listed.shape, np.nan), np.full(listed.shape, -1)
    if probabilities:
        known, characteristic = read_listed(shown.panels(), listed, shown.model.arrays["topic_probability"])
    return topics_of(shown, listed, known, characteristic)


def topics_of(
    shown: EditedTopics,
    listed: NDArray[np.int64],
    probability: NDArray[np.float64],
    characteristic: NDArray[np.int64],
    npmi: Sequence[float] | None = None,
    affinity: NDArray[np.float64] | None = None,
) -> tuple[Topic, ...]:
    """Topics with the words ``listed``, their ``probability`` and ``characteristic`` words, all (K', n), and warnings.

    ``npmi`` refers to the stored topics; ``affinity`` (K', K') is as in ``topic_warnings``.
    """
    arrays = {
        **shown.model.arrays,
        "word": shown.words,
        "listed": listed,
        "characteristic_words": characteristic,
    }
    if npmi is not None:
        arrays["npmi"] = shown.rows(np.array(npmi, dtype=float), np.nan)

    def words(name: str, topic: int) -> tuple[str, ...]:
        ids = np.atleast_1d(arrays[name][topic])[: listed.shape[1]] if name in arrays else ()
        return tuple(str(arrays["word"][word]) for word in ids if word >= 0)

    def number(name: str, topic: int) -> float | None:
        value = float(arrays[name][topic]) if name in arrays else np.nan
        return None if np.isnan(value) else value

    scores = [number("npmi", topic) for topic in range(len(listed))]
    warnings = topic_warnings(
        [[str(word) for word in row] for row in arrays["word"][arrays["prominent_words"]]],
        arrays["topic_probability"],
        affinity,
        frequency=Frequency.of(arrays, shown.model.metrics.get("n_documents")),
        npmi=scores,
        numbers=shown.numbers,
    )

    def row(topic: int) -> Topic:
        larger = int(arrays["duplicate_of"][topic]) if "duplicate_of" in arrays else -1
        return Topic(
            shown.numbers[topic],
            float(arrays["topic_probability"][topic]),
            tuple(map(Word, words("listed", topic), probability[topic].tolist())),
            words("characteristic_words", topic),
            shown.labels[topic],
            next(iter(words("anchors", topic)), None),
            number("alpha", topic),
            number("lambda", topic),
            None if larger < 0 else larger,
            scores[topic],
            warnings[topic],
        )

    return tuple(map(row, range(len(listed))))


def doubts_of(topics: Sequence[Topic]) -> list[str]:
    """A sentence on each topic that has warnings."""
    return [doubt(topic.number, topic.name, topic.warnings) for topic in topics if topic.warnings]


def by_share(topics: Sequence[Topic]) -> list[Topic]:
    """Sort topics by descending share; ties are broken by number."""
    return sorted(topics, key=lambda topic: (-topic.share, topic.number))


def frame_of(model: AnyModel | Model, words: int | None = None) -> pd.DataFrame:
    """The shown topics of a model as a table by descending share; errors as ``read_topics``.

    ``words`` are pairs of a word and p(word | topic).
    """
    import pandas as pd

    count = require_word_count(words)
    shown = shown_topics(model, NEEDED, OPTIONAL)
    listed = shown.listed_words(count)
    vocabulary, shares = shown.words, shown.model.arrays["topic_probability"]
    pairs = [
        [*zip(map(str, vocabulary[row]), known.tolist(), strict=True)]
        for row, known in zip(listed, shown.probabilities(listed), strict=True)
    ]
    columns = {"topic": shown.numbers, "share": shares, "label": shown.names, "words": pairs}
    return pd.DataFrame(columns).sort_values("share", ascending=False, kind="stable", ignore_index=True)


def topic_text(topics: Sequence[Topic], *, characteristic: bool = False) -> str:
    """Format topics as text of at most 80 columns, with the label first and the words below."""
    lines = [f"{'topic':>5} {'share':>6}  label, and most probable words"]
    for topic in topics:
        note = ""
        if topic.duplicate_of is not None:
            note = f"  (repeats topic {topic.duplicate_of})"
        elif topic.anchor is not None and topic.anchor not in topic.label:
            note = f"  (anchor: {topic.anchor})"
        lines += wrapped(topic.name + note, f"{topic.number:>5} {topic.share:>6.1%}  ")
        lines += wrapped(", ".join(word.text for word in topic.words), _INDENT)
        if characteristic:
            lines += wrapped(f"characteristic: {', '.join(topic.characteristic)}", _INDENT)
    return "\n".join(map(printable, lines))


def topic_html(topics: Sequence[Topic], caption: str) -> str:
    """Format topics as an HTML table with a caption; all text is escaped."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_HTML).render(topics=topics, caption=caption)
