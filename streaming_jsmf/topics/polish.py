"""Polish: from a model and a corpus to the same topics, improved by a few passes over the documents."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from streaming_jsmf.config import PolishSettings, fingerprint, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.display import location
from streaming_jsmf.inference.words import label_words, prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import PartialResult
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import peak_memory
from streaming_jsmf.storage.lock import sole_writer, work_place
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.storage.provenance import package_versions
from streaming_jsmf.topics.parameters import Floats, TopicParameters
from streaming_jsmf.topics.polish_passes import PolishRequest, polish_topics
from streaming_jsmf.topics.store import (
    AnyModel,
    Model,
    commit_model,
    has_fingerprint,
    is_done,
    model_path,
    read_model,
    require_free_model,
)

#: Names of the values in ``polish_topics``' ``watched``.
WATCHED = ("step", "perplexity", "unigram_perplexity", "documents")


@takes(PolishSettings, Execution)
def polish(
    model: AnyModel,
    corpus: str | Path | Corpus,
    out: str | Path | StorePath,
    settings: PolishSettings | None = None,
    *,
    execution: Execution | None = None,
    overwrite: bool = False,
    listener: Listener = silent,
    **options: Any,
) -> Model:
    """Improve the topics of a model of any engine by a few passes over the documents, and write them to ``out``.

    Each step is CVB0 (Asuncion et al. 2009) within the documents, given the topics of the previous step and the prior
    of the model, which is kept. Anchors and topic correlations are those of the start; correlations by the topic shares
    of documents are added. The metrics hold the log-likelihood at each step and the perplexity of documents that no
    step saw.

    One pass over the documents to draw a sample, and one for each of the last five steps. An interrupted run is
    completed by the same call. The result does not depend on ``execution``.

    Parameters
    ----------
    model
        Path or URL of the model to start from.
    corpus
        The training corpus, or another one with some of its words, which are matched as strings.
    out
        Path or URL of the result; ``model`` itself only with ``overwrite``.
    settings
        None: the defaults of ``PolishSettings``. Its fields, and those of ``Execution``, are also keyword arguments.

    Raises
    ------
    InputError
        If ``out`` exists, the corpus has none of the model's words or a bad record, or memory is too small.
    StoreError
        If the model, a shard, or the work of an interrupted run is damaged.

    Examples
    --------
    >>> polish("model", "corpus", "polished", PolishSettings(steps=40, rounds=10))  # doctest: +SKIP
    """
    settings = settings_of("settings", PolishSettings, settings, options) or PolishSettings()
    execution = settings_of("execution", Execution, execution, options)
    target = store_path(out, "a model")
    require_free_model(target, overwrite)
    source = model_path(model)
    opened = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    with sole_writer(target) as committed:
        start = read_model(source)
        wanted = polished_fingerprint(_start_fingerprint(start, target, committed), opened, settings)
        if is_done(target, committed, wanted, overwrite=overwrite):
            return read_model(target)
        polished = polish_model(start, str(source), opened, target, settings, execution, listener)
        commit_model(target, polished, overwrite=overwrite, work=True)
    return polished


def _start_fingerprint(model: Model, target: StorePath, committed: str) -> str:
    """The fingerprint of the model before polish, which a killed run may have replaced already."""
    start = model.provenance.get("start")
    if start is None or committed != model.fingerprint or not has_fingerprint(target, model.fingerprint):
        return model.fingerprint
    return str(start["fingerprint"])


def polish_model(
    start: Model,
    name: str,
    corpus: Corpus,
    target: StorePath,
    settings: PolishSettings,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> Model:
    """``polish`` for a model in memory called ``name``; writes only the work beside ``target``, whose lock is held."""
    began, topics = time.perf_counter(), TopicParameters.of(start)
    scan_settings = start.provenance.get("scan_settings") or {}
    request = PolishRequest(topics, corpus, settings, scan_settings.get("partition_nonzeros"))
    with single_blas_thread():
        found = polish_topics(request, work_place(target), execution, listener)
    stage = {"seconds": round(time.perf_counter() - began, 3), "peak_memory": peak_memory()}
    watched = found.arrays["watched"].tolist()
    metrics = {
        "start": name,
        "steps": [asdict(step) for step in request.steps],
        "n_documents": _n_documents(found),
        "log_likelihood": found.arrays["log_likelihood"].tolist(),
        "perplexity": [dict(zip(WATCHED, row, strict=False)) for row in watched if len(row) > 1],
    }
    return Model(
        _arrays(start, topics.prior, found),
        {**start.settings, "polish": settings.fields()},
        {**start.metrics, "polish": metrics},
        {
            **start.provenance,
            "fingerprint": polished_fingerprint(start.fingerprint, corpus, settings),
            "start": {"path": location(name), "fingerprint": start.fingerprint},
            "polish_corpus": {"path": corpus.location, "fingerprint": corpus.fingerprint},
            "versions": package_versions(),
            "stages": {**start.provenance.get("stages", {}), "polish": stage},
        },
    )


def polished_fingerprint(start: str, corpus: Corpus, settings: PolishSettings) -> str:
    """sha256 of what determines a polished model: the fingerprint of its start, the corpus and the settings."""
    return fingerprint({"start": start, "corpus": corpus.fingerprint, "polish": settings.fields()})


def _n_documents(found: PartialResult) -> int:
    return max(int(found.scalars["n_documents"]), 1)


def _arrays(start: Model, prior: Floats, found: PartialResult) -> dict[str, NDArray[Any]]:
    """The arrays of the start, with those that depend on the topics replaced."""
    arrays, word_topic = dict(start.arrays), found.arrays["word_topic"]
    topic_probability = found.arrays["shares"] / _n_documents(found)
    prominent = prominent_words(word_topic, arrays["prominent_words"].shape[1])
    arrays |= {
        "word_topic": word_topic,
        "topic_probability": topic_probability,
        "alpha": prior,
        "topic_topic_of_documents": found.arrays["pairs"] / _n_documents(found),
        "topic_": arrays["topic"],
        "prominent_words": prominent,
        "label_words": label_words(prominent, arrays["characteristic_words"], arrays["label_words"].shape[1]),
    }
    if "topic_given_word" in arrays:
        joint = word_topic * topic_probability
        arrays["topic_given_word"] = joint / joint.sum(axis=1, keepdims=True)
    return arrays
