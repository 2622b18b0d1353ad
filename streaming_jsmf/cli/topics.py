"""The verb ``topics``, and the topics that other verbs print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from streaming_jsmf.cli.verb import csv_options, json_option, json_text, options_of, path, require_one, verb
from streaming_jsmf.config import Order, TopicChanges, TopicsRequest
from streaming_jsmf.display import csv_text, location

if TYPE_CHECKING:
    from streaming_jsmf.reporting.topics import Topic
    from streaming_jsmf.storage.paths import StorePath
    from streaming_jsmf.topics.edits import TopicEdits


@verb(
    "streaming-jsmf topics MODEL --words 15",
    "streaming-jsmf topics MODEL --csv > topics.csv",
    "streaming-jsmf topics MODEL --label 3=elections --merge 5,8 --hide 0",
    "streaming-jsmf topics MODEL --reduce 10",
    long=False,
)
@path("model")
@options_of(TopicsRequest)
@options_of(TopicChanges)
@csv_options(help="Print CSV instead of a table, one line per topic.")
@json_option(help="Print JSON instead of a table, with p(word | topic).")
def topics(
    model: str, as_csv: bool = False, raw: bool = False, as_json: bool = False, **options: Any
) -> str | Callable[[], None]:
    """Print or edit the topics of MODEL.

    In a directory of several K, prints those of each model. Labels, merged and hidden topics are stored with MODEL and
    also apply to documents and reports; the arrays of MODEL do not change. An edit that was made already changes
    nothing.
    """
    from streaming_jsmf.topics.edits import edit_topics
    from streaming_jsmf.topics.store import model_path, models_at, read_model

    require_one(raw, csv=as_csv, json=as_json)
    request, changes = TopicsRequest.of(options), TopicChanges.of(options)
    if changes != TopicChanges():
        place = model_path(model)
        edit_topics(
            place, read_model(place, ("topic_probability",)), lambda edits: _changed(place, edits, changes)
        )
    order = request.order or ("topic" if as_json else "share")
    if not (as_csv or as_json):
        return partial(
            print_topics, model, words=request.words, order=order, characteristic=request.characteristic
        )
    found = {str(path): _read(path, request.words, order, exclusive=True) for path in models_at(model)}
    return _csv(found, raw=raw) if as_csv else _json(found)


def _changed(place: StorePath, edits: TopicEdits, changes: TopicChanges) -> TopicEdits:
    """All changes as one; topics are merged by distance after the others."""
    edits = edits.changed(changes)
    if changes.reduce is None and changes.merge_similar is None:
        return edits
    from streaming_jsmf.reporting.arrange import merge_nearest

    return merge_nearest(place, edits, changes.reduce, changes.merge_similar)


def print_topics(
    *models: object,
    words: int | None = None,
    order: Order = "share",
    characteristic: bool = False,
    as_json: bool = False,
) -> None:
    """Print the topics of the models at these paths, and warnings about them on standard error."""
    from streaming_jsmf.reporting.topics import topic_text, warnings_about
    from streaming_jsmf.topics.store import models_at

    places = [place for model in models for place in models_at(str(model))]
    order = "topic" if as_json else order
    topics = {str(place): _read(place, words, order, exclusive=characteristic or as_json) for place in places}
    if as_json:
        click.echo(_json(topics))
    for place, found in zip(places, topics.values(), strict=True):
        if not as_json:
            click.echo(f"model: {location(place)}\n{topic_text(found, characteristic=characteristic)}")
        for sentence in warnings_about(place, found):
            click.echo(f"warning: {sentence}", err=True)


def _json(models: Mapping[str, Sequence[Topic]]) -> str:
    rows = [{"model": path, "topics": [*map(_row, topics)]} for path, topics in models.items()]
    return json_text(rows if len(rows) > 1 else rows[0]["topics"])


def _read(path: Any, words: int | None, order: Order, *, exclusive: bool) -> Sequence[Topic]:
    from streaming_jsmf.reporting.topics import by_share, read_topics

    topics = read_topics(path, words, exclusive=exclusive)
    return by_share(topics) if order == "share" else topics


def _row(topic: Topic) -> dict[str, Any]:
    row: dict[str, Any] = {
        "topic": topic.number,
        "probability": topic.share,
        "label": list(topic.label),
        "prominent": [word.text for word in topic.words],
        "probabilities": [word.probability for word in topic.words],
        "characteristic": list(topic.characteristic),
        "frex": list(topic.frex),
    }
    if topic.anchor is not None:
        row["anchor"] = topic.anchor
    if topic.strength is not None:
        row["duplicate_of"] = topic.duplicate_of
    return row


def _csv(models: Mapping[str, Sequence[Topic]], *, raw: bool) -> str:
    """One line per topic; for several models the first column has the path of the model."""
    rows: list[list[object]] = [
        ["model", "topic", "share", "label", "anchor", "words", "characteristic", "frex"]
    ]
    for model, topics in models.items():
        for topic in topics:
            words = ", ".join(word.text for word in topic.words)
            label, *lists = (", ".join(each) for each in (topic.label, topic.characteristic, topic.frex))
            rows.append([model, topic.number, topic.share, label, topic.anchor or "", words, *lists])
    return csv_text(rows if len(models) > 1 else (row[1:] for row in rows), raw=raw).removesuffix("\n")
