"""Topics in the order of their similarity, and the tree of what is merged with what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_jsmf.reporting.contents import Floats, Integers
from streaming_jsmf.reporting.topic_map import hellinger_distances


@dataclass(frozen=True)
class Tree:
    """A hierarchy of K topics.

    Attributes
    ----------
    order
        (K,) topic numbers; topics that are alike stand together.
    merges
        (K - 1, 2): what is merged at each step, topics as their numbers and the result of step s as K + s.
    heights
        (K - 1,): mean Hellinger distance at which it is merged, rising.
    """

    order: Integers
    merges: Integers
    heights: Floats


def topic_tree(affinity: Floats) -> Tree:
    """Average linkage of Hellinger distances, leaves in the order in which neighbours are nearest.

    The order is that of Bar-Joseph, Gifford and Jaakkola (2001), by scipy.

    Examples
    --------
    >>> tree = topic_tree(np.array([[1.0, 0.1, 0.9], [0.1, 1.0, 0.2], [0.9, 0.2, 1.0]]))
    >>> print(tree.merges.tolist(), np.round(tree.heights, 3).tolist())
    [[0, 2], [1, 3]] [0.316, 0.922]
    >>> print(tree.order.tolist())
    [1, 2, 0]
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(affinity) == 1:
        return Tree(np.zeros(1, np.int64), np.zeros((0, 2), np.int64), np.zeros(0))
    distances = squareform(hellinger_distances(affinity), checks=False)
    linked = linkage(distances, method="average", optimal_ordering=True)
    # scipy says which side is drawn first; the sides are given by number here, the order by the leaves.
    merges = np.sort(linked[:, :2].astype(np.int64), axis=1)
    return Tree(leaves_list(linked).astype(np.int64), merges, linked[:, 2])
