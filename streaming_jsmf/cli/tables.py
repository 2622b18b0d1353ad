"""Topics and other results as tables of text, CSV and JSON."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import click

from streaming_jsmf.display import location
from streaming_jsmf.errors import InputError

if TYPE_CHECKING:
    from streaming_jsmf.reporting.contents import Topic

Order = Literal["share", "topic"]

#: Longest cell of a table on a terminal.
MOST_CHARACTERS = 48

RAW_HELP = "With --csv: no apostrophe before texts that a spreadsheet would evaluate, such as =2+3."

_STARTS_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def topic_rows(path: str, words: int | None = None, order: Order = "topic") -> list[dict[str, Any]]:
    """The topics of a model as JSON values, with ``words`` words each (None: 10); errors as ``read_topics``."""
    from streaming_jsmf.reporting.topics import read_topics

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


def topics_csv(models: Mapping[str, Sequence[Topic]], *, raw: bool) -> str:
    """One line per topic; for several models the first column has the path of the model."""
    several = len(models) > 1
    heading = ["topic", "share", "label", "anchor", "words", "characteristic"]
    rows = ([path, *_cells(topic)] if several else _cells(topic) for path in models for topic in models[path])
    return csv_text([["model", *heading] if several else heading, *rows], raw=raw)


def _cells(topic: Topic) -> list[object]:
    words = ", ".join(word.text for word in topic.words)
    label, characteristic = ", ".join(topic.label), ", ".join(topic.characteristic)
    return [topic.number, topic.share, label, topic.anchor or "", words, characteristic]


def require_csv(as_csv: bool, raw: bool) -> None:
    """Refuse ``--raw`` where it has no effect."""
    if raw and not as_csv:
        raise InputError("--raw is for --csv; give both or neither")


def csv_text(rows: Iterable[Iterable[object]], *, raw: bool) -> str:
    """Rows as CSV. A spreadsheet evaluates a text such as ``=2+3``: unless ``raw``, it gets a leading apostrophe.

    So does every text with one of the first characters that OWASP lists under "CSV Injection", and their full-width
    forms. Numbers stay as they are, also as text. No other character is changed.
    """
    lines: list[str] = []
    # The writer quotes only line ends that are its own, and a bare \r would begin a row with the rest of its cell.
    sink = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(sink, lineterminator="\r\n").writerows(row if raw else map(_escaped, row) for row in rows)
    return "".join(lines)


def _escaped(cell: object) -> object:
    is_formula = isinstance(cell, str) and cell.startswith(_STARTS_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


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
    from streaming_jsmf.evaluation.verdicts import warnings_of
    from streaming_jsmf.reporting.topics import read_topics, topic_text
    from streaming_jsmf.topics.multi_k import models_at
    from streaming_jsmf.topics.store import read_model

    for path in (path for model in models for path in models_at(model)):
        topics = in_order(read_topics(path, words), order)
        click.echo(f"model: {location(path)}")
        click.echo(topic_text(topics, characteristic=characteristic))
        for sentence in warnings_of(read_model(path, ()).metrics):
            click.echo(f"warning: {sentence}", err=True)
