"""The table of topics that people want to see, and the same for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from streaming_jsmf.display import location

if TYPE_CHECKING:
    from streaming_jsmf.reporting.contents import Topic

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
    from streaming_jsmf.reporting.topic_table import topic_text
    from streaming_jsmf.workflow.several import models_at
    from streaming_jsmf.workflow.topics import read_topics

    for path in models_at(model):
        topics = in_order(read_topics(path, words), order)
        click.echo(f"model: {location(path)}")
        click.echo(topic_text(topics, characteristic=characteristic))
        for sentence in warnings_of(str(path)):
            click.echo(f"warning: {sentence}", err=True)
