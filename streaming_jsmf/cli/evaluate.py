"""The verb ``evaluate``."""

from __future__ import annotations

import json
from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.metrics_table import format_metrics, format_topic_scores
from streaming_jsmf.cli.observation import observed


@click.command()
@click.argument("model", type=click.Path())
@click.option("--corpus", default=None, metavar="CORPUS",
              help="Count the words of MODEL in this corpus, predict its documents, and keep the results with MODEL.  "
                   "[default: those of the training corpus, if they are kept]")  # fmt: skip
@click.option("--moments", type=click.Path(), default=None, metavar="MOMENTS",
              help="The moments store that MODEL was made of.  [default: where it was then]")  # fmt: skip
@click.option("--truth", default=None, metavar="CORPUS",
              help="A simulated corpus, whose topics MODEL should have found.")  # fmt: skip
@click.option("--words", type=int, default=None,
              help="List each topic with its NPMI and this many words, too.")  # fmt: skip
@click.option("--replicas", type=int, default=5, show_default=True,
              help="Models of resampled partitions that tell the stability, where MOMENTS keeps them.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of replicas and of estimated metrics.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@options.execution_options
@options.log_option
def evaluate(model: str, as_json: bool, log_json: str | None, **settings: Any) -> None:
    """Print how good the topics of MODEL are, by every metric that can be told.

    MODEL alone leads to its moments store. Metrics of documents need --corpus once; an interrupted count is
    finished by the same command. docs/evaluation.md says what the metrics tell.
    """
    from streaming_jsmf.workflow.evaluate import EvaluationRequest
    from streaming_jsmf.workflow.evaluate import evaluate as run

    with observed(log_json) as listener:
        execution = options.take_execution(settings)
        request = EvaluationRequest(**settings)
        document = run(model, request, execution, listener)
    if as_json:
        click.echo(json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1))
    else:
        click.echo(format_metrics(document))
        if request.words is not None:
            click.echo(format_topic_scores(document))
    for sentence in document["warnings"]:
        click.echo(f"warning: {sentence}", err=True)
