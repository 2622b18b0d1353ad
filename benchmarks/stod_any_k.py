"""The tensor engine with a K other than the true number of topics: errors and perplexities.

    python -m benchmarks.stod_any_k [CORPUS ...] [--topics 20,25,50] [--seeds 1]

The first table is for simulated corpora (12 topics, 1,500 words, 6,000 documents of about 100 tokens): mean L1 error
(at most 2) of the best pairs of topics with the true alpha0, with the estimates ``auto`` and ``shares``, and of
LR-JSMF. The second is for each CORPUS, with every fifth document held out: perplexity of one half of the tokens of
held-out documents given the other half, for the unigram model, LR-JSMF and the tensor engine. Lower is better.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from pipelines.common.bags import read_counts, write_corpus
from pipelines.common.held_out import Split
from streaming_jsmf import Execution, InferSettings, ScanSettings, StodSettings, scan
from streaming_jsmf.evaluation.topic_shape import recovery_error
from streaming_jsmf.inference.correlations import dirichlet_prior, prior_sum
from streaming_jsmf.inference.perplexity import Completer, Completion
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.simulation import read_truth, simulate_lda
from streaming_jsmf.topics.infer import fit_moments

Floats = NDArray[np.float64]

TRUE_TOPICS, WORDS, DOCUMENTS = 12, 1_500, 6_000
TRUE_SUMS, ASKED_TOPICS = (0.3, 1.0, 5.0), (12, 14, 16, 24)

ONE = Execution("synchronous")


def simulated_row(moments: Moments, truth: Floats, total: float, n_topics: int) -> str:
    """Errors at one K; ``total`` is the true alpha0."""
    found = {
        how: fit_moments(moments, StodSettings(n_topics, alpha0=value), threads=1)
        for how, value in (("true", total), ("auto", "auto"), ("shares", "shares"))
    }
    errors = {how: recovery_error(model.arrays["word_topic"], truth) for how, model in found.items()}
    anchored = fit_moments(moments, InferSettings(n_topics), threads=1).arrays["word_topic"]
    cells = [f"{total:g}", f"{n_topics}", f"{errors['true']:.3f}"]
    cells += [f"{found[how].metrics['alpha0']:.2f} | {errors[how]:.3f}" for how in ("auto", "shares")]
    cells += [f"{errors['auto'] / errors['true']:.2f}", f"{recovery_error(anchored, truth):.3f}"]
    return f"| {' | '.join(cells)} |"


def print_simulated(folder: Path, seeds: int) -> None:
    click.echo("| alpha0 | K | error | auto | error | shares | error | auto over true | LR-JSMF |")
    click.echo("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for seed in range(seeds):
        for total in TRUE_SUMS:
            corpus = folder / f"simulated-{total:g}-{seed}"
            simulate_lda(
                corpus, n_documents=DOCUMENTS, n_words=WORDS, n_topics=TRUE_TOPICS,
                alpha=total / TRUE_TOPICS, seed=seed, execution=ONE,
            )  # fmt: skip
            settings = ScanSettings(max_topics=max(ASKED_TOPICS), third_moment=True)
            moments = scan(corpus, folder / f"{corpus.name}-moments", settings, ONE)
            truth = read_truth(corpus).word_topic
            for n_topics in ASKED_TOPICS:
                click.echo(simulated_row(moments, truth, total, n_topics))


def print_real(name: str, counts: sparse.csr_array, topics: list[int], folder: Path) -> None:
    documents = Split.of(counts)
    write_corpus(folder / name, documents.fitted)
    moments = scan(
        folder / name, folder / f"{name}-m", ScanSettings(max_topics=max(topics), third_moment=True), ONE
    )

    def completed(topics: Floats, prior: Floats) -> Completion:
        return Completer.of(topics, prior, moments.term_count).complete(documents.held_out, threads=1)

    for n_topics in topics:
        anchored = fit_moments(moments, InferSettings(n_topics, correlations="refined"), threads=1).arrays
        total = prior_sum(anchored["topic_topic"], anchored["topic_probability"])
        prior = dirichlet_prior(anchored["topic_probability"], total)
        model = fit_moments(moments, StodSettings(n_topics), threads=1)
        ours = completed(anchored["word_topic"], prior)
        scored = ours.perplexity, completed(model.arrays["word_topic"], model.arrays["alpha"]).perplexity
        cells = (f"{value:.0f}" for value in (ours.unigram_perplexity, *scored))
        metrics = model.metrics
        more = f"{metrics['alpha0']:.2f} | {metrics['share_sum']:.2f} | {metrics['mass_without_topic']:.1e}"
        click.echo(f"| {name} | {n_topics} | {' | '.join(cells)} | {scored[1] / scored[0]:.3f} | {more} |")


@click.command(help=__doc__)
@click.argument("corpora", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--topics",
    default="20,25,50",
    show_default=True,
    help="Numbers of topics for the corpora, separated by commas.",
)
@click.option("--seeds", default=1, show_default=True, help="Simulated corpora of each kind.")
def main(corpora: tuple[Path, ...], topics: str, seeds: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        if seeds:
            print_simulated(folder, seeds)
        if corpora:
            click.echo("\n| corpus | K | unigram | LR-JSMF | STOD | STOD over LR-JSMF ", nl=False)
            click.echo("| alpha0 | sum of shares | mass without topic |")
            click.echo("|---|" + "---:|" * 8)
        for number, corpus in enumerate(corpora):
            wanted = [int(k) for k in topics.split(",")]
            print_real(f"{number}-{corpus.name}", read_counts(corpus), wanted, folder)


if __name__ == "__main__":
    main()
