"""The table of topics that people want to see, and the same for programs."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from streaming_jsmf.display import location, printable

if TYPE_CHECKING:
    from streaming_jsmf.reporting.contents import Topic

#: Columns of a terminal that the table fits.
WIDTH = 80

Order = Literal["share", "topic"]


def topic_rows(path: str, words: int | None = None, order: Order = "topic") -> list[dict[str, Any]]:
    """One JSON-able row for each topic of a model, with ``words`` words (None: 10); errors as ``read_topics``."""
    from streaming_jsmf.workflow.topics import read_topics

    return [_row(topic) for topic in in_order(read_topics(path, words), order)]


def _row(topic: Topic) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": topic.number,
        "probability": topic.share,
        "label": list(topic.label),
        "prominent": [word.text for word in topic.words],
        "probabilities": [word.probability for word in topic.words],
        "characteristic": list(topic.characteristic),
    }
    if topic.anchor is not None:
        row["anchor"] = topic.anchor
    if topic.strength is not None:
        row["duplicate_of"] = topic.duplicate_of
    return row


def in_order(topics: Sequence[Topic], order: Order) -> list[Topic]:
    """The topics by number, or by falling share; equal shares by number."""
    return sorted(topics, key=lambda topic: (-topic.share if order == "share" else 0.0, topic.number))


def format_topics(topics: Sequence[Topic], *, characteristic: bool = False) -> str:
    """Lay the topics out as text, their label first and the words beneath, no wider than 80 columns."""
    lines = [f"{'topic':>5} {'share':>6}  label, and most probable words"]
    for topic in topics:
        head = f"{topic.number:>5} {topic.share:>6.1%}  "
        lines += _wrapped(", ".join(topic.label) + _remark(topic), head)
        lines += _wrapped(", ".join(word.text for word in topic.words))
        if characteristic:
            lines += _wrapped(
                f"with {topic.anchor or topic.words[0].text}: {', '.join(topic.characteristic)}"
            )
    return "\n".join(map(printable, lines))


def _wrapped(text: str, head: str = " " * 14) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * 14, break_on_hyphens=False
    ) or [head.rstrip()]


def _remark(topic: Topic) -> str:
    if topic.duplicate_of is not None:
        return f"  (repeats topic {topic.duplicate_of})"
    return "" if topic.anchor is None or topic.anchor in topic.label else f"  (anchor: {topic.anchor})"


def topics_csv(models: Sequence[tuple[str, Sequence[Topic]]]) -> str:
    """A line for each topic with a heading; of several models the first column says which."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    several = len(models) > 1
    lines.writerow(
        [*(["model"] if several else []), "topic", "share", "label", "anchor", "words", "characteristic"]
    )
    for path, topics in models:
        lines.writerows([*([path] if several else []), *_cells(topic)] for topic in topics)
    return text.getvalue()


def _cells(topic: Topic) -> Iterator[object]:
    yield topic.number
    yield topic.share
    yield ", ".join(topic.label)
    yield topic.anchor or ""
    yield ", ".join(word.text for word in topic.words)
    yield ", ".join(topic.characteristic)


def warnings_of(path: str) -> list[str]:
    """Plain sentences about what makes a model doubtful; empty as a rule."""
    from streaming_jsmf.model import certificates
    from streaming_jsmf.model.store import read_model

    return certificates.warnings_of(read_model(path, ()).metrics)


def print_topics(
    model: str, words: int | None = None, order: Order = "share", *, characteristic: bool = False
) -> None:
    """Print the topics of a model, or of each model at a path, and on standard error what makes them doubtful."""
    from streaming_jsmf.workflow.several import models_at
    from streaming_jsmf.workflow.topics import read_topics

    for path in models_at(model):
        topics = in_order(read_topics(path, words), order)
        click.echo(f"model: {location(path)}")
        click.echo(format_topics(topics, characteristic=characteristic))
        for sentence in warnings_of(str(path)):
            click.echo(f"warning: {sentence}", err=True)
