"""The verb ``transform``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.ingest import reader_options, reading_options
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.display import location

if TYPE_CHECKING:
    from streaming_jsmf.sources.base import OnBadRecord
    from streaming_jsmf.sources.registry import ReaderName


@verb("streaming-jsmf transform MODEL CORPUS SHARES.parquet --workers 4")
@click.argument("model", type=click.Path())
@click.argument("source")
@click.argument("out", type=click.Path())
@option("--top", type=int, default=None, metavar="N",
        help="Keep the N largest shares of a document, with their topics.  [default: all]")  # fmt: skip
@option("--method", type=click.Choice(("map", "cvb0")), default="map", show_default=True,
        help="How shares are found. map: the most probable ones. cvb0: better for short documents.")  # fmt: skip
@reading_options
@options.overwrite_option
@options.execution_options
@options.log_option
def transform(
    model: str,
    source: str,
    out: str,
    top: int | None,
    method: Literal["map", "cvb0"],
    reader: ReaderName | None,
    read: tuple[str, ...],
    encoding: str | None,
    on_bad_record: OnBadRecord,
    overwrite: bool,
    log_json: str | None,
    **settings: Any,
) -> None:
    """Write the topic shares of every document of SOURCE to OUT, given the topics of MODEL.

    SOURCE is a corpus or anything that ingest reads; texts are cut into words as those that MODEL was made of.

    OUT.parquet is one file, OUT.zarr an array of documents x topics, any other OUT a directory of Parquet files. An
    interrupted run is finished by the same command.
    """
    from streaming_jsmf.workflow.raw_documents import Reading
    from streaming_jsmf.workflow.transform import transform as run

    with observed(log_json) as listener:
        execution = options.take_execution(settings)
        made = run(
            model,
            source,
            out,
            top=top,
            method=method,
            reading=Reading(reader, reader_options(read, encoding), on_bad_record),
            execution=execution,
            overwrite=overwrite,
            listener=listener,
        )
    totals = made.about.totals
    assert totals is not None, "the shares are whole"
    click.echo(f"shares: {location(out)} ({totals.documents} documents, {made.about.n_topics} topics)")
