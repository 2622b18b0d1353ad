"""The verb ``plan``."""

from __future__ import annotations

from typing import Any

import click

from streaming_jsmf.cli.verb import json_option, json_text, option, options_of, verb
from streaming_jsmf.config import INGEST_SETTINGS, ScanSettings
from streaming_jsmf.config.requests import EXECUTION


@verb(
    "streaming-jsmf plan news.csv --topics 50",
    "streaming-jsmf plan CORPUS --topics 200 --workers 16",
    long=False,
)
@click.argument("source")
@option(
    "--topics", "n_topics", required=True, type=click.IntRange(min=1), metavar="K", help="Number of topics."
)
@option("--engine", type=click.Choice(["lr-jsmf", "stod"]), default="lr-jsmf",
        help="Engine: lr-jsmf or stod.  [default: lr-jsmf]")  # fmt: skip
@option("--workers", group=EXECUTION, type=click.IntRange(min=1), default=None,
        help="Number of workers that memory and time are for.  [default: one per core]")  # fmt: skip
@options_of(*INGEST_SETTINGS, common=("text",))
@options_of(ScanSettings, without=("max_topics", "third_moment"), common=())
@json_option()
def plan(source: str, as_json: bool = False, **options: Any) -> str:
    """Estimate the memory, disk, passes and time that a fit of SOURCE with K topics will need.

    SOURCE is a corpus, whose sizes are read, or anything that ingest reads, of which up to 32 MB are. Nothing is kept.
    """
    from streaming_jsmf.interface.plan import plan as run

    found = run(source, **options)
    return json_text(found.fields()) if as_json else str(found)
