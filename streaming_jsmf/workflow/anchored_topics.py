"""Rectified co-occurrences of a store -> topics by anchor words, under the rules that settings make for its words."""

from __future__ import annotations

from streaming_jsmf.config import InferSettings
from streaming_jsmf.errors import InputError
from streaming_jsmf.inference.anchors import RejectedAnchorError, require_frequent
from streaming_jsmf.inference.law import AnchorRules, AnchorWordTopics, low_rank_anchor_words
from streaming_jsmf.linalg.simplex import HAVE_NUMBA
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
        If an anchor word that was given cannot be one, or numba is asked for and not there.
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
        raise _rejected(moments, error) from error


def anchor_rules(moments: Moments, settings: InferSettings) -> AnchorRules:
    """How anchors are chosen; what can be refused without the rectification is refused here.

    Raises
    ------
    InputError
        If a word that was given is not there or too rare, or numba is asked for and not there.
    """
    if settings.simplex == "active-set" and not HAVE_NUMBA:
        raise InputError("simplex is 'active-set', which needs numba; install it, or give auto or fista")
    rules = AnchorRules(
        settings.anchors,
        settings.anchor_floor(moments.n_documents),
        settings.shrinkage(moments.n_documents),
        _word_ids(moments, settings.anchor_groups),
        settings.anchor_row_sum,
        settings.cliques,
        settings.clique,
    )
    try:
        require_frequent(rules.given, moments.document_frequency, rules.min_document_frequency)
    except RejectedAnchorError as error:
        raise _rejected(moments, error) from error
    return rules


def _rejected(moments: Moments, error: RejectedAnchorError) -> InputError:
    return InputError(f"{moments.path}: the anchor word {moments.words[error.word]!r} {error.reason}")


def _word_ids(moments: Moments, groups: tuple[tuple[str, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Ids of the anchor words that were given."""
    if not groups:
        return ()
    ids = {word: number for number, word in enumerate(moments.words)}
    unknown = [word for group in groups for word in group if word not in ids]
    if unknown:
        raise InputError(
            f"{moments.path}: the vocabulary lacks the anchor word {', '.join(map(repr, unknown))}; "
            "give words as they are spelled there"
        )
    return tuple(tuple(ids[word] for word in group) for group in groups)
