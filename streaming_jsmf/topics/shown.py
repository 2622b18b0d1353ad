"""A model as its edits show it: topics merged, hidden and named; the arrays on the disk stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.words import longer_lists
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.edits import TopicEdits, read_edits
from streaming_jsmf.topics.store import Model, read_model, read_model_panels

#: What adds up over merged topics, by the axes of the topics.
_SUMS = {"topic_probability": 1, "alpha": 1, "topic_topic": 2, "topic_topic_of_documents": 2}

#: What only a stored topic has, and what stands in its place for merged ones.
_OF_ONE = {"anchors": -1, "characteristic_words": -1, "label_words": -1, "lambda": np.nan}


@dataclass(frozen=True)
class ShownTopics:
    """The topics of a model as people are to see them, K' of them.

    The share of a merged topic is the sum of the shares of its members, p(word | topic) their mean weighted by these
    shares. So it is what one gets who does not tell the members from each other. Anchor, characteristic words and label
    words are of stored topics only.

    Attributes
    ----------
    path, stored
        The model: where it is, and the arrays that were read.
    edits
        What was said of its topics.
    """

    path: StorePath
    stored: Model
    edits: TopicEdits

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """(K',) stored topics of each."""
        return self.edits.groups

    @property
    def numbers(self) -> tuple[int, ...]:
        """(K',) under which each is shown."""
        return tuple(group[0] for group in self.groups)

    @cached_property
    def model(self) -> Model:
        """The model with arrays of the shown topics, as far as they were read; never ``word_topic``."""
        arrays = {name: values for name, values in self.stored.arrays.items() if name != "word_topic"}
        if not self._is_as_stored:
            arrays |= {
                name: self._summed(arrays[name], axes) for name, axes in _SUMS.items() if name in arrays
            }
            arrays |= {name: self.rows(arrays[name], of) for name, of in _OF_ONE.items() if name in arrays}
            if "duplicate_of" in arrays:
                arrays["duplicate_of"] = self._duplicates(arrays["duplicate_of"])
            if "prominent_words" in arrays:
                arrays["prominent_words"] = self._prominent(arrays["prominent_words"])
        return replace(self.stored, arrays=arrays)

    def rows(self, values: NDArray[Any], missing: float) -> NDArray[Any]:
        """Of values of the stored topics those of the shown ones; ``missing`` where these are merged."""
        chosen = values[list(self.numbers)]
        chosen[[len(group) > 1 for group in self.groups]] = missing
        return chosen

    def panels(self) -> Iterator[NDArray[Any]]:
        """p(word | topic), N x K', a panel of words after the other; see ``read_model_panels``."""
        if self._is_as_stored:
            return read_model_panels(self.path, "word_topic")
        weights = mixing_weights(self.stored.arrays["topic_probability"], self.groups)
        return (panel @ weights for panel in read_model_panels(self.path, "word_topic"))

    @property
    def _is_as_stored(self) -> bool:
        return len(self.groups) == self.edits.n_topics

    def _summed(self, values: NDArray[Any], axes: int) -> NDArray[Any]:
        for axis in range(axes):
            parts = [values.take(group, axis).sum(axis) for group in self.groups]
            values = np.stack(parts, axis)
        return values

    def _duplicates(self, larger: NDArray[Any]) -> NDArray[Any]:
        """A number under which a topic is shown, of a topic that is another one now; else -1."""
        shown = {member: group[0] for group in self.groups for member in group}
        found = [shown.get(int(other), -1) for other in self.rows(larger, -1)]
        return np.array([-1 if one == own else one for one, own in zip(found, self.numbers, strict=True)])

    def _prominent(self, listed: NDArray[Any]) -> NDArray[Any]:
        """The lists of stored topics, and of merged ones their most probable words."""
        found, merged = (
            self.rows(listed, -1),
            [place for place, group in enumerate(self.groups) if len(group) > 1],
        )
        if merged:
            panels = (panel[:, merged] for panel in self.panels())
            found[merged] = longer_lists(np.empty((len(merged), 0), np.int64), panels, listed.shape[1])
        return found


def mixing_weights(shares: NDArray[np.float64], groups: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """(K, K'): the share of each stored topic in the one it is shown in. Equal ones where all shares are 0."""
    weights = np.zeros((len(shares), len(groups)))
    for place, group in enumerate(map(list, groups)):
        total = shares[group].sum()
        weights[group, place] = shares[group] / total if total > 0 else 1 / len(group)
    return weights


def read_shown(path: StorePath, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> ShownTopics:
    """Read a model and its edits; arguments and errors as ``read_model``, ``topic_probability`` among ``names``."""
    model = read_model(path, names, optional)
    return ShownTopics(path, model, read_edits(path, model))
