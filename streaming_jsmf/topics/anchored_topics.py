"""Rectified co-occurrences of a store -> topics by anchor words, under the rules that settings make for its words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import InferSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.anchors import RejectedAnchorError, require_frequent
from streaming_jsmf.inference.law import AnchorRules, AnchorWordTopics, low_rank_anchor_words
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.rectification.result import Rectification


def anchored_topics(
    moments: Moments, rectification: Rectification, settings: InferSettings, threads: int
) -> AnchorWordTopics:
    """Topics by anchor words (LR-JSMF, Algorithm 5). No pass over the corpus.

    Raises
    ------
    DegenerateAnchorsError
        If there are not so many anchor words; who asked knows what else to try.
    InputError
        If an anchor word that was given cannot be one.
    """
    try:
        return low_rank_anchor_words(
            rectification.rectified,
            moments.row_sum,
            moments.document_frequency,
            anchor_rules(moments, settings),
            simplex=settings.simplex,
            correlations=settings.correlations,
            threads=threads,
        )
    except RejectedAnchorError as error:
        raise _rejected(str(moments.path), moments.words, error) from error


def anchor_rules(moments: Moments, settings: InferSettings) -> AnchorRules:
    """How anchors are chosen; what can be refused without the rectification is refused here.

    Raises
    ------
    InputError
        If a word that was given is not there or too rare.
    """
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
    place: str,
) -> tuple[tuple[int, ...], ...]:
    """Ids of the anchor words that were given, a group for each topic; ``place`` is what has these words.

    Raises
    ------
    InputError
        If one is not there, or in too few documents where it is known in how many.
    """
    if not settings.anchor_groups:
        return ()
    ids = {word: number for number, word in enumerate(words)}
    unknown = [word for group in settings.anchor_groups for word in group if word not in ids]
    if unknown:
        raise InputError(
            f"{place}: the vocabulary lacks the anchor word {', '.join(map(repr, unknown))}; "
            "give words as they are spelled there"
        )
    given = tuple(tuple(ids[word] for word in group) for group in settings.anchor_groups)
    if document_frequency is not None:
        try:
            require_frequent(given, document_frequency, settings.anchor_floor(n_documents))
        except RejectedAnchorError as error:
            raise _rejected(place, words, error) from error
    return given


def _rejected(place: str, words: Sequence[str], error: RejectedAnchorError) -> InputError:
    return InputError(f"{place}: the anchor word {words[error.word]!r} {error.reason}")
