"""The verb ``choose-k``."""

from __future__ import annotations

import json
from typing import Any

import click

from streaming_jsmf.cli.results import format_comparison
from streaming_jsmf.cli.verb import execution_options, json_option, option, options_of, topic_numbers, verb
from streaming_jsmf.config import ComparisonRequest


@verb(
    "streaming-jsmf choose-k CORPUS --topics 5,10,20,50,100",
    "streaming-jsmf choose-k MOMENTS --topics 10,20,40 --out COMPARED",
    name="choose-k",
)
@click.argument("source", metavar="CORPUS|MOMENTS")
@option(
    "--topics", required=True, metavar="K,K[,K...]", help="Numbers of topics to compare, such as 5,10,20,50."
)
@options_of(ComparisonRequest)
@json_option()
@execution_options
def choose_k(source: str, topics: str, as_json: bool = False, **options: Any) -> str:
    """Compare numbers of topics K from one scan, and suggest one.

    Each K gets a model, which is kept. Perplexity is measured on documents held out of polish; stability is the
    agreement with models of resampled documents; the loss sums how far a K is behind the best of each column.
    """
    from streaming_jsmf.evaluation.choice import fields_of
    from streaming_jsmf.reporting.choose_k import choose_k as run

    found = run(source, topic_numbers(topics), **options)
    if as_json:
        return json.dumps(fields_of(found.choice, found.missing), ensure_ascii=False, indent=1)
    return format_comparison(found)
