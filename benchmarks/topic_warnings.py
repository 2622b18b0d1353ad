"""Which topics are reported as doubtful, and how far the others are from the thresholds.

    python -m benchmarks.topic_warnings mail=posts/ kos=KOS [--topics 20,50] [--seeds 2] [--boilerplate keep]

Each source, a corpus or anything that ``fit`` reads, is fitted for each K and seed. Prints one line per model: the
smallest median of ``spelling_ranks`` over the ten most probable words of a topic; the smallest median document
frequency of these words, as a share of all documents; and the topics with warnings.
"""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

import click
import numpy as np

import streaming_jsmf as sj
from streaming_jsmf.corpus.format import is_corpus
from streaming_jsmf.evaluation.verdicts import WORDS, Frequency
from streaming_jsmf.reporting.topics import doubts_of, read_topics
from streaming_jsmf.storage.paths import StorePath
from streaming_jsmf.topics.store import read_model

ARRAYS = ("word", "prominent_words", "document_frequency")


def row(name: str, n_topics: int, seed: int, path: StorePath) -> list[str]:
    """One line of the table."""
    model = read_model(path, ARRAYS)
    n_documents = model.metrics["n_documents"]
    found = Frequency.of(model.arrays, n_documents)
    assert found is not None
    spelling = np.median(found.spelling[:, :WORDS], axis=1).min()
    share = np.median(found.of_words[:, :WORDS], axis=1).min() / n_documents
    doubts = "; ".join(doubts_of(read_topics(path))) or "none"
    return [name, f"{n_documents:,}", str(n_topics), str(seed), f"{spelling:.3f}", f"{share:.2%}", doubts]


@click.command()
@click.argument("sources", nargs=-1, metavar="NAME=SOURCE...", required=True)
@click.option("--topics", default="20,50", show_default=True)
@click.option("--seeds", default=2, show_default=True)
@click.option("--boilerplate", type=click.Choice(["keep", "drop"]), default=None)
def main(sources: tuple[str, ...], topics: str, seeds: int, boilerplate: str | None) -> None:
    """Print the table."""
    logging.getLogger("streaming_jsmf").setLevel(logging.ERROR)
    click.echo("| corpus | documents | K | seed | spelling | frequency | doubtful |")
    click.echo("|---|---:|---:|---:|---:|---:|---|")
    numbers = [int(number) for number in topics.split(",")]
    for name, source in (given.split("=", 1) for given in sources):
        with tempfile.TemporaryDirectory() as folder:
            options = {} if is_corpus(source) or boilerplate is None else {"boilerplate": boilerplate}
            corpus = (
                source if is_corpus(source) else sj.ingest(source, Path(folder) / "corpus", **options).root
            )
            for seed in range(seeds):
                models = sj.fit(corpus, Path(folder) / f"seed-{seed}", numbers, seed=seed).models
                for number, path in zip(numbers, models, strict=True):
                    click.echo(f"| {' | '.join(row(name, number, seed, path))} |")


if __name__ == "__main__":
    main()
