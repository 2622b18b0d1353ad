"""The engine LR-JSMF: topics by anchor words from the rectified co-occurrences of a moments store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import InferSettings
from streaming_jsmf.inference.anchors import Groups
from streaming_jsmf.inference.correlations import reconstruction_error
from streaming_jsmf.inference.law import AnchorRules, AnchorWordTopics, low_rank_anchor_words
from streaming_jsmf.inference.words import characteristic_words, label_words, prominent_words
from streaming_jsmf.jobs.events import Iteration, Listener
from streaming_jsmf.linalg.eigen import Eigenpairs, nystrom_factor
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.moments.select import SelectedMoments
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.rectification.ap import alternating_projection
from streaming_jsmf.rectification.enn import epsilon_nonnegative
from streaming_jsmf.rectification.palm import (
    SymmetricOperator,
    eigen_operator,
    factor_operator,
    matrix_operator,
    palm,
)
from streaming_jsmf.rectification.result import (
    Rectification,
    change_of_grams,
    omitted_mass,
    unrectified,
)

Arrays = dict[str, NDArray[Any]]

#: Number of words listed for each topic, and in its label.
LISTED_WORDS, LABEL_WORDS = 20, 3


def fit_anchor_words(
    moments: Moments,
    settings: InferSettings,
    rules: AnchorRules,
    threads: int,
    lap: Callable[[str], None],
    listener: Listener,
) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and metrics of an LR-JSMF model (Algorithm 6 without its scan). No pass over the corpus.

    ``lap`` is called with the name of each completed stage. Raises ``InputError`` as ``rectify``;
    ``TooFewFactorsError`` if there are fewer eigenvalues than topics; ``DegenerateAnchorsError`` and
    ``RejectedAnchorError`` as ``low_rank_anchor_words``.
    """
    pairs = moments.eigenpairs(settings.n_topics)
    spectrum = spectral_certificates(moments, pairs, settings.n_topics)
    lap("eigenpairs")
    rectification, values = rectify(moments, pairs, settings, threads, listener), pairs.values
    del pairs
    lap("rectification")
    topics = anchored_topics(moments, rectification, settings, rules, threads)
    lap("anchor_words")
    arrays = _arrays(moments, values, rectification, topics)
    metrics = {**_metrics(moments, rules, rectification, topics), **spectrum}
    lap("words")
    return arrays, metrics


def rectify(
    moments: Moments, pairs: Eigenpairs, settings: InferSettings, threads: int, listener: Listener
) -> Rectification:
    """Rectify the co-occurrences of a store by the method ``settings.rectify``. No pass over the corpus.

    PALM uses the whole C if the store has it, and F F' - D otherwise (docs/math.md). Raises ``InputError`` if the
    method needs the whole C and the store lacks it.
    """
    k = settings.n_topics

    def report(number: int, change: float) -> None:
        listener(Iteration("rectification", number, settings.max_iterations, {"change": change}))

    options: dict[str, Any] = {
        "max_iterations": settings.max_iterations,
        "tolerance": settings.stops_below,
        "threads": threads,
        "on_iteration": report,
    }
    match settings.rectify:
        case "none":
            return unrectified(pairs, k)
        case "enn":
            # Distribute the missing mass over the words in proportion to u u', or evenly.
            marginals = settings.missing_mass == "marginals"
            shares = moments.row_sum / moments.row_sum.sum() if marginals else None
            acceleration = settings.acceleration
            return epsilon_nonnegative(pairs, k, shares=shares, acceleration=acceleration, **options)
        case "ap":
            return alternating_projection(moments.cooccurrence(), pairs, k, **options)
        case "palm" | "ipalm" as name:
            return palm(_operator(moments), pairs, k, inertial=name == "ipalm", **options)


def _operator(moments: Moments) -> SymmetricOperator:
    if moments.settings.exact and not isinstance(moments, SelectedMoments):
        return matrix_operator(moments.cooccurrence())
    projected = moments.projected_basis()
    if projected is None:
        # All pairs of the sketch, not only those with which PALM starts.
        return eigen_operator(moments.eigenpairs(1, extra=moments.settings.basis_width))
    basis, product = projected
    factor = nystrom_factor(basis, product + moments.diagonal[:, None] * basis)
    return factor_operator(factor, moments.diagonal)


def anchor_rules(settings: InferSettings, n_documents: int, given: Groups = ()) -> AnchorRules:
    """Rules for selecting anchors in a corpus of ``n_documents``; ``given`` are word ids of the first anchors."""
    return AnchorRules(
        settings.anchors,
        settings.anchor_floor(n_documents),
        settings.shrinkage(n_documents),
        given,
        settings.anchor_row_sum,
        settings.cliques,
        settings.clique,
    )


def anchored_topics(
    moments: Moments, rectification: Rectification, settings: InferSettings, rules: AnchorRules, threads: int
) -> AnchorWordTopics:
    """Topics by anchor words (LR-JSMF, Algorithm 5). No pass over the corpus."""
    return low_rank_anchor_words(
        rectification.rectified,
        moments.row_sum,
        moments.document_frequency,
        rules,
        correlations=settings.correlations,
        threads=threads,
    )


def _arrays(
    moments: Moments, eigenvalues: Floats, rectification: Rectification, topics: AnchorWordTopics
) -> Arrays:
    anchors, lists = topics.anchors, word_lists(moments, topics.word_topic, topics.anchors.words)
    arrays = {
        **lists,
        "topic_": lists["topic"],
        "anchors": anchors.words,
        "pivots": anchors.pivots,
        "word_topic": topics.word_topic,
        "topic_given_word": topics.topic_given_word,
        "topic_topic": topics.topic_topic,
        "topic_probability": topics.topic_probability,
        "eigenvalues": eigenvalues[: anchors.words.size],
        "rectified": rectification.rectified,
        "row_sum": moments.row_sum,
        "rectified_row_sum": topics.rectified_row_sum,
    }
    if anchors.clique_weights.size:
        arrays |= {"cliques": anchors.cliques, "clique_weight": anchors.clique_weights}
    return arrays


def _metrics(
    moments: Moments, rules: AnchorRules, rectification: Rectification, topics: AnchorWordTopics
) -> dict[str, Any]:
    rectified = rectification.rectified
    given = topics.anchors.groups[: len(rules.given)]
    named = [[moments.words[number] for number in group] for group in given]
    return {
        **({"given_anchors": named} if named else {}),
        "n_documents": moments.n_documents,
        "anchor_min_df": rules.min_document_frequency,
        "anchor_shrinkage": rules.shrinkage,
        "topic_topic_sum": float(topics.topic_topic.sum()),
        "topic_topic_gap": topics.correlation_gap,
        "reconstruction_error": reconstruction_error(topics.word_topic, topics.topic_topic, rectified),
        "largest_simplex_gap": topics.largest_gap,
        "words_without_mass": topics.words_without_mass,
        "rectification": {
            **rectification.report(),
            "omitted_mass": asdict(omitted_mass(rectified, rectification.checked_words)),
        },
    }


def word_lists(
    moments: Moments, scores: NDArray[np.floating[Any]], anchors: NDArray[np.int64] | None = None
) -> Arrays:
    """Vocabulary, word counts and word lists of a model of any engine.

    ``scores`` (N, K) are largest for the prominent words of a topic. ``anchors`` (K,) are words whose rows of C give
    the characteristic words, by default the most prominent word of each topic.
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


def spectral_certificates(moments: Moments, pairs: Eigenpairs, n_topics: int) -> dict[str, Any]:
    """Certificates of the eigenpairs. No pass over the corpus; memory for the basis and projection of the store.

    ``eigenvalue_gap`` is (lambda_K - lambda_K+1) / lambda_K, None without a further eigenvalue. ``ritz_residual`` is
    the largest ||C q - theta q|| / theta of the K leading Ritz pairs of the last scan's basis, with exact C q.
    ``range_change`` is ||Y Y' - Y1 Y1'||_F / ||Y1 Y1'||_F, where Y1 uses the eigenpairs of scan 1 and Y the final
    ones. The latter two are None without a second scan of the same documents, or if the whole C was counted.
    """
    values = pairs.values
    gap = float(1 - values[n_topics] / values[n_topics - 1]) if values.size > n_topics else None
    certificates: dict[str, Any] = {"eigenvalue_gap": gap, "ritz_residual": None, "range_change": None}
    projected = None if isinstance(moments, SelectedMoments) else moments.projected_basis()
    if projected is None:
        return certificates
    basis, product = projected
    first = np.sqrt(np.maximum(moments.read("basis_eigenvalues")[:n_topics], 0.0))
    last = np.sqrt(np.maximum(values[:n_topics], 0.0))
    small = basis.T @ product
    ritz, rotation = np.linalg.eigh((small + small.T) / 2)
    ritz, rotation = ritz[::-1][:n_topics], rotation[:, ::-1][:, :n_topics]
    squared, widths = np.zeros(ritz.size), (first.size, last.size)
    old, new, mixed = (np.zeros((widths[i], widths[j])) for i, j in ((0, 0), (1, 1), (1, 0)))
    # Process a few rows at a time because basis and projection are large.
    for rows in panels(basis.shape[0]):
        residual = product[rows] @ rotation - (basis[rows] @ rotation) * ritz
        squared += np.einsum("ij,ij->j", residual, residual)
        before, after = basis[rows, : first.size] * first, pairs.vectors[rows, : last.size] * last
        old += before.T @ before
        new += after.T @ after
        mixed += after.T @ before
    relative = np.sqrt(squared[ritz > 0]) / ritz[ritz > 0]
    certificates["ritz_residual"] = float(relative.max()) if relative.size else None
    certificates["range_change"] = change_of_grams(new, old, mixed)
    return certificates
