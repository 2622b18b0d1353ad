"""The verb ``simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streaming_jsmf.cli.verb import execution_options, option, path, verb

MODEL = "Distributions"

_SIZE = click.IntRange(min=1)


@verb("streaming-jsmf simulate CORPUS --documents 999 --vocabulary-size 99 --topics 9")
@path("corpus")
@option("--documents", required=True, type=_SIZE, help="Number of documents M.")
@option("--vocabulary-size", required=True, type=_SIZE, help="Number of words N.")
@option("--topics", required=True, type=_SIZE, help="Number of topics K.")
@option("--seed", type=int, default=0, show_default=True, help="Seed of all random draws.")
@option("--alpha", group=MODEL, type=float, default=None,
        help="Dirichlet parameter of the topic shares of a document.  [default: 1/K]")  # fmt: skip
@option("--beta", group=MODEL, type=float, default=None,
        help="Mean Dirichlet parameter of the words of a topic.  [default: 200/N]")  # fmt: skip
@option("--mean-length", group=MODEL, type=float, default=100, show_default=True,
        help="Mean length of a document in tokens; lengths follow a Poisson distribution.")  # fmt: skip
@option(
    "--separable", group=MODEL, is_flag=True, help="Give each topic an anchor word that no other topic uses."
)
@option("--zipf", group=MODEL, type=float, default=None, metavar="S",
        help="Let word frequencies decrease as 1 / rank^S.  [default: all words are alike]")  # fmt: skip
@option("--documents-per-shard", type=_SIZE, default=None,
        help="Number of documents per file; does not change the documents.  [default: about 20 M tokens]")  # fmt: skip
@execution_options
def simulate(corpus: str, **options: Any) -> str:
    """Draw CORPUS from latent Dirichlet allocation, and store its topics in CORPUS/truth.zarr.

    The same options give the same bytes with any scheduler and number of workers. An interrupted simulation is
    completed by running it again.
    """
    from streaming_jsmf.ingestion.simulation import simulate_lda

    made = simulate_lda(
        corpus,
        n_documents=options.pop("documents"),
        n_words=options.pop("vocabulary_size"),
        n_topics=options.pop("topics"),
        **options,
    )
    return (
        f"corpus: {corpus} ({made.n_documents} documents, {made.nonzeros} nonzeros)\n"
        f"truth: {Path(corpus) / 'truth.zarr'}"
    )
