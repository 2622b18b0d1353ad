"""Topics of a model for display: share, label and words of each, as values, text, HTML and data frames.

Many words of every topic, for a page, are read in one pass over ``word_topic``, in chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.display import printable, wrapped
from streaming_jsmf.evaluation.metrics import TOP_WORDS
from streaming_jsmf.evaluation.topic_shape import exclusivity
from streaming_jsmf.evaluation.verdicts import doubt, doubts_about, warnings_of
from streaming_jsmf.inference.words import frex_words
from streaming_jsmf.linalg import hellinger
from streaming_jsmf.linalg.panels import panels as slices
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.topics.edits import EditedTopics, require_word_count, shown_topics
from streaming_jsmf.topics.store import AnyModel, Model, model_path, read_model

if TYPE_CHECKING:
    import pandas as pd

#: Arrays of every engine, and those of some engines; ``word_topic`` is read in panels.
NEEDED = ("word", "prominent_words", "topic_probability")
OPTIONAL: tuple[str, ...] = ("alpha", "anchors", "characteristic_words", "document_frequency", "term_count")
OPTIONAL += ("duplicate_of", "label_words", "lambda", "shown_word")

#: Number of most probable words of each topic in a page.
MOST_WORDS = 1000
#: The page also has the first words of each topic by relevance at these lambdas (lambda 1 is p(word | topic)).
LAMBDAS, BY_RELEVANCE = (0.0, 0.2, 0.4, 0.6, 0.8), 30
#: Characteristic words are those of highest relevance at this lambda, which is one of ``LAMBDAS``.
CHARACTERISTIC = 0.4
#: Maximum size of the lists in bytes, which limits the number of words.
BUDGET = 2_000_000
#: Size of a listed word: the four bytes of its number and probability, as base64.
LISTED_BYTES = 6
#: Bytes of the columns of ``word_topic`` that are in memory for FREX at a time.
FREX_BYTES = 2**29
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

    number, share : number, from 0, and p(topic)
    words : the most probable words in descending order; at least one
    label : label words, or a single name given by a user
    alpha, strength, duplicate_of : prior, lambda*, and the larger topic with nearly the same words (tensor engine)
    npmi : NPMI of the first words, from -1 to 1, if counted
    warnings : reasons to doubt the topic, one phrase each
    frex : words of the highest FREX, which are frequent in the topic and exclusive to it
    name_words : words of its name, see ``EditedTopics.names``
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
    name_words: tuple[str, ...] = ()
    frex: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return ", ".join(self.name_words)


def read_topics(
    model: AnyModel, words: int | None = None, *, probabilities: bool = True, exclusive: bool = False
) -> tuple[Topic, ...]:
    """Read the topics of a model of any engine with edits applied, by number. No pass over documents.

    ``words`` is the number of words of each topic, by default 10. Without ``probabilities``, which need all of
    ``word_topic``, those of the words are NaN, and there are no characteristic words. ``exclusive`` adds FREX words,
    which take longer. Raises ``InputError`` if there is no model or ``words`` is below 1; ``StoreError`` if it is
    damaged.
    """
    count = require_word_count(words)
    shown = shown_topics(model, NEEDED, OPTIONAL)
    listed = shown.listed_words(count)
    known, characteristic, frex = np.full(listed.shape, np.nan), np.full(listed.shape, -1), None
    if probabilities:
        known, characteristic = read_listed(shown.panels(), listed, shown.model.arrays["topic_probability"])
    if exclusive:
        frex, _ = read_frex(shown, listed.shape[1])
    return topics_of(shown, listed, known, characteristic, frex=frex)


def topics_of(
    shown: EditedTopics,
    listed: NDArray[np.int64],
    probability: NDArray[np.float64],
    characteristic: NDArray[np.int64],
    npmi: Sequence[float] | None = None,
    affinity: NDArray[np.float64] | None = None,
    frex: NDArray[np.int64] | None = None,
) -> tuple[Topic, ...]:
    """Topics with the words ``listed``, their ``probability`` and ``characteristic`` words, all (K', n), and warnings.

    ``npmi`` refers to the stored topics; ``affinity`` (K', K') is as in ``doubts_about``; ``frex`` as ``read_frex``.
    """
    arrays = dict(shown.model.arrays)
    if npmi is not None:
        arrays["npmi"] = shown.rows(np.array(npmi, dtype=float), np.nan)

    def number(name: str, topic: int) -> float | None:
        value = float(arrays[name][topic]) if name in arrays else np.nan
        return None if np.isnan(value) else value

    n_topics = len(listed)
    scores = [number("npmi", topic) for topic in range(n_topics)]
    warnings = doubts_about(shown, scores, affinity)
    words, related = shown.spelled(listed), shown.spelled(characteristic[:, : listed.shape[1]])
    exclusive = [()] * n_topics if frex is None else shown.spelled(frex)
    anchors = shown.spelled(arrays["anchors"][:, None]) if "anchors" in arrays else [()] * n_topics

    def row(topic: int) -> Topic:
        larger = int(arrays["duplicate_of"][topic]) if "duplicate_of" in arrays else -1
        return Topic(
            shown.numbers[topic],
            float(arrays["topic_probability"][topic]),
            tuple(map(Word, words[topic], probability[topic].tolist())),
            related[topic],
            shown.labels[topic],
            next(iter(anchors[topic]), None),
            number("alpha", topic),
            number("lambda", topic),
            None if larger < 0 else larger,
            scores[topic],
            warnings[topic],
            shown.name_words[topic],
            exclusive[topic],
        )

    return tuple(map(row, range(n_topics)))


def doubts_of(topics: Sequence[Topic]) -> list[str]:
    """A sentence on each topic that has warnings."""
    return [doubt(topic.number, topic.name, topic.warnings) for topic in topics if topic.warnings]


def warnings_about(model: AnyModel, topics: Sequence[Topic]) -> list[str]:
    """Sentences on certificates that a model does not pass, and on its topics that have warnings."""
    return [*warnings_of(read_model(model_path(model), ()).metrics, len(topics)), *doubts_of(topics)]


def by_share(topics: Sequence[Topic]) -> list[Topic]:
    """Sort topics by descending share; ties are broken by number."""
    return sorted(topics, key=lambda topic: (-topic.share, topic.number))


def frame_of(
    model: AnyModel | Model, words: int | None = None, *, characteristic: bool = False
) -> pd.DataFrame:
    """The shown topics of a model as a table by descending share; errors as ``read_topics``.

    ``words`` are pairs of a word and p(word | topic); ``characteristic`` adds columns of characteristic and FREX words.
    """
    import pandas as pd

    count = require_word_count(words)
    shown = shown_topics(model, NEEDED, OPTIONAL)
    listed = shown.listed_words(count)
    shares = shown.model.arrays["topic_probability"]
    # Not by read_topics, which also reads what its warnings need.
    probabilities, related = read_listed(shown.panels(), listed, shares)
    pairs = [
        [*zip(words, known.tolist(), strict=True)]
        for words, known in zip(shown.spelled(listed), probabilities, strict=True)
    ]
    columns = {"topic": shown.numbers, "share": shares, "label": shown.names, "words": pairs}
    if characteristic:
        lists = {"characteristic": related, "frex": read_frex(shown, listed.shape[1])[0]}
        columns |= {name: [*map(list, shown.spelled(ids))] for name, ids in lists.items()}
    return pd.DataFrame(columns).sort_values("share", ascending=False, kind="stable", ignore_index=True)


def topic_text(topics: Sequence[Topic], *, characteristic: bool = False) -> str:
    """Format topics as text that fits the terminal, with the label first and the words below."""
    lines = wrapped("label, and most probable words", f"{'topic':>5} {'share':>6}  ")
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
            lines += wrapped(f"exclusive (FREX): {', '.join(topic.frex)}", _INDENT)
    return "\n".join(map(printable, lines))


def topic_html(topics: Sequence[Topic], caption: str) -> str:
    """Format topics as an HTML table with a caption; all text is escaped."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_HTML).render(topics=topics, caption=caption)


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


class WordTopic(NamedTuple):
    """p(word | topic) of listed words, and characteristic words, (K, n); the affinity (K, K) of ``Contents``; lists."""

    listed: Floats
    characteristic: Integers
    affinity: Floats
    lists: WordLists


def read_word_topic(
    panels: Iterable[Floats], listed: NDArray[np.int64], shares: Floats, words: NDArray[np.object_]
) -> WordTopic:
    """Read the probabilities of ``listed`` words (K, n ids), the affinity of the topics, and their first words.

    ``panels`` are row panels of p(word | topic), N x K; ``shares`` (K,) is p(topic); ``words`` (N,) are the words.
    """
    n_topics, count = listed.shape
    probabilities, affinity = np.zeros(listed.shape), np.zeros((n_topics, n_topics))
    leading = [_Leading(n_topics, MOST_WORDS, 1.0)]
    leading += [_Leading(n_topics, max(BY_RELEVANCE, count), weight) for weight in LAMBDAS]
    of_words: list[Floats] = []
    for known, own in _read(panels, listed, shares, probabilities, leading):
        affinity += hellinger.affinity(known)
        of_words.append(own)
    characteristic = leading[1 + LAMBDAS.index(CHARACTERISTIC)].ids(count)
    lists = _lists(leading, np.concatenate(of_words), words)
    return WordTopic(probabilities, characteristic, affinity, lists)


def read_listed(
    panels: Iterable[Floats], listed: NDArray[np.int64], shares: Floats
) -> tuple[Floats, Integers]:
    """The first two values of ``read_word_topic``."""
    probabilities, leading = np.zeros(listed.shape), _Leading(len(listed), listed.shape[1], CHARACTERISTIC)
    for _ in _read(panels, listed, shares, probabilities, [leading]):
        pass
    return probabilities, leading.ids(listed.shape[1])


def read_frex(shown: EditedTopics, count: int) -> tuple[Integers, Floats]:
    """The ``count`` FREX words of each shown topic, (K', count) ids or -1, and its exclusivity, (K',).

    Topics are exclusive compared with all stored ones, also those that are hidden. Reads ``word_topic`` twice, and once
    more for each ``FREX_BYTES``.
    """
    top_words = shown.model.arrays["prominent_words"][:, :TOP_WORDS]
    totals = np.concatenate([np.maximum(panel, 0.0).sum(axis=1) for panel in shown.stored_panels()])
    found, exclusive = np.empty((len(top_words), count), np.int64), np.empty(len(top_words))
    for some in slices(len(top_words), max(1, FREX_BYTES // (8 * totals.size))):
        columns = np.concatenate([panel[:, some] for panel in shown.panels()])
        found[some] = frex_words(columns, count, totals)
        exclusive[some] = exclusivity(columns, top_words[some], totals)
    return found, exclusive


def _read(
    panels: Iterable[Floats],
    listed: NDArray[np.int64],
    shares: Floats,
    probabilities: Floats,
    leading: Sequence[_Leading],
) -> Iterator[tuple[Floats, Floats]]:
    """Yield p(word | topic) and p(word) of each panel, and fill in ``probabilities`` and the ``leading`` words."""
    start = 0
    for panel in panels:
        topics, ranks = np.nonzero((listed >= start) & (listed < start + len(panel)))
        probabilities[topics, ranks] = panel[listed[topics, ranks] - start, topics]
        # Rounding may leave a probability a little below 0.
        known = np.maximum(panel, 0.0)
        of_words = known @ shares
        for first in leading:
            first.see(start, known, of_words)
        yield known, of_words
        start += len(panel)


class _Leading:
    """The first words of each topic by relevance (Sievert and Shirley 2014), log p(w | t) - (1 - lambda) log p(w)."""

    def __init__(self, n_topics: int, count: int, weight: float) -> None:
        self._count, self._weight = count, weight
        self._ids: list[Integers] = [np.zeros(0, np.int64)] * n_topics
        self._scores: list[Floats] = [np.zeros(0)] * n_topics
        self._probabilities: list[Floats] = [np.zeros(0)] * n_topics

    def see(self, start: int, panel: Floats, of_words: Floats) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.log(panel) - (1 - self._weight) * np.log(of_words)[:, None]
        for topic in range(panel.shape[1]):
            full = len(self._ids[topic]) == self._count
            least = self._scores[topic][-1] if full else -np.inf
            rows = np.flatnonzero((panel[:, topic] > 0) & (scores[:, topic] > least))
            if rows.size:
                self._add(topic, start + rows, scores[rows, topic], panel[rows, topic])

    def _add(self, topic: int, ids: Integers, scores: Floats, probabilities: Floats) -> None:
        scores = np.concatenate([self._scores[topic], scores])
        first = np.argsort(-scores, kind="stable")[: self._count]
        self._scores[topic] = scores[first]
        self._ids[topic] = np.concatenate([self._ids[topic], ids])[first]
        self._probabilities[topic] = np.concatenate([self._probabilities[topic], probabilities])[first]

    def ids(self, count: int) -> Integers:
        """The first ``count`` words of each topic, (K, count); -1 where it has fewer."""
        found = np.full((len(self._ids), count), -1, np.int64)
        for row, ids in zip(found, self._ids, strict=True):
            row[: len(ids[:count])] = ids[:count]
        return found

    def of(self, topic: int, count: int) -> dict[int, float]:
        ids, probabilities = self._ids[topic][:count], self._probabilities[topic][:count]
        return dict(zip(ids.tolist(), probabilities.tolist(), strict=True))


def _lists(leading: list[_Leading], of_words: Floats, words: NDArray[np.object_]) -> WordLists:
    n_topics, count = len(leading[0]._ids), MOST_WORDS
    while True:
        chosen = [_words_of(topic, leading, count) for topic in range(n_topics)]
        vocabulary = sorted(set().union(*chosen))
        size = sum(map(len, chosen)) * LISTED_BYTES + sum(
            len(str(words[word]).encode()) + 3 for word in vocabulary
        )
        if size <= BUDGET or count <= BY_RELEVANCE:
            break
        count = count * 3 // 4
    positions = {word: position for position, word in enumerate(vocabulary)}
    return WordLists(
        tuple(str(words[word]) for word in vocabulary),
        of_words[vocabulary],
        tuple(np.array([positions[word] for word in topic], dtype=np.int64) for topic in chosen),
        tuple(np.array(list(topic.values())) for topic in chosen),
    )


def _words_of(topic: int, leading: list[_Leading], count: int) -> dict[int, float]:
    """Words of a topic that rank first by any relevance, in descending order of probability."""
    found: dict[int, float] = {}
    for first in leading:
        found.update(first.of(topic, count if first is leading[0] else min(count, BY_RELEVANCE)))
    return dict(sorted(found.items(), key=lambda word: (-word[1], word[0])))
