"""Words that describe a topic: prominent and exclusive words from B, characteristic words from C, and labels.

A label as it is shown has no two words with the same stem, and phrases instead of their parts (``topic_labels``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.linalg.panels import panels, ratio
from streaming_jsmf.linalg.typing import Floats, Integers

#: Weight of exclusivity in FREX, as in stm; frequency has the rest.
FREX_WEIGHT = 0.7
#: Number of most frequent words of a topic among which those of the highest FREX are looked for first.
FREQUENT = 2000

#: Endings of inflected words after the part they share: of any word, and of words in -e and -y without this letter.
_ENDINGS = frozenset(
    ["", "s", "es", "ed", "d", "en", "er", "ers", "r", "rs", "ing", "ings", "ly", "al", "n", "ns", "an", "ans",
     "i", "is"]
)  # fmt: skip
_OF_E = frozenset(["e", "ing", "ings"])
_OF_Y = frozenset(["y", "ies", "ied", "ier"])
#: The shortest part that inflected words share; words that share no more differ by a plural only, or in -e and -y.
_SHORTEST_STEM = 3
_PLURALS = frozenset(["", "s", "es"])


def prominent_words(scores: NDArray[np.floating[Any]], count: int) -> Integers:
    """The ``count`` words with the largest scores of each topic, (K, count) word ids; ties go to the lowest id.

    ``scores`` (N, K) are p(word | topic) or any other score.
    """
    return _leading(scores.T, count)


def longer_lists(listed: Integers, word_topic: Iterable[NDArray[np.floating[Any]]], count: int) -> Integers:
    """Extend the lists ``listed`` (K, n) to ``count`` words per topic with the most probable of the other words.

    ``word_topic`` is p(word | topic), N x K, as consecutive panels of rows. Returns (K, count) ids, with fewer columns
    if there are fewer words; ties go to the lowest id.
    """
    n_topics, n_listed = listed.shape
    ids, values = np.empty((n_topics, 0), np.int64), np.empty((n_topics, 0))
    start = 0
    for panel in word_topic:
        scores = np.array(panel.T, dtype=np.float64)
        topics, ranks = np.nonzero((listed >= start) & (listed < start + len(panel)))
        scores[topics, listed[topics, ranks] - start] = -np.inf
        here = np.broadcast_to(np.arange(start, start + len(panel)), scores.shape)
        ids, values = np.hstack([ids, here]), np.hstack([values, scores])
        order = _leading(values, count - n_listed)
        ids, values = np.take_along_axis(ids, order, 1), np.take_along_axis(values, order, 1)
        start += len(panel)
    return np.hstack([listed, ids])[:, : min(count, start)]


def characteristic_words(anchor_rows: Floats, count: int) -> Integers:
    """The ``count`` words that co-occur most with each anchor (LR-JSMF, Table 1), (K, count) word ids.

    ``anchor_rows`` (K, N) are the anchors' rows of C before rectification; rectified rows favor frequent words.
    """
    return _leading(anchor_rows, count)


def frex(probability: Floats, totals: Floats, words: Any = slice(None)) -> Floats:
    """FREX of words of a topic (Bischof and Airoldi 2012), (n,), above 0 and at most 1, by default of all N words.

    It is the harmonic mean, with weight ``FREX_WEIGHT`` on the first, of two ranks among all words as shares of N: that
    of p(word | topic) divided by its sum over topics, ``totals`` (N,), and that of p(word | topic), ``probability``
    (N,). Equal values have the mean of their ranks. stm sums it over the top words of a topic as its exclusivity.

    Examples
    --------
    Of two words the first is the more frequent and the more exclusive one: ranks 2 and 1 of 2.

    >>> print(frex(np.array([0.8, 0.2]), np.array([0.9, 1.1])).tolist())
    [1.0, 0.5]
    """
    exclusive, frequent = (
        _rank_shares(values, words) for values in (ratio(probability, totals), probability)
    )
    return 1.0 / (FREX_WEIGHT / exclusive + (1.0 - FREX_WEIGHT) / frequent)


def frex_words(word_topic: Floats, count: int, totals: Floats | None = None) -> Integers:
    """The ``count`` words of the highest FREX of each topic of B (N, K), (K, count) ids; -1 where it has fewer words.

    ``totals`` (N,) are the sums over all topics, if ``word_topic`` has only some of their columns.
    """
    known = np.maximum(word_topic, 0.0)
    totals = known.sum(axis=1) if totals is None else totals
    found = np.full((known.shape[1], count), -1, np.int64)
    for words, column in zip(found, known.T, strict=True):
        best = _best_by_frex(column, totals, count)
        words[: best.size] = best
    return found


def _best_by_frex(probability: Floats, totals: Floats, count: int) -> Integers:
    """The words of a topic, at most ``count``, in the order of FREX; ties go to the lowest id."""
    n_words, n_frequent = probability.size, FREQUENT
    while True:
        n_frequent = min(n_frequent, n_words)
        least = np.partition(probability, -n_frequent)[-n_frequent]
        able = np.flatnonzero((probability >= least) & (probability > 0))
        scores = frex(probability, totals, able)
        best = np.argsort(-scores, kind="stable")[:count]
        # More exclusive than all others, a less frequent word has no more than this.
        share = (n_words - able.size) / n_words
        most = share / (FREX_WEIGHT * share + 1.0 - FREX_WEIGHT)
        if least <= 0 or n_frequent == n_words or (best.size == count and scores[best[-1]] > most):
            return np.asarray(able[best])
        n_frequent *= 8


def _rank_shares(values: Floats, chosen: Any) -> Floats:
    """Ranks from 1 of the ``chosen`` among all values, as shares of their number."""
    ordered, wanted = np.sort(values), values[chosen]
    below, up_to = (np.searchsorted(ordered, wanted, side) for side in ("left", "right"))
    return np.asarray((below + up_to + 1) / (2 * values.size))


def label_words(prominent: Integers, characteristic: Integers, count: int) -> Integers:
    """Words of each topic that are both prominent and characteristic, (K, count) ids, each for one topic.

    Both lists are (K, n). The score of a word for a topic is the sum of its two ranks; a list without the word
    contributes its length. Pairs are assigned by ascending score (ties: lower topic, then lower id), so a shared word
    labels the topic that it fits best. -1 where the lists are exhausted.
    """
    n_topics = len(prominent)
    scores = map(_summed_ranks, prominent, characteristic)
    offers = [(score, topic, word) for topic, row in enumerate(scores) for word, score in row.items()]
    labels = np.full((n_topics, count), -1, dtype=np.int64)
    used: set[int] = set()
    filled = [0] * n_topics
    for _, topic, word in sorted(offers):
        if filled[topic] < count and word not in used:
            labels[topic, filled[topic]] = word
            filled[topic] += 1
            used.add(word)
    return labels


def best_words(prominent: Integers, characteristic: Integers) -> list[list[int]]:
    """All words of each topic in the two lists, by ascending score as in ``label_words``."""
    return [
        [word for _, word in sorted((score, word) for word, score in row.items() if word >= 0)]
        for row in map(_summed_ranks, prominent, characteristic)
    ]


def _summed_ranks(prominent: Integers, characteristic: Integers) -> dict[int, int]:
    """The sum of the ranks of each word in two lists of equal length, which counts where a list lacks the word."""
    listed, ranks = len(prominent), dict[int, int]()
    for words in (prominent, characteristic):
        for rank, word in enumerate(words.tolist()):
            ranks[word] = ranks.get(word, 2 * listed) + rank - listed
    return ranks


def _leading(scores: NDArray[np.floating[Any]], count: int) -> Integers:
    """Column indices of the largest scores of each row, descending; ties go to the lowest."""
    count = min(count, scores.shape[1])
    leading = np.empty((len(scores), count), np.int64)
    columns = (row for some in panels(len(scores), 32) for row in np.ascontiguousarray(scores[some]))
    for row, of_row in zip(leading, columns, strict=True):
        # Partition to find the smallest required score, then sort only the scores that reach it.
        able = np.flatnonzero(of_row >= np.partition(of_row, -count)[-count])
        row[:] = able[np.argsort(-of_row[able], kind="stable")[:count]]
    return leading


def same_stem(one: str, other: str) -> bool:
    """Whether two words are inflections of one, by a rule that knows endings of English only.

    Examples
    --------
    >>> [same_stem(*pair) for pair in (("game", "games"), ("city", "cities"), ("using", "uses"), ("state", "station"))]
    [True, True, False, False]
    >>> same_stem("armenian", "armenia"), same_stem("driver", "driving"), same_stem("car", "care")
    (True, True, False)
    """
    pairs = enumerate(zip(one, other, strict=False))
    shared = next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
    endings = {one[shared:], other[shared:]}
    known = (_ENDINGS if shared > _SHORTEST_STEM else _PLURALS, _OF_E, _OF_Y)
    return shared >= _SHORTEST_STEM and any(endings <= group for group in known)


def unlike(words: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The first ``count`` of the words, without those that share a stem with an earlier one or in themselves."""
    chosen: list[str] = []
    stems: list[str] = []
    for word in words:
        parts = word.split()
        pairs = (*combinations(parts, 2), *product(parts, stems))
        if len(chosen) < count and not any(same_stem(one, other) for one, other in pairs):
            chosen.append(word)
            stems += parts
    return tuple(chosen)


def topic_labels(arrays: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The words of the label of each topic of a model, (K,); empty without ``label_words``.

    A phrase of the vocabulary replaces a word that is part of it if it is at most twice as far down the list of
    prominent words. A word that shares a stem with an earlier word of the label is replaced by the next best word (as
    in ``label_words``) that labels no other topic.
    """
    if not {"word", "label_words", "prominent_words"} <= arrays.keys():
        return [() for _ in arrays["topic_probability"]]
    prominent = arrays["prominent_words"]
    listed = best_words(prominent, arrays.get("characteristic_words", prominent))

    def spelled(ids: Iterable[int]) -> list[str]:
        return [str(arrays["word"][word]) for word in ids if word >= 0]

    labels = list(map(spelled, arrays["label_words"]))
    used = {word for label in labels for word in label}
    found = []
    for label, top, row in zip(labels, map(spelled, prominent), map(spelled, listed), strict=True):
        used -= {*label}
        free = [word for word in row if word not in used]
        near = [word if word in free else "" for word in top]
        chosen = unlike(_with_phrases([*label, *free], near), len(label))
        used |= {*chosen}
        found.append(chosen)
    return found


def _with_phrases(words: Iterable[str], prominent: Sequence[str]) -> Iterator[str]:
    """The words with the first fitting phrase among the prominent ones in place of a word that is part of it."""
    for word in words:
        near = prominent[: 2 * (prominent.index(word) + 1)] if word in prominent else ()
        yield next((phrase for phrase in near if " " in phrase and word in phrase.split()), word)
