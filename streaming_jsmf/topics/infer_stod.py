"""The tensor engine on a moments store: what ``infer --engine stod`` does between the two stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import AUTO, SHARES, StodSettings
from streaming_jsmf.errors import TooFewFactorsError
from streaming_jsmf.inference.correlations import HIGHEST_SUM, LOWEST_SUM
from streaming_jsmf.inference.stod.engine import (
    MOST_EVALUATIONS,
    NoTopicsError,
    TensorTopics,
    core_moments,
    find_alpha0,
    tensor_topics,
)
from streaming_jsmf.jobs.events import Iteration, Listener
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.moments.stages.third_moment import TensorMoments
from streaming_jsmf.topics.alpha0 import anchored_prior_sum
from streaming_jsmf.topics.fitted import Fitted, word_lists


def fit_tensor_topics(
    moments: Moments, settings: StodSettings, threads: int, lap: Callable[[str], None], listener: Listener
) -> Fitted:
    """Topics and their prior from the third moment of a store (Algorithm 2 after its scans). No pass over the corpus.

    Parameters
    ----------
    threads
        For the anchor words that alpha0 is found by. The bits do not depend on it.
    lap
        Called with the name of each stage when it is done.

    Raises
    ------
    InputError
        If the store lacks the third moment, or K is above the width of its basis.
    TooFewFactorsError
        If the corpus holds no topic, or too few anchor words to find alpha0 by.
    """
    # Read again below: beside the anchor words there may be no room for it.
    _require_width(moments, moments.tensor_moments(), settings.n_topics)
    alpha0 = _alpha0(moments, settings, threads, listener)
    lap("prior")
    read = moments.tensor_moments()
    try:
        found = tensor_topics(read.moments, read.basis, _word_probability(moments), settings, alpha0)
    except NoTopicsError as error:
        raise TooFewFactorsError(
            f"{moments.path}: {error}; the corpus is too small or has one subject only, or give another --alpha0"
        ) from error
    lap("tensor")
    arrays = _arrays(moments, read, found)
    lap("words")
    return Fitted(arrays, _metrics(moments, settings, found))


def _alpha0(moments: Moments, settings: StodSettings, threads: int, listener: Listener) -> float:
    """The number that ``settings.alpha0`` is or asks for."""

    def told(number: int, alpha0: float, total: float) -> None:
        listener(Iteration("alpha0", number, MOST_EVALUATIONS, {"alpha0": alpha0, "share_sum": total}))

    if settings.alpha0 == AUTO:
        return anchored_prior_sum(moments, settings.n_topics, threads, listener)
    if settings.alpha0 == SHARES:
        read = moments.tensor_moments()
        return find_alpha0(core_moments(read.moments, read.basis), settings, told)
    return float(settings.alpha0)


def _word_probability(moments: Moments) -> NDArray[np.float64]:
    return np.asarray(moments.term_count / moments.term_count.sum(), dtype=np.float64)


def _require_width(moments: Moments, read: TensorMoments, n_topics: int) -> None:
    width = read.basis.shape[1]
    if n_topics > width:
        raise TooFewFactorsError(
            f"{moments.path}: the basis of this scan has {width} columns, {n_topics} topics were asked for; use "
            f"--topics {width} or fewer, or scan again into another store with --max-topics {n_topics}"
        )


def _arrays(moments: Moments, read: TensorMoments, found: TensorTopics) -> dict[str, NDArray[Any]]:
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
        "word_mean": read.moments.word_mean,
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
