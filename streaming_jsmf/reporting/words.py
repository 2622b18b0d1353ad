"""Many words of every topic for a page, read in one pass over ``word_topic``, in chunks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.panels import gram
from streaming_jsmf.linalg.typing import Floats, Integers

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
    start = 0
    for panel in panels:
        # Rounding may leave a probability a little below 0.
        known = np.maximum(panel, 0.0)
        affinity += gram(np.sqrt(known))
        _take(panel, start, listed, probabilities)
        of_words.append(known @ shares)
        for first in leading:
            first.see(start, known, of_words[-1])
        start += len(panel)
    characteristic = leading[1 + LAMBDAS.index(CHARACTERISTIC)].ids(count)
    return WordTopic(
        probabilities, characteristic, affinity, _lists(leading, np.concatenate(of_words), words)
    )


def read_listed(
    panels: Iterable[Floats], listed: NDArray[np.int64], shares: Floats
) -> tuple[Floats, Integers]:
    """The first two values of ``read_word_topic``."""
    n_topics, count = listed.shape
    probabilities, leading, start = np.zeros(listed.shape), _Leading(n_topics, count, CHARACTERISTIC), 0
    for panel in panels:
        _take(panel, start, listed, probabilities)
        known = np.maximum(panel, 0.0)
        leading.see(start, known, known @ shares)
        start += len(panel)
    return probabilities, leading.ids(count)


def _take(panel: Floats, start: int, listed: NDArray[np.int64], probabilities: Floats) -> None:
    """Fill in the probabilities of the listed words of a panel, whose first word is ``start``."""
    topics, ranks = np.nonzero((listed >= start) & (listed < start + len(panel)))
    probabilities[topics, ranks] = panel[listed[topics, ranks] - start, topics]


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
        chosen = [_joined(leading, topic, count) for topic in range(n_topics)]
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


def _joined(leading: list[_Leading], topic: int, count: int) -> dict[int, float]:
    """Words of a topic that rank first by any relevance, in descending order of probability."""
    found: dict[int, float] = {}
    for first in leading:
        found.update(first.of(topic, count if first is leading[0] else min(count, BY_RELEVANCE)))
    return dict(sorted(found.items(), key=lambda word: (-word[1], word[0])))
