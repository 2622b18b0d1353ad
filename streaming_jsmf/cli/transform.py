"""The verb ``transform``."""

from __future__ import annotations

from typing import Any, Literal

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.display import location


@click.command()
@click.argument("model", type=click.Path())
@click.argument("corpus")
@click.argument("out", type=click.Path())
@click.option("--top", type=int, default=None, metavar="N",
              help="Keep the N largest shares of a document, with their topics.  [default: all]")  # fmt: skip
@click.option("--method", type=click.Choice(("map", "cvb0")), default="map", show_default=True,
              help="map: the most probable shares. cvb0: better for documents of some ten words.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace topic shares that exist.")
@options.execution_options
@options.log_option
def transform(
    model: str,
    corpus: str,
    out: str,
    top: int | None,
    method: Literal["map", "cvb0"],
    overwrite: bool,
    log_json: str | None,
    **settings: Any,
) -> None:
    """Write the topic shares of every document of CORPUS to OUT, given the topics of MODEL.

    OUT.parquet is one file, OUT.zarr an array of documents x topics, any other OUT a directory of Parquet files. An
    interrupted run is finished by the same command.
    """
    from streaming_jsmf.workflow.transform import transform as run

    with observed(log_json) as listener:
        execution = options.take_execution(settings)
        made = run(
            model,
            corpus,
            out,
            top=top,
            method=method,
            execution=execution,
            overwrite=overwrite,
            listener=listener,
        )
    totals = made.about.totals
    assert totals is not None, "the shares are whole"
    click.echo(f"shares: {location(out)} ({totals.documents} documents, {made.about.n_topics} topics)")
