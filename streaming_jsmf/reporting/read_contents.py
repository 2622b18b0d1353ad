"""Read the contents of a report from a stored model; N x K arrays are read in panels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.evaluation.choice import Choice, choice_of
from streaming_jsmf.evaluation.counts import StoredCounts, read_training_counts, training_fingerprint
from streaming_jsmf.evaluation.gather import completion_of
from streaming_jsmf.evaluation.metrics import Unavailable, evaluate_topics, rows_of
from streaming_jsmf.evaluation.verdicts import Check, checks_of, warnings_of
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.simplex import simplex_least_squares
from streaming_jsmf.reporting.contents import (
    Contents,
    Fact,
    Floats,
    Level,
    Levels,
    Section,
    Stage,
    facts_of,
)
from streaming_jsmf.reporting.read_words import read_word_topic
from streaming_jsmf.reporting.topics import NEEDED, OPTIONAL, Topic, topics_of
from streaming_jsmf.storage.paths import StorePath, read_bytes
from streaming_jsmf.topics.edits import TopicEdits, require_word_count, shown_topics
from streaming_jsmf.topics.store import COMPARISON, Model, read_model, read_model_panels

#: Optional arrays of a model used by a page.
SHOWN = (*OPTIONAL, "topic_topic", "topic_topic_of_documents")

#: Counts of the training corpus used by a page.
COUNTS = ("selected_words", "document_pairs", "characteristic_words")

_COUNT_FIRST = (
    "NPMI, coherence and perplexity require the corpus, once: run streaming-jsmf evaluate MODEL --corpus CORPUS, then "
    "make this report again."
)
_NOT_ONE_CORPUS = (
    "NPMI, coherence and perplexity are shown here for models of one whole corpus only; for this one streaming-jsmf "
    "evaluate MODEL --corpus CORPUS prints them."
)
_MORE = "streaming-jsmf evaluate MODEL prints these and those that need the moments store."


def read_contents(path: StorePath, words: int | None = None) -> Contents:
    """Read the contents of a report from a model of any engine, with its edits applied. No pass over documents.

    Metrics refer to the stored topics, including merged and hidden ones. ``words`` is the number of words of each
    topic, by default 10. Raises ``InputError`` if there is no model or ``words`` is below 1; ``StoreError`` if the
    model or its counts are damaged.
    """
    count = require_word_count(words)
    shown = shown_topics(path, NEEDED, SHOWN)
    model, counts = shown.model, read_training_counts(path, shown.stored, COUNTS)
    with single_blas_thread():
        listed = shown.listed_words(count)
        shares, vocabulary = model.arrays["topic_probability"], model.arrays["word"]
        word_topic = read_word_topic(shown.panels(), listed, shares, vocabulary)
        metrics = _metrics(shown.stored, counts)
    npmi = (metrics["npmi"] or {}).get("per_topic")
    topics = topics_of(shown, listed, word_topic.listed, counts, npmi, word_topic.affinity)
    arrays = model.arrays
    return Contents(
        engine=model.engine,
        n_words=int(vocabulary.size),
        n_documents=model.metrics.get("n_documents"),
        topics=topics,
        affinity=word_topic.affinity,
        lists=word_topic.lists,
        # Correlations by document shares if polish computed them, otherwise those recovered by the engine.
        topic_topic=arrays.get("topic_topic_of_documents", arrays.get("topic_topic")),
        warnings=tuple(warnings_of(model.metrics, shares.size)),
        metrics=rows_of(metrics),
        metrics_note=_note(model, counts),
        certificates=facts_of(model.metrics),
        making=_making(model),
        stages=tuple(
            Stage(name, float(cost["seconds"]), int(cost["peak_memory"]))
            for name, cost in (model.provenance.get("stages") or {}).items()
        ),
        checks=(*checks_of(model.metrics), _check_of_topics(topics)),
        corpus=_corpus_name(model.provenance),
        date=str(model.provenance.get("committed") or "")[: len("2026-01-31")],
    )


def _metrics(model: Model, counts: StoredCounts | None) -> dict[str, Any]:
    """Metrics that need only word lists, shares, correlations and counts; None for the others."""
    completion = None
    if counts is not None:
        with suppress(Unavailable):
            completion = completion_of(model, counts)
    metrics, _ = evaluate_topics(
        None,
        top_words=model.arrays["prominent_words"],
        topic_probability=model.arrays["topic_probability"],
        topic_topic=model.arrays.get("topic_topic"),
        counts=counts,
        completion=completion,
    )
    return metrics


def _note(model: Model, counts: StoredCounts | None) -> str:
    if counts is not None:
        return f"Counted in {counts.corpus['path']}, {counts.n_documents} documents. {_MORE}"
    return f"{_NOT_ONE_CORPUS if training_fingerprint(model) is None else _COUNT_FIRST} {_MORE}"


def _corpus_name(provenance: Mapping[str, Any]) -> str:
    """Last part of the path of the corpus or moments, because the rest of the path is private."""
    corpus = (provenance.get("polish_corpus") or {}).get("path")
    path = str(corpus or provenance.get("moments") or "").split("?")[0].rstrip("/")
    return path.rsplit("/", 1)[-1].removesuffix(".moments").removesuffix(".corpus")


def _check_of_topics(topics: Sequence[Topic]) -> Check:
    doubtful = ", ".join(str(topic.number) for topic in topics if topic.warnings)
    question = "Do all topics have coherent words, from more than a few documents and spelled like the rest?"
    return Check(question, f"not topic {doubtful}" if doubtful else "all", "all", not doubtful)


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


def read_levels(root: StorePath, paths: Sequence[StorePath], own: int) -> Levels:
    """Read how the topics of each model in ``paths``, by ascending K, are distributed over those of the next.

    Reads each ``word_topic`` twice, in chunks. ``own`` is the index of the model that the page shows, ``root`` their
    directory. Raises ``InputError`` if the models have different vocabularies; ``StoreError`` if the result of
    ``choose_k`` in ``root`` is damaged.
    """
    levels = tuple(map(_read_level, paths))
    flows = tuple(
        flow(first, second, level.shares)
        for (first, second), level in zip(pairwise(paths), levels, strict=False)
    )
    return Levels(levels, flows, own, *_read_choice(root))


def _read_level(path: StorePath) -> Level:
    shown = shown_topics(path, NEEDED, OPTIONAL)
    model, stored = shown.stored, TopicEdits(shown.edits.n_topics, shown.edits.labels)
    metrics = rows_of(_metrics(model, read_training_counts(path, model, COUNTS)))
    return Level(
        replace(shown, edits=stored).names,
        model.arrays["topic_probability"],
        tuple((row.path, row.value) for row in metrics),
    )


def _read_choice(root: StorePath) -> tuple[Choice | None, Mapping[str, str]]:
    """The result of ``choose_k``, if there is one, and why columns are empty."""
    path = root / COMPARISON
    try:
        return choice_of(json.loads(read_bytes(path)))
    except FileNotFoundError:
        return None, {}
    except ValueError as error:
        raise StoreError(f"{path}: is damaged ({error}); delete it, or run choose-k again") from error


@single_blas_thread()
def flow(coarse: StorePath, fine: StorePath, shares: Floats) -> Floats:
    """How the share of each topic of one model is distributed over the topics of another, (K, K').

    Each topic is approximated by a mixture of the other model's topics: least squares over the simplex, with words
    weighted by inverse probability as in correspondence analysis. Raises ``InputError`` if the vocabularies differ.
    """
    words, other_words = (read_model(path, ("word",)).arrays["word"] for path in (coarse, fine))
    if not np.array_equal(words, other_words):
        raise InputError(f"{coarse} and {fine} are not of the same words; give models of one scan")
    products: Any = 0.0
    for first, second in _aligned(*(read_model_panels(path, "word_topic") for path in (coarse, fine))):
        of_words = np.maximum(first, 0.0) @ np.maximum(shares, 0.0)
        scale = np.divide(1.0, np.sqrt(of_words), out=np.zeros_like(of_words), where=of_words > 0)
        both = np.hstack([first, second]) * scale[:, None]
        products = both.T @ both + products
    # Rows with these inner products, which are all that least squares needs.
    values, vectors = np.linalg.eigh(products)
    rows = vectors * np.sqrt(np.maximum(values, 0.0))
    weights = simplex_least_squares(rows[: len(shares)], rows[len(shares) :], threads=1).weights
    return np.maximum(shares, 0.0)[:, None] * weights


def _aligned(first: Iterator[Floats], second: Iterator[Floats]) -> Iterator[tuple[Floats, Floats]]:
    """Yield the same rows of two arrays that have different panels."""
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        rows = min(len(one), len(other))
        yield one[:rows], other[:rows]
        one = one[rows:] if rows < len(one) else next(first, None)
        other = other[rows:] if rows < len(other) else next(second, None)
