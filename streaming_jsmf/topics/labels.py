"""Labels of topics as they are shown: no two words with the same stem, and phrases instead of their parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from streaming_jsmf.inference.words import best_words

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
    in ``inference.words.label_words``) that labels no other topic.
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
