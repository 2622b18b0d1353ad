"""The verb ``simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli import options
from streaming_jsmf.cli.observation import observed

_SIZE = click.IntRange(min=1)


@click.command()
@click.argument("corpus", type=click.Path())
@click.option("--documents", required=True, type=_SIZE, help="Number of documents M.")
@click.option("--vocabulary-size", required=True, type=_SIZE, help="Number of words N.")
@click.option("--topics", required=True, type=_SIZE, help="Number of topics K.")
@click.option("--alpha", type=float, default=None,
              help="Dirichlet parameter of the topic shares of a document.  [default: 1/K]")  # fmt: skip
@click.option("--beta", type=float, default=None,
              help="Mean Dirichlet parameter of the words of a topic.  [default: 200/N]")  # fmt: skip
@click.option("--mean-length", type=float, default=100, show_default=True,
              help="Mean of the Poisson law of document lengths.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of all draws.")
@click.option("--separable", is_flag=True, help="Give each topic an anchor, a word that no other topic uses.")
@click.option("--zipf", type=float, default=None, metavar="S",
              help="Let word frequencies fall as 1 / rank^S.  [default: all words alike]")  # fmt: skip
@click.option("--documents-per-shard", type=_SIZE, default=None,
              help="Changes the files, not the documents.  [default: about 20 M tokens]")  # fmt: skip
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
