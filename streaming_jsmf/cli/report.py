"""The verb ``report``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError

Command = Callable[..., Any]

#: What a page is made from, the last first, as decorators are applied.
_PAGE_OPTIONS = (
    option("--topics", type=int, default=None, metavar="K",
           help="If MODEL is a directory of several, the one that is shown.  [default: the largest]"),
    option("--by", default=None, metavar="COLUMN",
           help="Column of SHARES that makes groups of documents.  [default: a year or date]"),
    option("--shares", type=click.Path(), default=None, metavar="SHARES",
           help="What transform wrote with MODEL: shows the first documents of each topic.  [default: none]"),
    option("--words", type=int, default=None, help="Words for each topic in the table.  [default: 10]"),
)  # fmt: skip


def page_options(command: Command) -> Command:
    """The options of ``report`` and ``view`` that say what is on the page."""
    for decorate in _PAGE_OPTIONS:
        command = decorate(command)
    return command


@verb("streaming-jsmf report MODEL topics.html")
@click.argument("model", type=click.Path())
@click.argument("out", type=click.Path(), metavar="OUT.html")
@page_options
@options.overwrite_option
def report(model: str, out: str, overwrite: bool, **page: Any) -> None:
    """Write what is known of MODEL as one page of HTML that needs nothing else.

    Topics that can be searched and sorted, a map of them, which go together, a word and its topics, metrics, warnings,
    and how the model was made. NPMI and coherence are there once evaluate --corpus has counted the words. Of a
    directory that fit --topics 5,10,20 wrote: also how topics split as there are more.
    """
    from streaming_jsmf.workflow.report import report as run

    click.echo(f"report: {location(run(model, out, overwrite=overwrite, **page))}")


@verb("streaming-jsmf view MODEL --shares SHARES.parquet")
@click.argument("model", type=click.Path())
@page_options
def view(model: str, **page: Any) -> None:
    """Open the report of MODEL in the browser.

    The page is the one that report writes, in the directory for temporary files.
    """
    from streaming_jsmf.workflow.view import view as run

    path, opened = run(model, **page)
    if not opened:
        raise InputError(f"no browser was found; open {location(path)}, or write the page with report")
    click.echo(f"view: {location(path)}")
