"""What a page shows: plain values for every engine, None where it lacks them; and how they are read from models.

``Levels`` tell how the topics of models of several K, fitted from one scan, split as K grows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from streaming_jsmf.config import EXCERPT
from streaming_jsmf.corpus.format import open_corpus
from streaming_jsmf.display import flattened
from streaming_jsmf.documents.effects import Effects
from streaming_jsmf.documents.groups import Groups, excerpt_text, short_text
from streaming_jsmf.documents.model_shares import ModelShares
from streaming_jsmf.documents.queries import largest, least_explained
from streaming_jsmf.documents.shares import KNOWN_TOKENS, SharesFile
from streaming_jsmf.errors import InputError, StoreError
from streaming_jsmf.evaluation.choice import Choice, choice_of
from streaming_jsmf.evaluation.counts import read_training_counts, training_fingerprint
from streaming_jsmf.evaluation.evaluate import completion_of
from streaming_jsmf.evaluation.inputs import SelectedCounts
from streaming_jsmf.evaluation.metrics import Row, Unavailable, evaluate_topics, rows_of
from streaming_jsmf.evaluation.verdicts import Check, checks_of, warnings_of
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import what
from streaming_jsmf.linalg.panels import ratio
from streaming_jsmf.linalg.simplex import simplex_least_squares
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.document_map import DocumentMap
from streaming_jsmf.reporting.topics import (
    NEEDED,
    OPTIONAL,
    Topic,
    WordLists,
    read_frex,
    read_word_topic,
    topics_of,
)
from streaming_jsmf.storage.paths import StorePath, read_bytes
from streaming_jsmf.topics.edits import EditedTopics, TopicEdits, require_word_count, shown_topics
from streaming_jsmf.topics.store import COMPARISON, Model, read_model, read_model_panels

#: Optional arrays of a model used by a page.
SHOWN = (*OPTIONAL, "topic_topic", "topic_topic_of_documents")
#: Counts of the training corpus used by a page.
COUNTS = ("selected_words", "document_pairs")
#: Number of documents in a list.
NUMBER = 10

_COUNT_FIRST = (
    "NPMI, coherence and perplexity require the corpus, once: run streaming-jsmf evaluate MODEL --corpus CORPUS, then "
    "make this report again."
)
_NOT_ONE_CORPUS = (
    "NPMI, coherence and perplexity are shown here for models of one whole corpus only; for this one streaming-jsmf "
    "evaluate MODEL --corpus CORPUS prints them."
)
_MORE = "streaming-jsmf evaluate MODEL prints more of them, which need the moments store."


class Document(NamedTuple):
    """A document: its id, its share of a topic or its gain, and the values of the metadata columns."""

    name: str
    value: float
    values: tuple[str, ...]


class DocumentLists(NamedTuple):
    """Names of the metadata columns, and lists of documents: the first of each topic, or the outliers."""

    columns: tuple[str, ...]
    lists: tuple[tuple[Document, ...], ...]


@dataclass(frozen=True)
class Level:
    """Names and shares of the K topics of one of several models of the same moments, and its metrics as text."""

    names: tuple[str, ...]
    shares: Floats
    metrics: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Levels:
    """Models of an increasing number of topics.

    ``flows`` (K, K') between each model and the next say how the share of each topic is distributed over the next
    model's topics; rows sum to the shares. ``own`` is the index of the model that the page shows, ``choice`` the
    result of ``choose_k`` if it fitted these models, and ``missing`` the reason for each measure without values.
    """

    models: tuple[Level, ...]
    flows: tuple[Floats, ...]
    own: int
    choice: Choice | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contents:
    """Everything that a page shows about K topics.

    n_words, n_documents : size of the training corpus; the number of documents may be unknown (None)
    topics : by ascending number, with gaps for hidden topics
    affinity : (K, K) sums over words of sqrt(p(word | i) p(word | j)), from 0 for unrelated topics to 1 for equal ones
    topic_topic : (K, K) joint topic probabilities
    metrics, certificates : tables of quality and of the certificates of the inference
    making : tables of sources, settings and versions by title
    stages : ``seconds`` of each stage of the inference, and ``peak_memory`` of the process until then, in bytes
    checks : certificates that have an explanation
    corpus, date : name of the corpus and creation date of the model; empty if unknown
    quality : semantic coherence and exclusivity of each topic, (2, K), NaN for merged ones; None without counts
    """

    engine: str
    n_words: int
    n_documents: int | None
    topics: tuple[Topic, ...]
    affinity: Floats
    lists: WordLists
    topic_topic: Floats | None = None
    warnings: tuple[str, ...] = ()
    metrics: tuple[Row, ...] = ()
    metrics_note: str = ""
    certificates: Mapping[str, str] = field(default_factory=dict)
    making: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    stages: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    corpus: str = ""
    date: str = ""
    documents: DocumentLists | None = None
    groups: Groups | None = None
    levels: Levels | None = None
    outliers: DocumentLists | None = None
    scatter: DocumentMap | None = None
    effects: Effects | None = None
    quality: Floats | None = None
    #: Further columns besides that of ``groups``, and their combinations: groups within each value of the others.
    views: tuple[tuple[Groups, ...], ...] = ()


def read_contents(path: StorePath, words: int | None = None, *, exclusive: bool = True) -> Contents:
    """Read the contents of a report from a model of any engine, with its edits applied. No pass over documents.

    Metrics refer to the stored topics, including merged and hidden ones. ``words`` is the number of words of each
    topic, by default 10; ``exclusive`` tells whether to find FREX words and exclusivity, which takes longer. Raises
    ``InputError`` if there is no model or ``words`` is below 1; ``StoreError`` if the model or its counts are damaged.
    """
    count = require_word_count(words)
    shown = shown_topics(path, NEEDED, SHOWN)
    model, counts = shown.model, read_training_counts(path, shown.stored, COUNTS)
    with single_blas_thread():
        listed = shown.listed_words(count)
        shares, vocabulary = model.arrays["topic_probability"], shown.words
        word_topic = read_word_topic(shown.panels(), listed, shares, vocabulary)
        frex, exclusivity = read_frex(shown, listed.shape[1]) if exclusive else (None, None)
        if exclusive and shown.edits.groups != TopicEdits(shown.edits.n_topics).groups:
            _, exclusivity = read_frex(replace(shown, edits=TopicEdits(shown.edits.n_topics)), 1)
        metrics = metrics_of(shown.stored, counts, exclusivity)
    npmi = (metrics["npmi"] or {}).get("per_topic")
    topics = topics_of(
        shown, listed, word_topic.listed, word_topic.characteristic, npmi, word_topic.affinity, frex
    )
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
        certificates=flattened(model.metrics),
        making=_making(model),
        stages={what(name): cost for name, cost in (model.provenance.get("stages") or {}).items()},
        checks=(*checks_of(model.metrics), _check_of_topics(topics)),
        quality=_quality(shown, metrics),
        corpus=_corpus_name(model.provenance),
        date=str(model.provenance.get("committed") or "")[: len("2026-01-31")],
    )


def _quality(shown: EditedTopics, metrics: Mapping[str, Any]) -> Floats | None:
    coherence = metrics["coherence"] and metrics["coherence"]["mimno_2011"]
    if not (coherence and metrics["exclusivity"]):
        return None
    found = [np.array(of["per_topic"]) for of in (coherence, metrics["exclusivity"])]
    return np.array([shown.rows(values, np.nan) for values in found])


def _note(model: Model, counts: SelectedCounts | None) -> str:
    if counts is not None:
        return f"Counted in {_last(str(counts.corpus['path']))}, {counts.n_documents:,} documents. {_MORE}"
    return f"{_NOT_ONE_CORPUS if training_fingerprint(model) is None else _COUNT_FIRST} {_MORE}"


def _corpus_name(provenance: Mapping[str, Any]) -> str:
    corpus = (provenance.get("polish_corpus") or {}).get("path")
    return (
        _last(str(corpus or provenance.get("moments") or "")).removesuffix(".moments").removesuffix(".corpus")
    )


def _last(path: str) -> str:
    """Last part of a path or URL, because the rest is private."""
    return path.split("?")[0].rstrip("/").rsplit("/", 1)[-1]


def _check_of_topics(topics: Sequence[Topic]) -> Check:
    doubtful = ", ".join(str(topic.number) for topic in topics if topic.warnings)
    question = "Do the words of each topic belong together, and come from more than a few documents?"
    return Check(question, f"not topic {doubtful}" if doubtful else "all", "all", not doubtful)


def _making(model: Model) -> dict[str, dict[str, str]]:
    made = model.provenance
    corpora = {f"corpus {number}": of for number, of in enumerate(model.corpora)}
    names = ("fingerprint", "moments", "settings_fingerprint", "partitions")
    sources = {name: made[name] for name in names if made.get(name) is not None}
    tables = {
        "Settings of the model": model.settings,
        "Settings of the scan": made.get("scan_settings") or {},
        "Made of": {**sources, **corpora},
        "Versions": made.get("versions") or {},
    }
    return {title: flattened(fields) for title, fields in tables.items()}


def documents_of(shares: SharesFile) -> DocumentLists:
    """The documents with the largest share of each topic, with their metadata. One pass."""
    return document_lists(largest(shares, NUMBER))


def outliers_of(shares: ModelShares, corpus: Any) -> DocumentLists:
    """The documents of a corpus that the topics explain least. One pass over the shares and the corpus."""
    return document_lists([least_explained(shares, open_corpus(corpus), NUMBER)])


def document_lists(tables: Sequence[pa.Table]) -> DocumentLists:
    """Rows of tables that have the id of a document, its value, and metadata columns."""
    tables = [table.select([name for name in table.column_names if name != KNOWN_TOKENS]) for table in tables]
    columns = tuple(tables[0].column_names[2:])
    texts = [excerpt_text if column == EXCERPT else short_text for column in columns]
    lists = [
        tuple(
            Document(
                short_text(name),
                float(value),
                tuple(text(one) for text, one in zip(texts, metadata, strict=True)),
            )
            for name, value, *metadata in (row.values() for row in table.to_pylist())
        )
        for table in tables
    ]
    return DocumentLists(columns, tuple(lists))


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
    model = shown.stored
    metrics = rows_of(metrics_of(model, read_training_counts(path, model, COUNTS)))
    return Level(
        replace(shown, edits=shown.edits.apart).names,
        model.arrays["topic_probability"],
        tuple((row.title, row.value) for row in metrics),
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
        both = np.hstack([first, second]) * ratio(1.0, np.sqrt(of_words))[:, None]
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


def metrics_of(
    model: Model, counts: SelectedCounts | None, exclusivity: Floats | None = None
) -> dict[str, Any]:
    """Metrics that need only word lists, shares, correlations, counts and exclusivity; None for the others."""
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
        exclusivity=exclusivity,
    )
    return metrics
