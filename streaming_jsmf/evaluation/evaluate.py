"""Evaluate a model: metrics, with a reason for each missing one, certificates and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import EvaluationRequest, InferSettings, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.corpus.vocabulary import word_ids
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError, StreamingJSMFError, option
from streaming_jsmf.evaluation.counts import (
    counts_of,
    is_training_corpus,
    read_training_counts,
    representatives,
)
from streaming_jsmf.evaluation.inputs import Cooccurrence, SelectedCounts, TopicArrays
from streaming_jsmf.evaluation.metrics import Unavailable, evaluate_topics, title_of
from streaming_jsmf.evaluation.verdicts import (
    doubt,
    doubts_about,
    perplexity_warnings,
    warnings_of,
)
from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.inference.words import characteristic_words, frex_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.moments.select import SelectedMoments, resampled, select_partitions
from streaming_jsmf.moments.store import Moments, open_moments
from streaming_jsmf.simulation.truth import read_truth
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.edits import EditedTopics, read_edits
from streaming_jsmf.topics.infer import fit_moments
from streaming_jsmf.topics.parameters import missing_parameter
from streaming_jsmf.topics.store import AnyModel, Model, model_path, read_model

#: Version of the result of ``evaluate``, whose schema is ``docs/schemas/evaluate.schema.json``.
FORMAT_VERSION = 1
#: Default number of words of each topic in the result.
LISTED_WORDS = 10


#: Arrays of every engine, and those of some engines.
NEEDED = ("word", "word_topic", "prominent_words", "topic_probability")
OPTIONAL: tuple[str, ...] = ("alpha", "anchors", "characteristic_words", "document_frequency", "label_words")
OPTIONAL += ("rectified", "row_sum", "shown_word", "term_count", "topic_topic")


@takes(EvaluationRequest, Execution)
def evaluate(
    model: AnyModel,
    request: EvaluationRequest | str | Path | Corpus | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a model of any engine. Makes one pass over a corpus that was not counted before, otherwise none.

    Counts and perplexity are stored with the model, so later calls need no scan; without a corpus those of the
    training corpus are used. ``request`` may be a corpus; its fields, and those of ``Execution``, are also keyword
    arguments. The result does not depend on ``execution``.

    Returns JSON values (``docs/schemas/evaluate.schema.json``): ``metrics`` by name, ``missing`` with a reason for
    each that is null, ``certificates`` and ``warnings`` of the model, ``topics``.

    Raises ``InputError`` if there is no model, or an input does not match it: moments of other words, a corpus without
    any of its words, a missing truth or one of other words; ``StoreError`` if the model, its counts, the corpus or
    given moments are damaged.
    """
    if isinstance(request, str | Path | Corpus):
        request = EvaluationRequest(request)
    path = model_path(model)
    wanted = settings_of("request", EvaluationRequest, request, options)
    execution = settings_of("execution", Execution, execution, options)
    topics = read_model(path, NEEDED, OPTIONAL)
    inputs, reasons = _gather(path, topics, wanted, execution, listener)
    with single_blas_thread():
        metrics, missing = evaluate_topics(topic_arrays(topics), reasons=reasons, **inputs)
    counts, moments = inputs.get("counts"), inputs.get("moments")
    n_words, n_topics = topics.arrays["word_topic"].shape
    shown = EditedTopics(path, topics, read_edits(path, topics).apart)
    doubts = doubts_about(shown, (metrics.get("npmi") or {}).get("per_topic"))
    return {
        "format_version": FORMAT_VERSION,
        "model": location(path),
        "engine": str(topics.provenance.get("engine", "unknown")),
        "n_topics": int(n_topics),
        "n_words": int(n_words),
        "moments": None if moments is None else str(moments.path),
        "corpus": counts
        and {
            **counts.corpus,
            "n_documents_counted": counts.n_documents,
            "training": is_training_corpus(topics, counts),
        },
        "truth": None if wanted.truth is None else str(wanted.truth),
        "metrics": metrics,
        "missing": missing,
        "certificates": dict(topics.metrics),
        "warnings": [
            *warnings_of(topics.metrics, int(n_topics)),
            *_moments_warnings(missing, reasons.get("cooccurrence")),
            *perplexity_warnings(inputs.get("completion")),
            *(doubt(topic, shown.names[topic], reasons) for topic, reasons in enumerate(doubts) if reasons),
        ],
        "topics": _topic_rows(shown, counts, metrics, wanted.words or LISTED_WORDS),
    }


def _gather(
    path: StorePath, model: Model, request: EvaluationRequest, execution: Execution, listener: Listener
) -> tuple[dict[str, Any], dict[str, str]]:
    found = dict[str, Any]()
    reasons = {
        "explained": "the moments store does not hold all documents; give them once with "
        f"{option.corpus('CORPUS')}, which counts rows of their co-occurrences"
    }

    def given(name: str) -> Any:
        if name in reasons:
            raise Unavailable(reasons[name])
        return found[name]

    def counts() -> SelectedCounts:
        if request.corpus is not None:
            return counts_of(path, model, open_corpus(request.corpus), execution, listener)
        if (stored := read_training_counts(path, model)) is None:
            raise Unavailable(
                f"the words of the model were not counted in its corpus; give it once with {option.corpus('CORPUS')}"
            )
        return stored

    # Report errors in the inputs named by the user before long work.
    steps: dict[str, Callable[[], Any]] = {
        "truth": lambda: truth_of(request.truth, model),
        "moments": lambda: moments_of(model, request.moments),
        "counts": counts,
        "completion": lambda: completion_of(model, given("counts")),
        "replicas": lambda: replicas_of(
            model, given("moments"), request.replicas, request.seed, execution.threads_here, listener
        ),
        # Last, because it keeps the documents of the store in memory.
        "cooccurrence": lambda: cooccurrence_of(given("moments")),
    }
    for name, find in steps.items():
        try:
            found[name] = find()
        except Unavailable as reason:
            reasons[name] = str(reason)
    if {"cooccurrence", "counts"} <= found.keys() and found["cooccurrence"].is_whole:
        corpus = found["moments"].manifest.corpus.fingerprint
        if is_training_corpus(model, found["counts"]) and corpus == found["counts"].corpus["fingerprint"]:
            # All rows are better than those that were counted.
            found["counts"] = replace(found["counts"], cooccurrence=None)
    return found, reasons


def _moments_warnings(missing: Mapping[str, str], reason: str | None) -> list[str]:
    """A warning that names the metrics that are missing because the moments store is."""
    names = [title_of(name) for name, why in missing.items() if why == reason]
    return [f"{', '.join(names)} are missing: {reason}"] if names else []


def _topic_rows(
    shown: EditedTopics, counts: SelectedCounts | None, metrics: Mapping[str, Any], words: int
) -> list[dict[str, Any]]:
    """Each topic with its words; characteristic words use exact rows if the training corpus was counted."""
    arrays, prominent = shown.stored.arrays, shown.spelled(shown.listed_words(words))
    characteristic = arrays.get("characteristic_words")
    if counts is not None and counts.cooccurrence and is_training_corpus(shown.stored, counts):
        rows = counts.cooccurrence.rows(representatives(shown.stored))
        characteristic = characteristic_words(rows, arrays["prominent_words"].shape[1])
    scores = (metrics.get("npmi") or {}).get("per_topic")
    exclusive = frex_words(arrays["word_topic"], words)
    found = []
    for topic, probability in enumerate(arrays["topic_probability"].tolist()):
        row: dict[str, Any] = {"topic": topic, "npmi": None if scores is None else scores[topic]}
        row["probability"] = probability
        if "anchors" in arrays:
            row["anchor"] = str(shown.words[arrays["anchors"][topic]])
        row["prominent"] = [*prominent[topic]]
        if characteristic is not None:
            [row["characteristic"]] = map(list, shown.spelled(characteristic[topic : topic + 1, :words]))
        [row["frex"]] = map(list, shown.spelled(exclusive[topic : topic + 1, :words]))
        found.append(row)
    return found


def topic_arrays(model: Model) -> TopicArrays:
    """The arrays of a model of any engine, with the unigram distribution from the most direct array it has."""
    arrays = model.arrays
    mass = arrays.get("term_count", arrays.get("row_sum"))
    if mass is None and "topic_probability" in arrays:
        mass = arrays["word_topic"] @ arrays["topic_probability"]
    elif mass is None:
        mass = arrays["word_topic"].mean(axis=1)
    optional = ("topic_topic", "topic_probability", "anchors", "rectified")
    return TopicArrays(
        arrays["word_topic"],
        arrays["prominent_words"],
        mass / mass.sum(),
        *(arrays.get(name) for name in optional),
    )


def moments_of(model: Model, given: str | StorePath | None) -> Moments:
    """The given moments store, or else the recorded one; ``Unavailable`` if the latter is missing or has changed."""
    if given is not None:
        return _open_moments(model, given)
    if not (recorded := model.provenance.get("moments")):
        raise Unavailable(f"the model names no moments store; give it with {option.moments('MOMENTS')}")
    try:
        moments = _open_moments(model, recorded)
        _require_same_contents(model, moments)
        chosen = model.provenance.get("partitions")
        return moments if chosen is None else select_partitions(moments, str(chosen))
    except StreamingJSMFError as error:
        raise Unavailable(f"{error}; or give it with {option.moments('MOMENTS')}") from error


def _open_moments(model: Model, path: str | StorePath) -> Moments:
    moments = open_moments(path)
    if moments.words != tuple(map(str, model.arrays["word"])):
        raise InputError(
            f"{moments.path}: has other words than the model; give the store that it was made of"
        )
    return moments


def _require_same_contents(model: Model, moments: Moments) -> None:
    manifest, made = moments.manifest, model.provenance
    # A third moment added since then changes nothing else.
    settings = manifest.range_key
    documents = model.metrics.get("n_documents")
    same = (
        model.corpora in ((), (manifest.corpus.fingerprint,))
        and made.get("settings_fingerprint", settings) == settings
        and (made.get("partitions") is not None or documents in (None, moments.n_documents))
    )
    if not same:
        raise InputError(f"{moments.path}: has changed since the model was made of it; infer the model again")


def cooccurrence_of(moments: Moments) -> Cooccurrence:
    """C as counted, or of the documents that the store holds; after ``halko`` from its eigenpairs."""
    settings, row_sum = moments.settings, moments.row_sum
    if settings.exact and not isinstance(moments, SelectedMoments):
        return Cooccurrence(row_sum, moments.cooccurrence().__getitem__)
    if settings.range_finder == "halko":
        return Cooccurrence(row_sum, moments.cooccurrence_rows, is_whole=False)
    documents, is_whole = moments.sample(), moments.sample_share == 1
    return Cooccurrence.of_documents(documents, moments.diagonal, row_sum, is_whole=is_whole)


def completion_of(model: Model, counts: SelectedCounts) -> Completion:
    """How well the topics predict the counted documents; raises ``Unavailable`` if they cannot."""
    if counts.completion is None:
        missing = missing_parameter(model)
        raise Unavailable(
            f"the model has no {missing}"
            if missing
            else f"no documents were predicted when the words were counted; give {option.corpus('CORPUS')} again"
        )
    found = counts.completion
    if found.fractional:
        raise Unavailable(
            f"{found.fractional:,} documents have fractional counts; perplexity needs whole tokens"
        )
    if not found.tokens:
        raise Unavailable("no document has two tokens of words that the training corpus has")
    return found


def truth_of(corpus: Any, model: Model) -> Floats:
    """Topics of a simulated corpus over the words of the model, (N, K of the truth); columns sum to 1.

    Words are matched as strings. Words that the model lacks are dropped and the topics renormalized; words that the
    truth lacks are 0. Raises ``InputError`` if there is no truth at ``corpus``, or one of its topics has none of the
    model's words; ``StoreError`` if it is damaged.
    """
    if corpus is None:
        raise Unavailable(f"no truth was given; name a simulated corpus with {option.truth('CORPUS')}")
    truth = read_truth(str(corpus))
    found = word_ids(model.arrays["word"], truth.words)
    topics = np.where((found >= 0)[:, None], truth.word_topic[found], 0.0)
    mass = topics.sum(axis=0)
    if not (mass > 0).all():
        raise InputError(
            f"{corpus}: the model has none of the words of {np.count_nonzero(mass <= 0)} of the {mass.size} true "
            "topics; give the corpus that the model was made of"
        )
    return np.asarray(topics / mass)


@single_blas_thread()
def replicas_of(
    model: Model, moments: Moments, count: int, seed: int, threads: int, listener: Listener = silent
) -> list[NDArray[np.float64]]:
    """Topics (N, K) of ``count`` models inferred from bootstrap samples of the kept partitions. No scan.

    Raises ``Unavailable`` if ``count`` is 0, the moments keep no partitions, or the model is polished or of another
    engine.
    """
    if count == 0:
        raise Unavailable(f"no replicas were asked for ({option.replicas})")
    if model.provenance.get("engine") != "lr-jsmf":
        raise Unavailable("only models of the engine lr-jsmf are inferred again from resampled moments")
    if model.provenance.get("partitions") is not None:
        raise Unavailable("the model is of some partitions only, which are not resampled")
    if "polish" in model.settings:
        raise Unavailable("polished models are not compared with inferred ones; evaluate the model of infer")
    try:
        settings = InferSettings(**model.settings)
    except TypeError as error:
        raise Unavailable(f"the settings of the model are of another release ({error})") from error
    try:
        drawn = (resampled(moments, seed, number) for number in range(count))
        return [
            fit_moments(sample, settings, threads=threads, listener=listener).arrays["word_topic"]
            for sample in drawn
        ]
    except InputError as error:
        raise Unavailable(str(error)) from error
