"""The anchor word algorithm: topics from the compressed co-occurrence (LAW), or from the complete one (AW).

LAW is Algorithm 5 of LR-JSMF, AW is steps 3 to 6 of Algorithm 1; they agree where Y Y' is non-negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import ANCHOR_ROW_SUM, AnchorMethod, CorrelationMethod
from streaming_jsmf.errors import option
from streaming_jsmf.inference.anchors import (
    Anchors,
    Clique,
    DegenerateAnchorsError,
    Groups,
    Similarity,
    anchor_candidates,
    dense_similarity,
    group_means,
    low_rank_similarity,
    pivoted_anchors,
    shrunken_rows,
    soft_cliques,
    usable_groups,
)
from streaming_jsmf.inference.correlations import diagonal_correlations, refined_correlations
from streaming_jsmf.linalg.panels import stacked_qr
from streaming_jsmf.linalg.simplex import simplex_least_squares
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.storage.large_arrays import large_empty


@dataclass(frozen=True)
class AnchorRules:
    """Rules for the selection of anchors.

    method : ``pivoted-qr`` or ``soft-clique``.
    min_document_frequency, min_row_sum : Minimum number of documents, and minimum d / u; both 0 in the papers, which
        still require d > 0.
    shrinkage : In documents, see ``shrunken_rows``; 0 in the papers.
    given : Word ids of anchors that come first, several for a tandem anchor; only for ``pivoted-qr``.
    cliques, clique : For ``soft-clique``: number of searches, and rank of the clique to use; 1 is the lightest.
    """

    method: AnchorMethod = "pivoted-qr"
    min_document_frequency: float = 0.0
    shrinkage: float = 0.0
    given: Groups = ()
    min_row_sum: float = ANCHOR_ROW_SUM
    cliques: int = 1
    clique: int = 1


#: The rules of the papers: pivoted QR among all words with a positive row sum.
OF_THE_PAPERS = AnchorRules(min_row_sum=0.0)


@dataclass(frozen=True)
class AnchorWordTopics:
    """Topics and their correlations.

    word_topic, topic_given_word : B, N x K, p(word | topic), columns sum to 1; and p(topic | word), rows sum to 1, or 0
        where d <= 0.
    topic_topic : A, K x K, joint topic probabilities, non-negative. The sum is 1 for refined correlations. For
        ``diagonal`` ones it is near 1 only if the anchors represent all words; a sum above 1.25 is a warning sign.
    rectified_row_sum, words_without_mass : d = Y(Y'e), (N,), and the number of words with d <= 0, which get no topic.
    largest_gap : Largest duality gap of the simplex problems, relative to the squared norm of the word's row.
    correlation_gap : Gap of the refined A, see ``refined_correlations``; otherwise 0.
    """

    anchors: Anchors
    word_topic: Floats
    topic_given_word: Floats
    topic_topic: Floats
    rectified_row_sum: Floats
    largest_gap: float
    words_without_mass: int
    correlation_gap: float = 0.0

    @property
    def topic_probability(self) -> Floats:
        """(K,), share of each topic in the rectified co-occurrences; sums to 1."""
        d = self.rectified_row_sum
        mass = np.where(d > 0, d, 0.0) @ self.topic_given_word
        return np.asarray(mass / mass.sum())


def low_rank_anchor_words(
    rectified: Floats,
    row_sum: Floats,
    document_frequency: Integers,
    rules: AnchorRules = OF_THE_PAPERS,
    *,
    correlations: CorrelationMethod = "diagonal",
    threads: int = 1,
) -> AnchorWordTopics:
    """LAW: anchors, topics and topic correlations from C* ~ Y Y', in O(N K^2). No pass over the data.

    Raises ``DegenerateAnchorsError`` if K anchors cannot be found or a topic gets no word, and ``RejectedAnchorError``
    if a given anchor does not meet the rules.

    Parameters
    ----------
    rectified : Y, N x K.
    row_sum, document_frequency : (N,), u = C e before rectification, and the number of documents that contain each
        word.
    threads : Threads of ``simplex_least_squares``; the result does not depend on them.
    correlations : ``diagonal``: from the rows of the anchors. ``refined``: see ``refined_correlations``.
    """
    n_topics = rectified.shape[1]
    d = rectified @ rectified.sum(axis=0)
    # X = diag(d)^-1 Y R': the rows of the normalized C* up to an orthonormal map (Lemma 2).
    turned = np.matmul(rectified, stacked_qr(rectified).T, out=large_empty(rectified.shape))
    rows = _divide_rows(turned, d, out=turned)
    anchors = _select_anchors(
        rows, d, row_sum, document_frequency, n_topics, rules, partial(low_rank_similarity, rectified)
    )
    sums = _group_sums(rectified, anchors.groups)
    topics = _topics(rows, d, anchors, sums @ sums.T, threads)
    if correlations == "diagonal":
        return topics
    refined, gap = refined_correlations(topics.word_topic, rectified, topics.topic_topic)
    return replace(topics, topic_topic=refined, correlation_gap=gap)


def anchor_words(
    cooccurrence: Floats,
    row_sum: Floats,
    document_frequency: Integers,
    n_topics: int,
    rules: AnchorRules = OF_THE_PAPERS,
    *,
    threads: int = 1,
) -> AnchorWordTopics:
    """AW: topics from a complete non-negative C in O(N^2 K), for vocabularies whose C fits in memory.

    ``cooccurrence`` is C, N x N, symmetric, rectified or as counted. The other parameters and the errors are those of
    ``low_rank_anchor_words``.
    """
    d = cooccurrence.sum(axis=1)
    rows = _divide_rows(cooccurrence, d)
    anchors = _select_anchors(
        rows, d, row_sum, document_frequency, n_topics, rules, partial(dense_similarity, cooccurrence)
    )
    block = _group_sums(_group_sums(cooccurrence, anchors.groups).T, anchors.groups)
    return _topics(rows, d, anchors, block, threads)


def _select_anchors(
    rows: Floats,
    d: Floats,
    row_sum: Floats,
    document_frequency: Integers,
    n_topics: int,
    rules: AnchorRules,
    similarity: Callable[[Integers], Similarity],
) -> Anchors:
    """Select anchors by ``rules``; ``similarity`` builds the graph for SoftClique on given word ids."""
    limits = rules.min_document_frequency, rules.min_row_sum
    candidates = anchor_candidates(d, row_sum, document_frequency, *limits)
    given = usable_groups(rules.given, d, row_sum, rules.min_row_sum)
    candidates[[word for group in given for word in group]] = True
    ids = np.flatnonzero(candidates)
    cliques: tuple[Clique, ...] = ()
    if rules.method == "soft-clique":
        cliques = soft_cliques(similarity(ids), candidates, n_topics, multiple=rules.cliques)
        if rules.clique > len(cliques):
            raise DegenerateAnchorsError(
                f"clique {rules.clique} was requested, but {rules.cliques} searches found {len(cliques)} different "
                f"ones; lower {option.clique}, or raise {option.cliques}"
            )
        # Pivoting orders the words of the clique and checks that they are far enough apart.
        ids = cliques[rules.clique - 1].words
    shrunken = shrunken_rows(rows, d, document_frequency, ids, rules.shrinkage)
    anchors = pivoted_anchors(shrunken, ids, n_topics, given, d[ids])
    if not cliques:
        return anchors
    weights = np.array([clique.weight for clique in cliques])
    return replace(anchors, cliques=np.array([clique.words for clique in cliques]), clique_weights=weights)


def _topics(rows: Floats, d: Floats, anchors: Anchors, block: Floats, threads: int) -> AnchorWordTopics:
    """Common last steps of LAW and AW: convex weights, Bayes' rule, A. ``block`` is C between the anchors, K x K."""
    positive = d > 0
    solution = simplex_least_squares(rows, group_means(rows, d, anchors.groups), threads=threads)
    # In place where possible: each of these arrays takes almost a gigabyte at N = 1,000,000.
    shares = solution.weights
    shares[~positive] = 0.0
    squared = np.einsum("ij,ij->i", rows, rows)
    relative = np.divide(solution.gap, squared, out=np.zeros_like(squared), where=positive & (squared > 0))
    word_topic = np.multiply(shares, np.where(positive, d, 0.0)[:, None], out=large_empty(shares.shape))
    topic_mass = word_topic.sum(axis=0)
    if not (topic_mass > 0).all():
        empty = int(np.flatnonzero(topic_mass <= 0)[0])
        raise DegenerateAnchorsError(
            f"topic {empty} gets no word, not even its anchors; leave some of them out, or lower {option.n_topics}"
        )
    word_topic /= topic_mass
    return AnchorWordTopics(
        anchors,
        word_topic,
        shares,
        diagonal_correlations(block, _group_sums(d[:, None], anchors.groups)[:, 0], topic_mass),
        d,
        float(relative.max(initial=0.0)),
        int(np.count_nonzero(~positive)),
    )


def _divide_rows(matrix: Floats, d: Floats, out: Floats | None = None) -> Floats:
    """Divide rows by d; rows with d <= 0 become zero."""
    return np.divide(matrix, np.where(d > 0, d, np.inf)[:, None], out=out)


def _group_sums(matrix: NDArray[Any], groups: Groups) -> Floats:
    return np.array([matrix[list(group)].sum(axis=0) for group in groups])
