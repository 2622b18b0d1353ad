"""Why a topic may be none: numbers, the leavings of a few documents, words that do not meet, a copy of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streaming_jsmf.reporting.contents import Floats

#: Words that are looked at.
WORDS = 10

#: Share of them that must be mostly digits.
NUMBERS = 0.5

#: Most documents that half of the words of leavings occur in.
FEW_DOCUMENTS = 5

#: Affinity from which a topic is a copy of a larger one: Hellinger distance .39.
COPY = 0.85


@dataclass(frozen=True)
class Suspect:
    """What is known of a topic: its share and first words, in how many documents each occurs if that is known, NPMI."""

    share: float
    words: Sequence[str]
    documents: Sequence[int] | None = None
    npmi: float | None = None


def doubts_of(
    topics: Sequence[Suspect], affinity: Floats, numbers: Sequence[int] | None = None
) -> list[tuple[str, ...]]:
    """For each topic phrases that say why it may be no topic; empty as a rule.

    Parameters
    ----------
    topics
        K of them.
    affinity
        (K, K): sum over words of sqrt(p(word | i) p(word | j)).
    numbers
        (K,) under which they are known. None: from 0.

    Examples
    --------
    >>> years = Suspect(0.1, ["1994", "1995", "may", "2001"])
    >>> print(doubts_of([years, Suspect(0.9, ["ship", "sea"])], np.eye(2)))
    [('mostly numbers',), ()]
    """
    found, known = [], numbers or range(len(topics))
    for place, topic in enumerate(topics):
        phrases = [
            _of_numbers(topic),
            _of_documents(topic),
            _of_meeting(topic),
            _of_copy(place, topics, affinity, known),
        ]
        found.append(tuple(phrase for phrase in phrases if phrase))
    return found


def _of_numbers(topic: Suspect) -> str:
    words = topic.words[:WORDS]
    numbers = sum(word[:1].isdigit() and 2 * sum(map(str.isdigit, word)) > len(word) for word in words)
    return "mostly numbers" if numbers >= NUMBERS * len(words) else ""


def _of_documents(topic: Suspect) -> str:
    if topic.documents is None:
        return ""
    half = float(np.median(topic.documents[:WORDS]))
    if half > FEW_DOCUMENTS:
        return ""
    return f"half of its words are in {half:g} documents at most"


def _of_meeting(topic: Suspect) -> str:
    if topic.npmi is None or topic.npmi >= 0:
        return ""
    return "its words meet less often than by chance"


def _of_copy(place: int, topics: Sequence[Suspect], affinity: Floats, numbers: Sequence[int]) -> str:
    own = (-topics[place].share, place)
    larger = [other for other, topic in enumerate(topics) if (-topic.share, other) < own]
    if not larger:
        return ""
    nearest = max(larger, key=lambda other: (float(affinity[place, other]), -other))
    return f"nearly a copy of topic {numbers[nearest]}" if affinity[place, nearest] >= COPY else ""
