"""The table of topics that people want to see."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import Any

from streaming_jsmf.errors import InputError
from streaming_jsmf.model.certificates import warnings_of as certificate_warnings
from streaming_jsmf.model.counts import read_training_counts
from streaming_jsmf.model.store import Model, read_model
from streaming_jsmf.runtime.files import store_path

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
    names = ("word", "anchors", "topic_probability", "prominent_words", "characteristic_words", "label_words")
    model = _with_exact_words(path, read_model(path, names))
    listed = model.arrays["prominent_words"].shape[1]
    count = min(DEFAULT_WORDS, listed) if words is None else words
    if not 1 <= count <= listed:
        raise InputError(f"--words is {words}; this model lists up to {listed} words for each topic")
    return [_row(model, topic, count) for topic in range(model.arrays["anchors"].size)]


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

    return {
        "topic": topic,
        "probability": float(model.arrays["topic_probability"][topic]),
        "anchor": str(vocabulary[model.arrays["anchors"][topic]]),
        "label": spell("label_words"),
        "prominent": spell("prominent_words"),
        "characteristic": spell("characteristic_words"),
    }


def format_topics(rows: list[dict[str, Any]], width: int = 110) -> str:
    """Lay the rows out as text: share, anchor and prominent words; characteristic words and labels beneath."""
    lines = [f"{'topic':>5} {'share':>6}  {'anchor':<16} prominent words / words of the anchor's row = label"]
    indent = " " * 31
    for row in rows:
        head = f"{row['topic']:>5} {row['probability']:>6.1%}  {row['anchor']:<16} "
        lines += textwrap.wrap(
            " ".join(row["prominent"]), width, initial_indent=head, subsequent_indent=indent
        )
        lines += textwrap.wrap(
            "/ " + " ".join(row["characteristic"]), width, initial_indent=indent, subsequent_indent=indent
        )
        lines.append(f"{indent}= {', '.join(row['label'])}")
    return "\n".join(lines)


def warnings_of(path: str) -> list[str]:
    """Plain sentences about what makes a model doubtful; empty as a rule."""
    return certificate_warnings(read_model(path, ()).metrics)
