"""The metrics of models as a table: one line each, whether higher is better, and why some are missing."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streaming_jsmf.evaluation.metrics import LINES, lookup, number_of, number_text

WIDTH = 110


def format_metrics(document: Mapping[str, Any]) -> str:
    """The result of ``evaluate`` as text, without topics and warnings."""
    lines = [f"{'metric':<29} {'value':>18}  {'better':<7} meaning"]
    for line in LINES:
        value = lookup(document["metrics"], line.path)
        if value is not None:
            lines.append(f"{line.path:<29} {number_text(value):>18}  {line.better:<7} {line.meaning}")
    return "\n".join([*_heading(document), *lines, *_missing(document["missing"])])


def format_several(documents: Sequence[Mapping[str, Any]]) -> str:
    """The results of several models as one table: a line per metric, a column per model, a star on the best value."""
    heads = [Path(document["model"]).name for document in documents]
    lines = [f"{'metric':<29}" + "".join(f" {head:>10}" for head in heads) + "  better"]
    for line in LINES:
        values = [lookup(document["metrics"], line.path) for document in documents]
        if any(value is not None for value in values):
            best = _best([number_of(value) for value in values], line.better)
            cells = [_cell(value, place == best) for place, value in enumerate(values)]
            lines.append(f"{line.path:<29}" + "".join(f" {cell:>10}" for cell in cells) + f"  {line.better}")
    corpora = [*_heading(documents[0])][1:]
    return "\n".join([*corpora, *lines, *_missing(_in_all(documents))])


def _cell(value: Any, best: bool) -> str:
    number = number_of(value)
    return "-" if number is None else f"{number:.4g}{'*' if best else ''}"


def _best(numbers: Sequence[float | None], better: str) -> int | None:
    """The index of the best number; None if neither direction is better, or there are fewer than two numbers."""
    known = [(number, place) for place, number in enumerate(numbers) if number is not None]
    if better not in ("higher", "lower") or len(known) < 2:
        return None
    return max(known, key=lambda pair: (pair[0] if better == "higher" else -pair[0], -pair[1]))[1]


def _in_all(documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The metrics that are missing for every model."""
    first, *others = (document["missing"] for document in documents)
    return {name: reason for name, reason in first.items() if all(name in other for other in others)}


def format_topic_scores(document: Mapping[str, Any]) -> str:
    """One line per topic: number, NPMI if known, and prominent words."""
    lines = [f"{'topic':>5} {'npmi':>7}  prominent words"]
    for topic in document["topics"]:
        score = "-" if topic["npmi"] is None else f"{topic['npmi']:.3f}"
        lines += textwrap.wrap(
            ", ".join(topic["prominent"]),
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
    """The missing metrics, grouped by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"missing: {', '.join(names)}: {reason}"
