"""The verb ``topics``."""

from __future__ import annotations

import json

import click

from streaming_jsmf.cli.tables import Order, in_order, print_topics, topic_rows, topics_csv
from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.errors import InputError


@verb("streaming-jsmf topics MODEL --words 15", "streaming-jsmf topics MODEL --csv > topics.csv")
@click.argument("model", type=click.Path())
@option("--words", type=int, default=None, help="Words for each topic.  [default: 10]")
@option("--sort", "order", type=click.Choice(("share", "topic")), default=None,
        help="By falling share of the corpus, or by number.  [default: share; topic with --json]")  # fmt: skip
@option("--characteristic", is_flag=True,
        help="Also the words that co-occur most with the anchor; --csv and --json have them always.")  # fmt: skip
@option("--csv", "as_csv", is_flag=True, help="CSV instead of a table, a line for each topic.")
@option("--json", "as_json", is_flag=True, help="JSON instead of a table, with p(word | topic).")
def topics(
    model: str, words: int | None, order: Order | None, characteristic: bool, as_csv: bool, as_json: bool
) -> None:
    """Print the topics of MODEL, or of each model in a directory that fit or infer made of several K."""
    from streaming_jsmf.workflow.several import models_at
    from streaming_jsmf.workflow.topics import read_topics

    if as_csv and as_json:
        raise InputError("--csv and --json exclude each other; give one")
    if as_json:
        found = {str(path): topic_rows(str(path), words, order or "topic") for path in models_at(model)}
        several = [{"model": path, "topics": rows} for path, rows in found.items()]
        shown = several if len(several) > 1 else several[0]["topics"]
        click.echo(json.dumps(shown, ensure_ascii=False, indent=1))
    elif as_csv:
        tables = [
            (str(path), in_order(read_topics(path, words), order or "share")) for path in models_at(model)
        ]
        click.echo(topics_csv(tables), nl=False)
    else:
        print_topics(model, words, order or "share", characteristic=characteristic)
