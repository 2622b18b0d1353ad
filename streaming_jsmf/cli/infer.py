"""The verb ``infer``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from streaming_jsmf.cli.topics import print_topics
from streaming_jsmf.cli.verb import (
    engine_options,
    json_option,
    option,
    options_of,
    overwrite_option,
    path,
    topic_numbers,
    topics_option,
    verb,
)
from streaming_jsmf.config import StodSettings, engine_settings_of
from streaming_jsmf.config.requests import EXECUTION


@verb(
    "streaming-jsmf infer MOMENTS MODEL --topics 20",
    "streaming-jsmf infer MOMENTS MODELS --topics 10,20,50",
    scheduled=False,
)
@path("moments")
@path("model")
@topics_option
@engine_options
@options_of(StodSettings, only=("seed",))
@option("--partitions", default=None, metavar="LABELS",
        help="Use only the partitions with these labels, such as 1990..1999 or a,b, of a store scanned with "
             "--partition-by and --keep-partitions.  [default: all]")  # fmt: skip
@overwrite_option
@json_option(help="Print the topics as JSON.")
@option("--workers", group=EXECUTION, type=int, default=None,
        help="Number of threads.  [default: one per core]")  # fmt: skip
def infer(
    moments: str,
    model: str,
    topics: str,
    workers: int | None = None,
    as_json: bool = False,
    *,
    listener: Any,
    **options: Any,
) -> Callable[[], None]:
    """Infer MODEL with K topics from a moments store.

    The corpus is not read. Models of several K are written to MODEL/k=5, MODEL/k=10, ...
    """
    from streaming_jsmf.topics.infer import infer_each

    numbers = topic_numbers(topics)
    own = {name: options.pop(name) for name in ("partitions", "overwrite") if name in options}
    settings = engine_settings_of(numbers[0], None, options)
    made = infer_each(moments, model, numbers, settings, workers=workers, listener=listener, **own)
    return partial(print_topics, *made, as_json=as_json)
