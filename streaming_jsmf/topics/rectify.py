"""The rectification of the co-occurrences of a moments store by each method, and its cost."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from streaming_jsmf.config import InferSettings, Rectifier, StodSettings
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.jobs.events import Iteration, Listener
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import panel_threads
from streaming_jsmf.moments.select import SelectedMoments
from streaming_jsmf.moments.stages.cooccurrence import matrix_bytes
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.process_limits import machine_memory, shortage
from streaming_jsmf.rectification.alternating import alternating_projection
from streaming_jsmf.rectification.diagonal import diagonal_completion
from streaming_jsmf.rectification.enn import ENNOptions, epsilon_nonnegative, papers_rows
from streaming_jsmf.rectification.palm import (
    PALMOptions,
    SymmetricOperator,
    eigen_operator,
    factor_operator,
    matrix_operator,
    palm,
)
from streaming_jsmf.rectification.result import OnIteration, Rectification, unrectified

logger = logging.getLogger(__name__)

#: Number of N x N matrices that each rectification of the whole C keeps in memory.
MATRICES: Mapping[Rectifier, int] = {"ap": 1, "dykstra": 2, "dc": 2, "palm": 1, "ipalm": 1}

#: Number of words from which the cost of rectifying the whole C is announced, and of topics for ENN.
_MANY_WORDS, _MANY_TOPICS = 5_000, 300

#: Number of N x K arrays in memory during ENN, and its operations per second on one core;
#: measured on KOS with K = 100 and 300.
_BLOCKS, _OPERATIONS = 15, 1e10


def announce_cost(n_words: int, settings: InferSettings | StodSettings, threads: int = 1) -> None:
    """Log the time and memory of a long rectification before the scan, accurate to a factor of about two.

    Raises ``InputError`` if the machine lacks the memory, or a limit of the process does not allow it.
    """
    k = settings.n_topics
    needed = _BLOCKS * 8 * n_words * k
    whole = isinstance(settings, InferSettings) and settings.needs_whole_c
    matrices = MATRICES[settings.rectify] * matrix_bytes(n_words) if whole else 0  # type: ignore[union-attr]
    short = shortage(needed + matrices, threads)
    if short is not None:
        raise InputError(
            f"the inference of {k:,} topics of {n_words:,} words needs {short}; lower {option.n_topics} or "
            f"{option.workers}, or raise the limit"
        )
    if isinstance(settings, StodSettings):
        return
    if whole and n_words >= _MANY_WORDS:
        logger.info(
            "rectification: %s works on the whole matrix of %s x %s words, %s, in each of up to %d steps, which takes "
            "minutes; enn gives a similar result in seconds",
            settings.rectify,
            f"{n_words:,}",
            f"{n_words:,}",
            format_bytes(matrices),
            settings.max_iterations,
        )
    elif settings.rectify == "enn" and k >= _MANY_TOPICS:
        _announce_many_topics(n_words, k, needed, settings.max_iterations)


def _announce_many_topics(n_words: int, n_topics: int, needed: int, max_iterations: int) -> None:
    available = machine_memory()
    if available is not None and needed > available:
        raise InputError(
            f"{option.n_topics} is {n_topics:,}, which takes about {format_bytes(needed)} of memory for {n_words:,} "
            f"words and this machine has {format_bytes(available)}; lower {option.n_topics}"
        )
    checked = min(n_words, papers_rows(n_topics))
    seconds = 2 * n_words * checked * n_topics / _OPERATIONS
    logger.info(
        "K = %s of %s words takes about %s of memory, and the rectification about %.0f s of a core for each of its "
        "steps, usually some dozens and at most %d",
        f"{n_topics:,}",
        f"{n_words:,}",
        format_bytes(needed),
        max(seconds, 1),
        max_iterations,
    )


def rectify(
    moments: Moments, pairs: Eigenpairs, settings: InferSettings, threads: int, listener: Listener
) -> Rectification:
    """Rectify the co-occurrences of a store by the method ``settings.rectify``. No pass over the corpus.

    PALM uses the whole C if the store has it, and F F' - D otherwise (docs/math.md). Raises ``InputError`` if the
    method needs the whole C and the store lacks it, or it does not fit into memory.
    """
    k, iterations, tolerance = settings.n_topics, settings.max_iterations, settings.tolerance

    def report(number: int, change: float) -> None:
        listener(Iteration("rectification", number, iterations, {"change": change}))

    match settings.rectify:
        case "none":
            return unrectified(pairs, k)
        case "enn":
            return _enn(moments, pairs, settings, threads, report)
        case "dc":
            return _diagonal(moments, k, report)
        case "ap" | "dykstra" as name:
            return alternating_projection(
                _cooccurrence(moments, name),
                pairs,
                k,
                dykstra=name == "dykstra",
                max_iterations=iterations,
                tolerance=tolerance,
                overwrite=True,
                threads=threads,
                on_iteration=report,
            )
        case name:
            options = PALMOptions(name == "ipalm", iterations, tolerance)
            with panel_threads(threads):
                return palm(_operator(moments, name), pairs, k, options, on_iteration=report)


def _enn(
    moments: Moments, pairs: Eigenpairs, settings: InferSettings, threads: int, report: OnIteration
) -> Rectification:
    # Distribute the missing mass over the words in proportion to u u', or evenly.
    shares = moments.row_sum / moments.row_sum.sum() if settings.missing_mass == "marginals" else None
    options = ENNOptions(
        settings.max_iterations, settings.tolerance, acceleration=settings.acceleration, threads=threads
    )
    return epsilon_nonnegative(pairs, settings.n_topics, options, shares=shares, on_iteration=report)


def _diagonal(moments: Moments, n_topics: int, report: OnIteration) -> Rectification:
    if len(moments.words) < 2 * n_topics:
        raise InputError(
            f"{moments.path}: {option.rectify('dc')} halves the words, and {len(moments.words)} words are too few for "
            f"{n_topics} topics; lower {option.n_topics}"
        )
    c = _cooccurrence(moments, "dc")
    if np.count_nonzero(c) == np.count_nonzero(np.diagonal(c)):
        raise InputError(
            f"{moments.path}: {option.rectify('dc')} completes the diagonal from pairs of different words, and no "
            f"document has two different words; use {option.rectify('enn')}"
        )
    return diagonal_completion(c, n_topics, seed=moments.settings.seed, overwrite=True, on_iteration=report)


def _operator(moments: Moments, rectifier: Rectifier) -> SymmetricOperator:
    if moments.settings.exact and not isinstance(moments, SelectedMoments):
        return matrix_operator(_cooccurrence(moments, rectifier))
    factor = moments.factor()
    if factor is None:
        # All pairs of the sketch, not only those with which PALM starts.
        return eigen_operator(moments.eigenpairs(1, extra=moments.settings.basis_width))
    return factor_operator(factor, moments.diagonal)


def _cooccurrence(moments: Moments, rectifier: Rectifier) -> NDArray[np.float64]:
    """The whole C, if the store has it and it fits into memory."""
    needed, available = MATRICES[rectifier] * matrix_bytes(len(moments.words)), machine_memory()
    if available is not None and needed > available:
        raise InputError(
            f"{moments.path}: {option.rectify(rectifier)} needs {format_bytes(needed)} for the co-occurrences of "
            f"{len(moments.words):,} words and this machine has {format_bytes(available)}; use {option.rectify('enn')}"
            + (" or palm" if rectifier not in ("palm", "ipalm") else "")
        )
    if not moments.settings.exact:
        raise InputError(
            f"{moments.path}: {option.rectify(rectifier)} needs the whole co-occurrences; count them with "
            f"streaming-jsmf scan CORPUS OTHER_MOMENTS --exact, or use {option.rectify('enn')} or palm"
        )
    return moments.cooccurrence()
