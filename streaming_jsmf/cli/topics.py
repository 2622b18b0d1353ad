"""The verb ``topics``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from streaming_jsmf.cli.results import (
    RAW_HELP,
    Order,
    print_topics,
    read_in_order,
    require_csv,
    topic_rows,
    topics_csv,
)
from streaming_jsmf.cli.verb import json_option, option, path, verb
from streaming_jsmf.errors import InputError

if TYPE_CHECKING:
    from streaming_jsmf.topics.edits import TopicEdits

EDITS = "Editing topics (stored beside the model's arrays)"


@verb(
    "streaming-jsmf topics MODEL --words 15",
    "streaming-jsmf topics MODEL --csv > topics.csv",
    "streaming-jsmf topics MODEL --label 3=elections --merge 5,8 --hide 0",
    long=False,
)
@path("model")
@option("--words", type=int, default=None, help="Number of words per topic.  [default: 10]")
@option("--sort", "order", type=click.Choice(("share", "topic")), default=None,
        help="Sort by decreasing share of the corpus, or by number.  [default: share; topic with --json]")  # fmt: skip
@option("--characteristic", is_flag=True,
        help="Also print the words that co-occur most with the anchor; --csv and --json always do.")  # fmt: skip
@option("--label", "labels", group=EDITS, multiple=True, metavar="K=NAME",
        help="Name topic K; an empty name removes the label (may be repeated).")  # fmt: skip
@option("--merge", group=EDITS, multiple=True, metavar="K,K[,...]",
        help="Show several topics as one, under the first number: shares are added, and word probabilities averaged by "
             "share (may be repeated).")  # fmt: skip
@option("--unmerge", group=EDITS, multiple=True, type=int, metavar="K",
        help="Show the parts of the merged topic K separately again.")  # fmt: skip
@option("--hide", group=EDITS, multiple=True, type=int, metavar="K", help="Do not show topic K.")
@option("--unhide", group=EDITS, multiple=True, type=int, metavar="K", help="Show topic K again.")
@option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table, one line per topic.")
@option("--raw", is_flag=True, help=RAW_HELP)
@json_option(help="Print JSON instead of a table, with p(word | topic).")
def topics(
    model: str,
    words: int | None = None,
    order: Order | None = None,
    characteristic: bool = False,
    as_csv: bool = False,
    raw: bool = False,
    as_json: bool = False,
    **changes: Any,
) -> str | Callable[[], None]:
    """Print the topics of MODEL, or of each model in a directory of several K.

    Labels, merged and hidden topics are stored with MODEL and used by documents and reports, too; its arrays do not
    change.
    """
    from streaming_jsmf.topics.edits import edit_topics
    from streaming_jsmf.topics.store import model_path, models_at, read_model

    if as_csv and as_json:
        raise InputError("--csv and --json exclude each other; give one")
    require_csv(as_csv, raw)
    if changes:
        place = model_path(model)
        edit_topics(place, read_model(place, ("topic_probability",)), _edit(**changes))
    if as_json:
        found = {str(path): topic_rows(str(path), words, order or "topic") for path in models_at(model)}
        several = [{"model": path, "topics": rows} for path, rows in found.items()]
        return json.dumps(several if len(several) > 1 else several[0]["topics"], ensure_ascii=False, indent=1)
    if as_csv:
        tables = {str(path): read_in_order(path, words, order or "share") for path in models_at(model)}
        return topics_csv(tables, raw=raw).removesuffix("\n")
    return partial(print_topics, model, words=words, order=order or "share", characteristic=characteristic)


def _edit(
    labels: tuple[str, ...] = (),
    merge: tuple[str, ...] = (),
    unmerge: tuple[int, ...] = (),
    hide: tuple[int, ...] = (),
    unhide: tuple[int, ...] = (),
) -> Callable[[TopicEdits], TopicEdits]:
    """All changes as one: merged topics are separated first, and labels come last."""
    groups = [[_number(part, "--merge", group) for part in group.split(",")] for group in merge]
    names = [(_number(text.partition("=")[0], "--label", text), text.partition("=")) for text in labels]
    unnamed = next((topic for topic, (_, equals, _) in names if not equals), None)
    if unnamed is not None:
        raise InputError(f"--label is {unnamed}; give a topic and its name, such as {unnamed}=elections")

    def changed(edits: TopicEdits) -> TopicEdits:
        for topic in unmerge:
            edits = edits.unmerge(topic)
        for group in groups:
            edits = edits.merge(group)
        edits = edits.unhide(*unhide) if unhide else edits
        edits = edits.hide(*hide) if hide else edits
        for topic, (*_, name) in names:
            edits = edits.label(topic, name or None)
        return edits

    return changed


def _number(text: str, option: str, given: str) -> int:
    try:
        return int(text)
    except ValueError:
        example = "3=elections" if option == "--label" else "3,7"
        raise InputError(f"{option} is {given!r}; give numbers of topics, such as {example}") from None
