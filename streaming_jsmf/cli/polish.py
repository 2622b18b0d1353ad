"""The verb ``polish``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from streaming_jsmf.cli.topics import print_topics
from streaming_jsmf.cli.verb import json_option, options_of, overwrite_option, path, verb
from streaming_jsmf.config import PolishSettings


@verb("streaming-jsmf polish MODEL CORPUS BETTER --steps 40")
@path("model")
@click.argument("corpus")
@path("out")
@options_of(PolishSettings)
@overwrite_option
@json_option(help="Print the topics as JSON.")
def polish(model: str, corpus: str, out: str, as_json: bool = False, **options: Any) -> Callable[[], None]:
    """Polish the topics of MODEL with passes over CORPUS.

    The polished model is written to OUT. Polished topics are more coherent and predict documents better. Run the same
    command again to resume after an interruption.
    """
    from streaming_jsmf.topics.polish import polish as run

    run(model, corpus, out, **options)
    return partial(print_topics, out, as_json=as_json)
