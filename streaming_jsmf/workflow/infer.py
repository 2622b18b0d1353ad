"""Moments store -> model store."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from streaming_jsmf.config import InferSettings, StodSettings, fingerprint
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.inference.anchors import DegenerateAnchorsError
from streaming_jsmf.inference.law import AnchorWordTopics, low_rank_anchor_words
from streaming_jsmf.inference.words import characteristic_words, prominent_words
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.model.store import Model, require_free_path, write_model
from streaming_jsmf.moments.reader import Moments, open_moments
from streaming_jsmf.moments.select import SelectedMoments, select_partitions
from streaming_jsmf.rectification.enn import Rectification, epsilon_nonnegative, unrectified
from streaming_jsmf.runtime.blas import single_blas_thread
from streaming_jsmf.runtime.events import Iteration, Listener, silent
from streaming_jsmf.runtime.files import StorePath, store_path
from streaming_jsmf.runtime.memory import peak_memory
from streaming_jsmf.runtime.provenance import package_versions
from streaming_jsmf.workflow.infer_stod import fit_tensor_topics

#: Words listed for each topic; a reader wants 10, a labeller more.
LISTED_WORDS = 20


class _Stopwatch:
    """Wall seconds and peak memory (bytes, of the process so far) of each stage."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[stage] = {"seconds": round(now - self._last, 3), "peak_memory": peak_memory()}
        self._last = now


def infer(
    moments: str | Path | StorePath | Moments,
    model: str | Path | StorePath,
    settings: InferSettings | StodSettings,
    *,
    partitions: str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> Model:
    """Fit one model from a moments store and write it. No pass over the corpus.

    Eigenpairs, rectification, LAW (LR-JSMF, Algorithm 6 without its scan); with ``StodSettings`` the tensor engine
    instead (``fit_tensor_topics``). The result does not depend on ``threads`` (None: one for each core). With
    ``partitions`` only those whose label it names (``select_partitions``).

    Raises
    ------
    InputError
        If ``model`` exists, or the scan or the corpus cannot carry K topics.
    StoreError
        If the moments store is incomplete or damaged.
    """
    target = store_path(model, "a model")
    require_free_path(target, overwrite)
    opened = moments if isinstance(moments, Moments) else open_moments(store_path(moments, "a moments store"))
    if partitions is not None:
        opened = select_partitions(opened, partitions)
    fitted = fit_moments(opened, settings, threads=threads, listener=listener)
    write_model(target, fitted, overwrite=overwrite)
    return fitted


def fit_moments(
    moments: Moments,
    settings: InferSettings | StodSettings,
    *,
    threads: int | None = None,
    listener: Listener = silent,
) -> Model:
    """Fit one model in memory; see ``infer``."""
    if threads is not None and threads < 1:
        raise InputError(f"workers is {threads}; give a whole number of at least 1")
    workers = threads or os.cpu_count() or 1
    watch = _Stopwatch()
    if isinstance(settings, StodSettings):
        with single_blas_thread():
            fitted = fit_tensor_topics(moments, settings, LISTED_WORDS, watch.lap, listener)
        provenance = _provenance(moments, settings, "stod", watch)
        return Model(fitted.arrays, settings.fields(), fitted.metrics, provenance)
    # Many BLAS threads change the bits of every product; our own threads take fixed blocks instead.
    with single_blas_thread():
        pairs = moments.eigenpairs(settings.n_topics)
        watch.lap("eigenpairs")
        rectification = _rectify(pairs, settings, workers, listener)
        watch.lap("rectification")
        topics = _anchor_word_topics(moments, rectification, settings, workers)
        watch.lap("anchor_words")
        arrays = _arrays(moments, pairs, rectification, topics)
        watch.lap("words")
    metrics = _metrics(moments, settings, rectification, topics)
    return Model(arrays, settings.fields(), metrics, _provenance(moments, settings, "lr-jsmf", watch))


def _provenance(
    moments: Moments, settings: InferSettings | StodSettings, engine: str, watch: _Stopwatch
) -> dict[str, Any]:
    return {
        "engine": engine,
        "moments": str(moments.path),
        "fingerprint": model_fingerprint(moments, settings),
        "corpus_fingerprints": [entry["fingerprint"] for entry in moments.store.manifest["corpora"]],
        "scan_settings": moments.store.manifest["settings"],
        "settings_fingerprint": moments.store.manifest["settings_fingerprint"],
        "partitions": moments.partitions if isinstance(moments, SelectedMoments) else None,
        "versions": package_versions(),
        "stages": watch.stages,
    }


def model_fingerprint(moments: Moments, settings: InferSettings | StodSettings) -> str:
    """sha256 over the moments' values and the settings: equal fingerprints mean equal models."""
    digests = moments.digests(third_moment=isinstance(settings, StodSettings))
    return fingerprint({"moments": digests, "settings": settings.fields()})


def _rectify(pairs: Eigenpairs, settings: InferSettings, threads: int, listener: Listener) -> Rectification:
    if settings.rectify == "none":
        return unrectified(pairs, settings.n_topics)

    def report(number: int, change: float) -> None:
        listener(Iteration("rectification", number, settings.max_iterations, {"change": change}))

    return epsilon_nonnegative(
        pairs,
        settings.n_topics,
        max_iterations=settings.max_iterations,
        tolerance=settings.tolerance,
        threads=threads,
        on_iteration=report,
    )


def _anchor_word_topics(
    moments: Moments, rectification: Rectification, settings: InferSettings, threads: int
) -> AnchorWordTopics:
    try:
        return low_rank_anchor_words(
            rectification.rectified,
            moments.row_sum,
            moments.document_frequency,
            min_document_frequency=settings.anchor_floor(moments.n_documents),
            threads=threads,
        )
    except DegenerateAnchorsError as error:
        raise TooFewFactorsError(f"{moments.path}: {error}") from error


def _arrays(
    moments: Moments, pairs: Eigenpairs, rectification: Rectification, topics: AnchorWordTopics
) -> dict[str, Any]:
    n_topics, n_words = topics.anchors.words.size, len(moments.words)
    listed = min(LISTED_WORDS, n_words)
    mass = np.where(topics.rectified_row_sum > 0, topics.rectified_row_sum, 0.0) @ topics.topic_given_word
    numbers = np.arange(n_topics, dtype=np.int64)
    return {
        "word": np.array(moments.words, dtype=object),
        "topic": numbers,
        "topic_": numbers,
        "rank": np.arange(listed, dtype=np.int64),
        "anchors": topics.anchors.words,
        "pivots": topics.anchors.pivots,
        "word_topic": topics.word_topic,
        "topic_given_word": topics.topic_given_word,
        "topic_topic": topics.topic_topic,
        "topic_probability": mass / mass.sum(),
        "eigenvalues": pairs.values[:n_topics],
        "rectified": rectification.rectified,
        "row_sum": moments.row_sum,
        "rectified_row_sum": topics.rectified_row_sum,
        "term_count": moments.term_count,
        "document_frequency": moments.document_frequency,
        "prominent_words": prominent_words(topics.word_topic, listed),
        "characteristic_words": characteristic_words(moments.cooccurrence_rows(topics.anchors.words), listed),
    }


def _metrics(
    moments: Moments, settings: InferSettings, rectification: Rectification, topics: AnchorWordTopics
) -> dict[str, Any]:
    """Certificates of the result; ``evaluate`` adds the metrics of the papers."""
    return {
        "n_documents": moments.n_documents,
        "anchor_min_df": settings.anchor_floor(moments.n_documents),
        "topic_topic_sum": float(topics.topic_topic.sum()),
        "largest_simplex_gap": topics.largest_gap,
        "words_without_mass": topics.words_without_mass,
        "rectification": {key: value for key, value in vars(rectification).items() if key != "rectified"},
    }
