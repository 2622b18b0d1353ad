"""All metrics of a model: ``METRICS`` defines how each is computed and displayed.

Values are JSON values with finite floats (``docs/schemas/evaluate.schema.json``), or None if an input is missing or
the metric is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from streaming_jsmf.evaluation import coherence, topic_shape
from streaming_jsmf.evaluation.factorization import (
    cooccurrence_rows,
    estimated_errors,
    factorization_errors,
)
from streaming_jsmf.evaluation.inputs import Estimate, Floats, Integers, SelectedCounts, TopicArrays
from streaming_jsmf.evaluation.matching import recovery_error, stability
from streaming_jsmf.evaluation.volume import anchor_points, log_relative_volume
from streaming_jsmf.inference.perplexity import Completion

#: Number of top words in NPMI, UMass and the distinct share.
TOP_WORDS = 10

#: Name of a coherence -> its epsilon and largest number of top words in the paper.
COHERENCES = {"mimno_2011": (1.0, 10), "jsmf_2015": (0.01, 20), "softclique": (1e-8, 10)}


class Unavailable(Exception):
    """An input is missing; the message gives the reason."""


class MetricInputs:
    """Inputs of ``evaluate_topics`` and attributes of ``topics`` by name; a missing one raises ``Unavailable``."""

    def __init__(self, values: Mapping[str, Any], reasons: Mapping[str, str]):
        self._values, self._reasons = values, reasons

    def __getattr__(self, name: str) -> Any:
        value = self._values.get(name)
        if value is None:
            raise Unavailable(self._reasons.get(name, f"the model has no {name}"))
        return value

    @property
    def exact_rows(self) -> Floats | None:
        """Rows of C of the representatives, (K, N), if they were counted."""
        counts = self._values.get("counts")
        return None if counts is None else counts.anchor_rows

    @property
    def anchor_rows(self) -> Floats:
        """Rows of C of the representatives, (K, N): exact if counted, otherwise those of the factor."""
        if self.exact_rows is not None:
            return self.exact_rows
        return cooccurrence_rows(self.cooccurrence, self.topics.representatives)

    @cached_property
    def factorization(self) -> dict[str, Any]:
        """Errors of the factorization: estimated for the documents if they were sketched, otherwise for the factor."""
        counts = self._values.get("counts")
        if counts is None or counts.sketch is None:
            return asdict(factorization_errors(self.topics, self.cooccurrence))
        return asdict(estimated_errors(self.topics, self.cooccurrence, counts.sketch))

    def approximation(self, name: str) -> Any:
        return self.topic_topic is not None and self.factorization[name]

    @cached_property
    def of_top_words(self) -> dict[str, Any]:
        """Metrics that need document counts of top words."""
        return top_word_metrics(self.top_words, self.counts)

    def log_relative_volume(self) -> Estimate | None:
        """``log_relative_volume`` of the representatives; None if their hull has no volume."""
        topics, rows = self.topics, self.exact_rows
        needs_factor = topics.rectified is None and rows is None
        points = anchor_points(topics, self.cooccurrence if needs_factor else None, rows)
        if points is None:
            return None
        return log_relative_volume(points, len(topics.word_topic), seed=self.seed)


class Line(NamedTuple):
    """How a number is displayed: its keys under ``metrics``, joined by dots, better direction, and meaning."""

    path: str
    better: str
    meaning: str


class Metric:
    """A metric, or one part of it after a dot in ``path``: the function that computes it, and its numbers."""

    def __init__(self, path: str, compute: Callable[[MetricInputs], Any], *lines: Line) -> None:
        self.path, self.compute, self.lines = path, compute, lines


def metric(path: str, better: str, meaning: str, compute: Callable[[MetricInputs], Any]) -> Metric:
    """A metric with a single number."""
    return Metric(path, compute, Line(path, better, meaning))


#: In the order of the result of ``evaluate``.
METRICS = (
    metric("recovery", "lower", "distance of words from their mixtures of anchors",
           lambda of: of.factorization["recovery"]),
    metric("relative_recovery", "lower", "the same, relative to the matrix",
           lambda of: of.factorization["relative_recovery"]),
    metric("approximation", "lower", "co-occurrence that the topics do not explain",
           lambda of: of.approximation("approximation")),
    metric("relative_approximation", "lower", "the same, relative to the matrix",
           lambda of: of.approximation("relative_approximation")),
    metric("dominancy", "-", "topics that occur alone; 1 if no two occur together",
           lambda of: topic_shape.dominancy(of.topic_topic)),
    metric("relative_dominancy", "-", "the same, as in the paper of 2021",
           lambda of: topic_shape.relative_dominancy(of.topic_topic)),
    metric("specificity.2015", "higher", "topics unlike the whole corpus, by its tokens; nats",
           lambda of: topic_shape.specificity(of.word_topic, of.word_probability)),
    metric("specificity.2021", "higher", "the same by the row sums of the co-occurrence matrix",
           lambda of: topic_shape.specificity(of.word_topic, of.cooccurrence.row_sum)),
    metric("dissimilarity", "higher", "words among the top 20 that no other topic lists",
           lambda of: topic_shape.dissimilarity(of.top_words)),
    metric("distinct_share", "higher", "top 10 words that no other topic repeats; read it with npmi",
           lambda of: coherence.distinct_share(of.top_words[:, :TOP_WORDS])),
    metric("effective_topics", "near K", "number of topics that make up the corpus",
           lambda of: topic_shape.effective_topics(of.topic_probability)),
    metric("hoyer_sparsity", "-", "few words make up a topic; from 0 to 1",
           lambda of: topic_shape.hoyer_sparsity(of.word_topic)),
    metric("legality", "near 1", "sum of the topic correlations",
           lambda of: float(of.topic_topic.sum())),
    metric("validity", "lower", "bits between topic shares by correlations and by words",
           lambda of: topic_shape.validity(of.topic_topic, of.topic_probability)),
    metric("entropy", "-", "words that belong to many topics; from 0 to 1",
           lambda of: topic_shape.word_entropy(of.topics)),
    Metric("basis_rank", lambda of: topic_shape.basis_rank(of.word_topic, of.anchors),
           Line("basis_rank.hard", "-", "rank of an anchor in its own topic"),
           Line("basis_rank.soft", "-", "log of the topic's largest probability over the anchor's")),
    Metric("basis_quality", lambda of: topic_shape.basis_quality(of.word_topic, of.anchors),
           Line("basis_quality.hard", "higher", "rank of an anchor in the other topics"),
           Line("basis_quality.soft", "lower", "probability of an anchor in the other topics")),
    Metric("coherence", lambda of: of.of_top_words["coherence"],
           Line("coherence.mimno_2011", "higher", "sum over pairs of the top 10 words, epsilon 1"),
           Line("coherence.jsmf_2015", "higher", "the same of the top 20 words, epsilon 0.01"),
           Line("coherence.softclique", "higher", "the same of the top 10 words, epsilon 1e-8")),
    metric("u_mass", "higher", "a top word occurs where a more frequent one does; at most 0",
           lambda of: of.of_top_words["u_mass"]),
    metric("npmi", "higher", "top 10 words occur in the same documents; from -1 to 1",
           lambda of: of.of_top_words["npmi"]),
    metric("mst_incoherence.cooccurrence", "lower", "the same by the co-occurrence matrix",
           lambda of: _per_topic(coherence.incoherence_in_cooccurrence(of.topics, of.cooccurrence, of.anchor_rows))),
    metric("mst_incoherence.documents", "lower", "distance between top words, by documents",
           lambda of: _per_topic(coherence.incoherence_in_documents(of.topics, of.counts, of.anchor_rows))),
    metric("log_relative_volume", "higher", "hull of the anchors relative to random hulls",
           lambda of: _estimate(of.log_relative_volume())),
    Metric("perplexity", lambda of: perplexity_fields(of.completion),
           Line("perplexity.model", "lower", "equally likely words; half a document predicts the other"),
           Line("perplexity.unigram", "-", "the same from word frequencies alone"),
           Line("perplexity.tokens_without_mass", "lower", "share of these tokens whose word no topic has")),
    metric("recovery_error", "lower", "L1 distance to the true topics; from 0 to 2",
           lambda of: recovery_error(of.word_topic, of.truth)),
    metric("stability", "higher", "agreement with topics of resampled partitions; from 0 to 1",
           lambda of: _estimate(stability(of.word_topic, of.replicas))),
)  # fmt: skip

#: Metrics in the order in which they are displayed.
DISPLAYED = (
    "npmi", "distinct_share", "perplexity", "u_mass", "coherence", "mst_incoherence.documents",
    "mst_incoherence.cooccurrence", "specificity.2015", "specificity.2021", "dissimilarity", "recovery",
    "relative_recovery", "approximation", "relative_approximation", "dominancy", "relative_dominancy",
    "log_relative_volume", "recovery_error", "stability", "effective_topics", "hoyer_sparsity", "legality",
    "validity", "entropy", "basis_rank", "basis_quality",
)  # fmt: skip

LINES = tuple(line for path in DISPLAYED for each in METRICS if each.path == path for line in each.lines)


def evaluate_topics(
    topics: TopicArrays | None, *, reasons: Mapping[str, str] | None = None, **inputs: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Compute all metrics that the inputs allow. No pass over documents; O(N L^2) at most.

    Returns the value of each metric, and the reason for each metric, or part of one, that is None. ``topics`` may be
    None if ``top_words``, ``topic_probability`` and ``topic_topic`` are given by name; ``reasons`` explain missing
    inputs. Raises ``ValueError`` if the vocabularies differ, or a top word was not counted.

    Other inputs: ``cooccurrence``, C of the training corpus; ``counts`` and ``completion`` of one corpus, training or
    held-out; ``truth`` (N, K*), topics that generated the corpus; ``replicas`` (N, K'), topics of bootstrap models;
    ``seed`` of the random hulls.

    Examples
    --------
    >>> one_topic = TopicArrays(np.full((2, 1), 0.5), np.array([[0, 1]]), np.full(2, 0.5))
    >>> metrics, missing = evaluate_topics(one_topic, reasons={"cooccurrence": "no moments"})
    >>> metrics["distinct_share"], metrics["specificity"], missing["recovery"]
    (1.0, {'2015': 0.0, '2021': None}, 'no moments')
    """
    arrays = {} if topics is None else vars(topics)
    given = MetricInputs({"seed": 0, "topics": topics, **arrays, **inputs}, reasons or {})
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for each in METRICS:
        value, reason = None, "not defined for these topics"
        try:
            value = each.compute(given)
        except Unavailable as error:
            reason = str(error)
        name, _, part = each.path.partition(".")
        if part:
            metrics.setdefault(name, {})[part] = value
        else:
            metrics[name] = value
        if value is None:
            missing[each.path] = reason
        else:
            missing |= {line.path: reason for line in each.lines if lookup(metrics, line.path) is None}
    return metrics, missing


def lookup(metrics: Mapping[str, Any], path: str) -> Any:
    """Value of a metric by the path of its line; None if it is missing."""
    value: Any = metrics
    for key in path.split("."):
        value = None if value is None else value.get(key)
    return value


class Row(NamedTuple):
    """A row of the table of metrics: path, value as text, better direction, and meaning."""

    path: str
    value: str
    better: str
    meaning: str


def rows_of(metrics: Mapping[str, Any]) -> tuple[Row, ...]:
    """The numbers that are known, in the order of ``METRICS``."""
    values = ((line, lookup(metrics, line.path)) for line in LINES)
    return tuple(
        Row(line.path, number_text(value), line.better, line.meaning)
        for line, value in values
        if value is not None
    )


def number_of(value: Any) -> float | None:
    """A metric as one number: its value, or its mean over topics; None if it is missing."""
    if isinstance(value, Mapping):
        value = value["mean"] if "mean" in value else value["value"]
    return None if value is None else float(value)


def number_text(value: Any) -> str:
    """Format a metric: its value with the standard error, or its mean over topics."""
    error = value.get("standard_error") if isinstance(value, Mapping) else None
    return f"{number_of(value):.4g}" + ("" if error is None else f" +- {error:.1g}")


def top_word_metrics(top_words: Integers, counts: SelectedCounts) -> dict[str, Any]:
    """``npmi``, ``u_mass`` and ``coherence`` of top words (K, n); None if n < 2.

    Examples
    --------
    Of four documents two contain each word and one contains both, as expected by chance.

    >>> counts = SelectedCounts(np.array([0, 1]), np.array([[2, 1], [1, 2]]), 4)
    >>> top_word_metrics(np.array([[0, 1]]), counts)["npmi"]
    {'mean': 0.0, 'per_topic': [0.0]}
    """
    if top_words.shape[1] < 2:
        return dict.fromkeys(("npmi", "u_mass", "coherence"))
    listed = counts.positions(top_words[:, : max(words for _, words in COHERENCES.values())])
    frequency, first = np.diag(counts.pairs), listed[:, :TOP_WORDS]
    return {
        "npmi": _per_topic(coherence.npmi(frequency, counts.pairs, counts.n_documents, first)),
        "u_mass": _per_topic(coherence.u_mass(frequency, counts.pairs, counts.n_documents, first)),
        "coherence": {
            name: {"epsilon": epsilon, "words": listed[:, :words].shape[1]}
            | _per_topic(coherence.coherence(frequency, counts.pairs, listed[:, :words], epsilon=epsilon))
            for name, (epsilon, words) in COHERENCES.items()
        },
    }


def perplexity_fields(completion: Completion) -> dict[str, Any]:
    """JSON values of the metric ``perplexity``.

    Examples
    --------
    Two tokens of probability 1/8 by the topics, and 1/16 by the words' frequencies.

    >>> sums = Completion(1, tokens=2, log_likelihood=-6 * np.log(2), unigram_log_likelihood=-8 * np.log(2))
    >>> found = perplexity_fields(sums)
    >>> round(found["model"], 6), round(found["unigram"], 6), found["tokens_without_mass"]
    (8.0, 16.0, 0.0)
    """
    return {
        "model": completion.perplexity,
        "unigram": completion.unigram_perplexity,
        "tokens_without_mass": completion.tokens_without_mass,
        "documents": completion.documents,
        "tokens": completion.tokens,
        "unseen_tokens": completion.unseen,
        "unconverged": completion.unconverged,
    }


def _estimate(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate)


def _per_topic(values: Floats) -> dict[str, Any]:
    return {"mean": float(values.mean()), "per_topic": values.tolist()}
