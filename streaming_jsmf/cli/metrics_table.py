"""The table of metrics that people read: a line each, which direction is good, and why some are missing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

WIDTH = 110


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
    Line("u_mass", "higher", "a top word is there where a more frequent one is; at most 0"),
    Line("coherence.mimno_2011", "higher", "sum over pairs of the top 10 words, epsilon 1"),
    Line("coherence.jsmf_2015", "higher", "the same of the top 20 words, epsilon 0.01"),
    Line("coherence.softclique", "higher", "the same of the top 10 words, epsilon 1e-8"),
    Line("mst_incoherence.documents", "lower", "top words apart from each other, by documents"),
    Line("mst_incoherence.cooccurrence", "lower", "the same by the co-occurrence matrix"),
    Line("specificity.2015", "higher", "topics unlike the whole corpus, by its tokens"),
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
)


def format_metrics(document: Mapping[str, Any]) -> str:
    """Lay out the document of ``evaluate`` as text, without its topics and warnings."""
    lines = [f"{'metric':<29} {'value':>18}  {'better':<7} what it tells"]
    for line in LINES:
        value = _lookup(document["metrics"], line.path)
        if value is not None:
            lines.append(f"{line.path:<29} {_number(value):>18}  {line.better:<7} {line.meaning}")
    return "\n".join([*_heading(document), *lines, *_missing(document["missing"])])


def format_topic_scores(document: Mapping[str, Any]) -> str:
    """Each topic on a line: number, NPMI if it is known, and its prominent words."""
    lines = [f"{'topic':>5} {'npmi':>7}  prominent words"]
    for topic in document["topics"]:
        score = "-" if topic["npmi"] is None else f"{topic['npmi']:.3f}"
        lines += textwrap.wrap(
            " ".join(topic["prominent"]),
            WIDTH,
            initial_indent=f"{topic['topic']:>5} {score:>7}  ",
            subsequent_indent=" " * 15,
        )
    return "\n".join(lines)


def _heading(document: Mapping[str, Any]) -> Iterator[str]:
    yield f"model: {document['model']} ({document['n_topics']} topics, {document['n_words']} words)"
    corpus = document["corpus"]
    if corpus is not None:
        kind = "training corpus" if corpus["training"] else "another corpus"
        yield f"words counted in: {corpus['path']} ({kind}, {corpus['n_documents_counted']} documents)"


def _lookup(metrics: Mapping[str, Any], path: str) -> Any:
    value: Any = metrics
    for key in path.split("."):
        value = None if value is None else value.get(key)
    return value


def _number(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"{value:.4g}"
    if "mean" in value:
        return f"{value['mean']:.4g}"
    error = value.get("standard_error")
    return f"{value['value']:.4g}" + ("" if error is None else f" +- {error:.1g}")


def _missing(missing: Mapping[str, str]) -> Iterator[str]:
    """The metrics that are missing, together where the reason is the same."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"missing: {', '.join(names)}: {reason}"
