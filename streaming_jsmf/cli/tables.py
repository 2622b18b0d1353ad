"""The table of topics that people want to see."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from streaming_jsmf.errors import InputError
from streaming_jsmf.model.store import Model, read_model

#: Words of a topic that people read.
DEFAULT_WORDS = 10

#: Above this sum of A the anchors or the rectification are not to be trusted.
LARGEST_TRUSTED_SUM = 1.1

#: A component of the tensor that moved more in its last step has not been found.
LARGEST_TRUSTED_STEP = 1e-6


def topic_rows(path: str, words: int | None = None) -> list[dict[str, Any]]:
    """Return one JSON-able row for each topic of a model, with ``words`` words (None: 10, or all).

    Raises
    ------
    InputError
        If there is no model, or it lists fewer words than asked for.
    StoreError
        If it is damaged.
    """
    stod = read_model(path, ()).engine == "stod"
    names = ("word", "topic_probability", "prominent_words", "characteristic_words")
    model = read_model(path, (*names, "duplicate_of") if stod else (*names, "anchors"))
    listed = model.arrays["prominent_words"].shape[1]
    count = min(DEFAULT_WORDS, listed) if words is None else words
    if not 1 <= count <= listed:
        raise InputError(f"--words is {words}; this model lists up to {listed} words for each topic")
    return [_row(model, topic, count) for topic in range(model.arrays["topic_probability"].size)]


def _row(model: Model, topic: int, words: int) -> dict[str, Any]:
    vocabulary = model.arrays["word"]

    def spell(name: str) -> list[str]:
        return [str(vocabulary[word]) for word in model.arrays[name][topic, :words]]

    row = {
        "topic": topic,
        "probability": float(model.arrays["topic_probability"][topic]),
        "prominent": spell("prominent_words"),
        "characteristic": spell("characteristic_words"),
    }
    if "anchors" in model.arrays:
        return {**row, "anchor": str(vocabulary[model.arrays["anchors"][topic]])}
    double = int(model.arrays["duplicate_of"][topic])
    return {**row, "duplicate_of": None if double < 0 else double}


def format_topics(rows: list[dict[str, Any]], width: int = 110) -> str:
    """Lay the rows out as text: share, anchor and prominent words, the characteristic words beneath.

    A topic of the tensor engine has no anchor; where it repeats another, that stands in the anchor's place.
    """
    anchored = any("anchor" in row for row in rows)
    label, whose = ("anchor", "anchor's") if anchored else ("repeats", "top word's")
    lines = [f"{'topic':>5} {'share':>6}  {label:<16} prominent words / words of the {whose} row"]
    indent = " " * 31
    for row in rows:
        head = f"{row['topic']:>5} {row['probability']:>6.1%}  {_label(row):<16} "
        lines += textwrap.wrap(
            " ".join(row["prominent"]), width, initial_indent=head, subsequent_indent=indent
        )
        lines += textwrap.wrap(
            "/ " + " ".join(row["characteristic"]), width, initial_indent=indent, subsequent_indent=indent
        )
    return "\n".join(lines)


def _label(row: dict[str, Any]) -> str:
    if "anchor" in row:
        return str(row["anchor"])
    return "" if row["duplicate_of"] is None else f"topic {row['duplicate_of']}"


def warnings_of(path: str) -> list[str]:
    """Plain sentences about what makes a model doubtful; empty as a rule."""
    model = read_model(path, ())
    metrics = model.metrics
    if model.engine == "stod":
        return _tensor_warnings(metrics)
    sentences = []
    if metrics["topic_topic_sum"] > LARGEST_TRUSTED_SUM:
        sentences.append(
            f"the topic correlations sum to {metrics['topic_topic_sum']:.2f}: anchors or rectification are "
            "unreliable; try more --max-iterations or a higher --anchor-min-df"
        )
    return sentences


def _tensor_warnings(metrics: Mapping[str, Any]) -> list[str]:
    sentences = []
    asked, found = metrics["topics_asked"], metrics["topics_found"]
    if metrics["effective_rank"] < asked:
        sentences.append(
            f"the second moment carries {metrics['effective_rank']} topics, {asked} were asked for; use fewer, or a "
            "larger corpus"
        )
    if metrics["discarded"]:
        sentences.append(
            f"{metrics['discarded']} of {found + metrics['discarded']} components are no topics and were left out; "
            "use fewer topics, or another --alpha0"
        )
    if metrics["duplicates"]:
        sentences.append(f"{metrics['duplicates']} topics repeat others; use fewer topics")
    if metrics["largest_step"] > LARGEST_TRUSTED_STEP:
        sentences.append(
            f"a component still moved by {metrics['largest_step']:.1g} in its last step, so that topics may depend on "
            "--seed; use fewer topics"
        )
    if metrics["alpha0_at_end"]:
        sentences.append(
            f"alpha0 is {metrics['alpha0']:g}, where the search for it ends: give --alpha0, or use fewer topics"
        )
    return sentences
