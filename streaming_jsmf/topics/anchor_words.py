"""The engine LR-JSMF: topics by anchor words from the rectified co-occurrences of a moments store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import InferSettings, StodSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, TooFewFactorsError, option
from streaming_jsmf.inference.anchors import DegenerateAnchorsError, RejectedAnchorError, require_frequent
from streaming_jsmf.inference.correlations import reconstruction_error
from streaming_jsmf.inference.law import AnchorRules, AnchorWordTopics, low_rank_anchor_words
from streaming_jsmf.inference.words import characteristic_words, label_words, prominent_words
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panels
from streaming_jsmf.moments.select import SelectedMoments
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.rectification.result import Rectification, change_of_grams, omitted_mass
from streaming_jsmf.topics.rectify import rectify

Arrays = dict[str, NDArray[Any]]

#: Number of words listed for each topic, and in its label.
LISTED_WORDS, LABEL_WORDS = 20, 3


def fit_anchor_words(
    moments: Moments, settings: InferSettings, threads: int, lap: Callable[[str], None], listener: Listener
) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and metrics of an LR-JSMF model (Algorithm 6 without its scan). No pass over the corpus.

    ``lap`` is called with the name of each completed stage. Raises ``InputError`` as ``anchor_rules`` and ``rectify``;
    ``TooFewFactorsError`` if there are fewer eigenvalues or anchor words than topics.
    """
    # Refuse given anchors and too many topics before the rectification.
    anchor_rules(moments, settings)
    require_candidates(settings.n_topics, settings, moments.document_frequency, moments.n_documents)
    pairs = moments.eigenpairs(settings.n_topics)
    spectrum = spectral_certificates(moments, pairs, settings.n_topics)
    lap("eigenpairs")
    rectification = rectify(moments, pairs, settings, threads, listener)
    lap("rectification")
    try:
        topics = anchored_topics(moments, rectification, settings, threads)
    except DegenerateAnchorsError as error:
        raise TooFewFactorsError(f"{moments.path}: {error}") from error
    lap("anchor_words")
    arrays = _arrays(moments, pairs, rectification, topics)
    metrics = {**_metrics(moments, settings, rectification, topics), **spectrum}
    lap("words")
    return arrays, metrics


def anchored_topics(
    moments: Moments, rectification: Rectification, settings: InferSettings, threads: int
) -> AnchorWordTopics:
    """Topics by anchor words (LR-JSMF, Algorithm 5). No pass over the corpus.

    Raises ``DegenerateAnchorsError`` if there are fewer anchor words than topics; ``InputError`` if a given anchor
    word is rejected.
    """
    try:
        return low_rank_anchor_words(
            rectification.rectified,
            moments.row_sum,
            moments.document_frequency,
            anchor_rules(moments, settings),
            correlations=settings.correlations,
            threads=threads,
        )
    except RejectedAnchorError as error:
        raise _rejected(str(moments.path), moments.words, error) from error


def anchor_rules(moments: Moments, settings: InferSettings) -> AnchorRules:
    """Rules for selecting anchors from the words of a store; ``InputError`` if a given word is unknown or rare."""
    return AnchorRules(
        settings.anchors,
        settings.anchor_floor(moments.n_documents),
        settings.shrinkage(moments.n_documents),
        given_anchors(
            settings, moments.words, moments.document_frequency, moments.n_documents, str(moments.path)
        ),
        settings.anchor_row_sum,
        settings.cliques,
        settings.clique,
    )


def given_anchors(
    settings: InferSettings,
    words: Sequence[str],
    document_frequency: NDArray[np.int64] | None,
    n_documents: int,
    source: str,
) -> tuple[tuple[int, ...], ...]:
    """Ids of the given anchor words, one group per topic; ``source`` names the corpus or store in messages.

    Raises ``InputError`` if a word is unknown or, if ``document_frequency`` is known, in too few documents.
    """
    if not settings.anchor_groups:
        return ()
    ids = {word: number for number, word in enumerate(words)}
    unknown = [word for group in settings.anchor_groups for word in group if word not in ids]
    if unknown:
        raise InputError(
            f"{source}: the vocabulary lacks the anchor word{'s' * (len(unknown) > 1)} "
            f"{', '.join(map(repr, unknown))}; give words as they are spelled there"
        )
    given = tuple(tuple(ids[word] for word in group) for group in settings.anchor_groups)
    if document_frequency is not None:
        try:
            require_frequent(given, document_frequency, settings.anchor_floor(n_documents))
        except RejectedAnchorError as error:
            raise _rejected(source, words, error) from error
    return given


def require_candidates(
    n_topics: int, settings: InferSettings, document_frequency: NDArray[np.int64], n_documents: int
) -> None:
    """Raise ``TooFewFactorsError`` if fewer words than topics are frequent enough for an anchor."""
    least = settings.anchor_floor(n_documents)
    candidates = int((document_frequency >= least).sum())
    if n_topics > candidates:
        raise TooFewFactorsError(
            f"{option.n_topics} is {n_topics:,} and each topic needs an anchor word in at least {least:g} documents, "
            f"of which there are {candidates:,}; lower {option.n_topics} or {option.anchor_min_df}"
        )


def require_feasible(
    corpus: Corpus, n_topics: int, settings: InferSettings | StodSettings, *, exact: bool = False
) -> None:
    """Refuse what a corpus cannot support, before the scan: the number of topics, given anchors, and the rectification.

    ``exact`` is whether C is stored whole. Reads the vocabulary only. Raises ``TooFewFactorsError`` if the corpus has
    too few documents, words or candidates for anchors; ``InputError`` if an anchor word is rejected, or the
    rectification needs the whole C.
    """
    n_documents, n_words = corpus.n_documents, corpus.n_words
    most = min(n_documents, n_words)
    if n_topics > most:
        raise TooFewFactorsError(
            f"{option.n_topics} is {n_topics:,} and the corpus has {n_documents:,} documents and {n_words:,} words, "
            f"which support at most {most:,} topics, and far fewer meaningful ones; lower {option.n_topics}"
        )
    if not isinstance(settings, InferSettings):
        return
    vocabulary = corpus.vocabulary()
    counted = vocabulary.document_frequency if vocabulary.counted else None
    if counted is not None:
        require_candidates(n_topics, settings, counted, n_documents)
    given_anchors(settings, vocabulary.words, counted, n_documents, corpus.root)
    if settings.needs_whole_c and not exact:
        raise InputError(
            f"{option.rectify(settings.rectify)} needs the whole co-occurrences; scan with {option.exact(True)}, or "
            f"use {option.rectify('enn')} or palm"
        )


def _rejected(source: str, words: Sequence[str], error: RejectedAnchorError) -> InputError:
    return InputError(f"{source}: the anchor word {words[error.word]!r} {error.reason}")


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


def _arrays(
    moments: Moments, pairs: Eigenpairs, rectification: Rectification, topics: AnchorWordTopics
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
        "eigenvalues": pairs.values[: anchors.words.size],
        "rectified": rectification.rectified,
        "row_sum": moments.row_sum,
        "rectified_row_sum": topics.rectified_row_sum,
    }
    if anchors.clique_weights.size:
        arrays |= {"cliques": anchors.cliques, "clique_weight": anchors.clique_weights}
    return arrays


def _metrics(
    moments: Moments, settings: InferSettings, rectification: Rectification, topics: AnchorWordTopics
) -> dict[str, Any]:
    rectified = rectification.rectified
    return {
        "n_documents": moments.n_documents,
        "anchor_min_df": settings.anchor_floor(moments.n_documents),
        "anchor_shrinkage": settings.shrinkage(moments.n_documents),
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
