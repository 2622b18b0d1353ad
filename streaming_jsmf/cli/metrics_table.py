"""The table of metrics that people read: a line each, which direction is good, and why some are missing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from streaming_jsmf.evaluation.glossary import LINES, lookup, number_text

WIDTH = 110


def format_metrics(document: Mapping[str, Any]) -> str:
    """Lay out the document of ``evaluate`` as text, without its topics and warnings."""
    lines = [f"{'metric':<29} {'value':>18}  {'better':<7} what it tells"]
    for line in LINES:
        value = lookup(document["metrics"], line.path)
        if value is not None:
            lines.append(f"{line.path:<29} {number_text(value):>18}  {line.better:<7} {line.meaning}")
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


def _missing(missing: Mapping[str, str]) -> Iterator[str]:
    """The metrics that are missing, together where the reason is the same."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"missing: {', '.join(names)}: {reason}"
