"""Model and corpus -> the same topics, finished by a few passes over the documents."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf.config import PolishSettings, fingerprint, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.display import location
from streaming_jsmf.inference.perplexity import Completer
from streaming_jsmf.inference.words import label_words, prominent_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.jobs.memory import peak_memory
from streaming_jsmf.storage.lock import sole_writer, work_place
from streaming_jsmf.storage.paths import StorePath, store_path
from streaming_jsmf.storage.provenance import package_versions
from streaming_jsmf.topics.commit import commit_model, has_fingerprint, is_done, require_free_model
from streaming_jsmf.topics.given_topics import given_topics
from streaming_jsmf.topics.parameters import GivenTopics
from streaming_jsmf.topics.polish_passes import PolishedTopics, PolishRequest, Watch, polish_topics
from streaming_jsmf.topics.store import AnyModel, Model, model_path, read_model


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
    """Finish the topics of a model, of any engine, by a few passes over the documents, and write them to ``out``.

    Each step is CVB0 (Asuncion et al. 2009) within the documents, given the topics of the step before and the prior of
    the model, which stays. ``out`` is a model like any other: anchors and topic correlations are those of the start,
    and correlations by the shares of the documents stand beside them. Its metrics tell the log-likelihood at each step
    and the perplexity of documents that no step saw.

    One pass over the documents to draw a sample, one for each of the last five steps. An interrupted run is finished
    by the same call. The result does not depend on ``execution``.

    Parameters
    ----------
    model
        Path or URL of the model to start from.
    corpus
        The training corpus, or any other with some of its words, which are matched by string.
    out
        Path or URL of the result; not ``model`` itself unless with ``overwrite``.
    settings
        None: the defaults of ``PolishSettings``. Its fields, and those of ``Execution``, are also keyword arguments.

    Raises
    ------
    InputError
        If ``out`` exists, the corpus has none of the model's words or holds a bad record, or memory is too small.
    StoreError
        If the model, a shard, or what an interrupted run left is damaged.

    Examples
    --------
    >>> polish("model", "corpus", "polished", PolishSettings(steps=40, rounds=10))  # doctest: +SKIP
    """
    settings = settings_of("settings", PolishSettings, settings, options) or PolishSettings()
    execution = settings_of("execution", Execution, execution, options)
    target = store_path(out, "a model")
    require_free_model(target, overwrite)
    place = model_path(model)
    opened = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    with sole_writer(target) as committed:
        start = read_model(place)
        known = polished_fingerprint(_start_of(start, target, committed), opened, settings)
        if is_done(target, committed, known, overwrite=overwrite):
            return read_model(target)
        polished = polish_model(start, str(place), opened, target, settings, execution, listener)
        commit_model(target, polished, overwrite=overwrite, work=True)
    return polished


def _start_of(model: Model, target: StorePath, committed: str) -> str:
    """Fingerprint of the topics to start from: of those before, where a killed run has put its own in their place."""
    own, start = str(model.provenance["fingerprint"]), model.provenance.get("start")
    if start is None or committed != own or not has_fingerprint(target, own):
        return own
    return str(start["fingerprint"])


def polish_model(
    start: Model,
    name: str,
    corpus: Corpus,
    target: StorePath,
    settings: PolishSettings | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
) -> Model:
    """``polish`` for a model in memory called ``name``; nothing is written but the work beside ``target``.

    The caller holds the lock of ``target``.
    """
    settings = settings or PolishSettings()
    began, given = time.perf_counter(), given_topics(start)
    known = start.provenance.get("scan_settings") or {}
    request = PolishRequest(given, corpus, settings, known.get("partition_nonzeros"))
    with single_blas_thread():
        found = polish_topics(request, work_place(target), execution, listener, _perplexity(given))
    stage = {"seconds": round(time.perf_counter() - began, 3), "peak_memory": peak_memory()}
    metrics = {
        "start": name,
        "steps": [asdict(step) for step in request.steps],
        "n_documents": found.n_documents,
        "log_likelihood": list(found.log_likelihood),
        "perplexity": [
            dict(zip(WATCHED, row, strict=False)) for row in found.watched.tolist() if len(row) > 1
        ],
    }
    return Model(
        _arrays(start, given, found),
        {**start.settings, "polish": settings.fields()},
        {**start.metrics, "polish": metrics},
        {
            **start.provenance,
            "fingerprint": polished_fingerprint(str(start.provenance["fingerprint"]), corpus, settings),
            "start": {"path": location(name), "fingerprint": start.provenance["fingerprint"]},
            "polish_corpus": {"path": corpus.location, "fingerprint": corpus.fingerprint},
            "versions": package_versions(),
            "stages": {**start.provenance.get("stages", {}), "polish": stage},
        },
    )


def polished_fingerprint(start: str, corpus: Corpus, settings: PolishSettings) -> str:
    """sha256 of what decides a polished model: the fingerprint of its start, the documents, the settings."""
    return fingerprint({"start": start, "corpus": corpus.fingerprint, "polish": settings.fields()})


#: What is told of the documents held out, at each look.
WATCHED = ("step", "perplexity", "unigram_perplexity", "documents")


def _perplexity(given: GivenTopics) -> Watch:
    """Completes the documents held out by the topics of the moment; nothing is told where there are none."""

    def watch(word_topic: NDArray[np.float64], held_out: csr_array[Any]) -> Sequence[float]:
        # Fractions have no tokens to predict.
        if not held_out.nnz or not np.array_equal(np.rint(held_out.data), held_out.data):
            return ()
        done = Completer.of(word_topic, given.prior, given.term_count).complete(held_out, method="cvb0")
        return (done.perplexity, done.unigram_perplexity, done.documents) if done.tokens else ()

    return watch


def _arrays(start: Model, given: GivenTopics, found: PolishedTopics) -> dict[str, NDArray[Any]]:
    """The arrays of the start with those that follow from the topics made anew."""
    arrays = dict(start.arrays)
    listed = arrays["prominent_words"].shape[1]
    prominent = prominent_words(found.word_topic, listed)
    arrays |= {
        "word_topic": found.word_topic,
        "topic_probability": found.topic_probability,
        "alpha": given.prior,
        "topic_topic_of_documents": found.topic_topic,
        "topic_": arrays["topic"],
        "prominent_words": prominent,
        "label_words": label_words(prominent, arrays["characteristic_words"], arrays["label_words"].shape[1]),
    }
    if "topic_given_word" in arrays:
        joint = found.word_topic * found.topic_probability
        arrays["topic_given_word"] = joint / joint.sum(axis=1, keepdims=True)
    return arrays
