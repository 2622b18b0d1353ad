"""Corpus -> models, in one call: one scan serves every number of topics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streaming_jsmf.config import InferSettings, PolishSettings, ScanSettings, StodSettings
from streaming_jsmf.corpus.format import Corpus, open_corpus, read_manifest
from streaming_jsmf.errors import InputError
from streaming_jsmf.ingestion import load_spec
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.model.store import write_model
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.storage.paths import StorePath, local_path, remove_tree, store_path
from streaming_jsmf.workflow.infer import fit_moments, model_fingerprint
from streaming_jsmf.workflow.ingest import ingest
from streaming_jsmf.workflow.polish import polish_model, polished_fingerprint, work_beside
from streaming_jsmf.workflow.scan import scan
from streaming_jsmf.workflow.several import is_made, targets_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """What ``fit`` wrote: the moments store, and the models in the order of the topics asked for."""

    moments: StorePath
    models: tuple[StorePath, ...]


def moments_beside(model: str | Path | StorePath) -> StorePath:
    """Where ``fit`` puts the moments of a model unless told otherwise."""
    path = store_path(model, "a model")
    return path.with_name(path.name + ".moments")


def corpus_beside(model: str | Path | StorePath) -> StorePath:
    """Where ``fit`` puts the corpus that it makes of a spec."""
    path = store_path(model, "a model")
    return path.with_name(path.name + ".corpus")


def fit(
    corpus: str | Path,
    model: str | Path,
    topics: Sequence[int],
    *,
    scan_settings: ScanSettings | None = None,
    infer_settings: InferSettings | StodSettings | None = None,
    polish: bool | PolishSettings | None = None,
    moments: str | Path | None = None,
    execution: Execution | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
) -> Fitted:
    """Scan the corpus once for the largest K, then fit a model for each.

    One K writes ``model`` itself; several write ``model/k=5``, ``model/k=10``, ... An interrupted run is
    finished by the same call: the scan resumes, and of several models those that are there with the same
    fingerprint are kept.

    Parameters
    ----------
    corpus
        Path or URL; or a spec (``.toml``), which is ingested to ``model`` with ``.corpus`` appended unless that is
        there already.
    model
        Where to write: a path or URL.
    topics
        Numbers of topics, at least one.
    scan_settings, infer_settings
        Everything but the numbers of topics, which ``topics`` decides. With ``StodSettings`` the tensor engine, for
        which the scan gets the third moment.
    polish
        Whether, or how, the topics are finished by passes over the documents. None: those of LR-JSMF are, those of the
        tensor engine are not, which steps over the documents do not always make better.
    moments
        Where the moments store is or goes; None: ``model`` with ``.moments`` appended. A store that was made
        for more topics and with the same other settings is used as it is.
    execution, threads
        How the scan and the inference run; they change no bit.
    overwrite
        Replace models that exist.

    Raises
    ------
    InputError, StoreError
        See ``ingest``, ``scan`` and ``infer``; before any work if a model exists or ``topics`` is empty.
    """
    target = store_path(model, "a model")
    place = moments_beside(target) if moments is None else store_path(moments, "a moments store")
    targets = targets_of(target, topics, overwrite)
    base = infer_settings or InferSettings(topics[0])
    wanted: dict[int, InferSettings | StodSettings] = {k: replace(base, n_topics=k) for k in topics}
    settings = replace(scan_settings or ScanSettings(), max_topics=max(topics))
    if isinstance(base, StodSettings):
        settings = replace(settings, third_moment=True)
    polish_settings = _polish_settings(polish, base)
    documents = open_corpus(_ingested(corpus, target, execution, listener))
    store = scan(documents, place, settings, execution, listener)
    for k, path in targets.items():
        known = _fingerprint(store, wanted[k], documents, polish_settings)
        if is_made(path, known, overwrite):
            continue
        fitted = fit_moments(store, wanted[k], threads=threads, listener=listener)
        if polish_settings is not None:
            name = str(store.path)
            fitted = polish_model(fitted, name, documents, path, polish_settings, execution, listener)
        write_model(path, fitted, overwrite=overwrite)
        remove_tree(work_beside(path), ignore_errors=True)
    return Fitted(store.path, tuple(targets.values()))


def _polish_settings(
    asked: bool | PolishSettings | None, engine: InferSettings | StodSettings
) -> PolishSettings | None:
    if isinstance(asked, PolishSettings):
        return asked
    wanted = isinstance(engine, InferSettings) if asked is None else asked
    return PolishSettings() if wanted else None


def _ingested(
    corpus: str | Path, model: StorePath, execution: Execution | None, listener: Listener
) -> str | Path:
    """The corpus itself, or that of the spec, made now if it is not there."""
    if not str(corpus).lower().endswith(".toml"):
        return corpus
    path = local_path(corpus_beside(model), "the corpus of a spec, made beside the model,")
    if not path.exists():
        # A cluster of its own, so a report of its own.
        own = execution and execution.reporting_on("ingest")
        ingest(corpus, path, execution=own, listener=listener)
        return path
    wanted, found = load_spec(corpus).name, read_manifest(path).source.get("name")
    if found != wanted:
        raise InputError(
            f"{path} is the corpus of {found!r}, not of {wanted!r}; remove it or choose another model"
        )
    logger.info("%s: made by an earlier run and used as it is", path)
    return path


def _fingerprint(
    moments: Moments,
    settings: InferSettings | StodSettings,
    corpus: Corpus,
    polish_settings: PolishSettings | None,
) -> str:
    start = model_fingerprint(moments, settings)
    return start if polish_settings is None else polished_fingerprint(start, corpus, polish_settings)
