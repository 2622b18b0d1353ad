"""The tensor engine: topics and their Dirichlet prior from the third moment of a moments store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import InferSettings, StodSettings
from streaming_jsmf.errors import TooFewFactorsError, option
from streaming_jsmf.inference.anchors import DegenerateAnchorsError
from streaming_jsmf.inference.correlations import HIGHEST_SUM, LOWEST_SUM, prior_sum
from streaming_jsmf.inference.stod import NoTopicsError, TensorTopics, tensor_topics
from streaming_jsmf.jobs.events import Listener
from streaming_jsmf.linalg.tensor import BasisMoments
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.topics.anchor_words import anchor_rules, anchored_topics, rectify, word_lists

#: Number of eigenpairs beyond the first K with which the rectification for alpha0 starts.
EXTRA_PAIRS = 10


def fit_tensor(
    moments: Moments, settings: StodSettings, threads: int, lap: Callable[[str], None], listener: Listener
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and metrics of a model of the tensor engine (STOD, Algorithm 2 after its scans). No pass over the corpus.

    ``lap`` is called with the name of each completed stage. Raises ``InputError`` if the store has no third moment;
    ``TooFewFactorsError`` if K exceeds the width of the basis, the corpus has no topic, or there are too few anchor
    words to estimate alpha0.
    """
    # Do not keep these moments in memory while alpha0 is estimated.
    width = moments.tensor_moments().basis.shape[1]
    if settings.n_topics > width:
        raise TooFewFactorsError(
            f"{moments.path}: the basis of this scan has {width} columns, {settings.n_topics} topics were asked for; "
            f"use {option.n_topics(width)} or fewer, or scan into another store with "
            f"{option.max_topics(settings.n_topics).alone}"
        )
    alpha0 = _alpha0(moments, settings, threads, listener)
    lap("prior")
    tensor = moments.tensor_moments()
    word_probability = np.asarray(moments.term_count / moments.term_count.sum(), dtype=np.float64)
    try:
        found = tensor_topics(tensor, word_probability, settings, alpha0)
    except NoTopicsError as error:
        raise TooFewFactorsError(
            f"{moments.path}: {error}; the corpus is too small or has one subject only, or give another {option.alpha0}"
        ) from error
    lap("tensor")
    arrays = _arrays(moments, tensor, found)
    lap("words")
    return arrays, _metrics(moments, settings, found)


def _alpha0(moments: Moments, settings: StodSettings, threads: int, listener: Listener) -> float:
    if settings.prior_settings is not None:
        return estimate_alpha0(moments, settings.prior_settings, threads, listener)
    return float(settings.alpha0)


def estimate_alpha0(moments: Moments, settings: InferSettings, threads: int, listener: Listener) -> float:
    """Prior sum implied by the topic correlations of LR-JSMF with these settings. No pass over the corpus.

    Uses at most as many topics as C has positive eigenvalues. Raises ``TooFewFactorsError`` if C has no positive
    eigenvalue, or there are too few anchor words.
    """
    pairs = moments.eigenpairs(1, extra=settings.n_topics - 1 + EXTRA_PAIRS)
    settings = replace(settings, n_topics=min(settings.n_topics, pairs.positive))
    rectification = rectify(moments, pairs, settings, threads, listener)
    try:
        rules = anchor_rules(settings, moments.n_documents)
        topics = anchored_topics(moments, rectification, settings, rules, threads)
    except DegenerateAnchorsError as error:
        reason = str(error).partition(";")[0]
        raise TooFewFactorsError(
            f"{moments.path}: alpha0 is estimated by anchor words, and {reason}; give {option.alpha0} a number, or "
            "use fewer topics"
        ) from error
    return prior_sum(topics.topic_topic, topics.topic_probability)


def _arrays(moments: Moments, tensor: BasisMoments, found: TensorTopics) -> dict[str, NDArray[Any]]:
    topics, whitening = found.recovered, found.whitening
    return {
        **word_lists(moments, topics.listing),
        "component": np.arange(whitening.values.size, dtype=np.int64),
        "word_topic": topics.word_topic,
        "topic_probability": topics.probability,
        "alpha": found.alpha,
        "lambda": topics.eigenvalues,
        "duplicate_of": topics.duplicate_of,
        "eigenvalues": whitening.values,
        "eigengap": whitening.gaps,
        "ritz_residual": found.residuals,
        "word_mean": tensor.word_mean,
    }


def _metrics(moments: Moments, settings: StodSettings, found: TensorTopics) -> dict[str, Any]:
    topics, gap = found.recovered, float(found.whitening.gaps[-1])
    return {
        "n_documents": moments.n_documents,
        "topics_asked": settings.n_topics,
        "topics_found": int(topics.shares.size),
        "effective_rank": int(found.whitening.values.size),
        "discarded": topics.discarded,
        "duplicates": int(np.count_nonzero(topics.duplicate_of >= 0)),
        "alpha0": found.alpha0,
        "alpha0_at_end": isinstance(settings.alpha0, str) and found.alpha0 in (LOWEST_SUM, HIGHEST_SUM),
        "share_sum": float(topics.shares.sum()),
        "noise_taken_off": topics.noise_taken_off,
        "mass_without_topic": topics.mass_without_topic,
        "eigengap": gap if np.isfinite(gap) else None,
        "ritz_residual": float(found.residuals.max()),
        "largest_step": found.components.largest_step,
    }
