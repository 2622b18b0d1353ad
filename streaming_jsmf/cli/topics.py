"""The verb ``topics``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from streaming_jsmf.cli.results import print_topics, read_in_order, require_csv, topic_rows, topics_csv
from streaming_jsmf.cli.verb import csv_options, json_option, options_of, path, verb
from streaming_jsmf.config import TopicChanges, TopicsRequest
from streaming_jsmf.errors import InputError


@verb(
    "streaming-jsmf topics MODEL --words 15",
    "streaming-jsmf topics MODEL --csv > topics.csv",
    "streaming-jsmf topics MODEL --label 3=elections --merge 5,8 --hide 0",
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
    """Print the topics of MODEL, or of each model in a directory of several K.

    Labels, merged and hidden topics are stored with MODEL and used by documents and reports, too; its arrays do not
    change.
    """
    from streaming_jsmf.topics.edits import edit_topics
    from streaming_jsmf.topics.store import model_path, models_at, read_model

    if as_csv and as_json:
        raise InputError("--csv and --json exclude each other; give one")
    require_csv(as_csv, raw)
    request, changes = TopicsRequest.of(options), TopicChanges.of(options)
    if changes != TopicChanges():
        place = model_path(model)
        edit_topics(place, read_model(place, ("topic_probability",)), lambda edits: edits.changed(changes))
    order, words = request.order or ("topic" if as_json else "share"), request.words
    if as_json:
        found = {str(path): topic_rows(str(path), words, order) for path in models_at(model)}
        several = [{"model": path, "topics": rows} for path, rows in found.items()]
        return json.dumps(several if len(several) > 1 else several[0]["topics"], ensure_ascii=False, indent=1)
    if as_csv:
        tables = {str(path): read_in_order(path, words, order) for path in models_at(model)}
        return topics_csv(tables, raw=raw).removesuffix("\n")
    return partial(print_topics, model, words=words, order=order, characteristic=request.characteristic)
