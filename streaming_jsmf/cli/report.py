"""The verb ``report``."""

from __future__ import annotations

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.verb import option, verb


@verb("streaming-jsmf report MODEL topics.html")
@click.argument("model", type=click.Path())
@click.argument("out", type=click.Path(), metavar="OUT.html")
@option("--words", type=int, default=None, help="Words for each topic.  [default: 10]")
@options.overwrite_option
def report(model: str, out: str, words: int | None, overwrite: bool) -> None:
    """Write what is known of MODEL as one page of HTML that needs nothing else.

    Topics, a map of them, which go together, metrics, warnings, and how the model was made. NPMI and coherence are
    there once evaluate --corpus has counted the words. Of a directory of several K each gets a page, and OUT.html
    compares them.
    """
    from streaming_jsmf.workflow.report import report as run

    click.echo(f"report: {run(model, out, words=words, overwrite=overwrite)}")
