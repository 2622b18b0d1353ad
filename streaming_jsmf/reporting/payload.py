"""Contents -> the values that the page's scripts draw from, as JSON that may stand inside an element of HTML.

Long rows of numbers are base64 of little-endian integers. Probabilities are kept as their logarithms: 1024 steps to a
factor of two, so that each is right to 0.04 % of itself. ``data.js`` reads them back.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.display import printable
from streaming_jsmf.reporting.contents import Contents, Documents, Floats, Groups, Levels, Topic, WordLists
from streaming_jsmf.reporting.correlations import conditional, times_chance
from streaming_jsmf.reporting.topic_map import TopicMap
from streaming_jsmf.reporting.tree import topic_tree

#: Steps to a factor of two, and what stands for a probability of 0.
STEPS, ZERO = 1024.0, 2**16 - 1

#: The largest ratio that is told apart, as a power of two.
LARGEST_RATIO = 16.0


def page_data(contents: Contents, drawn: TopicMap) -> str:
    """JSON of all that is drawn. The same contents give the same text. O(K^3) for the tree."""
    lists = contents.lists or own_lists(contents.topics)
    values = {
        "topics": [_topic(topic, place) for place, topic in enumerate(contents.topics)],
        "words": _words(lists),
        "map": _map(drawn),
        "tree": _tree(contents.affinity),
        "alike": _packed(np.clip(contents.affinity, 0.0, 1.0) * ZERO),
        "together": _together(contents.topic_topic),
        "documents": _documents(contents.documents),
        "groups": _groups(contents.groups),
        "levels": _levels(contents.levels),
    }
    return _safe(json.dumps(_spelled_out(values), ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def own_lists(topics: tuple[Topic, ...]) -> WordLists:
    """Lists of no more than the words that the topics themselves name."""
    numbers: dict[str, int] = {}
    ids = [[numbers.setdefault(word.text, len(numbers)) for word in topic.words] for topic in topics]
    probability = np.zeros(len(numbers))
    for topic, places in zip(topics, ids, strict=True):
        np.add.at(probability, places, [word.probability * topic.share for word in topic.words])
    return WordLists(
        tuple(numbers),
        probability,
        tuple(np.array(places, dtype=np.int64) for places in ids),
        tuple(np.array([word.probability for word in topic.words]) for topic in topics),
    )


def packed_probabilities(values: Floats) -> str:
    """Probabilities as base64 of 16-bit logarithms.

    Examples
    --------
    >>> base64.b64decode(packed_probabilities(np.array([1.0, 0.5, 0.0]))).hex()
    '00000004ffff'
    """
    known = np.maximum(values, 2.0**-64)
    steps = np.minimum(np.round(-STEPS * np.log2(np.minimum(known, 1.0))), ZERO - 1)
    return _packed(np.where(values > 0, steps, ZERO))


def _packed(values: NDArray[Any], kind: str = "<u2") -> str:
    return base64.b64encode(np.round(values).astype(kind).tobytes()).decode()


def _topic(topic: Topic, place: int) -> dict[str, Any]:
    told = {
        # Under which it is known, where topics before it are not shown.
        "id": None if topic.number == place else topic.number,
        "name": topic.name_words,
        "share": topic.share,
        "npmi": topic.npmi,
        "anchor": topic.anchor,
        "characteristic": topic.characteristic,
        "doubts": topic.doubts,
        "words": [word.text for word in topic.words],
    }
    return {name: value for name, value in told.items() if value not in (None, ())}


def _words(lists: WordLists) -> dict[str, Any]:
    # Numbers of words take two bytes where they fit.
    kind = "<u2" if len(lists.vocabulary) < 2**16 else "<u4"
    empty: list[Any] = [np.zeros(0)]
    return {
        "vocabulary": lists.vocabulary,
        "probability": packed_probabilities(lists.probability),
        "counts": [len(ids) for ids in lists.ids],
        "bytes": int(kind[-1]),
        "ids": _packed(np.concatenate([*lists.ids, *empty]), kind),
        "probabilities": packed_probabilities(np.concatenate([*lists.probabilities, *empty])),
    }


def _map(drawn: TopicMap) -> dict[str, Any]:
    return {
        "x": _rounded(drawn.points[:, 0]),
        "y": _rounded(drawn.points[:, 1]),
        "r": _rounded(drawn.radii),
    }


def _tree(affinity: Floats) -> dict[str, Any]:
    tree = topic_tree(affinity)
    return {
        "order": tree.order.tolist(),
        "merges": tree.merges.tolist(),
        "heights": _rounded(tree.heights),
    }


def _together(topic_topic: Floats | None) -> dict[str, str] | None:
    if topic_topic is None:
        return None
    ratio = times_chance(topic_topic)
    known = np.clip(ratio, 2.0**-LARGEST_RATIO, 2.0**LARGEST_RATIO)
    return {
        "given": packed_probabilities(conditional(topic_topic)),
        # Ratios from 2^-16 to 2^16, by their logarithms too.
        "ratio": _packed((np.log2(known) + LARGEST_RATIO) * STEPS),
    }


def _documents(documents: Documents | None) -> dict[str, Any] | None:
    if documents is None:
        return None
    return {
        "columns": documents.columns,
        "of_topic": [
            [[document.name, float(f"{document.share:.4g}"), *document.values] for document in listed]
            for listed in documents.of_topic
        ],
    }


def _groups(groups: Groups | None) -> dict[str, Any] | None:
    if groups is None:
        return None
    return {
        "column": groups.column,
        "names": groups.names,
        "documents": groups.documents,
        "ordered": groups.ordered,
        "shares": packed_probabilities(groups.shares.ravel()),
        "errors": packed_probabilities(groups.errors.ravel()),
    }


def _levels(levels: Levels | None) -> dict[str, Any] | None:
    if levels is None:
        return None
    return {
        "models": [
            {"names": model.names, "shares": _rounded(model.shares), "metrics": model.metrics}
            for model in levels.models
        ],
        "own": levels.own,
        "flows": [_rounded(flow.ravel()) for flow in levels.flows],
    }


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in values.tolist()]


def _spelled_out(values: Any) -> Any:
    """The same with ``display.printable`` texts."""
    if isinstance(values, str):
        return printable(values, "\n\t")
    if isinstance(values, dict):
        return {name: _spelled_out(value) for name, value in values.items()}
    return [_spelled_out(value) for value in values] if isinstance(values, list | tuple) else values


def _safe(text: str) -> str:
    """JSON without a character that would end its element or a line of it."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
