"""The verb ``simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.observation import observed
from streaming_jsmf.cli.verb import option, verb

LAW = "Law"

_SIZE = click.IntRange(min=1)


@verb("streaming-jsmf simulate CORPUS --documents 999 --vocabulary-size 99 --topics 9")
@click.argument("corpus", type=click.Path())
@option("--documents", required=True, type=_SIZE, help="Number of documents M.")
@option("--vocabulary-size", required=True, type=_SIZE, help="Number of words N.")
@option("--topics", required=True, type=_SIZE, help="Number of topics K.")
@option("--seed", type=int, default=0, show_default=True, help="Number that decides all draws.")
@option("--alpha", group=LAW, type=float, default=None,
        help="Dirichlet parameter of the topic shares of a document.  [default: 1/K]")  # fmt: skip
@option("--beta", group=LAW, type=float, default=None,
        help="Mean Dirichlet parameter of the words of a topic.  [default: 200/N]")  # fmt: skip
@option("--mean-length", group=LAW, type=float, default=100, show_default=True,
        help="Mean length of a document in tokens; lengths follow a Poisson law.")  # fmt: skip
@option(
    "--separable", group=LAW, is_flag=True, help="Give each topic an anchor, a word that no other topic uses."
)
@option("--zipf", group=LAW, type=float, default=None, metavar="S",
        help="Let word frequencies fall as 1 / rank^S.  [default: all words alike]")  # fmt: skip
@option("--documents-per-shard", type=_SIZE, default=None,
        help="Documents of a file; the documents stay the same.  [default: about 20 M tokens]")  # fmt: skip
@options.execution_options
@options.log_option
def simulate(corpus: str, log_json: str | None, **settings: Any) -> None:
    """Draw CORPUS from latent Dirichlet allocation, its topics beside it in CORPUS/truth.zarr.

    The same options give the same bytes with any scheduler and number of workers. An interrupted simulation
    is finished by the same command.
    """
    from streaming_jsmf.workflow.simulate import simulate as run

    with observed(log_json) as listener:
        execution = options.take_execution(settings)
        made = run(corpus, execution=execution, listener=listener, **settings)
    click.echo(f"corpus: {corpus} ({made.n_documents} documents, {made.nonzeros} nonzeros)")
    click.echo(f"truth: {Path(corpus) / 'truth.zarr'}")
