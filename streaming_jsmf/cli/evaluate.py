"""The verb ``evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.verb import json_option, json_text, options_of, path, verb
from streaming_jsmf.config import EvaluationRequest
from streaming_jsmf.display import table, wrapped


@verb(
    "streaming-jsmf evaluate MODEL --corpus CORPUS",
    "streaming-jsmf evaluate MODELS          (of several K, in one table)",
)
@path("model")
@options_of(EvaluationRequest)
@json_option()
def evaluate(model: str, as_json: bool = False, **options: Any) -> Callable[[], None]:
    """Evaluate the topics of MODEL by all available metrics.

    Models of several K are compared in one table. MODEL records the path of its moments store. Metrics that read
    documents require --corpus the first time. Run the same command again to resume after an interruption.
    docs/evaluation.md explains the metrics.
    """
    from streaming_jsmf.evaluation.evaluate import evaluate as run
    from streaming_jsmf.topics.store import models_at

    results = [run(path, **options) for path in models_at(model)]
    return partial(_print, results, as_json, listed="words" in options)


def _print(results: list[dict[str, Any]], as_json: bool, *, listed: bool) -> None:
    several = len(results) > 1
    if as_json:
        click.echo(json_text(results if several else results[0]))
    else:
        click.echo("\n".join(_several(results) if several else _one(results[0])))
    for result in results:
        if listed and not as_json:
            click.echo(f"model: {result['model']}" if several else "", nl=several)
            click.echo("\n".join(_topics(result)))
        for sentence in result["warnings"]:
            click.echo(f"warning: {result['model'] + ': ' if several else ''}{sentence}", err=True)


def _one(result: Mapping[str, Any]) -> Iterator[str]:
    """The metrics of a model, one per line."""
    from streaming_jsmf.evaluation.metrics import rows_of

    yield f"model: {result['model']} ({result['n_topics']} topics, {result['n_words']} words)"
    yield from _corpus(result)
    yield table([("metric", "value", "better", "meaning"), *rows_of(result["metrics"])], "<><<")
    yield from _missing(result["missing"])


def _several(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The metrics of several models: a line per metric, a column per model, a star on the best value."""
    from streaming_jsmf.evaluation.inputs import lookup
    from streaming_jsmf.evaluation.metrics import SHOWN, number_of

    rows = [("metric", *(Path(result["model"]).name for result in results), "better")]
    for shown in SHOWN:
        numbers = [number_of(lookup(result["metrics"], shown.path)) for result in results]
        if any(number is not None for number in numbers):
            best = _best(numbers, shown.better)
            cells = (
                "-" if number is None else f"{number:.4g}{'*' * (i == best)}"
                for i, number in enumerate(numbers)
            )
            rows.append((shown.title, *cells, shown.better))
    yield from _corpus(results[0])
    yield table(rows, f"<{'>' * len(results)}<")
    first, *others = (result["missing"] for result in results)
    yield from _missing(
        {name: reason for name, reason in first.items() if all(name in other for other in others)}
    )


def _best(numbers: Sequence[float | None], better: str) -> int | None:
    """The index of the best number; None if neither direction is better, or there are fewer than two numbers."""
    known = [number for number in numbers if number is not None]
    best = {"higher": max, "lower": min}.get(better)
    return numbers.index(best(known)) if best and len(known) > 1 else None


def _topics(result: Mapping[str, Any]) -> Iterator[str]:
    """One line per topic: number, NPMI if known, and prominent words."""
    yield f"{'topic':>5} {'npmi':>7}  prominent words"
    for topic in result["topics"]:
        score = "-" if topic["npmi"] is None else f"{topic['npmi']:.3f}"
        yield from wrapped(", ".join(topic["prominent"]), f"{topic['topic']:>5} {score:>7}  ")


def _corpus(result: Mapping[str, Any]) -> Iterator[str]:
    corpus = result["corpus"]
    if corpus is not None:
        kind = "training corpus" if corpus["training"] else "another corpus"
        yield f"words counted in: {corpus['path']} ({kind}, {corpus['n_documents_counted']} documents)"


def _missing(missing: Mapping[str, str]) -> Iterator[str]:
    """The missing metrics, grouped by reason."""
    from streaming_jsmf.evaluation.metrics import title_of

    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        by_reason.setdefault(reason, []).append(title_of(name))
    for reason, names in by_reason.items():
        yield f"missing: {', '.join(names)}: {reason}"
