"""The verb ``fit``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from streaming_jsmf.cli.topics import print_topics
from streaming_jsmf.cli.verb import (
    allow_local_tokenizers,
    engine_options,
    ingest_options,
    json_option,
    option,
    options_of,
    overwrite_option,
    path,
    topic_numbers,
    topics_option,
    verb,
)
from streaming_jsmf.config import PolishSettings, ScanSettings
from streaming_jsmf.config.inference import POLISH
from streaming_jsmf.config.scan import SCAN


@verb(
    "streaming-jsmf fit news.csv MODEL --topics 20",
    "streaming-jsmf fit CORPUS MODELS --topics 10,20,50 --workers 4",
)
@click.argument("source")
@path("model")
@topics_option
@option("--moments", group=SCAN, rare=True, type=click.Path(), default=None,
        help="Path of the moments store, which is created if it does not exist.  [default: MODEL.moments]")  # fmt: skip
@ingest_options(common=("stop_words", "text", "metadata"))
@options_of(ScanSettings, without=("max_topics", "third_moment"))
@engine_options
@option("--polish/--no-polish", group=POLISH, default=None,
        help="Whether to polish topics by passes over the documents.  [default: only with lr-jsmf]")  # fmt: skip
@options_of(PolishSettings, without=("seed",))
@overwrite_option
@json_option(help="Print the topics as JSON.", rare=True)
def fit(source: str, model: str, topics: str, as_json: bool = False, **options: Any) -> Callable[[], None]:
    """Fit MODEL to SOURCE, a corpus or anything that ingest reads.

    The corpus of texts or tables and the scan are kept as MODEL.corpus and MODEL.moments. Models of several K are
    written to MODEL/k=5, MODEL/k=10, ...
    """
    from streaming_jsmf.interface.fit import fit as run

    allow_local_tokenizers(options)
    fitted = run(source, model, topic_numbers(topics), progress=False, **options)
    return partial(print_topics, *fitted.models, as_json=as_json)
