"""Refuse numbers of topics that a corpus cannot support, before any long work."""

from __future__ import annotations

from streaming_jsmf.config import InferSettings, StodSettings
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.topics.anchor_words import given_anchors, require_candidates


def require_feasible(
    corpus: Corpus, n_topics: int, settings: InferSettings | StodSettings, *, exact: bool = False
) -> None:
    """Check a request before the scan: the number of topics, given anchors, and whether C is stored whole (``exact``).

    Reads the vocabulary only. Raises ``TooFewFactorsError`` if the corpus has too few documents, words or candidates
    for anchors; ``InputError`` if an anchor word is rejected, or the rectification needs the whole C.
    """
    n_documents, n_words = corpus.n_documents, corpus.n_words
    most = min(n_documents, n_words)
    if n_topics > most:
        raise TooFewFactorsError(
            f"--topics is {n_topics:,} and the corpus has {n_documents:,} documents and {n_words:,} words, which "
            f"support at most {most:,} topics, and far fewer meaningful ones; lower --topics"
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
            f"--rectify {settings.rectify} needs the whole co-occurrences; scan with --exact, or use --rectify enn or "
            "palm"
        )
