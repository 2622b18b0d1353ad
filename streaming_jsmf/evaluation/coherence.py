"""Coherence of top words with documents as windows, the share of distinct words, and MST-Incoherence.

Coherence and NPMI increase if topics repeat each other's words, so report them together with the distinct share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from streaming_jsmf.evaluation.inputs import Cooccurrence, SelectedCounts, TopicArrays
from streaming_jsmf.inference.words import characteristic_words
from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.typing import Floats, Integers

#: Added by gensim to the share of documents that contain both words, in ``u_mass`` and ``c_npmi``.
GENSIM_SMOOTHING = 1e-12
#: Number of prominent and of characteristic words per topic in MST-Incoherence.
NODES = 7


def npmi(
    document_frequency: ArrayLike,
    pair_counts: ArrayLike,
    n_documents: int,
    top_words: ArrayLike,
    *,
    smoothing: float = 0.0,
) -> Floats:
    """Mean normalized pointwise mutual information of the top word pairs of each topic, (K,), from -1 to 1.

    Averages log(p_ij / (p_i p_j)) / -log p_ij, where p is a share of documents (Bouma 2009; Lau, Newman and Baldwin
    2014). A pair that never co-occurs has -1, a pair in every document 1. Equation 17 of the STOD paper omits the
    denominator.

    ``document_frequency`` is (P,), ``pair_counts`` (P, P), and ``top_words`` (K, n), n >= 2, are *positions* in them,
    not word ids. ``smoothing`` is added to every p_ij; ``GENSIM_SMOOTHING`` reproduces gensim's ``c_npmi`` over whole
    documents, where a pair that never co-occurs is above -1 and a pair in every document has -1.

    Examples
    --------
    Of eight documents four contain word 0, two word 1, one both: log((1/8) / (1/2 1/4)) = 0.

    >>> npmi([4, 2], [[4, 1], [1, 2]], 8, [[0, 1]]).tolist()
    [0.0]
    """
    first, second, together = _word_pairs(document_frequency, pair_counts, top_words, n_documents)
    return np.asarray(pair_npmi(together, first * second, smoothing).mean(axis=1))


def pair_npmi(together: Floats, apart: Floats, smoothing: float = 0.0) -> Floats:
    """NPMI from p_ij and p_i p_j (arrays of one shape), clipped to [-1, 1]; see ``npmi``.

    The value is 1 if p_ij = 1, and -1 if p_i p_j <= 0 or, without ``smoothing``, p_ij <= 0.
    """
    values = np.full(together.shape, -1.0)
    values[together >= 1.0] = 1.0
    some = (together + smoothing > 0.0) & (together < 1.0) & (apart > 0.0)
    joint = together[some] + smoothing
    values[some] = np.log(joint / apart[some]) / -np.log(joint)
    return np.asarray(np.clip(values, -1.0, 1.0))


def coherence(
    document_frequency: ArrayLike, pair_counts: ArrayLike, top_words: ArrayLike, *, epsilon: float = 1.0
) -> Floats:
    """Sum over pairs of top words of log((D(i, j) + epsilon) / D(j)), (K,) (Mimno et al. 2011).

    Word j is the more probable one; a word that occurs in no document, possible in held-out corpora, counts as
    occurring in one. ``epsilon`` is 1 in Mimno et al., 0.01 in JSMF 2015 and 1e-8 in SoftClique (Eq. 5). Other
    arguments are as in ``npmi``, with words in descending order of probability.

    Examples
    --------
    Words 0 and 1 occur in four and two documents, together in one: log((1 + 1) / 4).

    >>> print(coherence([4, 2], [[4, 1], [1, 2]], [[0, 1]]).round(4).tolist())
    [-0.6931]
    """
    first, _, together = _word_pairs(document_frequency, pair_counts, top_words)
    return np.asarray(np.log((together + epsilon) / np.maximum(first, 1.0)).sum(axis=1))


def u_mass(
    document_frequency: ArrayLike, pair_counts: ArrayLike, n_documents: int, top_words: ArrayLike
) -> Floats:
    """UMass coherence as defined by gensim: mean over pairs of log((p_ij + 1e-12) / p_j), (K,).

    As in gensim, a pair counts as 0 if its more probable word j occurs in no document. Arguments are as in ``npmi``,
    with words in descending order of probability.

    Examples
    --------
    Words 0 and 1 occur in four and two documents, together in one: log(1 / 4).

    >>> print(u_mass([4, 2], [[4, 1], [1, 2]], 8, [[0, 1]]).round(4).tolist())
    [-1.3863]
    """
    given, _, together = _word_pairs(document_frequency, pair_counts, top_words, n_documents)
    return np.asarray(np.log(ratio(together + GENSIM_SMOOTHING, given, 1.0)).mean(axis=1))


def _word_pairs(
    document_frequency: ArrayLike, pair_counts: ArrayLike, top_words: ArrayLike, n_documents: int = 1
) -> tuple[Floats, Floats, Floats]:
    """Document shares of the more probable word of each pair, the other word, and both, each (K, pairs)."""
    words = np.asarray(top_words, dtype=np.int64)
    left, right = (words[:, ranks] for ranks in np.triu_indices(words.shape[1], k=1))
    frequency = np.asarray(document_frequency, dtype=np.float64) / n_documents
    counts = np.asarray(pair_counts, dtype=np.float64) / n_documents
    return frequency[left], frequency[right], counts[left, right]


def distinct_share(top_words: ArrayLike) -> float:
    """Share of distinct ids among all top words (K, n); 1 if no topic repeats a word of another.

    Examples
    --------
    >>> distinct_share([[1, 2], [2, 3]])
    0.75
    """
    words = np.asarray(top_words)
    return len(np.unique(words)) / words.size


def incoherence_in_cooccurrence(
    topics: TopicArrays, cooccurrence: Cooccurrence, anchor_rows: Floats
) -> Floats:
    """MST-Incoherence of each topic (LR-JSMF 2021, section 5), (K,), between 0 and 13.

    This is the weight of the minimum spanning tree over the 7 prominent words of a topic and the 7 characteristic
    words of its anchor. Edges weigh (1 - NPMI) / 2 with p(i, j) = C_ij and p(i) = u_i; C_ij <= 0 gives an NPMI of -1.
    ``anchor_rows`` (K, N) are the rows of C that select the characteristic words.

    Examples
    --------
    Documents "a a" and "b b", and one topic with both words. They never co-occur, so the tree is the edge of weight 1.

    >>> half = np.array([0.5, 0.5])
    >>> C = Cooccurrence(half, np.diag(half).__getitem__)
    >>> one = TopicArrays(half[:, None], np.array([[0, 1]]), half)
    >>> incoherence_in_cooccurrence(one, C, np.array([[0.5, 0.0]])).tolist()
    [1.0]
    """
    nodes = _nodes(topics.top_words, anchor_rows)
    words = np.unique(np.concatenate(nodes))
    among = cooccurrence.among(words)
    places = [np.searchsorted(words, each) for each in nodes]
    joint = [among[np.ix_(each, each)] for each in places]
    alone = [cooccurrence.row_sum[each] for each in nodes]
    return np.array([*map(_incoherence, joint, alone)])


def incoherence_in_documents(topics: TopicArrays, counts: SelectedCounts, anchor_rows: Floats) -> Floats:
    """MST-Incoherence of each topic, (K,), with document shares as p(i, j) and p(i); also for held-out documents.

    The characteristic words are the counted words with the 7 largest entries in ``anchor_rows`` (K, N), the rows of C
    of ``topics.representatives``. Raises ``ValueError`` if a prominent word was not counted.

    Examples
    --------
    Four documents: words 0 and 1 occur in two each, in one together. p_ij = p_i p_j, so NPMI is 0 and the edge 1/2.

    >>> topics = TopicArrays(np.full((2, 1), 0.5), np.array([[0, 1]]), np.full(2, 0.5))
    >>> counts = SelectedCounts(np.array([0, 1]), np.array([[2, 1], [1, 2]]), 4)
    >>> incoherence_in_documents(topics, counts, np.array([[0.25, 0.25]])).tolist()
    [0.5]
    """
    prominent = counts.positions(topics.top_words[:, :NODES])
    shares = counts.pairs / counts.n_documents
    costs = np.empty(len(prominent))
    for topic, nodes in enumerate(_nodes(prominent, anchor_rows[:, counts.words])):
        joint = shares[np.ix_(nodes, nodes)]
        costs[topic] = _incoherence(joint, np.diag(joint))
    return costs


def spanning_tree_weight(weights: Floats) -> float:
    """Weight of the minimum spanning tree of a complete graph (n, n), where edges may weigh 0; 0 for n < 2."""
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
    """Prominent words and characteristic words of each topic, as columns of ``rows``."""
    return [
        np.union1d(words[:NODES], columns[row[columns] > 0])
        for words, columns, row in zip(prominent, characteristic_words(rows, NODES), rows, strict=True)
    ]


def _incoherence(joint: Floats, alone: Floats) -> float:
    return spanning_tree_weight((1.0 - pair_npmi(joint, np.outer(alone, alone))) / 2.0)
