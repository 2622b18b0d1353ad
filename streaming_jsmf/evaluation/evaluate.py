"""Evaluate a model: metrics, with a reason for each missing one, certificates and warnings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streaming_jsmf.config import EvaluationRequest, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.display import location
from streaming_jsmf.errors import option
from streaming_jsmf.evaluation.counts import (
    StoredCounts,
    counts_of,
    is_training_corpus,
    read_training_counts,
)
from streaming_jsmf.evaluation.gather import (
    completion_of,
    cooccurrence_of,
    moments_of,
    read_topics,
    replicas_of,
    topic_arrays,
    truth_of,
    without_sketch_of,
)
from streaming_jsmf.evaluation.metrics import Unavailable, evaluate_topics
from streaming_jsmf.evaluation.verdicts import (
    Frequency,
    doubt,
    perplexity_warnings,
    topic_warnings,
    warnings_of,
)
from streaming_jsmf.inference.words import longer_lists
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.store import AnyModel, Model, model_path

#: Version of the result of ``evaluate``, whose schema is ``docs/schemas/evaluate.schema.json``.
FORMAT_VERSION = 1

#: Default number of words of each topic in the result.
LISTED_WORDS = 10


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
    topics = read_topics(path)
    inputs, reasons = _gather(path, topics, wanted, execution, listener)
    with single_blas_thread():
        metrics, missing = evaluate_topics(topic_arrays(topics), reasons=reasons, **inputs)
    counts, moments = inputs.get("counts"), inputs.get("moments")
    n_words, n_topics = topics.arrays["word_topic"].shape
    return {
        "format_version": FORMAT_VERSION,
        "model": location(path),
        "engine": str(topics.provenance.get("engine", "unknown")),
        "n_topics": int(n_topics),
        "n_words": int(n_words),
        "moments": None if moments is None else str(moments.path),
        "corpus": None if counts is None else _corpus_fields(topics, counts),
        "truth": None if wanted.truth is None else str(wanted.truth),
        "metrics": metrics,
        "missing": missing,
        "certificates": dict(topics.metrics),
        "warnings": [
            *warnings_of(topics.metrics, int(n_topics)),
            *_moments_warnings(missing, reasons.get("cooccurrence")),
            *perplexity_warnings(inputs.get("completion")),
            *_doubtful_topics(topics, (metrics.get("npmi") or {}).get("per_topic")),
        ],
        "topics": _topic_rows(topics, counts, metrics, wanted.words or LISTED_WORDS),
    }


def _gather(
    path: StorePath, model: Model, request: EvaluationRequest, execution: Execution, listener: Listener
) -> tuple[dict[str, Any], dict[str, str]]:
    found: dict[str, Any] = {"seed": request.seed}
    reasons: dict[str, str] = {}
    threads = execution.threads_here

    def given(name: str) -> Any:
        if name in reasons:
            raise Unavailable(reasons[name])
        return found[name]

    def counts() -> StoredCounts:
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
        "cooccurrence": lambda: cooccurrence_of(given("moments")),
        "replicas": lambda: replicas_of(
            model, given("moments"), request.replicas, request.seed, threads, listener
        ),
    }
    for name, find in steps.items():
        try:
            found[name] = find()
        except Unavailable as reason:
            reasons[name] = str(reason)
    if {"counts", "cooccurrence"} <= found.keys():
        found["counts"] = without_sketch_of(found["moments"], found["counts"])
    return found, reasons


def _moments_warnings(missing: Mapping[str, str], reason: str | None) -> list[str]:
    """A warning that names the metrics that are missing because the moments store is."""
    names = [name for name, why in missing.items() if why == reason]
    return [f"{', '.join(names)} are missing: {reason}"] if names else []


def _doubtful_topics(model: Model, npmi: Sequence[float] | None) -> list[str]:
    arrays = model.arrays
    listed = [[str(word) for word in words] for words in arrays["word"][arrays["prominent_words"]]]
    shares = arrays.get("topic_probability", np.ones(len(listed)))
    frequency = Frequency.of(arrays, model.metrics.get("n_documents"))
    found = topic_warnings(listed, shares, frequency=frequency, npmi=npmi)
    names = (", ".join(words[:3]) for words in listed)
    rows = enumerate(zip(names, found, strict=True))
    return [doubt(topic, name, reasons) for topic, (name, reasons) in rows if reasons]


def _corpus_fields(model: Model, counts: StoredCounts) -> dict[str, Any]:
    return {
        **counts.corpus,
        "n_documents_counted": counts.n_documents,
        "training": is_training_corpus(model, counts),
    }


def _topic_rows(
    model: Model, counts: StoredCounts | None, metrics: Mapping[str, Any], words: int
) -> list[dict[str, Any]]:
    """Each topic with its words; characteristic words use exact rows if the training corpus was counted."""
    vocabulary, arrays = model.arrays["word"], model.arrays
    prominent = arrays["prominent_words"][:, :words]
    if words > prominent.shape[1]:
        prominent = longer_lists(prominent, [arrays["word_topic"]], words)
    characteristic = arrays.get("characteristic_words")
    if counts is not None and is_training_corpus(model, counts):
        characteristic = counts.characteristic_words
    scores = (metrics.get("npmi") or {}).get("per_topic")
    rows = []
    for topic in range(arrays["word_topic"].shape[1]):
        row: dict[str, Any] = {"topic": topic, "npmi": None if scores is None else scores[topic]}
        if "topic_probability" in arrays:
            row["probability"] = float(arrays["topic_probability"][topic])
        if "anchors" in arrays:
            row["anchor"] = str(vocabulary[arrays["anchors"][topic]])
        row["prominent"] = [str(vocabulary[word]) for word in prominent[topic]]
        if characteristic is not None:
            row["characteristic"] = [str(vocabulary[word]) for word in characteristic[topic, :words]]
        rows.append(row)
    return rows
