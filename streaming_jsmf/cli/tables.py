"""Topics and other results as tables of text, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from streaming_jsmf.display import location

if TYPE_CHECKING:
    from streaming_jsmf.reporting.contents import Topic

Order = Literal["share", "topic"]

#: Longest cell of a table on a terminal.
MOST_CHARACTERS = 48


def topic_rows(path: str, words: int | None = None, order: Order = "topic") -> list[dict[str, Any]]:
    """The topics of a model as JSON values, with ``words`` words each (None: 10); errors as ``read_topics``."""
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
    """The topics by number, or by decreasing share and then by number."""
    return sorted(topics, key=lambda topic: (-topic.share if order == "share" else 0.0, topic.number))


def topics_csv(models: Mapping[str, Sequence[Topic]]) -> str:
    """One line per topic; for several models the first column has the path of the model."""
    several = len(models) > 1
    heading = ["topic", "share", "label", "anchor", "words", "characteristic"]
    return csv_text(
        ["model", *heading] if several else heading,
        ([path, *_cells(topic)] if several else _cells(topic) for path in models for topic in models[path]),
    )


def _cells(topic: Topic) -> list[object]:
    words = ", ".join(word.text for word in topic.words)
    label, characteristic = ", ".join(topic.label), ", ".join(topic.characteristic)
    return [topic.number, topic.share, label, topic.anchor or "", words, characteristic]


def csv_text(heading: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(heading)
    lines.writerows(rows)
    return text.getvalue()


def column_text(table: Mapping[str, Sequence[Any]]) -> str:
    """Columns by name as aligned text; numbers are aligned to the right."""
    columns = []
    for name, values in table.items():
        cells = [name, *map(_cell, values)]
        width = max(map(len, cells))
        right = all(value is None or isinstance(value, (int, float)) for value in values)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:.4f}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."


def print_topics(
    *models: str, words: int | None = None, order: Order = "share", characteristic: bool = False
) -> None:
    """Print the topics of the models at these paths, and warnings about them on standard error."""
    from streaming_jsmf.model.certificates import warnings_of
    from streaming_jsmf.model.store import read_model
    from streaming_jsmf.reporting.topic_table import topic_text
    from streaming_jsmf.workflow.several import models_at
    from streaming_jsmf.workflow.topics import read_topics

    for path in (path for model in models for path in models_at(model)):
        topics = in_order(read_topics(path, words), order)
        click.echo(f"model: {location(path)}")
        click.echo(topic_text(topics, characteristic=characteristic))
        for sentence in warnings_of(read_model(path, ()).metrics):
            click.echo(f"warning: {sentence}", err=True)
