"""Fit: from a source or corpus to models, with one scan for all numbers of topics."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streaming_jsmf.config import (
    ENGINE_SETTINGS,
    INGEST_SETTINGS,
    InferSettings,
    IngestRequest,
    PolishSettings,
    ScanSettings,
    StodSettings,
    engine_settings_of,
    request_of,
    settings_of,
    takes,
)
from streaming_jsmf.corpus.format import Corpus, is_corpus, open_corpus, read_manifest
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.storage.paths import StorePath, exists, local_path, node_exists, store_path
from streaming_jsmf.storage.results import Found, Wanted
from streaming_jsmf.topics.anchor_words import require_feasible
from streaming_jsmf.topics.infer import fit_moments, model_fingerprint
from streaming_jsmf.topics.polish import polish_model, polished_fingerprint
from streaming_jsmf.topics.rectify import announce_cost
from streaming_jsmf.topics.store import (
    EDITS,
    model_targets,
    read_model,
    request_of_model,
    wanted_model,
    write_model,
)

logger = logging.getLogger(__name__)

#: Default number of topics.
DEFAULT_TOPICS = 20


@dataclass(frozen=True)
class Fitted:
    """Result of ``fit``: the moments store, the models in the order of the topics, and the root of the corpus."""

    moments: StorePath
    models: tuple[StorePath, ...]
    corpus: str


def beside(model: StorePath, kind: str) -> StorePath:
    """Default path of the ``moments`` or the ``corpus`` of a model."""
    return model.with_name(f"{model.name}.{kind}")


#: Declares the keyword arguments of ``fit``.
fit_options = partial(
    takes,
    *INGEST_SETTINGS,
    ScanSettings,
    PolishSettings,
    *ENGINE_SETTINGS,
    Execution,
    without=("max_topics", "third_moment"),
)


@fit_options()
def fit(
    source: Any,
    path: str | Path | None = None,
    n_topics: int | Sequence[int] | None = None,
    *,
    ingest_request: IngestRequest | None = None,
    scan_settings: ScanSettings | None = None,
    infer_settings: InferSettings | StodSettings | None = None,
    polish: bool | PolishSettings | None = None,
    moments: str | Path | None = None,
    execution: Execution | None = None,
    overwrite: bool | Literal["auto"] = False,
    listener: Listener = silent,
    **options: Any,
) -> Fitted:
    """Ingest the source unless it is a corpus, scan it for the largest K, and fit and polish a model for each K.

    ``streaming_jsmf.fit`` documents the arguments and errors, and returns a ``TopicModel``. ``path`` is required here.
    """
    if path is None:
        raise InputError("path is None; give the path of the models")
    if n_topics is None:
        n_topics = DEFAULT_TOPICS if infer_settings is None else infer_settings.n_topics
    topics = numbers_of_topics(n_topics)
    base = engine_settings_of(topics[0], infer_settings, options, name="infer_settings", shared=("seed",))
    scan_settings = settings_of("scan_settings", ScanSettings, scan_settings, options)
    polish_settings = _polish_settings(polish, base, options)
    execution = settings_of("execution", Execution, execution, options)
    target = store_path(path, "a model")
    place = beside(target, "moments") if moments is None else store_path(moments, "a moments store")
    if overwrite not in (True, False, "auto"):
        raise InputError(f"overwrite is {overwrite!r}; give True, False or 'auto'")
    targets = model_targets(target, topics)
    if overwrite == "auto":
        overwrite = _replaceable(target, targets.values(), place)
    wanted: dict[int, InferSettings | StodSettings] = {k: replace(base, n_topics=k) for k in topics}
    request = request_of(ingest_request, options)
    corpus = _corpus(source, target, request, execution, listener, bool(overwrite))
    for k, model_target in targets.items():
        _require_same(model_target, wanted[k], polish_settings, corpus, overwrite=bool(overwrite))
    require_feasible(corpus, max(topics), base, exact=scan_settings.exact)
    announce_cost(corpus.n_words, wanted[max(topics)], execution.threads_here)
    third_moment = scan_settings.third_moment or isinstance(base, StodSettings)
    scan_settings = replace(scan_settings, max_topics=max(topics), third_moment=third_moment)
    replacing = bool(overwrite) and moments is None
    store = scan(corpus, place, scan_settings, execution, listener, overwrite=replacing)
    for k, model_target in targets.items():
        made_by = model_fingerprint(store, wanted[k])
        if polish_settings is not None:
            made_by = polished_fingerprint(made_by, corpus, polish_settings)
        request_of_k = request_of_model(made_by, _described(wanted[k], polish_settings))
        with wanted_model(model_target, request_of_k, overwrite=bool(overwrite)).writing() as found:
            if found is Found.MADE:
                continue
            model = fit_moments(store, wanted[k], threads=execution.threads_here, listener=listener)
            if polish_settings is not None:
                name = str(store.path)
                model = polish_model(model, name, corpus, model_target, polish_settings, execution, listener)
            write_model(model_target, model)
    return Fitted(store.path, tuple(targets.values()), corpus.root)


def _require_same(
    target: StorePath,
    settings: InferSettings | StodSettings,
    polish: PolishSettings | None,
    corpus: Corpus,
    *,
    overwrite: bool,
) -> None:
    """Refuse a model of another corpus or with other settings before the scan, which determines the full request."""
    if overwrite or not node_exists(target):
        return
    asked = {"corpus": corpus.fingerprint, **_described(settings, polish)}

    def stored() -> dict[str, Any]:
        model = read_model(target, ())
        corpora = model.provenance.get("corpus_fingerprints") or [""]
        return {"corpus": corpora[0], **model.settings}

    # Whether the model is intact is not asked yet.
    Wanted(target, asked, stored, lambda: False).find()


def _described(settings: InferSettings | StodSettings, polish: PolishSettings | None) -> dict[str, Any]:
    """The settings as a model stores them."""
    return {**settings.fields(), **({} if polish is None else {"polish": polish.fields()})}


def _replaceable(target: StorePath, models: Iterable[StorePath], moments: StorePath) -> bool:
    """Whether what exists may be replaced: not models whose topics were edited since.

    Raises ``InputError`` if ``fit`` did not make it with this path.
    """
    existing = [path for path in models if node_exists(path)]
    made = {path: read_model(path, ()).provenance.get("moments") == location(moments) for path in existing}
    corpus = beside(target, "corpus")
    if exists(str(corpus)):
        made[corpus] = read_manifest(str(corpus)).settings.get("made_for") == "fit"
    for path, by_fit in made.items():
        if not by_fit:
            raise InputError(
                f"{path}: not made by fit with this path; give another path, or {option.overwrite(True)} to replace it"
            )
    return not any(node_exists(path / EDITS) for path in existing)


def numbers_of_topics(given: int | Sequence[int]) -> tuple[int, ...]:
    """One number of topics or several; raise ``InputError`` if they are not integers, of Python or NumPy."""
    found = np.atleast_1d(np.asarray(given))
    if found.ndim > 1 or not np.issubdtype(found.dtype, np.integer):
        raise InputError(f"{option.n_topics} is {given!r}; give a whole number, or several")
    return tuple(found.tolist())


def _polish_settings(
    given: bool | PolishSettings | None, engine: InferSettings | StodSettings, options: dict[str, Any]
) -> PolishSettings | None:
    """Settings of polish, or None for no polish; by default only LR-JSMF models are polished."""
    if given is False or (given is None and isinstance(engine, StodSettings)):
        return None
    settings = None if isinstance(given, bool) else given
    return settings_of("polish", PolishSettings, settings, options)


def _corpus(
    source: Any,
    model: StorePath,
    request: IngestRequest | None,
    execution: Execution | None,
    listener: Listener,
    overwrite: bool,
) -> Corpus:
    """The corpus; a source that is not a corpus is ingested next to the model."""
    if isinstance(source, str | os.PathLike) and is_corpus(source):
        if request not in (None, IngestRequest()):
            raise InputError(
                f"{source} is already a corpus; leave out the options of ingest, or give the source of the corpus"
            )
        return open_corpus(source)
    # Importing the readers takes a quarter of the start-up time, and a corpus does not need them.
    from streaming_jsmf.ingestion.ingest import ingest

    target = local_path(beside(model, "corpus"), "the corpus of a source, made beside the model,")
    request = replace(request or IngestRequest(), made_for="fit")
    # The ingest starts its own cluster, which needs its own report.
    own = execution and execution.reporting_on("ingest")
    found = ingest(source, target, request, own, listener, overwrite=overwrite)
    logger.info("%s: the corpus of the source, which later runs reuse", target)
    return found
