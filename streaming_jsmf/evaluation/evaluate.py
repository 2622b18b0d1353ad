"""Model -> metrics, with what of moments, counts and truth there is, and a reason for each metric that is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from streaming_jsmf.config import EvaluationRequest, settings_of, takes
from streaming_jsmf.corpus import Corpus, open_corpus
from streaming_jsmf.display import location
from streaming_jsmf.evaluation.count_words import PROBES, counts_of
from streaming_jsmf.evaluation.gather import (
    Replicas,
    Unavailable,
    completion_of,
    cooccurrence_of,
    doubts_of_perplexity,
    moments_of,
    read_topics,
    replicas_of,
    topic_arrays,
    truth_of,
)
from streaming_jsmf.evaluation.inputs import RowSketch, SelectedCounts
from streaming_jsmf.evaluation.stored_counts import StoredCounts, read_training_counts, training_fingerprint
from streaming_jsmf.evaluation.summary import evaluate_topics
from streaming_jsmf.inference.perplexity import Completion
from streaming_jsmf.inference.words import longer_lists
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Listener, silent
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.certificates import warnings_of
from streaming_jsmf.topics.store import AnyModel, Model, model_path

#: Of the document that ``evaluate`` returns; its schema is ``docs/schemas/evaluate.schema.json``.
FORMAT_VERSION = 1

#: Words of each topic in the document, unless told otherwise.
LISTED_WORDS = 10

#: What each metric, or each part of one, needs beside ``word_topic``: arrays of the model and inputs. Others need none.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "recovery": ("cooccurrence",),
    "relative_recovery": ("cooccurrence",),
    "approximation": ("topic_topic", "cooccurrence"),
    "relative_approximation": ("topic_topic", "cooccurrence"),
    "dominancy": ("topic_topic",),
    "relative_dominancy": ("topic_topic",),
    "coherence": ("counts",),
    "u_mass": ("counts",),
    "npmi": ("counts",),
    "perplexity": ("counts", "completion"),
    "specificity.2021": ("cooccurrence",),
    "mst_incoherence.cooccurrence": ("cooccurrence",),
    "mst_incoherence.documents": ("counts",),
    "log_relative_volume": ("cooccurrence",),
    "recovery_error": ("truth",),
    "effective_topics": ("topic_probability",),
    "legality": ("topic_topic",),
    "validity": ("topic_topic",),
    "basis_rank": ("anchors",),
    "basis_quality": ("anchors",),
    "stability": ("replicas",),
}

Value = TypeVar("Value")


@takes(EvaluationRequest, Execution)
def evaluate(
    model: AnyModel,
    request: EvaluationRequest | str | Path | Corpus | None = None,
    execution: Execution | None = None,
    listener: Listener = silent,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate a model of any engine. Two passes over a corpus that was not read for this model before, else none.

    Counts and perplexity are stored below the model, so that later calls need no scan; without a corpus those of the
    training corpus are used. Instead of a request its corpus can be given, or its fields and those of ``Execution`` as
    keyword arguments. The result does not depend on ``execution``.

    Returns
    -------
    dict
        JSON values, see ``docs/schemas/evaluate.schema.json``: ``metrics`` by name, ``missing`` with a reason for each
        that is null, ``certificates`` and ``warnings`` of the model, ``topics``.

    Raises
    ------
    InputError
        If there is no model, or what was asked for cannot be used with it: moments of other words, a corpus without
        any of its words, a truth that is none or of other words.
    StoreError
        If the model, its counts, the corpus or given moments are damaged.
    """
    if isinstance(request, str | Path | Corpus):
        request = EvaluationRequest(request)
    path = model_path(model)
    request = settings_of("request", EvaluationRequest, request, options) or EvaluationRequest()
    execution = settings_of("execution", Execution, execution, options) or Execution()
    found = read_topics(path)
    inputs = _Inputs(path, found, request, execution, listener)
    with single_blas_thread():
        metrics = inputs.evaluate()
    missing = _reasons(metrics, found, inputs.reasons)
    corpus = _corpus_fields(found, inputs.counts)
    # Another corpus has characteristic words of its own.
    exact = inputs.counts if corpus is not None and corpus["training"] else None
    return {
        "format_version": FORMAT_VERSION,
        "model": location(path),
        "engine": str(found.provenance.get("engine", "unknown")),
        "n_topics": int(found.arrays["word_topic"].shape[1]),
        "n_words": int(found.arrays["word_topic"].shape[0]),
        "moments": None if inputs.moments is None else str(inputs.moments.path),
        "corpus": corpus,
        "truth": None if request.truth is None else str(request.truth),
        "metrics": metrics,
        "missing": missing,
        "certificates": dict(found.metrics),
        "warnings": [*_doubts(found, inputs.reasons, missing), *doubts_of_perplexity(inputs.completion)],
        "topics": _topics(found, exact, metrics, request.words or LISTED_WORDS),
    }


class _Inputs:
    """Finds what a request names, and keeps the reason for what cannot be had."""

    def __init__(
        self,
        path: StorePath,
        model: Model,
        request: EvaluationRequest,
        execution: Execution,
        listener: Listener,
    ) -> None:
        self.model, self.request, self.execution, self.listener = model, request, execution, listener
        self.reasons: dict[str, str] = {}
        # What the user asked for by name comes first: an error is to come before long work.
        self.truth = self._or_reason("truth", lambda: _truth(request, model))
        self.moments: Moments | None = self._or_reason(
            "cooccurrence", lambda: moments_of(model, request.moments)
        )
        self.counts = self._or_reason("counts", lambda: _counts(path, model, request, execution, listener))
        self.completion = self._or_reason("completion", self._completion)

    def evaluate(self) -> dict[str, Any]:
        """The metrics; replicas are inferred here."""
        replicas = self._or_reason("replicas", self._replicas) or ()
        return evaluate_topics(
            topic_arrays(self.model),
            cooccurrence=None if self.moments is None else cooccurrence_of(self.moments),
            counts=None if self.counts is None else _selected(self.counts),
            truth=self.truth,
            completion=self.completion,
            replicas=replicas,
            seed=self.request.seed,
        )

    def _completion(self) -> Completion:
        if self.counts is None:
            raise Unavailable(self.reasons["counts"])
        return completion_of(self.model, self.counts)

    def _replicas(self) -> Sequence[NDArray[Any]]:
        if self.moments is None:
            raise Unavailable(self.reasons["cooccurrence"])
        wanted = Replicas(self.request.replicas, self.request.seed)
        threads = self.execution.workers or os.cpu_count() or 1
        return replicas_of(self.model, self.moments, wanted, threads, self.listener)

    def _or_reason(self, name: str, find: Callable[[], Value]) -> Value | None:
        try:
            return find()
        except Unavailable as reason:
            self.reasons[name] = str(reason)
            return None


def _truth(request: EvaluationRequest, model: Model) -> NDArray[Any]:
    if request.truth is None:
        raise Unavailable("no truth was given; name a simulated corpus with --truth")
    return truth_of(str(request.truth), model)


def _counts(
    path: StorePath, model: Model, request: EvaluationRequest, execution: Execution, listener: Listener
) -> StoredCounts:
    if request.corpus is not None:
        return counts_of(path, model, open_corpus(request.corpus), execution, listener)
    stored = read_training_counts(path, model)
    if stored is None:
        raise Unavailable("the words of the model were not counted in its corpus; give it once with --corpus")
    return stored


def _selected(counts: StoredCounts) -> SelectedCounts:
    sketch = None
    if counts.sketch is not None and counts.row_sum is not None:
        sketch = RowSketch(counts.sketch, counts.row_sum, PROBES.seed)
    return SelectedCounts(counts.words, counts.pairs, counts.n_documents, counts.anchor_rows, sketch)


def _reasons(metrics: Mapping[str, Any], model: Model, reasons: Mapping[str, str]) -> dict[str, str]:
    """Why each metric, or part of one, that is null is missing."""
    absent = [name for name, value in metrics.items() if value is None]
    of_parts = ("specificity", "mst_incoherence", "basis_rank")
    absent += [f"{name}.{part}" for name in of_parts for part in _null_parts(metrics[name])]
    found = {}
    for name in absent:
        lacking = [need for need in NEEDS.get(name, ()) if need in reasons or _is_lacking_array(need, model)]
        found[name] = _reason(lacking[0], reasons) if lacking else "not defined for these topics"
    return found


def _null_parts(value: Mapping[str, Any] | None) -> list[str]:
    return [] if value is None else [part for part, number in value.items() if number is None]


def _is_lacking_array(need: str, model: Model) -> bool:
    return need in ("topic_topic", "topic_probability", "anchors") and need not in model.arrays


def _reason(need: str, reasons: Mapping[str, str]) -> str:
    return reasons.get(need, f"the model has no {need}")


def _doubts(model: Model, reasons: Mapping[str, str], missing: Mapping[str, str]) -> list[str]:
    """Sentences about the model; and one on moments that are gone, since nobody asked for their loss."""
    sentences, reason = warnings_of(model.metrics), reasons.get("cooccurrence")
    names = [name for name, why in missing.items() if why == reason]
    if names:
        sentences.append(f"{', '.join(names)} are missing: {reason}")
    return sentences


def _corpus_fields(model: Model, counts: StoredCounts | None) -> dict[str, Any] | None:
    if counts is None:
        return None
    of = str(counts.corpus["fingerprint"])
    return {
        **counts.corpus,
        "n_documents_counted": counts.n_documents,
        "training": of == training_fingerprint(model)
        and counts.n_documents == model.metrics.get("n_documents"),
    }


def _topics(
    model: Model, exact: StoredCounts | None, metrics: Mapping[str, Any], words: int
) -> list[dict[str, Any]]:
    """Each topic with its words; characteristic ones by exact rows where they were counted."""
    vocabulary, arrays = model.arrays["word"], model.arrays
    prominent = arrays["prominent_words"][:, :words]
    if words > prominent.shape[1]:
        prominent = longer_lists(prominent, [arrays["word_topic"]], words)
    characteristic = arrays.get("characteristic_words") if exact is None else exact.characteristic_words
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
