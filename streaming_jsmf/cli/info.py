"""The verb ``info``."""

from __future__ import annotations

import json

import click

from streaming_jsmf.cli.results import page
from streaming_jsmf.cli.verb import json_option, option, verb


@verb("streaming-jsmf info MODEL", "streaming-jsmf info MOMENTS --json", long=False)
@click.argument("path")
@json_option(help="Print everything that is known as JSON instead of a page.")
@option(
    "--verify",
    is_flag=True,
    help="Read a corpus completely and compare it with its hashes; stores always are.",
)
def info(path: str, as_json: bool = False, verify: bool = False) -> str:
    """Describe the corpus, moments store or model at PATH: whether it is complete and intact, and how it was made."""
    from streaming_jsmf.reporting.info import describe

    described = describe(path, verify=verify)
    return json.dumps(described, ensure_ascii=False, indent=1) if as_json else page(path, described)
