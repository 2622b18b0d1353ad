"""Every metric in a line: which direction is good, and what it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Line:
    """A line of the table.

    Attributes
    ----------
    path
        Keys of the value under ``metrics``, with dots between.
    better
        Which direction is good; a dash where none is.
    meaning
        In a few words.
    """

    path: str
    better: str
    meaning: str


LINES = (
    Line("npmi", "higher", "top 10 words meet in the same documents; from -1 to 1"),
    Line("distinct_share", "higher", "top 10 words that are not repeated; read it beside npmi"),
    Line("perplexity.model", "lower", "equally likely words; half a document predicts the other"),
    Line("perplexity.unigram", "-", "the same by the words' frequencies alone"),
    Line("perplexity.tokens_without_mass", "lower", "share of these tokens whose word no topic has"),
    Line("u_mass", "higher", "a top word is there where a more frequent one is; at most 0"),
    Line("coherence.mimno_2011", "higher", "sum over pairs of the top 10 words, epsilon 1"),
    Line("coherence.jsmf_2015", "higher", "the same of the top 20 words, epsilon 0.01"),
    Line("coherence.softclique", "higher", "the same of the top 10 words, epsilon 1e-8"),
    Line("mst_incoherence.documents", "lower", "top words apart from each other, by documents"),
    Line("mst_incoherence.cooccurrence", "lower", "the same by the co-occurrence matrix"),
    Line("specificity.2015", "higher", "topics unlike the whole corpus, by its tokens; nats"),
    Line("specificity.2021", "higher", "the same by the row sums of the co-occurrence matrix"),
    Line("dissimilarity", "higher", "of a topic's top 20 words, those of no other topic"),
    Line("recovery", "lower", "words unlike the mixture of anchors that stands for them"),
    Line("relative_recovery", "lower", "the same, relative to the matrix"),
    Line("approximation", "lower", "co-occurrence that the topics do not explain"),
    Line("relative_approximation", "lower", "the same, relative to the matrix"),
    Line("dominancy", "-", "topics that keep to themselves; 1 where no two go together"),
    Line("relative_dominancy", "-", "the same, as in the paper of 2021"),
    Line("log_relative_volume", "higher", "hull of the anchors against random ones"),
    Line("recovery_error", "lower", "L1 distance to the true topics; from 0 to 2"),
    Line("stability", "higher", "agreement with topics of resampled partitions; from 0 to 1"),
    Line("effective_topics", "near K", "topics that carry the corpus"),
    Line("hoyer_sparsity", "-", "few words carry a topic; from 0 to 1"),
    Line("legality", "near 1", "sum of the topic correlations"),
    Line("validity", "lower", "bits between the shares of topics by correlations and by words"),
    Line("entropy", "-", "words that belong to many topics alike; from 0 to 1"),
    Line("basis_rank.hard", "-", "rank of an anchor in its own topic"),
    Line("basis_rank.soft", "-", "log of the topic's largest probability over the anchor's"),
    Line("basis_quality.hard", "higher", "rank of an anchor in the other topics"),
    Line("basis_quality.soft", "lower", "probability of an anchor in the other topics"),
)


def lookup(metrics: Mapping[str, Any], path: str) -> Any:
    """The value of a metric by the path of its line; None if it is missing."""
    value: Any = metrics
    for key in path.split("."):
        value = None if value is None else value.get(key)
    return value


def number_of(value: Any) -> float | None:
    """A metric as one number: its value, or its mean over the topics; None if it is missing."""
    if isinstance(value, Mapping):
        return float(value["mean"] if "mean" in value else value["value"])
    return None if value is None else float(value)


def number_text(value: Any) -> str:
    """A metric in a few digits: its value with the standard error, or its mean over the topics."""
    if not isinstance(value, Mapping):
        return f"{value:.4g}"
    if "mean" in value:
        return f"{value['mean']:.4g}"
    error = value.get("standard_error")
    return f"{value['value']:.4g}" + ("" if error is None else f" +- {error:.1g}")
