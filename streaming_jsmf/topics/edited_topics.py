"""A model as its edits show it: merged and hidden topics, and the words listed for each topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.words import longer_lists
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.edits import TopicEdits, read_edits
from streaming_jsmf.topics.store import Model, read_model, read_model_panels

#: Default number of words of a topic.
DEFAULT_WORDS = 10

#: Arrays that are summed over merged topics, by their number of topic axes.
_SUMS = {"topic_probability": 1, "alpha": 1, "topic_topic": 2, "topic_topic_of_documents": 2}

#: Arrays of stored topics only, with the value for merged topics.
_STORED_ONLY = {"anchors": -1, "characteristic_words": -1, "label_words": -1, "lambda": np.nan}


@dataclass(frozen=True)
class EditedTopics:
    """The K' topics of a model that are shown.

    The share of a merged topic is the sum of the shares of its parts, and p(word | topic) their mean, weighted by these
    shares. Merged topics have no anchor, characteristic words and label words.

    Attributes
    ----------
    path, stored
        The model: its path, and the arrays that were read.
    edits
        Labels, merged and hidden topics.
    """

    path: StorePath
    stored: Model
    edits: TopicEdits

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """(K',) the stored topics of each."""
        return self.edits.groups

    @property
    def numbers(self) -> tuple[int, ...]:
        """(K',) the numbers under which they are shown."""
        return tuple(group[0] for group in self.groups)

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
        """Values of stored topics as those of the shown ones; ``missing`` for merged topics."""
        chosen = values[list(self.numbers)]
        chosen[[len(group) > 1 for group in self.groups]] = missing
        return chosen

    def panels(self) -> Iterator[NDArray[Any]]:
        """Yield p(word | topic), N x K', in panels of words; see ``read_model_panels``."""
        panels = read_model_panels(self.path, "word_topic")
        if self._is_unchanged:
            return panels
        weights = self._weights()
        return (panel @ weights for panel in panels)

    def listed_words(self, count: int) -> NDArray[np.int64]:
        """Ids of the ``count`` most probable words of each topic, (K', count) or fewer columns with fewer words.

        ``word_topic`` is read only if the model lists fewer words.
        """
        listed = self.model.arrays["prominent_words"]
        if count <= listed.shape[1]:
            return np.asarray(listed[:, :count])
        return longer_lists(listed, self.panels(), count)

    def probabilities(self, listed: NDArray[np.int64]) -> NDArray[np.float64]:
        """p(word | topic) of the words ``listed``, in the same shape; reads ``word_topic``."""
        found, start = np.zeros(listed.shape), 0
        for panel in self.panels():
            topics, ranks = np.nonzero((listed >= start) & (listed < start + len(panel)))
            found[topics, ranks] = panel[listed[topics, ranks] - start, topics]
            start += len(panel)
        return found

    @property
    def _is_unchanged(self) -> bool:
        return len(self.groups) == self.edits.n_topics

    def _weights(self) -> NDArray[np.float64]:
        """(K, K'): the share of each stored topic in the shown one; equal weights if all shares are 0."""
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
        """The number under which the larger topic is shown; -1 if it is hidden or part of the same topic."""
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


def read_edited_topics(
    path: StorePath, names: tuple[str, ...], optional: tuple[str, ...] = ()
) -> EditedTopics:
    """Read a model and its edits, as ``read_model``; ``topic_probability`` must be among ``names``."""
    model = read_model(path, names, optional)
    return EditedTopics(path, model, read_edits(path, model))


def require_word_count(words: int | None) -> int:
    """The number of words of each topic; None: 10.

    Raises ``InputError`` if it is below 1.
    """
    if words is not None and words < 1:
        raise InputError(f"--words is {words}; give a whole number of at least 1")
    return DEFAULT_WORDS if words is None else words
