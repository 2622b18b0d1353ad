"""The verb ``evaluate``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from streaming_jsmf.cli.results import format_metrics, format_several, format_topic_scores
from streaming_jsmf.cli.verb import execution_options, json_option, options_of, path, verb
from streaming_jsmf.config import EvaluationRequest


@verb(
    "streaming-jsmf evaluate MODEL --corpus CORPUS",
    "streaming-jsmf evaluate MODELS          (of several K, in one table)",
)
@path("model")
@options_of(EvaluationRequest)
@json_option()
@execution_options
def evaluate(model: str, as_json: bool = False, **options: Any) -> Callable[[], None]:
    """Print the quality of the topics of MODEL by all available metrics; of several K in one table.

    MODEL records its moments store. Metrics of documents require --corpus once. An interrupted count is completed by
    running the command again. docs/evaluation.md explains the metrics.
    """
    from streaming_jsmf.evaluation.evaluate import evaluate as run
    from streaming_jsmf.topics.store import models_at

    documents = [run(path, **options) for path in models_at(model)]
    return partial(_print, documents, as_json, listed="words" in options)


def _print(documents: list[dict[str, Any]], as_json: bool, *, listed: bool) -> None:
    several = len(documents) > 1
    if as_json:
        shown = documents if several else documents[0]
        click.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False, indent=1))
    else:
        click.echo(format_several(documents) if several else format_metrics(documents[0]))
    for document in documents:
        if listed and not as_json:
            click.echo(f"model: {document['model']}" if several else "", nl=several)
            click.echo(format_topic_scores(document))
        for sentence in document["warnings"]:
            click.echo(f"warning: {document['model'] + ': ' if several else ''}{sentence}", err=True)
