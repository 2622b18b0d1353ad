"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import click

from streaming_jsmf.cli.verb import option, options_of
from streaming_jsmf.config import (
    Curation,
    ExecutionOptions,
    InferSettings,
    IngestRequest,
    StodSettings,
    TextReading,
)
from streaming_jsmf.config.execution import EXECUTION

Decorator = Callable[[Any], Any]


def together(*decorators: Decorator) -> Decorator:
    """One decorator that applies these in their order."""
    return lambda command: reduce(lambda done, decorate: decorate(done), reversed(decorators), command)


topics_option = option(
    "--topics", required=True, metavar="K[,K...]",
    help="Number of topics K; several, such as 5,10,20, give one model each.",
)  # fmt: skip

engine_options = together(
    option("--engine", type=click.Choice((InferSettings.engine, StodSettings.engine)), default=InferSettings.engine,
           show_default=True,
           help="lr-jsmf: anchor words. stod: tensor decomposition."),
    options_of(StodSettings, without=("seed",)),
    options_of(InferSettings),
)  # fmt: skip

overwrite_option = option("--overwrite", is_flag=True, help="Replace an existing result of the same kind.")
json_option = partial(option, "--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
quiet_option = partial(option, "--quiet", is_flag=True, help="Print only the result, warnings and errors.")

log_option = option(
    "--log-json", group=EXECUTION, default=None, metavar="FILE",
    help="Append one line of JSON per event to FILE, or to standard error for -.  [default: none]",
)  # fmt: skip

execution_options = together(options_of(ExecutionOptions), log_option)


def ingest_options(**settings: Any) -> Decorator:
    """All options about how a source becomes a corpus."""
    reading, texts = ("reader", "read"), ("tokenizer", "phrases", "tokens_per_shard")
    words = ("preset", "vocabulary")
    return together(
        options_of(IngestRequest, only=reading, **settings),
        options_of(TextReading, only=("encoding",), **settings),
        options_of(IngestRequest, only=("on_bad_record", "files"), **settings),
        options_of(Curation, **settings),
        options_of(IngestRequest, only=words, **settings),
        options_of(TextReading, without=("encoding",), **settings),
        options_of(IngestRequest, only=texts, **settings),
    )


def topic_numbers(text: str) -> list[int]:
    """Parse ``20`` or ``5,10,20``; raise ``click.UsageError`` for anything else."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or len(set(numbers)) < len(numbers):
        raise click.UsageError(
            f"--topics is {text!r}; give a number such as 20, or several different ones: 5,10,20"
        )
    return numbers
