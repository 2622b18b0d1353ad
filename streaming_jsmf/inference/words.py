"""Words that speak for a topic: prominent ones from B, characteristic ones from the anchors' rows of C."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def prominent_words(word_topic: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The ``count`` most probable words of each topic, (K, count) word ids; ties go to the lowest id."""
    return _leading(word_topic.T, count)


def characteristic_words(anchor_rows: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The ``count`` words that co-occur most with each anchor (LR-JSMF, Table 1), (K, count) word ids.

    ``anchor_rows`` are the anchors' rows of C, (K, N). Normalising a row does not change its order. They must be
    rows of C before rectification: rectified rows give only frequent words.
    """
    return _leading(anchor_rows, count)


def _leading(scores: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return order.astype(np.int64)
