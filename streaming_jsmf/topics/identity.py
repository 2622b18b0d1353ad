"""The identity of topics from one model of a growing corpus to the next: which topic became which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.gram import gram
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.topics.edits import TopicEdits
from streaming_jsmf.topics.store import Model

#: Largest Hellinger distance between a topic and its successor. Halves of a topic have .54; copies are nearer than
#: .4, and unrelated topics farther than .8.
SAME = 0.6

#: Largest distance between a new topic and the one that it split from, or a vanished topic and the one it merged into.
RELATED = 0.75

#: Arrays with an axis of topics whose values are not of topics.
_NOT_OF_TOPICS = ("word", "topic", "topic_", "eigenvalues", "cliques")


def hellinger(first: Floats, second: Floats) -> Floats:
    """Distances sqrt(1 - sum_w sqrt(p(w | i) p(w | j))) between topics (N, K) and (N, K'); (K, K').

    Examples
    --------
    >>> hellinger(np.array([[1.0], [0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    array([[0., 1.]])
    """
    roots = [np.sqrt(np.maximum(np.asarray(each, np.float64), 0.0)) for each in (first, second)]
    with single_blas_thread():
        both = gram(np.concatenate(roots, axis=1))
    affinity = both[: first.shape[1], first.shape[1] :]
    return np.sqrt(np.clip(1.0 - affinity, 0.0, 1.0))


def best_match(distances: Floats) -> Integers:
    """The topic of the second model that each of the first becomes, (K,), with the least total distance; (K, K)."""
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(distances)[1], np.int64)


def renumbered(model: Model, order: Integers) -> Model:
    """The model whose topic i is topic ``order[i]`` of this one."""
    variables, place = model.variables(), np.argsort(order)
    arrays = dict(model.arrays)
    for name in arrays.keys() - {*_NOT_OF_TOPICS}:
        for axis, dimension in enumerate(variables[name].dimensions):
            if dimension in ("topic", "topic_"):
                arrays[name] = np.take(arrays[name], order, axis)
    if "duplicate_of" in arrays:
        of = arrays["duplicate_of"]
        arrays["duplicate_of"] = np.where(of >= 0, place[of], -1)
    return replace(model, arrays=arrays)


def started_from(found: Model, present: Model) -> tuple[Model, Integers]:
    """The topics ``found`` in the moments in the order of the ``present`` ones, whose words they start from.

    A topic that is far from all present ones replaces a present one that is far from all topics found. Returns the
    model and the numbers of the topics that are replaced.
    """
    before = np.asarray(present.arrays["word_topic"], np.float64)
    distances = hellinger(before, found.arrays["word_topic"])
    order = best_match(distances)
    start = renumbered(found, order)
    far = (distances.min(axis=1) > RELATED) & (distances.min(axis=0)[order] > RELATED)
    words = np.where(far, start.arrays["word_topic"], before)
    return replace(start, arrays={**start.arrays, "word_topic": words}), np.flatnonzero(far)


@dataclass(frozen=True)
class TopicChange:
    """A topic that is ``new`` or has ``vanished``, with the nearest topic of the other model and its distance.

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
    """What became of K topics: ``distances`` between each and its successor of the same number, and ``changes``."""

    distances: tuple[float, ...]
    changes: tuple[TopicChange, ...]

    @classmethod
    def between(cls, present: Model, found: Model) -> tuple[Model, Succession]:
        """Renumber the topics ``found`` so that they follow the present ones."""
        distances = hellinger(present.arrays["word_topic"], found.arrays["word_topic"])
        order = best_match(distances)
        distances = distances[:, order]
        own = np.diagonal(distances)
        changes = []
        for topic in np.flatnonzero(own > SAME).tolist():
            for event, others in (("vanished", distances[topic]), ("new", distances[:, topic])):
                nearest = int(np.argmin(others))
                least = float(others[nearest])
                changes.append(
                    TopicChange(topic, event, nearest, least, nearest != topic and least <= RELATED)
                )
        return renumbered(found, order), cls(tuple(own.tolist()), tuple(changes))

    @property
    def gone(self) -> frozenset[int]:
        """Numbers of the topics that vanished."""
        return frozenset(change.topic for change in self.changes if change.event == "vanished")

    def edits(self, edits: TopicEdits) -> TopicEdits:
        """The edits of topics that are kept; a label, a merge or hiding ends with its topic."""
        groups = (tuple(topic for topic in group if topic not in self.gone) for group in edits.merged)
        merged = tuple(sorted(group for group in groups if len(group) > 1))
        labels = {topic: name for topic, name in edits.labels.items() if topic not in self.gone}
        hidden = tuple(topic for topic in edits.hidden if topic not in self.gone)
        return TopicEdits(edits.n_topics, labels, merged, hidden)

    def fields(self, before: Sequence[str], after: Sequence[str]) -> dict[str, Any]:
        """JSON values, with the names of the topics."""
        named = (
            replace(each, name=(before if each.event == "vanished" else after)[each.topic])
            for each in self.changes
        )
        return {
            "distances": [round(each, 4) for each in self.distances],
            "changes": [asdict(each) for each in named],
        }
