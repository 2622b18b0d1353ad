"""What every engine makes of a moments store, and the word lists that all of them give a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.inference.words import characteristic_words, label_words, prominent_words
from streaming_jsmf.moments.reader import Moments

#: Words listed for each topic; a reader wants 10, a labeller more.
LISTED_WORDS = 20

#: Words that stand for a topic where there is no room for more.
LABEL_WORDS = 3


@dataclass(frozen=True)
class Fitted:
    """Arrays of a model, by the names of its engine's variables, and certificates of the result (JSON values)."""

    arrays: Mapping[str, NDArray[Any]]
    metrics: Mapping[str, Any]


def word_lists(
    moments: Moments, scores: NDArray[np.floating[Any]], anchors: NDArray[np.int64] | None = None
) -> dict[str, NDArray[Any]]:
    """The vocabulary, the words listed for each topic and their counts, by the names of a model's variables.

    Parameters
    ----------
    moments
        Of the training corpus.
    scores
        (N, K), what the prominent words of a topic are the largest of: p(word | topic), or what is sure of it.
    anchors
        (K,) words by whose rows of C the characteristic ones are told. None: the most prominent word of each topic.
    """
    listed = min(LISTED_WORDS, len(moments.words))
    prominent = prominent_words(scores, listed)
    rows = moments.cooccurrence_rows(prominent[:, 0] if anchors is None else anchors)
    characteristic = characteristic_words(rows, listed)
    return {
        "word": np.array(moments.words, dtype=object),
        "topic": np.arange(scores.shape[1], dtype=np.int64),
        "rank": np.arange(listed, dtype=np.int64),
        "term_count": moments.term_count,
        "document_frequency": moments.document_frequency,
        "prominent_words": prominent,
        "characteristic_words": characteristic,
        "label_words": label_words(prominent, characteristic, LABEL_WORDS),
    }
