"""Moments store -> model store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streaming_jsmf.config import InferSettings, StodSettings, engine_settings_of, fingerprint, takes
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.inference.anchors import Anchors, DegenerateAnchorsError
from streaming_jsmf.inference.correlations import reconstruction_error
from streaming_jsmf.inference.law import AnchorWordTopics
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.memory import peak_memory
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.moments.reader import Moments, open_moments
from streaming_jsmf.moments.select import SelectedMoments, select_partitions
from streaming_jsmf.rectification.result import Rectification
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.storage.provenance import package_versions
from streaming_jsmf.topics.anchored_topics import anchor_rules, anchored_topics
from streaming_jsmf.topics.commit import commit_model, is_done, require_free_model
from streaming_jsmf.topics.fitted import Fitted, word_lists
from streaming_jsmf.topics.infer_stod import fit_tensor_topics
from streaming_jsmf.topics.measure_certificates import rectification_certificates, spectral_certificates
from streaming_jsmf.topics.rectify import announce_cost, rectify
from streaming_jsmf.topics.store import Model, read_model

#: Changes with anything that makes other topics of the same moments and settings.
STOD_ALGORITHM = 2


class _Stopwatch:
    """Wall seconds and peak memory (bytes, of the process so far) of each stage."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages[stage] = {"seconds": round(now - self._last, 3), "peak_memory": peak_memory()}
        self._last = now


@takes(engine=True)
def infer(
    moments: str | Path | StorePath | Moments,
    model: str | Path | StorePath,
    settings: InferSettings | StodSettings | int,
    *,
    partitions: str | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
    **options: Any,
) -> Model:
    """Fit one model from a moments store and write it. No pass over the corpus.

    Eigenpairs, rectification, LAW (LR-JSMF, Algorithm 6 without its scan); with ``StodSettings`` the tensor engine
    instead (``fit_tensor_topics``). ``settings`` may be the number of topics alone; the fields of
    the engine's settings are also keyword arguments, and ``engine`` chooses it. The result does not depend on
    ``threads`` (None: one for each core). With ``partitions`` only those whose label it names (``select_partitions``).

    Raises
    ------
    InputError
        If ``model`` exists, or the scan or the corpus cannot carry K topics.
    StoreError
        If the moments store is incomplete or damaged.
    """
    if isinstance(settings, int):
        settings = engine_settings_of(settings, None, options)
    else:
        settings = engine_settings_of(0, settings, options)
    target = store_path(model, "a model")
    require_free_model(target, overwrite)
    opened = moments if isinstance(moments, Moments) else open_moments(store_path(moments, "a moments store"))
    if partitions is not None:
        opened = select_partitions(opened, partitions)
    known = model_fingerprint(opened, settings)
    with sole_writer(target) as committed:
        if is_done(target, committed, known, overwrite=overwrite):
            return read_model(target)
        announce_cost(len(opened.words), settings, threads)
        fitted = fit_moments(opened, settings, threads=threads, listener=listener)
        commit_model(target, fitted, overwrite=overwrite)
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
    # Many BLAS threads change the bits of every product; our own threads take fixed blocks instead.
    with single_blas_thread():
        if isinstance(settings, StodSettings):
            fitted = fit_tensor_topics(moments, settings, workers, watch.lap, listener)
        else:
            fitted = _fit_anchor_word_topics(moments, settings, workers, watch.lap, listener)
    return Model(fitted.arrays, settings.fields(), fitted.metrics, _provenance(moments, settings, watch))


def _provenance(
    moments: Moments, settings: InferSettings | StodSettings, watch: _Stopwatch
) -> dict[str, Any]:
    return {
        "engine": settings.engine,
        "moments": location(moments.path),
        "fingerprint": model_fingerprint(moments, settings),
        "corpus_fingerprints": [entry.fingerprint for entry in moments.store.manifest.corpora],
        "tokens": moments.store.manifest.tokens,
        "scan_settings": moments.store.manifest.settings,
        "settings_fingerprint": moments.store.manifest.range_key,
        "partitions": moments.partitions if isinstance(moments, SelectedMoments) else None,
        "versions": package_versions(),
        "stages": watch.stages,
    }


def model_fingerprint(moments: Moments, settings: InferSettings | StodSettings) -> str:
    """sha256 over the moments' values and the settings: equal fingerprints mean equal models."""
    stod = isinstance(settings, StodSettings)
    fields = {"moments": moments.digests(third_moment=stod), "settings": settings.fields()}
    return fingerprint({**fields, "algorithm": STOD_ALGORITHM} if stod else fields)


def _fit_anchor_word_topics(
    moments: Moments, settings: InferSettings, threads: int, lap: Callable[[str], None], listener: Listener
) -> Fitted:
    """What LR-JSMF makes of a store; ``lap`` is called with the name of each stage when it is done."""
    # A wrong anchor word is to be found before the rectification, not after it.
    anchor_rules(moments, settings)
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
    return Fitted(arrays, metrics)


def _arrays(
    moments: Moments, pairs: Eigenpairs, rectification: Rectification, topics: AnchorWordTopics
) -> dict[str, Any]:
    lists = word_lists(moments, topics.word_topic, topics.anchors.words)
    return {
        **lists,
        "topic_": lists["topic"],
        "anchors": topics.anchors.words,
        "pivots": topics.anchors.pivots,
        "word_topic": topics.word_topic,
        "topic_given_word": topics.topic_given_word,
        "topic_topic": topics.topic_topic,
        "topic_probability": topics.topic_probability,
        "eigenvalues": pairs.values[: topics.anchors.words.size],
        "rectified": rectification.rectified,
        "row_sum": moments.row_sum,
        "rectified_row_sum": topics.rectified_row_sum,
        **_cliques(topics.anchors),
    }


def _cliques(anchors: Anchors) -> dict[str, Any]:
    if not anchors.clique_weights.size:
        return {}
    return {"cliques": anchors.cliques, "clique_weight": anchors.clique_weights}


def _metrics(
    moments: Moments, settings: InferSettings, rectification: Rectification, topics: AnchorWordTopics
) -> dict[str, Any]:
    """Certificates of the result; ``evaluate`` adds the metrics of the papers."""
    return {
        "n_documents": moments.n_documents,
        "anchor_min_df": settings.anchor_floor(moments.n_documents),
        "anchor_shrinkage": settings.shrinkage(moments.n_documents),
        "topic_topic_sum": float(topics.topic_topic.sum()),
        "topic_topic_gap": topics.correlation_gap,
        "reconstruction_error": reconstruction_error(
            topics.word_topic, topics.topic_topic, rectification.rectified
        ),
        "largest_simplex_gap": topics.largest_gap,
        "words_without_mass": topics.words_without_mass,
        "rectification": rectification_certificates(rectification),
    }
