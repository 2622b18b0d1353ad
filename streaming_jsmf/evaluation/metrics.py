"""All metrics of a model: ``METRICS`` defines what each needs, and how it is computed and displayed.

Values are JSON values with finite floats (``docs/schemas/evaluate.schema.json``), or None if an input is missing or
the metric is undefined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from streaming_jsmf.evaluation import coherence, topic_shape
from streaming_jsmf.evaluation.factorization import factorization_errors
from streaming_jsmf.evaluation.inputs import SelectedCounts, TopicArrays, lookup
from streaming_jsmf.evaluation.topic_shape import recovery_error, stability
from streaming_jsmf.inference.completion import Completion
from streaming_jsmf.linalg.probes import Estimate
from streaming_jsmf.linalg.typing import Floats, Integers

#: Number of top words in NPMI, UMass and the distinct share.
TOP_WORDS = 10
#: Name of a coherence -> its epsilon and largest number of top words in the paper.
COHERENCES = {"mimno_2011": (1.0, 10), "jsmf_2015": (0.01, 20), "softclique": (1e-8, 10)}
#: Reason for a metric that is missing although its inputs are there.
UNDEFINED = "not defined for these topics"


class Unavailable(Exception):
    """An input is missing; the message gives the reason."""


class MetricInputs(SimpleNamespace):
    """Inputs of ``evaluate_topics`` and the arrays of ``topics`` by name; those that are missing are None.

    ``anchor_rows`` are the rows of C of the representatives, (K, N), as counted or else by the moments store.
    ``explained`` is C that Recovery and Approximation refer to: of the counted documents, or else of the store if it is
    that of all documents.
    """

    @cached_property
    def factorization(self) -> dict[str, Any]:
        """Errors of the factorization."""
        return asdict(factorization_errors(self.topics, self.explained))

    @cached_property
    def of_top_words(self) -> dict[str, Any]:
        """Metrics that need document counts of top words."""
        return top_word_metrics(self.top_words, self.counts)


#: Inputs of metrics, besides the arrays of ``TopicArrays``.
INPUTS = ("cooccurrence", "counts", "completion", "truth", "replicas", "exclusivity")


def _inputs(topics: TopicArrays | None, given: Mapping[str, Any]) -> MetricInputs:
    arrays = {name: getattr(topics, name, None) for name in TopicArrays.__dataclass_fields__}
    of = MetricInputs(**{**dict.fromkeys(INPUTS), "topics": topics, **arrays, **given})
    if of.exclusivity is None and of.word_topic is not None:
        of.exclusivity = topic_shape.exclusivity(of.word_topic, of.top_words[:, :TOP_WORDS])
    of.explained = None if of.counts is None else of.counts.cooccurrence
    if of.explained is None and of.cooccurrence is not None and of.cooccurrence.is_whole:
        of.explained = of.cooccurrence
    c = of.cooccurrence if of.explained is None else of.explained
    of.anchor_rows = None if topics is None or c is None else c.rows(topics.representatives)
    return of


#: Names for people of metrics whose paths, the names of the papers, say little.
TITLES = {
    "npmi": "NPMI",
    "distinct_share": "distinct words",
    "perplexity.model": "perplexity",
    "perplexity.unigram": "perplexity without topics",
    "perplexity.tokens_without_mass": "tokens without a topic",
    "u_mass": "coherence of gensim (UMass)",
    "coherence": "semantic coherence",
    "coherence.mimno_2011": "semantic coherence",
    "coherence.jsmf_2015": "semantic coherence of 20 words",
    "coherence.softclique": "semantic coherence, strict",
    "exclusivity": "exclusivity (FREX)",
    "mst_incoherence.documents": "incoherence",
    "mst_incoherence.cooccurrence": "incoherence by co-occurrence",
    "specificity.2015": "distance from the corpus",
    "specificity.2021": "distance from the weighted corpus",
    "dissimilarity": "words of one topic alone",
    "recovery": "error of words",
    "relative_recovery": "relative error of words",
    "approximation": "unexplained co-occurrence",
    "relative_approximation": "unexplained share of co-occurrence",
    "dominancy": "separateness",
    "relative_dominancy": "relative separateness",
    "recovery_error": "distance from the truth",
    "effective_topics": "effective number of topics",
    "hoyer_sparsity": "concentration on few words",
}


def title_of(path: str) -> str:
    """The name of a metric, or of a part of it, for people."""
    return TITLES.get(path, path)


class Shown(NamedTuple):
    """How a number is displayed: its keys under ``metrics``, joined by dots, better direction, and meaning."""

    path: str
    better: str
    meaning: str

    @property
    def title(self) -> str:
        """Its name for people."""
        return title_of(self.path)


class Metric(NamedTuple):
    """A metric, or one part of it after a dot in ``path``.

    ``needs`` names the inputs without which it is missing, ``source`` the paper with the formula; ``compute`` gives the
    value from all inputs, and ``shown`` are its numbers.
    """

    path: str
    needs: tuple[str, ...]
    source: str
    compute: Callable[[MetricInputs], Any]
    shown: tuple[Shown, ...]


def _metric(
    path: str, better: str, meaning: str, needs: str, source: str, compute: Callable[[MetricInputs], Any]
) -> Metric:
    """A metric with a single number."""
    return Metric(path, tuple(needs.split()), source, compute, (Shown(path, better, meaning),))


#: In the order in which they are displayed.
METRICS = (
    _metric("npmi", "higher", "top 10 words occur in the same documents; from -1 to 1",
            "top_words counts", "Lau, Newman and Baldwin 2014", lambda of: of.of_top_words["npmi"]),
    _metric("distinct_share", "higher", "top 10 words that no other topic repeats; read it with NPMI",
            "top_words", "Dieng, Ruiz and Blei 2020", lambda of: coherence.distinct_share(of.top_words[:, :TOP_WORDS])),
    Metric("perplexity", ("completion",), "Wallach et al. 2009", lambda of: perplexity_fields(of.completion), (
        Shown("perplexity.model", "lower", "as hard as to guess one of so many words, given half of a document"),
        Shown("perplexity.unigram", "-", "the same, given word frequencies alone"),
        Shown("perplexity.tokens_without_mass", "lower", "share of these tokens whose word no topic has"))),
    _metric("u_mass", "higher", "a top word occurs where a more frequent one does; at most 0",
            "top_words counts", "gensim", lambda of: of.of_top_words["u_mass"]),
    _metric("exclusivity", "higher", "top 10 words belong to this topic rather than to others; at most 10",
            "exclusivity", "Bischof and Airoldi 2012; stm", lambda of: _per_topic(of.exclusivity)),
    Metric("coherence", ("top_words", "counts"), "Mimno et al. 2011", lambda of: of.of_top_words["coherence"], (
        Shown("coherence.mimno_2011", "higher", "top 10 words occur in the same documents; near 0 is best"),
        Shown("coherence.jsmf_2015", "higher", "the same of 20 words, pairs that never do count more"),
        Shown("coherence.softclique", "higher", "the same of 10 words, pairs that never do count most"))),
    _metric("mst_incoherence.documents", "lower", "top words do not occur together, even in two groups",
            "topics counts anchor_rows", "LR-JSMF 2021, section 5",
            lambda of: _per_topic(coherence.incoherence_in_documents(of.topics, of.counts, of.anchor_rows))),
    _metric("mst_incoherence.cooccurrence", "lower", "the same by how often words occur together",
            "topics cooccurrence", "LR-JSMF 2021, section 5",
            lambda of: _per_topic(coherence.incoherence_in_cooccurrence(of.topics, of.cooccurrence, of.anchor_rows))),
    _metric("specificity.2015", "higher", "topics have other words than the whole corpus; nats",
            "word_topic", "JSMF 2015", lambda of: topic_shape.specificity(of.word_topic, of.word_probability)),
    _metric("specificity.2021", "higher", "the same, with the weights of documents in the scan",
            "word_topic cooccurrence", "LR-JSMF 2021, section 5",
            lambda of: topic_shape.specificity(of.word_topic, of.cooccurrence.row_sum)),
    _metric("dissimilarity", "higher", "words among the top 20 that no other topic lists",
            "top_words", "JSMF 2015", lambda of: topic_shape.dissimilarity(of.top_words)),
    _metric("recovery", "lower", "words are not mixtures of their topics' anchors",
            "topics explained", "JSMF 2015", lambda of: of.factorization["recovery"]),
    _metric("relative_recovery", "lower", "the same, relative to how often words occur together",
            "topics explained", "LR-JSMF 2021, section 5", lambda of: of.factorization["relative_recovery"]),
    _metric("approximation", "lower", "words occur together in ways that no topic explains",
            "topic_topic topics explained", "JSMF 2015", lambda of: of.factorization["approximation"]),
    _metric("relative_approximation", "lower", "the same, relative to how often words occur together",
            "topic_topic topics explained", "LR-JSMF 2021, section 5",
            lambda of: of.factorization["relative_approximation"]),
    _metric("dominancy", "-", "documents have one topic alone; 1 if no two occur together",
            "topic_topic", "JSMF 2015", lambda of: topic_shape.dominancy(of.topic_topic)),
    _metric("relative_dominancy", "-", "the same, by another formula",
            "topic_topic", "LR-JSMF 2021, section 5", lambda of: topic_shape.relative_dominancy(of.topic_topic)),
    _metric("recovery_error", "lower", "topics differ from the simulated ones; from 0 to 2",
            "word_topic truth", "STOD 2014, section 6.1", lambda of: recovery_error(of.word_topic, of.truth)),
    _metric("stability", "higher", "agreement with topics of resampled partitions; from 0 to 1",
            "word_topic replicas", "", lambda of: _estimate(stability(of.word_topic, of.replicas))),
    _metric("effective_topics", "near K", "number of topics that make up the corpus",
            "topic_probability", "Hill 1973", lambda of: topic_shape.effective_topics(of.topic_probability)),
    _metric("hoyer_sparsity", "-", "few words make up a topic; from 0 to 1",
            "word_topic", "Hoyer 2004", lambda of: topic_shape.hoyer_sparsity(of.word_topic)),
)  # fmt: skip

#: All numbers, in the order in which they are displayed.
SHOWN = tuple(number for each in METRICS for number in each.shown)


def evaluate_topics(
    topics: TopicArrays | None, *, reasons: Mapping[str, str] | None = None, **inputs: Any
) -> tuple[dict[str, Any], dict[str, str]]:
    """Compute all metrics that the inputs allow. No pass over the corpus; at most O(N^2 K) and the rows of C.

    Returns the value of each metric, and the reason for each metric, or part of one, that is None. ``topics`` may be
    None if ``top_words``, ``topic_probability`` and ``topic_topic`` are given by name; ``reasons`` explain missing
    inputs. Raises ``ValueError`` if a top word was not counted.

    Other inputs: ``cooccurrence``, C of the training corpus; ``counts`` and ``completion`` of one corpus, training or
    held-out; ``truth`` (N, K*), topics that generated the corpus; ``replicas`` (N, K'), topics of bootstrap
    models; ``exclusivity`` (K,), computed from the topics by default.

    Examples
    --------
    >>> one_topic = TopicArrays(np.full((2, 1), 0.5), np.array([[0, 1]]), np.full(2, 0.5))
    >>> metrics, missing = evaluate_topics(one_topic, reasons={"cooccurrence": "no moments"})
    >>> metrics["distinct_share"], metrics["specificity"], missing["recovery"]
    (1.0, {'2015': 0.0, '2021': None}, 'no moments')
    """
    of, reasons = _inputs(topics, inputs), reasons or {}
    metrics: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for each in METRICS:
        absent = next((name for name in each.needs if getattr(of, name) is None), None)
        value = each.compute(of) if absent is None else None
        name, _, part = each.path.partition(".")
        if part:
            metrics.setdefault(name, {})[part] = value
        else:
            metrics[name] = value
        if absent is not None:
            is_of_c = absent in ("anchor_rows", "explained") and of.cooccurrence is None
            source = "cooccurrence" if is_of_c else absent
            missing[each.path] = reasons.get(source, f"the model has no {source}")
        elif value is None:
            missing[each.path] = UNDEFINED
        else:
            missing |= {
                number.path: UNDEFINED for number in each.shown if lookup(metrics, number.path) is None
            }
    return metrics, missing


class Row(NamedTuple):
    """A row of the table of metrics: name for people, value as text, better direction, and meaning."""

    title: str
    value: str
    better: str
    meaning: str


def rows_of(metrics: Mapping[str, Any]) -> tuple[Row, ...]:
    """The numbers that are known, in the order of ``METRICS``."""
    values = ((number, lookup(metrics, number.path)) for number in SHOWN)
    return tuple(
        Row(number.title, number_text(value), number.better, number.meaning)
        for number, value in values
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
    """``npmi``, ``u_mass`` and ``coherence`` of top words (K, n); None if n < 2."""
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
    """JSON values of the metric ``perplexity``."""
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
