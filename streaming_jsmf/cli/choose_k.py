"""The verb ``choose-k``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streaming_jsmf.cli.verb import json_option, json_text, option, options_of, topic_numbers, verb
from streaming_jsmf.config import ComparisonRequest
from streaming_jsmf.display import table

if TYPE_CHECKING:
    from streaming_jsmf.interface.choose_k import Comparison


@verb(
    "streaming-jsmf choose-k CORPUS --topics 5,10,20,50,100",
    "streaming-jsmf choose-k MOMENTS --topics 10,20,40 --out COMPARED",
    name="choose-k",
    lines=False,
)
@click.argument("source", metavar="CORPUS|MOMENTS")
@option(
    "--topics", required=True, metavar="K,K[,K...]", help="Numbers of topics to compare, such as 5,10,20,50."
)
@options_of(ComparisonRequest)
@option("--overwrite", is_flag=True,
        help="Replace models of the same K, the moments store and the page of an earlier comparison.")  # fmt: skip
@json_option()
def choose_k(source: str, topics: str, as_json: bool = False, **options: Any) -> str:
    """Compare several numbers of topics and suggest one.

    The models of all K come from one scan and are kept. Perplexity is measured on documents held out of polish;
    stability is the agreement with models of resampled documents; the loss of a K is the sum of its distances from the
    best value of each column.
    """
    from streaming_jsmf.evaluation.choice import fields_of
    from streaming_jsmf.interface.choose_k import choose_k as run

    found = run(source, topic_numbers(topics), progress=False, **options)
    if as_json:
        return json_text(fields_of(found.choice, found.missing))
    return _text(found)


def _text(found: Comparison) -> str:
    """The table with a star on the suggestion, the suggestion, and the paths of the results."""
    from streaming_jsmf.evaluation.choice import comparison_table

    heading, rows = comparison_table(found.choice)
    stars = ["*" * (row.n_topics == found.choice.suggested) for row in found.choice.rows]
    marked = [("", *heading), *((star, *row) for star, row in zip(stars, rows, strict=True))]
    return "\n".join([
        table(marked, "<" + ">" * len(heading)),
        "loss: how far a row is behind the best perplexity (lower is better), NPMI, distinct words and stability; "
        "the other columns are for information",
        *(f"missing: {name.replace('_', ' ')}: {reason}" for name, reason in found.missing.items()),
        f"suggested: {found.choice.suggested} topics: {found.choice.reason}",
        *(f"model: {path}" for path in found.models),
        f"page: {found.page}",
    ])  # fmt: skip
