"""What a report says of a model: read from its store, panel by panel where an array is N x K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.evaluation import coherence, topic_shape
from streaming_jsmf.evaluation.gather import Unavailable, completion_of
from streaming_jsmf.evaluation.glossary import LINES, lookup, number_text
from streaming_jsmf.evaluation.inputs import SelectedCounts
from streaming_jsmf.evaluation.stored_counts import StoredCounts, read_training_counts, training_fingerprint
from streaming_jsmf.evaluation.summary import TOP_WORDS, document_metrics, perplexity_metric
from streaming_jsmf.inference.perplexity import Completion
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.reporting.checks import checks_of
from streaming_jsmf.reporting.contents import Contents, Fact, Level, Metric, Section, Stage, Topic
from streaming_jsmf.reporting.doubts import Suspect, doubts_of
from streaming_jsmf.reporting.read_words import WordTopic, read_word_topic
from streaming_jsmf.reporting.topics import NEEDED, OPTIONAL, shown_topics, topics_of
from streaming_jsmf.reporting.wording import facts_of
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.certificates import warnings_of
from streaming_jsmf.topics.edited_topics import read_edited_topics, require_word_count
from streaming_jsmf.topics.edits import read_edits
from streaming_jsmf.topics.store import Model, read_model

#: What a page shows besides the table of topics.
SHOWN = (*OPTIONAL, "document_frequency", "topic_topic", "topic_topic_of_documents")

#: Of the documents of the training corpus, counted by ``evaluate``.
COUNTS = ("selected_words", "document_pairs", "characteristic_words")

_COUNT_FIRST = (
    "NPMI, coherence and perplexity need a look at the corpus, once: run streaming-jsmf evaluate MODEL --corpus "
    "CORPUS, then make this report again."
)
_NOT_ONE_CORPUS = (
    "NPMI, coherence and perplexity are shown here for models of one whole corpus only; for this one streaming-jsmf "
    "evaluate MODEL --corpus CORPUS prints them."
)
_MORE = "streaming-jsmf evaluate MODEL prints these and those that need the moments store."


def read_contents(path: StorePath, words: int | None = None) -> Contents:
    """Read what a report shows of a model of any engine: topics as they are shown. No pass over documents.

    Metrics are of the stored topics, merged and hidden or not.

    Parameters
    ----------
    path
        Of the model store.
    words
        Words of each topic. None: 10.

    Raises
    ------
    InputError
        If there is no model, or ``words`` is below 1.
    StoreError
        If the model or its counts are damaged.
    """
    count = require_word_count(words)
    shown = read_edited_topics(path, NEEDED, SHOWN)
    model, counts = shown.model, read_training_counts(path, shown.stored, COUNTS)
    with single_blas_thread():
        listed = shown.listed_words(count)
        shares, vocabulary = model.arrays["topic_probability"], model.arrays["word"]
        word_topic = read_word_topic(shown.panels(), listed, shares, vocabulary)
        metrics = _metric_values(shown.stored, counts)
    npmi = (metrics.get("npmi") or {}).get("per_topic")
    topics = shown_topics(shown, listed, word_topic.listed, counts, npmi)
    return Contents(
        engine=model.engine,
        n_words=int(model.arrays["word"].size),
        n_documents=model.metrics.get("n_documents"),
        topics=_doubted(model, topics, word_topic),
        affinity=word_topic.affinity,
        topic_topic=_correlations(model),
        warnings=tuple(warnings_of(model.metrics)),
        metrics=_metric_lines(metrics),
        metrics_note=_note(model, counts),
        certificates=facts_of(model.metrics),
        making=_making(model),
        stages=_stages(model),
        checks=checks_of(model.metrics),
        corpus=_corpus_name(model.provenance),
        date=str(model.provenance.get("committed") or "")[: len("2026-01-31")],
        lists=word_topic.lists,
    )


def level_of(path: StorePath) -> Level:
    """What a page says of one of several models: names and shares of its stored topics, and its metrics."""
    model = read_model(path, NEEDED, OPTIONAL)
    labels = read_edits(path, model).labels
    counts = read_training_counts(path, model, COUNTS)
    listed = model.arrays["prominent_words"][:, :3]
    topics = topics_of(model, listed, np.zeros(listed.shape), counts)
    lines = _metric_lines(_metric_values(model, counts))
    return Level(
        tuple(labels.get(topic.number, topic.name) for topic in topics),
        model.arrays["topic_probability"],
        tuple((line.name, line.value) for line in lines),
    )


def _correlations(model: Model) -> NDArray[np.float64] | None:
    """By the documents' shares where polish found them, else as the engine recovered them."""
    return model.arrays.get("topic_topic_of_documents", model.arrays.get("topic_topic"))


def _corpus_name(provenance: Mapping[str, Any]) -> str:
    """Last part of the corpus' path, or of the moments without its ending: what is before it is private."""
    corpus = (provenance.get("polish_corpus") or {}).get("path")
    path = str(corpus or provenance.get("moments") or "").split("?")[0].rstrip("/")
    return path.rsplit("/", 1)[-1].removesuffix(".moments").removesuffix(".corpus")


def _doubted(model: Model, topics: tuple[Topic, ...], word_topic: WordTopic) -> tuple[Topic, ...]:
    frequency, listed = model.arrays.get("document_frequency"), model.arrays["prominent_words"]
    suspects = [
        Suspect(
            topic.share,
            [str(model.arrays["word"][word]) for word in words],
            None if frequency is None else frequency[words].tolist(),
            topic.npmi,
        )
        for topic, words in zip(topics, listed, strict=True)
    ]
    doubts = doubts_of(suspects, word_topic.affinity, [topic.number for topic in topics])
    return tuple(replace(topic, doubts=found) for topic, found in zip(topics, doubts, strict=True))


def _metric_values(model: Model, counts: StoredCounts | None) -> dict[str, Any]:
    """Metrics that need no more than word lists, shares, correlations and counts; None for those that cannot be had."""
    top, topic_topic = model.arrays["prominent_words"], model.arrays.get("topic_topic")
    selected = None if counts is None else SelectedCounts(counts.words, counts.pairs, counts.n_documents)
    return document_metrics(top, selected) | {
        "perplexity": perplexity_metric(_completion(model, counts)),
        "distinct_share": coherence.distinct_share(top[:, :TOP_WORDS]),
        "dissimilarity": topic_shape.dissimilarity(top),
        "effective_topics": topic_shape.effective_topics(model.arrays["topic_probability"]),
        "dominancy": None if topic_topic is None else topic_shape.dominancy(topic_topic),
        "relative_dominancy": None if topic_topic is None else topic_shape.relative_dominancy(topic_topic),
    }


def _completion(model: Model, counts: StoredCounts | None) -> Completion | None:
    if counts is None:
        return None
    try:
        return completion_of(model, counts)
    except Unavailable:
        return None


def _metric_lines(metrics: Mapping[str, Any]) -> tuple[Metric, ...]:
    values = [(line, lookup(metrics, line.path)) for line in LINES]
    return tuple(
        Metric(line.path, number_text(value), line.better, line.meaning)
        for line, value in values
        if value is not None
    )


def _note(model: Model, counts: StoredCounts | None) -> str:
    if counts is not None:
        return f"Counted in {counts.corpus['path']}, {counts.n_documents} documents. {_MORE}"
    return f"{_NOT_ONE_CORPUS if training_fingerprint(model) is None else _COUNT_FIRST} {_MORE}"


def _making(model: Model) -> tuple[Section, ...]:
    made = model.provenance
    corpora = tuple(
        Fact(f"corpus {number}", str(of)) for number, of in enumerate(made.get("corpus_fingerprints") or ())
    )
    names = ("fingerprint", "moments", "settings_fingerprint", "partitions")
    sources = facts_of({name: made[name] for name in names if made.get(name) is not None})
    return (
        Section("Settings of the model", facts_of(model.settings)),
        Section("Settings of the scan", facts_of(made.get("scan_settings") or {})),
        Section("Made of", (*sources, *corpora)),
        Section("Versions", facts_of(made.get("versions") or {})),
    )


def _stages(model: Model) -> tuple[Stage, ...]:
    stages = model.provenance.get("stages") or {}
    return tuple(
        Stage(name, float(took["seconds"]), int(took["peak_memory"])) for name, took in stages.items()
    )
