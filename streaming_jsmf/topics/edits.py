"""What people say of a model's topics, kept below the model and never in its arrays: names, merged and hidden topics.

It is at ``MODEL/edits``, a Zarr group of attributes alone, which is one file and replaced in one step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streaming_jsmf.config import fingerprint
from streaming_jsmf.errors import InputError, StoreError, StreamingJSMFError
from streaming_jsmf.storage.arrays import read_attributes
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath, make_directory, node_exists, write_json
from streaming_jsmf.topics.store import Model

KIND, FORMAT_VERSION = "streaming_jsmf.topic_edits", 1

#: Group of a model that holds them.
EDITS = "edits"

#: Characters of a name; more would be a text.
MOST_CHARACTERS = 200


@dataclass(frozen=True)
class TopicEdits:
    """Names, merged and hidden topics of a model of ``n_topics`` stored ones. Each change gives new edits.

    Attributes
    ----------
    n_topics
        K of the model, which no edit changes.
    labels
        Names by topic.
    merged
        Groups of two topics and more, no topic in two of them. A group is shown as its first.
    hidden
        Topics that are not shown; of a group its first.

    Raises
    ------
    InputError
        From every change: for a topic that there is not, or that is part of another.

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
        """Stored topics of each topic that is shown, in the order of the numbers under which they are shown."""
        taken = {topic: group for group in self.merged for topic in group}
        firsts = (topic for topic in range(self.n_topics) if taken.get(topic, (topic,))[0] == topic)
        return tuple(taken.get(topic, (topic,)) for topic in firsts if topic not in self.hidden)

    def members(self, topic: int) -> tuple[int, ...]:
        """Stored topics of a topic, hidden or not."""
        known = self._shown_as(topic)
        return next((group for group in self.merged if group[0] == known), (known,))

    def label(self, topic: int, name: str | None) -> TopicEdits:
        """With a name for a topic; None: its own words again."""
        known = self._shown_as(topic)
        labels = {number: text for number, text in self.labels.items() if number != known}
        if name is not None:
            labels[known] = _checked_name(name)
        return replace(self, labels=dict(sorted(labels.items())))

    def merge(self, topics: Iterable[int]) -> TopicEdits:
        """With topics as one, shown as the first; those that were merged before come with what they are made of."""
        if isinstance(topics, str | bytes) or not isinstance(topics, Iterable):
            raise InputError(f"merge is given {topics!r}; give a list of topics, such as [3, 7]")
        firsts = [self._shown_as(topic) for topic in topics]
        if len(set(firsts)) < 2 or len(set(firsts)) < len(firsts):
            raise InputError(
                f"merge is given {firsts}; give two different topics or more, the first is the one that stays"
            )
        group = tuple(member for first in firsts for member in self.members(first))
        others = tuple(one for one in self.merged if one[0] not in firsts)
        kept = {topic: name for topic, name in self.labels.items() if topic not in firsts[1:]}
        hidden = tuple(topic for topic in self.hidden if topic not in firsts[1:])
        return replace(self, labels=kept, merged=tuple(sorted((*others, group))), hidden=hidden)

    def unmerge(self, topic: int) -> TopicEdits:
        """With all topics that were merged into this one by themselves again."""
        known = self._shown_as(topic)
        if self.members(known) == (known,):
            raise InputError(f"topic {known} is not merged; {self._merged_text()}")
        return replace(self, merged=tuple(group for group in self.merged if group[0] != known))

    def hide(self, *topics: int) -> TopicEdits:
        """Without these among those shown."""
        known = {*self.hidden, *map(self._shown_as, topics)}
        edited = replace(self, hidden=tuple(sorted(known)))
        if not edited.groups:
            raise InputError("no topic would be left to show; hide fewer")
        return edited

    def unhide(self, *topics: int) -> TopicEdits:
        """With these shown again; none named: all."""
        wanted = {self._shown_as(topic) for topic in topics} or set(self.hidden)
        return replace(self, hidden=tuple(topic for topic in self.hidden if topic not in wanted))

    def fields(self) -> dict[str, Any]:
        """JSON values, without K."""
        return {
            "labels": {str(topic): name for topic, name in self.labels.items()},
            "merged": [list(group) for group in self.merged],
            "hidden": list(self.hidden),
        }

    def _shown_as(self, topic: int) -> int:
        """The topic itself, which is stored, and shown under its own number."""
        try:
            known = operator.index(topic)
        except TypeError:
            raise InputError(f"{topic!r} is no topic; give its number, 0 to {self.n_topics - 1}") from None
        if not 0 <= known < self.n_topics:
            raise InputError(f"there is no topic {known}; the model has topics 0 to {self.n_topics - 1}")
        for group in self.merged:
            if known in group[1:]:
                raise InputError(
                    f"topic {known} is a part of topic {group[0]}, with which it was merged; name that, or unmerge it"
                )
        return known

    def _merged_text(self) -> str:
        firsts = ", ".join(str(group[0]) for group in self.merged)
        return f"merged are {firsts}" if firsts else "none is"


def _checked_name(name: object) -> str:
    text = " ".join(name.split()) if isinstance(name, str) else ""
    if not 0 < len(text) <= MOST_CHARACTERS:
        raise InputError(
            f"a name of a topic is a text of 1 to {MOST_CHARACTERS} characters, not {str(name)[:40]!r}; None takes it "
            "away"
        )
    return text


def read_edits(model_path: StorePath, model: Model) -> TopicEdits:
    """What was said of the topics of a model; nothing if it was of another one that was here.

    Raises
    ------
    StoreError
        If it is damaged: says what to do.
    """
    n_topics, path = int(model.arrays["topic_probability"].size), model_path / EDITS
    if not node_exists(path):
        return TopicEdits(n_topics)
    try:
        told = read_attributes(path)
        stored = told.pop("sha256", None)
        sound = told.get("kind") == KIND and stored == fingerprint(told)
    except StreamingJSMFError:
        sound = False
    if not sound:
        raise StoreError(f"{path}/zarr.json: names of topics are damaged; delete {path} and name them again")
    if told["format_version"] != FORMAT_VERSION:
        raise StoreError(
            f"{path}: format version {told['format_version']} is unknown; this release reads {FORMAT_VERSION}"
        )
    if told["model"] != model.provenance.get("fingerprint"):
        return TopicEdits(n_topics)
    labels = {int(topic): str(name) for topic, name in told["labels"].items()}
    return TopicEdits(n_topics, labels, _tuples(told["merged"]), tuple(told["hidden"]))


def _tuples(groups: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(group) for group in groups)


def edit_topics(
    model_path: StorePath, model: Model, change: Callable[[TopicEdits], TopicEdits]
) -> TopicEdits:
    """Change what is said of the topics of a model, and keep it below the model in place of what was there.

    It is written in one step: a reader sees what was before or what is now.

    Raises
    ------
    InputError
        From ``change``, or if another process is writing them.
    StoreError
        As ``read_edits``.
    """
    path = model_path / EDITS
    with sole_writer(path):
        edits = change(read_edits(model_path, model))
        told: dict[str, Any] = {
            "kind": KIND,
            "format_version": FORMAT_VERSION,
            "model": model.provenance.get("fingerprint"),
            **edits.fields(),
        }
        make_directory(path)
        attributes = {**told, "sha256": fingerprint(told)}
        # The whole of a Zarr group without arrays, so that one rename puts it in place.
        write_json(path / "zarr.json", {"zarr_format": 3, "node_type": "group", "attributes": attributes})
    return edits
