"""The few measures by which models of several K are compared, of a model that is there."""

from __future__ import annotations

from streaming_jsmf.evaluation import coherence
from streaming_jsmf.evaluation.inputs import SelectedCounts
from streaming_jsmf.evaluation.stored_counts import StoredCounts
from streaming_jsmf.evaluation.summary import TOP_WORDS, document_metrics
from streaming_jsmf.topics.store import Model

#: Arrays that are read, and those that decide which counts are the model's.
NEEDED, OPTIONAL = ("word", "prominent_words"), ("anchors", "characteristic_words")


def perplexity_of(model: Model) -> float | None:
    """Of the documents that polish kept out, at its end; None of a model that was not polished, or without them."""
    told = (model.metrics.get("polish") or {}).get("perplexity")
    return float(told[-1]["perplexity"]) if told else None


def npmi_of(model: Model, counts: StoredCounts) -> float:
    """Mean over the topics, of their top 10 words."""
    selected = SelectedCounts(counts.words, counts.pairs, counts.n_documents)
    return float(document_metrics(model.arrays["prominent_words"], selected)["npmi"]["mean"])


def distinct_share_of(model: Model) -> float:
    """Of the top 10 words of all topics, those that are not repeated."""
    return float(coherence.distinct_share(model.arrays["prominent_words"][:, :TOP_WORDS]))
