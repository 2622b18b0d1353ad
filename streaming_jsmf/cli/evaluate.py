"""The verb ``evaluate``."""

from __future__ import annotations

import json
from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.metrics_table import format_metrics, format_several, format_topic_scores
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.verb import option, verb


@verb(
    "streaming-jsmf evaluate MODEL --corpus CORPUS",
    "streaming-jsmf evaluate MODELS          (of several K, in one table)",
)
@click.argument("model", type=click.Path())
@option("--corpus", default=None, metavar="CORPUS",
        help="Count the words of MODEL in this corpus, predict its documents, and keep the results with MODEL.  "
             "[default: those of the training corpus, if they are kept]")  # fmt: skip
@option("--moments", type=click.Path(), default=None, metavar="MOMENTS",
        help="The moments store that MODEL was made of.  [default: where it was then]")  # fmt: skip
@option("--truth", default=None, metavar="CORPUS",
        help="A simulated corpus, whose topics MODEL should have found.  [default: none]")  # fmt: skip
@option("--words", type=int, default=None,
        help="List each topic with its NPMI and this many words, too.  [default: no list]")  # fmt: skip
@option("--replicas", type=int, default=5, show_default=True,
        help="Models of resampled partitions that tell the stability, where MOMENTS keeps them.")  # fmt: skip
@option("--seed", type=int, default=0, show_default=True,
        help="Number that decides the draws of replicas and of estimated metrics.")  # fmt: skip
@option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@options.execution_options
@options.log_option
def evaluate(model: str, as_json: bool, log_json: str | None, **settings: Any) -> None:
    """Print how good the topics of MODEL are, by every metric that can be told; of several K in one table.

    MODEL alone leads to its moments store. Metrics of documents need --corpus once; an interrupted count is
    finished by the same command. docs/evaluation.md says what the metrics tell.
    """
    from streaming_jsmf.workflow.evaluate import EvaluationRequest
    from streaming_jsmf.workflow.evaluate import evaluate as run
    from streaming_jsmf.workflow.several import models_at

    with observed(log_json) as listener:
        execution = options.take_execution(settings)
        request = EvaluationRequest(**settings)
        documents = [run(path, request, execution, listener) for path in models_at(model)]
    several = len(documents) > 1
    if as_json:
        shown = documents if several else documents[0]
        click.echo(json.dumps(shown, ensure_ascii=False, allow_nan=False, indent=1))
    else:
        click.echo(format_several(documents) if several else format_metrics(documents[0]))
    for document in documents:
        if not as_json and request.words is not None:
            click.echo(f"model: {document['model']}" if several else "", nl=several)
            click.echo(format_topic_scores(document))
        for sentence in document["warnings"]:
            whose = f"{document['model']}: " if several else ""
            click.echo(f"warning: {whose}{sentence}", err=True)
