"""Edits of a model's topics (labels, merged and hidden topics), and the topics with the edits applied.

Edits are stored at ``MODEL/edits``, a Zarr group without arrays: a single file that is replaced atomically.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import DEFAULT_WORDS, TopicChanges, TopicsRequest
from streaming_jsmf.errors import InputError, require_unicode
from streaming_jsmf.inference.words import longer_lists, topic_labels, unlike
from streaming_jsmf.storage.arrays import replace_attributes
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath, make_directory, node_exists
from streaming_jsmf.storage.sealed import read_sealed, sealed_as
from streaming_jsmf.topics.store import EDITS, AnyModel, Model, model_path, read_model, read_model_panels

logger = logging.getLogger(__name__)

KIND, FORMAT_VERSION = "streaming_jsmf.topic_edits", 1
#: Arrays of every model that ``shown_topics`` needs, and those that name the topics.
NEEDED = ("topic_probability",)
NAMED = ("word", "shown_word", "prominent_words", "label_words", "characteristic_words")
#: Maximum length of a label.
MOST_CHARACTERS = 200
#: Arrays that are summed over merged topics, with their number of topic axes.
_SUMS = {"topic_probability": 1, "alpha": 1, "topic_topic": 2, "topic_topic_of_documents": 2}
#: Arrays that only stored topics have, with the value for merged topics.
_STORED_ONLY = {"anchors": -1, "characteristic_words": -1, "label_words": -1, "lambda": np.nan}


@dataclass(frozen=True)
class TopicEdits:
    """Labels, merged and hidden topics of a model with ``n_topics`` stored topics. Every change returns new edits.

    ``labels`` maps topics to names. ``merged`` are disjoint groups of at least two topics, shown under the number of
    their first topic. ``hidden`` are topics, or the first topics of groups, that are not shown. A change that was made
    already changes nothing. Every change raises ``InputError`` if a topic does not exist or was merged into another
    one, or if no topic would be left to show.

    Examples
    --------
    >>> edits = TopicEdits(5).merge([3, 1]).hide(0).label(3, "sports")
    >>> edits.groups
    ((2,), (3, 1), (4,))
    >>> edits.unmerge(3).groups
    ((1,), (2,), (3,), (4,))
    """

    n_topics: int
    labels: Mapping[int, str] = field(default_factory=dict)
    merged: tuple[tuple[int, ...], ...] = ()
    hidden: tuple[int, ...] = ()

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The stored topics of each shown topic, by its number."""
        group_of = {topic: group for group in self.merged for topic in group}
        firsts = (topic for topic in range(self.n_topics) if group_of.get(topic, (topic,))[0] == topic)
        return tuple(group_of.get(topic, (topic,)) for topic in firsts if topic not in self.hidden)

    @property
    def apart(self) -> TopicEdits:
        """The labels alone: every stored topic is shown."""
        return TopicEdits(self.n_topics, self.labels)

    def members(self, topic: int) -> tuple[int, ...]:
        """The stored topics of a topic, hidden or not."""
        known = self._checked(topic)
        return next((group for group in self.merged if group[0] == known), (known,))

    def label(self, topic: int, name: str | None) -> TopicEdits:
        """Name a topic; None removes its name."""
        known = self._checked(topic)
        labels = {number: text for number, text in self.labels.items() if number != known}
        if name is not None:
            labels[known] = _checked_name(name)
        return replace(self, labels=dict(sorted(labels.items())))

    def merge(self, topics: Iterable[int]) -> TopicEdits:
        """Show several topics, or groups of merged topics, as one under the number and the name of the first."""
        return self._merged(topics).require_shown()

    def _merged(self, topics: Iterable[int]) -> TopicEdits:
        if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
            raise InputError(f"merge is given {topics!r}; give a list of topics, such as [3, 7]")
        given = [self._number(topic) for topic in topics]
        if len(given) < 2 or len(set(given)) < len(given):
            raise InputError(
                f"merge is given {given}; give two or more different topics, which are shown under the first number"
            )
        if {*given} <= {*self.members(given[0])}:
            return self
        firsts = [self._checked(topic) for topic in given]
        group = tuple(member for first in firsts for member in self.members(first))
        others = tuple(other for other in self.merged if other[0] not in firsts)
        labels = {topic: name for topic, name in self.labels.items() if topic not in firsts[1:]}
        hidden = tuple(topic for topic in self.hidden if topic not in firsts[1:])
        return replace(self, labels=labels, merged=tuple(sorted((*others, group))), hidden=hidden)

    def unmerge(self, *topics: int) -> TopicEdits:
        """Show the topics of these merged topics separately again; by default of all."""
        known = {self._checked(topic) for topic in topics} or {group[0] for group in self.merged}
        return replace(self, merged=tuple(group for group in self.merged if group[0] not in known))

    def hide(self, *topics: int) -> TopicEdits:
        """Hide these topics."""
        hidden = {*self.hidden, *map(self._checked, topics)}
        return replace(self, hidden=tuple(sorted(hidden))).require_shown()

    def unhide(self, *topics: int) -> TopicEdits:
        """Show these topics again; by default all topics."""
        shown = {self._checked(topic) for topic in topics} or set(self.hidden)
        return replace(self, hidden=tuple(topic for topic in self.hidden if topic not in shown))

    def only(self, topic: int) -> TopicEdits:
        """Show this topic, hidden or not, and no other."""
        shown = self._checked(topic)
        others = (group[0] for group in self.unhide().groups)
        return replace(self, hidden=tuple(other for other in others if other != shown))

    def changed(self, changes: TopicChanges) -> TopicEdits:
        """All changes as one: merged topics are separated first, and labels come last."""
        edits, asked = self, TopicEdits(self.n_topics)
        for topic in changes.unmerge:
            edits = edits.unmerge(topic)
        # Groups that contain each other are one, so that the same changes find them merged already.
        for group in changes.merge:
            asked = asked.merge(group)
        for group in asked.merged:
            edits = edits._merged(group)
        edits = edits.unhide(*changes.unhide) if changes.unhide else edits
        edits = edits.hide(*changes.hide) if changes.hide else edits
        for topic, name in changes.label:
            edits = edits.label(topic, name)
        return edits

    def fields(self) -> dict[str, Any]:
        """JSON values, without ``n_topics``."""
        return {
            "labels": {str(topic): name for topic, name in self.labels.items()},
            "merged": [list(group) for group in self.merged],
            "hidden": list(self.hidden),
        }

    def attributes(self, model: Model) -> dict[str, Any]:
        """The attributes of the edits of a model as they are stored."""
        stored = {"model": model.provenance.get("fingerprint"), **self.fields()}
        return sealed_as(KIND, FORMAT_VERSION, stored)

    def require_shown(self) -> TopicEdits:
        """Return these edits; raise ``InputError`` if they show no topic."""
        if not self.groups:
            raise InputError("no topic would be left to show; hide or merge fewer, or unhide one")
        return self

    def _number(self, topic: int) -> int:
        try:
            known = operator.index(topic)
        except TypeError:
            raise InputError(f"{topic!r} is no topic; give its number, 0 to {self.n_topics - 1}") from None
        if not 0 <= known < self.n_topics:
            raise InputError(f"there is no topic {known}; the model has topics 0 to {self.n_topics - 1}")
        return known

    def _checked(self, topic: int) -> int:
        known = self._number(topic)
        for group in self.merged:
            if known in group[1:]:
                raise InputError(
                    f"topic {known} was merged into topic {group[0]}; give that one, or unmerge it"
                )
        return known


def _checked_name(name: object) -> str:
    text = " ".join(name.split()) if isinstance(name, str) else ""
    if not 0 < len(text) <= MOST_CHARACTERS:
        raise InputError(
            f"the name of a topic is {str(name)[:40]!r}; give a text of 1 to {MOST_CHARACTERS} characters, or None to "
            "remove the name"
        )
    return require_unicode(text, "the name of a topic")


def read_edits(path: StorePath, model: Model) -> TopicEdits:
    """Read the edits of the model at ``path``, ignoring those of an earlier model; ``StoreError`` if damaged."""
    n_topics, place = int(model.arrays["topic_probability"].size), path / EDITS
    if not node_exists(place):
        return TopicEdits(n_topics)
    hint = f"delete {place} and make them again"
    stored = read_sealed(place, KIND, FORMAT_VERSION, what="the edits of topics", hint=hint)
    if stored["model"] != model.provenance.get("fingerprint"):
        return TopicEdits(n_topics)
    labels = {int(topic): str(name) for topic, name in stored["labels"].items()}
    return TopicEdits(n_topics, labels, tuple(map(tuple, stored["merged"])), tuple(stored["hidden"]))


def edit_topics(path: StorePath, model: Model, change: Callable[[TopicEdits], TopicEdits]) -> TopicEdits:
    """Change the edits of the model at ``path`` and write them atomically, unless they stay the same.

    Raises ``InputError`` from ``change``, if no topic would be left to show, or if another process is writing the
    edits; ``StoreError`` as ``read_edits``.
    """
    place = path / EDITS
    with sole_writer(place):
        before = read_edits(path, model)
        edits = change(before).require_shown()
        if edits == before:
            return edits
        _warn_of_hidden(before, edits)
        make_directory(place)
        replace_attributes(place, edits.attributes(model))
    return edits


def _warn_of_hidden(before: TopicEdits, after: TopicEdits) -> None:
    """Warn of topics that were shown, and are hidden with the hidden topic into which they were merged."""
    shown = {topic for group in before.groups for topic in group}
    for first, *others in after.merged:
        if first in {*before.hidden} & {*after.hidden} and (
            gone := [str(other) for other in others if other in shown]
        ):
            logger.warning(
                "merged into topic %s, which is hidden: %s; unhide %s to show them",
                first,
                ", ".join(gone),
                first,
            )


@dataclass(frozen=True)
class EditedTopics:
    """The K' shown topics of a model: ``path``, the arrays that were read (``stored``) and its ``edits``.

    The share of a merged topic is the sum over its parts, and its p(word | topic) their mean weighted by share. Merged
    topics have no anchor, characteristic words or label words.
    """

    path: StorePath
    stored: Model
    edits: TopicEdits

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The stored topics of each shown topic, (K',)."""
        return self.edits.groups

    @property
    def numbers(self) -> tuple[int, ...]:
        """The displayed topic numbers, (K',)."""
        return tuple(group[0] for group in self.groups)

    @property
    def words(self) -> NDArray[Any]:
        """The words as they are shown, (N,): the most frequent form of those that are stems."""
        return self.stored.arrays.get("shown_word", self.stored.arrays["word"])

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The labels of the shown topics, (K',): a name given by a user, or label words; empty for merged topics."""
        arrays = self.stored.arrays
        stored = topic_labels({**arrays, "word": self.words} if "word" in arrays else arrays)
        words = (stored[group[0]] if len(group) == 1 else () for group in self.groups)
        given = self.edits.labels
        return tuple((given[k],) if k in given else row for k, row in zip(self.numbers, words, strict=True))

    @cached_property
    def name_words(self) -> tuple[tuple[str, ...], ...]:
        """Words of the names of the shown topics, (K',): their labels, or else their top words; empty without any."""
        arrays = self.model.arrays
        if "prominent_words" not in arrays:
            return self.labels
        top = self.spelled(arrays["prominent_words"])
        return tuple(label or unlike(row) for label, row in zip(self.labels, top, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the shown topics, (K',)."""
        return tuple(map(", ".join, self.name_words))

    @cached_property
    def model(self) -> Model:
        """The model with the arrays of the shown topics, except ``word_topic``."""
        arrays = {name: values for name, values in self.stored.arrays.items() if name != "word_topic"}
        if not self._is_unchanged:
            for name, axes in _SUMS.items():
                if name in arrays:
                    arrays[name] = self._summed(arrays[name], axes)
            for name, missing in _STORED_ONLY.items():
                if name in arrays:
                    arrays[name] = self.rows(arrays[name], missing)
            if "duplicate_of" in arrays:
                arrays["duplicate_of"] = self._duplicates(arrays["duplicate_of"])
            if "prominent_words" in arrays:
                arrays["prominent_words"] = self._prominent(arrays["prominent_words"])
        return replace(self.stored, arrays=arrays)

    def rows(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """Convert values of stored topics to those of shown topics; ``missing`` for merged topics."""
        chosen = values[list(self.numbers)]
        chosen[[len(group) > 1 for group in self.groups]] = missing
        return chosen

    def panels(self) -> Iterator[NDArray[Any]]:
        """Yield p(word | topic), N x K', in panels of words; see ``read_model_panels``."""
        panels = self.stored_panels()
        if self._is_unchanged:
            return panels
        weights = self._weights()
        return (panel @ weights for panel in panels)

    def stored_panels(self) -> Iterator[NDArray[Any]]:
        """Yield p(word | topic) of the stored topics, N x K, as ``panels``."""
        known = self.stored.arrays.get("word_topic")
        return read_model_panels(self.path, "word_topic") if known is None else iter([known])

    def listed_words(self, count: int) -> NDArray[np.int64]:
        """Ids of the most probable words, (K', at most ``count``); reads ``word_topic`` if the model lists fewer."""
        listed = self.model.arrays["prominent_words"]
        if count <= listed.shape[1]:
            return np.asarray(listed[:, :count])
        return longer_lists(listed, self.panels(), count)

    def spelled(self, listed: NDArray[Any]) -> list[tuple[str, ...]]:
        """The words of lists of word ids (K', n), without the ids -1."""
        return [tuple(str(self.words[word]) for word in row if word >= 0) for row in listed]

    @property
    def _is_unchanged(self) -> bool:
        return len(self.groups) == self.edits.n_topics

    def _weights(self) -> NDArray[np.float64]:
        """Weight of each stored topic in each shown topic, (K, K'); equal weights if all shares are 0."""
        shares = self.stored.arrays["topic_probability"]
        weights = np.zeros((len(shares), len(self.groups)))
        for column, group in enumerate(map(list, self.groups)):
            total = shares[group].sum()
            weights[group, column] = shares[group] / total if total > 0 else 1 / len(group)
        return weights

    def _summed(self, values: NDArray[Any], axes: int) -> NDArray[Any]:
        for axis in range(axes):
            parts = [values.take(group, axis).sum(axis) for group in self.groups]
            values = np.stack(parts, axis)
        return values

    def _duplicates(self, larger: NDArray[Any]) -> NDArray[Any]:
        """Displayed number of the larger topic; -1 if it is hidden or part of the same topic."""
        shown = {member: group[0] for group in self.groups for member in group}
        found = [shown.get(int(other), -1) for other in self.rows(larger, -1)]
        return np.array([-1 if one == own else one for one, own in zip(found, self.numbers, strict=True)])

    def _prominent(self, listed: NDArray[Any]) -> NDArray[Any]:
        found = self.rows(listed, -1)
        merged = [row for row, group in enumerate(self.groups) if len(group) > 1]
        if merged:
            panels = (panel[:, merged] for panel in self.panels())
            found[merged] = longer_lists(np.empty((len(merged), 0), np.int64), panels, listed.shape[1])
        return found


def shown_topics(
    model: AnyModel | Model, names: tuple[str, ...] = NEEDED, optional: tuple[str, ...] = NAMED
) -> EditedTopics:
    """Read the shown topics of a model, as ``read_model``; a model in memory has no edits.

    ``names`` must include ``topic_probability``; ``optional`` arrays give the topics ``names``.
    """
    if isinstance(model, Model):
        return EditedTopics(Path(), model, TopicEdits(int(model.arrays["topic_probability"].size)))
    path = model_path(model)
    stored = read_model(path, names, optional)
    return EditedTopics(path, stored, read_edits(path, stored))


def require_word_count(words: int | None) -> int:
    """Number of words of each topic, 10 for None; raises ``InputError`` if it is below 1."""
    return TopicsRequest(words).words or DEFAULT_WORDS
