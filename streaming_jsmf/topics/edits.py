"""Edits of a model's topics: labels, merged and hidden topics, stored at ``MODEL/edits`` beside the arrays.

``MODEL/edits`` is a Zarr group without arrays, a single file that is replaced in one step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from streaming_jsmf.config import fingerprint
from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath, make_directory, node_exists, write_json
from streaming_jsmf.topics.store import Model

KIND, FORMAT_VERSION = "streaming_jsmf.topic_edits", 1

#: Group of a model that holds the edits.
EDITS = "edits"

#: Maximum length of a label.
MOST_CHARACTERS = 200


@dataclass(frozen=True)
class TopicEdits:
    """Labels, merged and hidden topics of a model with ``n_topics`` stored topics. Every change returns new edits.

    Attributes
    ----------
    labels
        Names by topic.
    merged
        Disjoint groups of at least two topics. A group is shown under the number of its first topic.
    hidden
        Topics that are not shown; of a group its first.

    Raises
    ------
    InputError
        From every change, if a topic does not exist or was merged into another one.

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
        if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
            raise InputError(f"merge is given {topics!r}; give a list of topics, such as [3, 7]")
        firsts = [self._checked(topic) for topic in topics]
        if len(firsts) < 2 or len(set(firsts)) < len(firsts):
            raise InputError(
                f"merge is given {firsts}; give two or more different topics, the first one is kept"
            )
        group = tuple(member for first in firsts for member in self.members(first))
        others = tuple(other for other in self.merged if other[0] not in firsts)
        labels = {topic: name for topic, name in self.labels.items() if topic not in firsts[1:]}
        hidden = tuple(topic for topic in self.hidden if topic not in firsts[1:])
        return replace(self, labels=labels, merged=tuple(sorted((*others, group))), hidden=hidden)

    def unmerge(self, topic: int) -> TopicEdits:
        """Show the topics of a merged topic separately again."""
        known = self._checked(topic)
        if self.members(known) == (known,):
            merged = ", ".join(str(group[0]) for group in self.merged) or "none"
            raise InputError(f"topic {known} is not merged; merged topics: {merged}")
        return replace(self, merged=tuple(group for group in self.merged if group[0] != known))

    def hide(self, *topics: int) -> TopicEdits:
        """Do not show these topics."""
        hidden = {*self.hidden, *map(self._checked, topics)}
        edited = replace(self, hidden=tuple(sorted(hidden)))
        if not edited.groups:
            raise InputError("no topic would be left to show; hide fewer")
        return edited

    def unhide(self, *topics: int) -> TopicEdits:
        """Show these topics again; all, if none is given."""
        shown = {self._checked(topic) for topic in topics} or set(self.hidden)
        return replace(self, hidden=tuple(topic for topic in self.hidden if topic not in shown))

    def fields(self) -> dict[str, Any]:
        """JSON values, without ``n_topics``."""
        return {
            "labels": {str(topic): name for topic, name in self.labels.items()},
            "merged": [list(group) for group in self.merged],
            "hidden": list(self.hidden),
        }

    def _checked(self, topic: int) -> int:
        """The number of a topic that is shown or hidden under its own number."""
        try:
            known = operator.index(topic)
        except TypeError:
            raise InputError(f"{topic!r} is no topic; give its number, 0 to {self.n_topics - 1}") from None
        if not 0 <= known < self.n_topics:
            raise InputError(f"there is no topic {known}; the model has topics 0 to {self.n_topics - 1}")
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
    return text


def read_edits(path: StorePath, model: Model) -> TopicEdits:
    """The edits of the model at ``path``; edits of another model that was at the same path are ignored.

    Raises ``StoreError`` if they are damaged.
    """
    n_topics, place = int(model.arrays["topic_probability"].size), path / EDITS
    if not node_exists(place):
        return TopicEdits(n_topics)
    try:
        stored = read_attributes(place)
        sha256 = stored.pop("sha256", None)
        intact = stored.get("kind") == KIND and sha256 == fingerprint(stored)
    except StreamingJSMFError:
        intact = False
    if not intact:
        raise StoreError(
            f"{place}/zarr.json: the edits of topics are damaged; delete {place} and make them again"
        )
    if stored["format_version"] != FORMAT_VERSION:
        raise StoreError(
            f"{place}: format version {stored['format_version']} is unknown; this release reads {FORMAT_VERSION}"
        )
    if stored["model"] != model.provenance.get("fingerprint"):
        return TopicEdits(n_topics)
    labels = {int(topic): str(name) for topic, name in stored["labels"].items()}
    return TopicEdits(n_topics, labels, tuple(map(tuple, stored["merged"])), tuple(stored["hidden"]))


def edit_topics(path: StorePath, model: Model, change: Callable[[TopicEdits], TopicEdits]) -> TopicEdits:
    """Change the edits of the model at ``path`` and write them in one step.

    Raises ``InputError`` from ``change``, or if another process is writing the edits; ``StoreError`` as ``read_edits``.
    """
    place = path / EDITS
    with sole_writer(place):
        edits = change(read_edits(path, model))
        stored: dict[str, Any] = {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "model": model.provenance.get("fingerprint"),
            **edits.fields(),
        }
        make_directory(place)
        attributes = {**stored, "sha256": fingerprint(stored)}
        write_json(place / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": attributes})
    return edits
