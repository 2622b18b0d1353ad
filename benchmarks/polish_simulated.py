"""Errors of the topics of both engines on simulated corpora, before and after polish.

    python -m benchmarks.polish_simulated [--documents 5000,20000,100000] [--steps 10] [--seeds 1]

LDA as in `simulate`: 10,000 words, 50 topics (Dirichlet distribution of mass 200), documents of about 100 tokens, prior
1/K per topic. Prints the mean L1 distance (at most 2) between matched topics and true topics with default settings, for
STOD also with alpha0 from the shares of its components, and CPU seconds of one thread for scan and inference, and for
the steps.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click
from threadpoolctl import threadpool_limits

from pipelines.common.matching import match_topics
from pipelines.common.tensor_variants import share_alpha0
from streaming_jsmf import (
    Execution,
    InferSettings,
    PolishSettings,
    ScanSettings,
    StodSettings,
    infer,
    polish,
    scan,
)
from streaming_jsmf.inference.stod import core_moments
from streaming_jsmf.simulation import read_truth, simulate_lda
from streaming_jsmf.topics.store import Model

WORDS, TOPICS, LENGTH = 10_000, 50, 100

ENGINES = {
    "LR-JSMF": InferSettings(TOPICS),
    "STOD": StodSettings(TOPICS),
    "STOD, alpha0 of shares": StodSettings(TOPICS),
}

ONE = Execution("synchronous")


def print_rows(folder: Path, documents: int, steps: int, seed: int) -> None:
    """Print the results of all engines on one corpus, from one scan."""
    corpus = folder / "corpus"
    simulate_lda(
        corpus, n_documents=documents, n_words=WORDS, n_topics=TOPICS, mean_length=LENGTH, seed=seed,
        execution=ONE,
    )  # fmt: skip
    truth = read_truth(corpus).word_topic

    def error(model: Model) -> float:
        return match_topics(model.arrays["word_topic"], truth).mean_l1

    began = time.process_time()
    moments = scan(corpus, folder / "moments", ScanSettings(max_topics=TOPICS, third_moment=True), ONE)
    scanned = time.process_time() - began
    for name, settings in ENGINES.items():
        began = time.process_time()
        if name == "STOD, alpha0 of shares":
            settings = StodSettings(
                TOPICS, share_alpha0(core_moments(moments.tensor_moments()), StodSettings(TOPICS))
            )
        model = infer(moments, folder / "model", settings, workers=1, overwrite=True)
        start = time.process_time() - began
        began = time.process_time()
        wanted = PolishSettings(steps=steps)
        polished = polish(
            folder / "model", corpus, folder / "polished", wanted, execution=ONE, overwrite=True
        )
        seconds = time.process_time() - began
        errors = f"{error(model):.3f} | {error(polished):.3f}"
        click.echo(f"| {documents:,} | {name} | {errors} | {scanned + start:.1f} | {seconds:.1f} |")


@click.command(help=__doc__)
@click.option(
    "--documents",
    default="5000,20000,100000",
    show_default=True,
    help="Sizes, separated by commas.",
)
@click.option("--steps", default=10, show_default=True, help="Steps of polish.")
@click.option("--seeds", default=1, show_default=True, help="Number of corpora of each size.")
def main(documents: str, steps: int, seeds: int) -> None:
    click.echo("| documents | engine | error | polished | scan and infer, s | steps, s |")
    click.echo("|---:|---|---:|---:|---:|---:|")
    for size in map(int, documents.split(",")):
        for seed in range(seeds):
            with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
                print_rows(Path(folder), size, steps, seed)


if __name__ == "__main__":
    main()
