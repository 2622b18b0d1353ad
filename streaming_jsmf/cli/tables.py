"""The table of topics that people want to see."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

import click

from streaming_jsmf.display import location, printable
from streaming_jsmf.errors import InputError
from streaming_jsmf.model.certificates import warnings_of as certificate_warnings
from streaming_jsmf.model.counts import read_training_counts
from streaming_jsmf.model.store import Model, read_model
from streaming_jsmf.storage.paths import store_path

#: Words of a topic that people read.
DEFAULT_WORDS = 10


def topic_rows(path: str, words: int | None = None) -> list[dict[str, Any]]:
    """Return one JSON-able row for each topic of a model, with ``words`` words (None: 10, or all).

    Raises
    ------
    InputError
        If there is no model, or it lists fewer words than asked for.
    StoreError
        If it is damaged.
    """
    names = ("word", "topic_probability", "prominent_words", "characteristic_words", "label_words")
    model = _with_exact_words(path, read_model(path, names, ("anchors", "duplicate_of")))
    listed = model.arrays["prominent_words"].shape[1]
    count = min(DEFAULT_WORDS, listed) if words is None else words
    if not 1 <= count <= listed:
        raise InputError(f"--words is {words}; this model lists up to {listed} words for each topic")
    return [_row(model, topic, count) for topic in range(model.arrays["topic_probability"].size)]


def _with_exact_words(path: str, model: Model) -> Model:
    """The model with characteristic words by exact rows of C, where ``evaluate`` has counted the training corpus."""
    counts = read_training_counts(store_path(path, "a model"), model, ("characteristic_words",))
    if counts is None or counts.characteristic_words is None:
        return model
    return replace(model, arrays={**model.arrays, "characteristic_words": counts.characteristic_words})


def _row(model: Model, topic: int, words: int) -> dict[str, Any]:
    vocabulary = model.arrays["word"]

    def spell(name: str) -> list[str]:
        return [str(vocabulary[word]) for word in model.arrays[name][topic, :words] if word >= 0]

    row: dict[str, Any] = {
        "topic": topic,
        "probability": float(model.arrays["topic_probability"][topic]),
        "label": spell("label_words"),
        "prominent": spell("prominent_words"),
        "characteristic": spell("characteristic_words"),
    }
    if "anchors" in model.arrays:
        row["anchor"] = str(vocabulary[model.arrays["anchors"][topic]])
    if "duplicate_of" in model.arrays:
        larger = int(model.arrays["duplicate_of"][topic])
        row["duplicate_of"] = None if larger < 0 else larger
    return row


def format_topics(rows: list[dict[str, Any]], width: int = 110) -> str:
    """Lay the rows out as text: share, anchor and prominent words; characteristic words and labels beneath.

    A topic of the tensor engine has no anchor; where it repeats another, that stands in the anchor's place.
    """
    anchored = any("anchor" in row for row in rows)
    column, whose = ("anchor", "anchor's") if anchored else ("repeats", "top word's")
    lines = [f"{'topic':>5} {'share':>6}  {column:<16} prominent words / words of the {whose} row = label"]
    indent = " " * 31
    for row in rows:
        head = f"{row['topic']:>5} {row['probability']:>6.1%}  {_anchor(row):<16} "
        lines += textwrap.wrap(
            " ".join(row["prominent"]), width, initial_indent=head, subsequent_indent=indent
        )
        lines += textwrap.wrap(
            "/ " + " ".join(row["characteristic"]), width, initial_indent=indent, subsequent_indent=indent
        )
        lines.append(f"{indent}= {', '.join(row['label'])}")
    return "\n".join(map(printable, lines))


def _anchor(row: dict[str, Any]) -> str:
    if "anchor" in row:
        return str(row["anchor"])
    return "" if row["duplicate_of"] is None else f"topic {row['duplicate_of']}"


def warnings_of(path: str) -> list[str]:
    """Plain sentences about what makes a model doubtful; empty as a rule."""
    return certificate_warnings(read_model(path, ()).metrics)


def print_topics(model: str, words: int | None = None) -> None:
    """Print the topics of a model as a table, and on standard error what makes it doubtful."""
    click.echo(f"model: {location(model)}")
    click.echo(format_topics(topic_rows(model, words)))
    for sentence in warnings_of(model):
        click.echo(f"warning: {sentence}", err=True)
