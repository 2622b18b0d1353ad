"""MST-Incoherence (LR-JSMF 2021, section 5): is there a path through the words that describe a topic?

The nodes of a topic are its 7 prominent words and the 7 characteristic ones of its anchor; an edge weighs
(1 - NPMI) / 2, and the incoherence is the weight of the minimum spanning tree.
"""

from __future__ import annotations

import numpy as np

from streaming_jsmf.evaluation.coherence import pair_npmi
from streaming_jsmf.evaluation.factorization import cooccurrence_rows, kept_diagonal
from streaming_jsmf.evaluation.inputs import Cooccurrence, Floats, Integers, SelectedCounts, TopicArrays
from streaming_jsmf.inference.words import characteristic_words

#: Prominent and characteristic words of a topic that become nodes (the paper's 7 and 7).
NODES = 7


def incoherence_in_cooccurrence(
    topics: TopicArrays, cooccurrence: Cooccurrence, anchor_rows: Floats | None = None
) -> Floats:
    """MST-Incoherence, (K,), with p(i, j) = C_ij and p(i) = u_i, the paper's form; between 0 and 13.

    The paper writes the row-normalised C in the denominator of NPMI, which would not keep it within [-1, 1]; this is
    the joint probability C_ij of the source it cites. C_ij comes from F F' - D', whose truncation blurs rare pairs: a
    pair that never meets may come out a little above 0. C_ij <= 0 gives NPMI -1 and an edge of 1.

    Parameters
    ----------
    topics, cooccurrence
        Over the same words. Without anchors the most probable word of a topic stands for its anchor.
    anchor_rows
        (K, N) exact rows of C, for the choice of characteristic words; None: rows of F F' - D'.

    Examples
    --------
    "a a" and "b b" as documents, C = diag(1/2, 1/2): one topic of both words. They never meet, and the tree is the
    edge of weight 1.

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
    """MST-Incoherence, (K,), with shares of documents for p(i, j) and p(i): exact, and good for held-out documents.

    The characteristic words are the first 7 of an anchor's row among the counted words.

    Parameters
    ----------
    topics, counts
        ``counts.words`` holds the top words of all topics.
    anchor_rows
        (K, N) rows of C of ``topics.representatives``, exact or from the factor.

    Raises
    ------
    ValueError
        If a prominent word was not counted.

    Examples
    --------
    Four documents: words 0 and 1 are in two each, in one together. p_ij = p_i p_j, so NPMI is 0 and the edge 1/2.

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
    """Weight of the minimum spanning tree of a complete graph, (n, n) symmetric; 0 for fewer than two nodes.

    Prim's algorithm. An edge of weight 0 is an edge, which sparse graph libraries take for none.

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
    """Per topic the union of prominent and characteristic words, as places in the columns of ``rows``.

    Only words that do co-occur with the anchor are characteristic: an anchor that a corpus lacks has none.
    """
    characteristic = characteristic_words(rows, NODES)
    unions = []
    for topic, places in enumerate(characteristic):
        places = places[rows[topic, places] > 0]
        unions.append(np.union1d(prominent[topic, :NODES], places))
    return unions


def _incoherence(joint: Floats, alone: Floats) -> float:
    return spanning_tree_weight((1.0 - pair_npmi(joint, np.outer(alone, alone))) / 2.0)
