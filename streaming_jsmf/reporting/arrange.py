"""Which topics to merge, and which words to remove: the hierarchy of the shown topics, and words of most topics."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from streaming_jsmf.errors import InputError, option
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg import hellinger
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.layout import Tree, topic_tree
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.edits import NAMED, NEEDED, EditedTopics, TopicEdits, shown_topics
from streaming_jsmf.topics.store import AnyModel, read_model

if TYPE_CHECKING:
    import pandas as pd

logger = logging.getLogger(__name__)

#: A word of most topics is spread over more than this part of the topics.
MOST = 0.5


def tree_of(shown: EditedTopics) -> Tree:
    """Complete linkage of the Hellinger distances between the shown topics. Reads ``word_topic`` once."""
    with single_blas_thread():
        none = np.zeros((len(shown.groups), len(shown.groups)))
        return topic_tree(sum(map(hellinger.affinity, shown.panels()), none))


def merge_nearest(
    path: StorePath, edits: TopicEdits, number: int | None = None, distance: float | None = None
) -> TopicEdits:
    """Merge the nearest shown topics until ``number`` are left, or all that are within a Hellinger ``distance``.

    The steps are those of ``tree_of``. A line names the topics of each group and their largest distance. Raises
    ``InputError`` if ``number`` is below 1 or ``distance`` is not from 0 to 1.
    """
    if number is not None and (number < 1 or number % 1):
        raise InputError(f"{option.reduce} is {number}; give a whole number, at least 1")
    if distance is not None and not 0 <= distance <= 1:
        raise InputError(f"{option.merge_similar} is {distance}; give a Hellinger distance from 0 to 1")
    shown = EditedTopics(path, read_model(path, NEEDED, NAMED), edits)
    tree = tree_of(shown)
    near = 0 if distance is None else int(np.searchsorted(tree.heights, distance, side="right"))
    steps = near if number is None else max(len(shown.groups) - number, near)
    for group, height in tree.merged(steps):
        edits = edits.merge(shown.numbers[topic] for topic in group)
        topics = " + ".join(f"{shown.numbers[topic]} ({shown.names[topic]})" for topic in group)
        logger.info("merged %s: distance %.2f", topics, height)
    if not steps and len(tree.heights):
        nearest = " and ".join(str(shown.numbers[topic]) for topic in tree.merges[0])
        logger.info("no topics were merged; the nearest, %s, have distance %.2f", nearest, tree.heights[0])
    return edits


def stop_word_candidates(model: AnyModel, number: int = 20) -> pd.DataFrame:
    """Return frequent words of most of the shown topics, which tell little about any of them.

    ``entropy`` is that of p(topic | word), -sum_k p_k log p_k in nats, and ``topics`` = exp(entropy) the number of
    topics that the word is spread over: more than half of that of all tokens. ``frequency`` is the share of the
    documents that contain the word (of the tokens, if the model does not know the documents), by which rows are sorted.
    Reads ``word_topic`` once. Raises ``InputError`` if there is no model or ``number`` is below 1, ``StoreError`` if it
    is damaged.

    Examples
    --------
    >>> found = stop_word_candidates("model")  # doctest: +SKIP
    >>> sj.fit(texts, "model", 20, stop_words=["auto", set(found["word"])], overwrite=True)  # doctest: +SKIP
    """
    import pandas as pd

    if number < 1:
        raise InputError(f"{option.number} is {number}; give at least 1")
    shown = shown_topics(model, (*NEEDED, "word"), ("document_frequency",))
    shares = shown.model.arrays["topic_probability"]
    joint = np.concatenate([np.maximum(panel, 0.0) * shares for panel in shown.panels()])
    probability = joint.sum(axis=1)
    entropy = _entropy(joint / np.maximum(probability, 1e-300)[:, None])
    spread = np.exp(entropy) > MOST * np.exp(_entropy(shares / shares.sum()))
    documents, counted = shown.model.metrics.get("n_documents"), shown.model.arrays.get("document_frequency")
    frequency = probability if counted is None or not documents else counted / documents
    found = np.flatnonzero(spread & (probability > 0))
    first = found[np.argsort(-frequency[found], kind="stable")][:number]
    columns = {
        "word": [str(word) for word in shown.stored.arrays["word"][first]],
        "frequency": frequency[first],
        "entropy": entropy[first],
        "topics": np.exp(entropy[first]),
    }
    return pd.DataFrame(columns)


def _entropy(shares: Floats) -> Floats:
    """Entropy of distributions along the last axis, in nats."""
    return np.asarray(-np.sum(shares * np.log(np.maximum(shares, 1e-300)), axis=-1))
