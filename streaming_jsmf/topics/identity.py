"""The identity of topics from one model of a growing corpus to the next: which topic became which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg import hellinger
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.topics.edits import TopicEdits
from streaming_jsmf.topics.store import Model

#: Largest Hellinger distance of a topic from what it was when it was found, and between a topic and one that it split
#: from or merged into. Halves of a topic have .54; copies are nearer than .4, and unrelated topics farther than .8.
SAME = 0.7
#: A present topic has vanished if all topics found in the moments, which are not polished, are farther.
UNRELATED = 0.8
#: Arrays with an axis of topics whose values are not of topics.
_NOT_OF_TOPICS = ("word", "topic", "topic_", "eigenvalues", "cliques")


def topic_distances(first: Floats, second: Floats) -> Floats:
    """Hellinger distances between topics (N, K) and (N, K'); (K, K')."""
    with single_blas_thread():
        return hellinger.distances(hellinger.affinity(first, second))


def best_match(distances: Floats) -> Integers:
    """The topic of the second model that each of the first becomes, (K,), with the least total distance; (K, K)."""
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(distances)[1], np.int64)


def renumbered(model: Model, order: Integers) -> Model:
    """The model whose topic i is topic ``order[i]`` of this one."""
    variables, arrays = model.variables(), dict(model.arrays)
    for name in arrays.keys() - {*_NOT_OF_TOPICS}:
        for axis, dimension in enumerate(variables[name].dimensions):
            if dimension in ("topic", "topic_"):
                arrays[name] = np.take(arrays[name], order, axis)
    if "duplicate_of" in arrays:
        of = arrays["duplicate_of"]
        arrays["duplicate_of"] = np.where(of >= 0, np.argsort(order)[of], -1)
    return replace(model, arrays=arrays)


def started_from(found: Model, present: Model) -> tuple[Model, Integers]:
    """The topics ``found`` in the moments in the order of the ``present`` ones, whose words they start from.

    A present topic that is unrelated to all topics found has vanished, and is replaced by the one that is left for it.
    Returns the model and the numbers of the topics that are replaced.
    """
    before = np.asarray(present.arrays["word_topic"], np.float64)
    distances = topic_distances(before, found.arrays["word_topic"])
    start = renumbered(found, best_match(distances))
    gone = distances.min(axis=1) > UNRELATED
    words = np.where(gone, start.arrays["word_topic"], before)
    return replace(start, arrays={**start.arrays, "word_topic": words}), np.flatnonzero(gone)


def _origins(model: Model) -> dict[str, NDArray[Any]]:
    """The most probable words of each topic, and their probabilities, when the topic was found; (K, words) each."""
    if "origin_words" in model.arrays:
        return {name: model.arrays[name] for name in ("origin_words", "origin_probability")}
    listed, words = model.arrays["prominent_words"], np.asarray(model.arrays["word_topic"], np.float64)
    probability = np.maximum(words[listed, np.arange(len(listed))[:, None]], 0.0)
    return {"origin_words": np.asarray(listed), "origin_probability": probability}


def _distances(origins: Mapping[str, NDArray[Any]], found: Model) -> Floats:
    """Hellinger distances (K, K') of topics from the origins of others, as far as the words of the origins tell."""
    before = origins["origin_probability"]
    now = np.maximum(np.asarray(found.arrays["word_topic"], np.float64), 0.0)[origins["origin_words"]]
    affinity: Floats = np.einsum("kw,kwj->kj", np.sqrt(before), np.sqrt(now)) / before.sum(axis=1)[:, None]
    return hellinger.distances(affinity)


@dataclass(frozen=True)
class TopicChange:
    """A topic that is ``new`` or has ``vanished``, with the nearest other topic and its distance.

    ``related`` is whether the new topic split from that one, or the vanished one merged into it.
    """

    topic: int
    event: str
    nearest: int
    distance: float
    related: bool
    name: str = ""


@dataclass(frozen=True)
class Succession:
    """What became of K topics: their ``distances`` from what they were when they were found, and ``changes``."""

    distances: tuple[float, ...]
    changes: tuple[TopicChange, ...]

    @classmethod
    def between(cls, present: Model, found: Model) -> tuple[Model, Succession]:
        """Renumber the topics ``found`` so that they follow the present ones.

        A topic is matched with its origin, so that it does not become another one in many small steps.
        """
        origins = _origins(present)
        distances = _distances(origins, found)
        order = best_match(distances)
        model, distances = renumbered(found, order), distances[:, order]
        gone, changes = np.diagonal(distances) > SAME, []
        for topic in np.flatnonzero(gone).tolist():
            for event, others in (("vanished", distances[topic]), ("new", distances[:, topic])):
                nearest = int(np.argmin(np.where(np.arange(len(others)) == topic, np.inf, others)))
                least = round(float(others[nearest]), 4)
                changes.append(TopicChange(topic, event, nearest, least, least <= SAME))
        now = _origins(model)
        kept = {name: np.where(gone[:, None], now[name], values) for name, values in origins.items()}
        succession = cls(tuple(np.diagonal(distances).round(4).tolist()), tuple(changes))
        return replace(model, arrays={**model.arrays, **kept}), succession

    @property
    def gone(self) -> frozenset[int]:
        """Numbers of the topics that vanished."""
        return frozenset(change.topic for change in self.changes if change.event == "vanished")

    def edits(self, edits: TopicEdits) -> TopicEdits:
        """The edits of topics that are kept; a label, a merge or hiding ends with its topic."""
        groups = (tuple(topic for topic in group if topic not in self.gone) for group in edits.merged)
        labels = {topic: name for topic, name in edits.labels.items() if topic not in self.gone}
        merged = tuple(sorted(group for group in groups if len(group) > 1))
        hidden = tuple(topic for topic in edits.hidden if topic not in self.gone)
        return TopicEdits(edits.n_topics, labels, merged, hidden)

    def fields(self, before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
        """JSON values, with the names of the topics."""
        names = {"vanished": before, "new": after}
        changes = [asdict(replace(each, name=names[each.event][each.topic])) for each in self.changes]
        return {"distances": [*self.distances], "changes": changes}
