"""Source or corpus -> models, in one call: one scan serves every number of topics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streaming_jsmf.config import (
    InferSettings,
    IngestRequest,
    PolishSettings,
    ScanSettings,
    StodSettings,
    require_kind,
)
from streaming_jsmf.corpus.format import Corpus, open_corpus
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion.ensure_corpus import corpus_of, is_corpus
from streaming_jsmf.ingestion.spool import at_hand
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.moments.scan_verb import scan
from streaming_jsmf.storage.lock import sole_writer
from streaming_jsmf.storage.paths import StorePath, local_path, store_path
from streaming_jsmf.storage.replace import remove_store
from streaming_jsmf.topics.anchored_topics import given_anchors
from streaming_jsmf.topics.commit import commit_model, is_done
from streaming_jsmf.topics.infer import fit_moments, model_fingerprint
from streaming_jsmf.topics.multi_k import targets_of
from streaming_jsmf.topics.polish import polish_model, polished_fingerprint
from streaming_jsmf.topics.rectify import announce_cost

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """What ``fit`` wrote, and of which corpus: the moments store, and the models in the order of the topics."""

    moments: StorePath
    models: tuple[StorePath, ...]
    corpus: str


def moments_beside(model: str | Path | StorePath) -> StorePath:
    """Where ``fit`` puts the moments of a model unless told otherwise."""
    path = store_path(model, "a model")
    return path.with_name(path.name + ".moments")


def corpus_beside(model: str | Path | StorePath) -> StorePath:
    """Where ``fit`` puts the corpus that it makes of a source."""
    path = store_path(model, "a model")
    return path.with_name(path.name + ".corpus")


def fit(
    corpus: Any,
    model: str | Path,
    topics: Sequence[int],
    *,
    ingest_request: IngestRequest | None = None,
    scan_settings: ScanSettings | None = None,
    infer_settings: InferSettings | StodSettings | None = None,
    polish: bool | PolishSettings | None = None,
    moments: str | Path | None = None,
    execution: Execution | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> Fitted:
    """Make a corpus of the source if it is none, scan it once for the largest K, then fit a model for each.

    What ``streaming_jsmf.fit`` and the command line call; arguments and errors are told there (``topic_model.fit``).
    ``topics`` are one number or more: one writes ``model`` itself, several ``model/k=5``, ``model/k=10``, ...
    """
    require_kind("ingest_request", ingest_request, IngestRequest)
    require_kind("scan_settings", scan_settings, ScanSettings)
    require_kind("infer_settings", infer_settings, InferSettings, StodSettings)
    require_kind("polish", polish, bool, PolishSettings)
    require_kind("execution", execution, Execution)
    target = store_path(model, "a model")
    place = moments_beside(target) if moments is None else store_path(moments, "a moments store")
    targets = targets_of(target, topics, overwrite)
    base = infer_settings or InferSettings(topics[0])
    wanted: dict[int, InferSettings | StodSettings] = {k: replace(base, n_topics=k) for k in topics}
    settings = replace(scan_settings or ScanSettings(), max_topics=max(topics))
    if isinstance(base, StodSettings):
        settings = replace(settings, third_moment=True)
    polish_settings = _polish_settings(polish, base)
    with at_hand(corpus, Path(str(corpus_beside(target))), ingest_request) as (source, request):
        documents = open_corpus(_corpus(source, target, request, execution, listener, overwrite))
    _refuse_hopeless(documents, max(topics), base, settings)
    announce_cost(documents.n_words, wanted[max(topics)], threads)
    store = scan(documents, place, settings, execution, listener)
    for k, path in targets.items():
        known = _fingerprint(store, wanted[k], documents, polish_settings)
        with sole_writer(path) as committed:
            if is_done(path, committed, known, overwrite=overwrite):
                continue
            fitted = fit_moments(store, wanted[k], threads=threads, listener=listener)
            if polish_settings is not None:
                name = str(store.path)
                fitted = polish_model(fitted, name, documents, path, polish_settings, execution, listener)
            commit_model(path, fitted, overwrite=overwrite, work=polish_settings is not None)
    return Fitted(store.path, tuple(targets.values()), documents.root)


def _polish_settings(
    asked: bool | PolishSettings | None, engine: InferSettings | StodSettings
) -> PolishSettings | None:
    if isinstance(asked, PolishSettings):
        return asked
    wanted = isinstance(engine, InferSettings) if asked is None else asked
    return PolishSettings() if wanted else None


def _corpus(
    source: str | Path,
    model: StorePath,
    request: IngestRequest | None,
    execution: Execution | None,
    listener: Listener,
    overwrite: bool,
) -> str | Path:
    """The corpus itself, or that of the source, beside the model."""
    if is_corpus(source):
        return corpus_of(source, Path(), request, execution, listener)
    beside = local_path(corpus_beside(model), "the corpus of a source, made beside the model,")

    def replacing() -> None:
        remove_store(moments_beside(model), ignore_errors=True)

    found = corpus_of(
        source, beside, request, execution, listener, replacing=replacing if overwrite else None
    )
    logger.info("%s: the corpus of %s, which is used again if it is not removed", beside, source)
    return found


def _refuse_hopeless(
    corpus: Corpus, n_topics: int, engine: InferSettings | StodSettings, scan_settings: ScanSettings
) -> None:
    """Refuse before the scan what would fail after it: too many topics, anchors that cannot be, a method without C."""
    n_documents, n_words = corpus.n_documents, corpus.n_words
    if n_topics > min(n_documents, n_words):
        raise InputError(
            f"--topics is {n_topics:,} and the corpus has {n_documents:,} documents and {n_words:,} words; its "
            f"co-occurrences carry {min(n_documents, n_words):,} topics at most, and far fewer that mean anything"
        )
    if not isinstance(engine, InferSettings):
        return
    vocabulary, least = corpus.vocabulary(), engine.anchor_floor(corpus.n_documents)
    able = int((vocabulary.document_frequency >= least).sum())
    if vocabulary.counted and n_topics > able:
        raise InputError(
            f"--topics is {n_topics:,} and each topic needs an anchor word in at least {least:g} documents, of which "
            f"there are {able:,}; lower --topics or --anchor-min-df"
        )
    counted = vocabulary.document_frequency if vocabulary.counted else None
    given_anchors(engine, vocabulary.words, counted, n_documents, corpus.root)
    if engine.rectify in ("ap", "dykstra", "dc") and not scan_settings.exact:
        raise InputError(
            f"--rectify {engine.rectify} needs the whole co-occurrences; scan with --exact, or use --rectify enn or "
            "palm"
        )


def _fingerprint(
    moments: Moments,
    settings: InferSettings | StodSettings,
    corpus: Corpus,
    polish_settings: PolishSettings | None,
) -> str:
    start = model_fingerprint(moments, settings)
    return start if polish_settings is None else polished_fingerprint(start, corpus, polish_settings)
