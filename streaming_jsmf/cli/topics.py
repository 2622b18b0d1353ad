"""The verb ``topics``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from streaming_jsmf.cli.tables import (
    RAW_HELP,
    Order,
    in_order,
    print_topics,
    require_csv,
    topic_rows,
    topics_csv,
)
from streaming_jsmf.cli.verb import option, verb
from streaming_jsmf.errors import InputError

if TYPE_CHECKING:
    from streaming_jsmf.model.edits import TopicEdits


#: Heading of what is said of topics.
EDITS = "What you say of topics, kept beside the model's arrays"


@verb(
    "streaming-jsmf topics MODEL --words 15",
    "streaming-jsmf topics MODEL --csv > topics.csv",
    "streaming-jsmf topics MODEL --label 3=elections --merge 5,8 --hide 0",
)
@click.argument("model", type=click.Path())
@option("--words", type=int, default=None, help="Words for each topic.  [default: 10]")
@option("--sort", "order", type=click.Choice(("share", "topic")), default=None,
        help="By falling share of the corpus, or by number.  [default: share; topic with --json]")  # fmt: skip
@option("--characteristic", is_flag=True,
        help="Also the words that co-occur most with the anchor; --csv and --json have them always.")  # fmt: skip
@option("--label", "labels", group=EDITS, multiple=True, metavar="K=NAME",
        help="Name topic K; K= takes the name away; may be given several times.  [default: as they are]")  # fmt: skip
@option("--merge", group=EDITS, multiple=True, metavar="K,K[,...]",
        help="Show topics as one under the first number: shares add up, word probabilities are their mean by share.  "
             "[default: as they are]")  # fmt: skip
@option("--unmerge", group=EDITS, multiple=True, type=int, metavar="K",
        help="Show what was merged into topic K by itself again.  [default: as they are]")  # fmt: skip
@option("--hide", group=EDITS, multiple=True, type=int, metavar="K",
        help="Show topic K no more.  [default: as they are]")  # fmt: skip
@option("--unhide", group=EDITS, multiple=True, type=int, metavar="K",
        help="Show topic K again.  [default: as they are]")  # fmt: skip
@option("--csv", "as_csv", is_flag=True, help="CSV instead of a table, a line for each topic.")
@option("--raw", is_flag=True, help=RAW_HELP)
@option("--json", "as_json", is_flag=True, help="JSON instead of a table, with p(word | topic).")
def topics(
    model: str,
    words: int | None,
    order: Order | None,
    characteristic: bool,
    as_csv: bool,
    raw: bool,
    as_json: bool,
    **changes: Any,
) -> None:
    """Print the topics of MODEL, or of each model in a directory that fit or infer made of several K.

    Names, merged and hidden topics are kept with MODEL, whose arrays stay as they are, and are read by documents and
    reports, too.
    """
    from streaming_jsmf.workflow.several import models_at
    from streaming_jsmf.workflow.topics import read_topics

    if as_csv and as_json:
        raise InputError("--csv and --json exclude each other; give one")
    require_csv(as_csv, raw)
    if any(changes.values()):
        _edit(model, **changes)
    if as_json:
        found = {str(path): topic_rows(str(path), words, order or "topic") for path in models_at(model)}
        several = [{"model": path, "topics": rows} for path, rows in found.items()]
        shown = several if len(several) > 1 else several[0]["topics"]
        click.echo(json.dumps(shown, ensure_ascii=False, indent=1))
    elif as_csv:
        tables = [
            (str(path), in_order(read_topics(path, words), order or "share")) for path in models_at(model)
        ]
        click.echo(topics_csv(tables, raw=raw), nl=False)
    else:
        print_topics(model, words, order or "share", characteristic=characteristic)


def _edit(
    model: str,
    labels: tuple[str, ...],
    merge: tuple[str, ...],
    unmerge: tuple[int, ...],
    hide: tuple[int, ...],
    unhide: tuple[int, ...],
) -> None:
    """All changes or none: what was merged is taken apart first, and named at the end."""
    from streaming_jsmf.workflow.topic_model import TopicModel

    groups = [[_number(part, "--merge", group) for part in group.split(",")] for group in merge]
    names = [(_number(text.partition("=")[0], "--label", text), text.partition("=")) for text in labels]

    def changed(edits: TopicEdits) -> TopicEdits:
        for topic in unmerge:
            edits = edits.unmerge(topic)
        for group in groups:
            edits = edits.merge(group)
        edits = edits.unhide(*unhide) if unhide else edits
        edits = edits.hide(*hide) if hide else edits
        for topic, (_, equals, name) in names:
            if not equals:
                raise InputError(f"--label is {topic}; give a topic and its name, such as {topic}=elections")
            edits = edits.label(topic, name or None)
        return edits

    TopicModel(model).edit(changed)


def _number(text: str, option: str, given: str) -> int:
    try:
        return int(text)
    except ValueError:
        example = "3=elections" if option == "--label" else "3,7"
        raise InputError(f"{option} is {given!r}; give numbers of topics, such as {example}") from None
