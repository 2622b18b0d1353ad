"""MST-Incoherence (LR-JSMF 2021, section 5): weight of the minimum spanning tree through the words of a topic.

Nodes are the 7 prominent words of a topic and the 7 characteristic words of its anchor; an edge weighs
(1 - NPMI) / 2.
"""

from __future__ import annotations

import numpy as np

from streaming_jsmf.evaluation.coherence import pair_npmi
from streaming_jsmf.evaluation.factorization import cooccurrence_rows, kept_diagonal
from streaming_jsmf.evaluation.inputs import Cooccurrence, Floats, Integers, SelectedCounts, TopicArrays
from streaming_jsmf.inference.words import characteristic_words

#: Number of prominent and of characteristic words per topic.
NODES = 7


def incoherence_in_cooccurrence(
    topics: TopicArrays, cooccurrence: Cooccurrence, anchor_rows: Floats | None = None
) -> Floats:
    """MST-Incoherence of each topic, (K,), with p(i, j) = C_ij and p(i) = u_i, as in the paper; between 0 and 13.

    C_ij is computed from F F' - D', whose truncation blurs rare pairs: pairs that never co-occur may be slightly above
    0. C_ij <= 0 gives an NPMI of -1 and an edge of weight 1.

    Parameters
    ----------
    topics, cooccurrence
        Over the same words. Engines without anchors use the most probable words.
    anchor_rows
        (K, N) exact rows of C that select characteristic words; None uses rows of F F' - D'.

    Examples
    --------
    Documents "a a" and "b b", C = diag(1/2, 1/2), and one topic with both words. They never co-occur, so the tree is
    the edge of weight 1.

    >>> half = np.array([0.5, 0.5])
    >>> C = Cooccurrence(np.eye(2, dtype=np.float32), half, half)
    >>> incoherence_in_cooccurrence(TopicArrays(half[:, None], np.array([[0, 1]]), half), C).tolist()
    [1.0]
    """
    rows = cooccurrence_rows(cooccurrence, topics.representatives) if anchor_rows is None else anchor_rows
    costs = np.empty(len(topics.top_words))
    for topic, nodes in enumerate(_nodes(topics.top_words, rows)):
        f = cooccurrence.factor[nodes].astype(np.float64)
        joint = f @ f.T - np.diag(kept_diagonal(f, cooccurrence.diagonal[nodes]))
        costs[topic] = _incoherence(joint, cooccurrence.row_sum[nodes])
    return costs


def incoherence_in_documents(topics: TopicArrays, counts: SelectedCounts, anchor_rows: Floats) -> Floats:
    """MST-Incoherence of each topic, (K,), with shares of documents for p(i, j) and p(i); also for held-out documents.

    Parameters
    ----------
    topics, counts
        ``counts.words`` includes the top words of all topics.
    anchor_rows
        (K, N) rows of C of ``topics.representatives``, exact or from the factor. The 7 largest entries among the
        counted words are characteristic.

    Raises
    ------
    ValueError
        If a prominent word was not counted.

    Examples
    --------
    Four documents: words 0 and 1 occur in two each, in one together. p_ij = p_i p_j, so NPMI is 0 and the edge 1/2.

    >>> topics = TopicArrays(np.full((2, 1), 0.5), np.array([[0, 1]]), np.full(2, 0.5))
    >>> counts = SelectedCounts(np.array([0, 1]), np.array([[2, 1], [1, 2]]), 4)
    >>> incoherence_in_documents(topics, counts, np.array([[0.25, 0.25]])).tolist()
    [0.5]
    """
    prominent = counts.places(topics.top_words[:, :NODES])
    if (prominent < 0).any():
        missing = topics.top_words[:, :NODES][prominent < 0][0]
        raise ValueError(f"word {missing} is a top word and was not counted")
    shares = counts.pairs / counts.n_documents
    costs = np.empty(len(prominent))
    for topic, nodes in enumerate(_nodes(prominent, anchor_rows[:, counts.words])):
        joint = shares[np.ix_(nodes, nodes)]
        costs[topic] = _incoherence(joint, np.diag(joint))
    return costs


def spanning_tree_weight(weights: Floats) -> float:
    """Weight of the minimum spanning tree of a complete graph, (n, n) symmetric, by Prim's algorithm; 0 for n < 2.

    Unlike in sparse graph libraries, a weight of 0 is an edge.

    Examples
    --------
    A triangle with sides 1, 2 and 0: the sides 0 and 1.

    >>> spanning_tree_weight(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]))
    1.0
    """
    if len(weights) < 2:
        return 0.0
    total = 0.0
    outside = np.ones(len(weights), dtype=bool)
    outside[0] = False
    nearest = weights[0].copy()
    while outside.any():
        node = int(np.argmin(np.where(outside, nearest, np.inf)))
        total += float(nearest[node])
        outside[node] = False
        nearest = np.minimum(nearest, weights[node])
    return total


def _nodes(prominent: Integers, rows: Floats) -> list[Integers]:
    """Prominent words, and characteristic words that co-occur with the anchor, of each topic as columns of ``rows``."""
    characteristic = characteristic_words(rows, NODES)
    unions = []
    for topic, places in enumerate(characteristic):
        places = places[rows[topic, places] > 0]
        unions.append(np.union1d(prominent[topic, :NODES], places))
    return unions


def _incoherence(joint: Floats, alone: Floats) -> float:
    return spanning_tree_weight((1.0 - pair_npmi(joint, np.outer(alone, alone))) / 2.0)
