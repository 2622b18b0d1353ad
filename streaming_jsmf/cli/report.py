"""The verb ``report``."""

from __future__ import annotations

import click


@click.command()
@click.argument("model", type=click.Path())
@click.argument("out", type=click.Path(), metavar="OUT.html")
@click.option("--words", type=int, default=None, help="Words for each topic in the table.  [default: 10]")
@click.option("--shares", type=click.Path(), default=None, metavar="SHARES",
              help="What transform wrote with MODEL: shows the first documents of each topic.")  # fmt: skip
@click.option("--by", default=None, metavar="COLUMN",
              help="Column of SHARES that makes groups of documents.  [default: a year or date]")  # fmt: skip
@click.option("--topics", type=int, default=None, metavar="K",
              help="If MODEL is a directory of several, the one that is shown.  [default: the largest]")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a report that exists.")
def report(
    model: str,
    out: str,
    words: int | None,
    shares: str | None,
    by: str | None,
    topics: int | None,
    overwrite: bool,
) -> None:
    """Write what is known of MODEL as one page of HTML that needs nothing else.

    Topics that can be searched and sorted, a map of them, which go together, a word and its topics, metrics, warnings,
    and how the model was made. NPMI and coherence are there once evaluate --corpus has counted the words. Of a
    directory that fit --topics 5,10,20 wrote: also how topics split as there are more.
    """
    from streaming_jsmf.workflow.report import report as run

    page = run(model, out, words=words, shares=shares, by=by, topics=topics, overwrite=overwrite)
    click.echo(f"report: {page}")
