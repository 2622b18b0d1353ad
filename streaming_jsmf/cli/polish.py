"""The verb ``polish``."""

from __future__ import annotations

from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.tables import print_topics
from streaming_jsmf.cli.verb import option, verb


@verb("streaming-jsmf polish MODEL CORPUS BETTER --steps 40")
@click.argument("model", type=click.Path())
@click.argument("corpus")
@click.argument("out", type=click.Path())
@options.polish_options
@option("--seed", type=int, default=0, show_default=True,
        help="Number that decides the draws of documents.")  # fmt: skip
@options.overwrite_option
@options.execution_options
@options.log_option
def polish(model: str, corpus: str, out: str, overwrite: bool, log_json: str | None, **settings: Any) -> None:
    """Finish the topics of MODEL by a few passes over the documents of CORPUS, into the model OUT.

    Topics get more coherent and predict documents better. An interrupted run is finished by the same command.
    """
    from streaming_jsmf.workflow.polish import polish as run

    with observed(log_json) as listener:
        execution = options.take_execution(settings)
        chosen = options.take_polish(settings, settings.pop("seed"))
        run(model, corpus, out, chosen, execution=execution, overwrite=overwrite, listener=listener)
    print_topics(out)
