"""The verb ``choose-k``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.verb import option, verb

if TYPE_CHECKING:
    from streaming_jsmf.workflow.choose_k import Comparison


@verb(
    "streaming-jsmf choose-k CORPUS --topics 5,10,20,50,100",
    "streaming-jsmf choose-k MOMENTS --topics 10,20,40 --out COMPARED",
    name="choose-k",
)
@click.argument("source", metavar="CORPUS|MOMENTS")
@option(
    "--topics", required=True, metavar="K,K[,K...]", help="Numbers of topics to compare, such as 5,10,20,50."
)
@option("--out", type=click.Path(), default=None, metavar="DIRECTORY",
        help="Where the models, the page choose-k.html and the scan go.  [default: the source with .choose-k "
             "appended]")  # fmt: skip
@option("--corpus", default=None, metavar="CORPUS",
        help="Of MOMENTS: where its corpus is, for perplexity and NPMI.  [default: where it was then]")  # fmt: skip
@option("--replicas", type=int, default=3, show_default=True,
        help="Models of resampled partitions that tell the stability; 0: none.")  # fmt: skip
@option("--seed", type=int, default=0, show_default=True, help="Number that decides all random draws.")
@option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
@options.execution_options
@options.log_option
def choose_k(source: str, topics: str, as_json: bool, log_json: str | None, **settings: Any) -> None:
    """Compare numbers of topics K from one scan, and suggest one.

    Each K gets a model, which stays. Perplexity is of documents kept out of the passes of polish; stability is the
    agreement with models of resampled documents; the loss adds up how far a K is behind the best of each column.
    """
    from streaming_jsmf.evaluation.choice import fields_of
    from streaming_jsmf.workflow.choose_k import choose_k as run

    with observed(log_json) as listener:
        numbers, execution = options.topic_numbers(topics), options.take_execution(settings)
        found = run(source, numbers, execution=execution, listener=listener, **settings)
    if as_json:
        click.echo(json.dumps(fields_of(found.choice, found.missing), ensure_ascii=False, indent=1))
    else:
        click.echo(_table(found))


def _table(found: Comparison) -> str:
    from streaming_jsmf.reporting.comparison import comparison_table

    heading, rows = comparison_table(found.choice)
    lines = ["".join(f"{cell:>11}" for cell in line) for line in (heading, *rows)]
    marked = [lines[0]] + [
        f"*{line[1:]}" if row.n_topics == found.choice.suggested else line
        for row, line in zip(found.choice.rows, lines[1:], strict=True)
    ]
    why = [f"missing: {name.replace('_', ' ')}: {reason}" for name, reason in found.missing.items()]
    said = f"suggested: {found.choice.suggested} topics: {found.choice.reason}"
    places = [f"model: {path}" for path in found.models]
    return "\n".join([*marked, *why, said, *places, f"page: {found.page}"])
