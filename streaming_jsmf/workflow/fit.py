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
from streaming_jsmf.jobs.lock import is_left, settle, sole_writer
from streaming_jsmf.model.store import require_free_path
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.moments.store import read_store
from streaming_jsmf.storage.paths import StorePath, is_free, local_path, node_exists, store_path
from streaming_jsmf.workflow.commit_model import commit_model, is_committed, is_made
from streaming_jsmf.workflow.infer import fit_moments, model_fingerprint
from streaming_jsmf.workflow.ingest import ingest
from streaming_jsmf.workflow.polish import polish_model, polished_fingerprint
from streaming_jsmf.workflow.scan import scan

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
    if not topics:
        raise InputError("topics is empty; give at least one number")
    target = store_path(model, "a model")
    place = moments_beside(target) if moments is None else store_path(moments, "a moments store")
    targets = {k: target if len(topics) == 1 else target / f"k={k}" for k in topics}
    base = infer_settings or InferSettings(topics[0])
    wanted: dict[int, InferSettings | StodSettings] = {k: replace(base, n_topics=k) for k in topics}
    _refuse_taken_paths(target, tuple(targets.values()), overwrite)
    settings = replace(scan_settings or ScanSettings(), max_topics=max(topics))
    if isinstance(base, StodSettings):
        settings = replace(settings, third_moment=True)
    polish_settings = _polish_settings(polish, base)
    documents = open_corpus(_ingested(corpus, target, execution, listener))
    store = scan(documents, place, _serving(place, settings), execution, listener)
    for k, path in targets.items():
        known = _fingerprint(store, wanted[k], documents, polish_settings)
        if not overwrite and len(topics) > 1 and is_made(path, known):
            settle(path)
            continue
        with sole_writer(path) as committed:
            if is_committed(path, committed, known, overwrite=overwrite):
                continue
            fitted = fit_moments(store, wanted[k], threads=threads, listener=listener)
            if polish_settings is not None:
                name = str(store.path)
                fitted = polish_model(fitted, name, documents, path, polish_settings, execution, listener)
            commit_model(path, fitted, overwrite=overwrite, work=polish_settings is not None)
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
    if not path.exists() or is_left(path):
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


def _refuse_taken_paths(model: StorePath, targets: tuple[StorePath, ...], overwrite: bool) -> None:
    """Refuse before the scan what cannot end well; of several models some may be there from an earlier run."""
    if len(targets) > 1 and node_exists(model):
        raise InputError(f"{model}: is a store itself; several models need a directory of their own")
    if not any(is_free(path) or is_left(path) for path in targets):
        for path in targets:
            require_free_path(path, overwrite)


def _serving(path: StorePath, wanted: ScanSettings) -> ScanSettings:
    """The settings of the store at ``path`` if they differ by a larger ``max_topics`` only, else those wanted.

    A third moment is added where it is wanted, and harms nobody where it is there.
    """
    if not node_exists(path):
        return wanted
    stored = replace(read_store(path).settings, third_moment=wanted.third_moment)
    if stored.max_topics <= wanted.max_topics or replace(stored, max_topics=wanted.max_topics) != wanted:
        return wanted
    logger.info("%s: this scan carries up to %d topics and is used as it is", path, stored.max_topics)
    return stored


def _fingerprint(
    moments: Moments,
    settings: InferSettings | StodSettings,
    corpus: Corpus,
    polish_settings: PolishSettings | None,
) -> str:
    start = model_fingerprint(moments, settings)
    return start if polish_settings is None else polished_fingerprint(start, corpus, polish_settings)
