"""Recovery error and time of STOD on the simulated corpora of its paper, with Gibbs sampling beside it if wanted.

    python pipelines/stod_reproduction.py --vary documents --values 5000,20000 --corpora 5 --gibbs 200,1000

Each row is the mean over several corpora and its standard deviation. The error is the L1 distance (of 2) between a
topic found and the true one that it is matched with, in the mean over topics. Seconds are processor time, of the scans
and the inference of STOD, and of the sampling. Gibbs sampling needs tomotopy, which is not a dependency.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from streaming_jsmf import Execution, ScanSettings, StodSettings, fit, open_corpus, open_model
from streaming_jsmf.blocks.csr import iter_blocks
from streaming_jsmf.blocks.units import list_units
from streaming_jsmf.corpus import Corpus, read_truth, simulate_lda
from streaming_jsmf.evaluation.matching import match_topics

Floats = NDArray[np.float64]

#: What the paper draws in its Fig. 1.
PAPER_VALUES = {
    "documents": "5000,20000,50000,100000",
    "words": "3000,10000,30000,100000",
    "topics": "10,25,50,100",
}

MEAN_LENGTH, DIRICHLET_MASS = 100, 200


@dataclass(frozen=True)
class Setting:
    """One point of a curve."""

    documents: int
    words: int
    topics: int


@dataclass(frozen=True)
class Outcome:
    """Mean L1 error of a method on one corpus, and its processor seconds; NaN where there are none."""

    error: float
    seconds: float = float("nan")


def recovery_error(word_topic: Floats, truth: Floats) -> float:
    """Mean L1 distance of matched topics; a topic that was not found counts as the uniform distribution."""
    n, k = truth.shape
    missing = k - word_topic.shape[1]
    padded = np.hstack([word_topic, np.full((n, missing), 1 / n)])
    return match_topics(padded, truth).mean_l1


def stod(corpus: Corpus, folder: Path, setting: Setting, settings: StodSettings, truth: Floats) -> Outcome:
    """Scan and infer with defaults, in one thread."""
    started = time.process_time()
    fit(
        corpus.root,
        folder / "model",
        [setting.topics],
        scan_settings=ScanSettings(),
        infer_settings=replace(settings, n_topics=setting.topics),
        execution=Execution("synchronous"),
        threads=1,
    )
    seconds = time.process_time() - started
    found = open_model(folder / "model")["word_topic"].values
    return Outcome(recovery_error(found, truth), seconds)


def gibbs(corpus: Corpus, sweeps: int, setting: Setting, seed: int, truth: Floats) -> Outcome:
    """Collapsed Gibbs sampling with the true hyperparameters, in one thread."""
    import tomotopy

    model = tomotopy.LDAModel(
        k=setting.topics, alpha=1 / setting.topics, eta=DIRICHLET_MASS / setting.words, seed=seed
    )
    for tokens in documents(corpus):
        model.add_doc(tokens)
    started = time.process_time()
    model.train(sweeps, workers=1, parallel=tomotopy.ParallelScheme.NONE)
    seconds = time.process_time() - started
    found = np.zeros_like(truth)
    ids = np.array([int(word) for word in model.used_vocabs])
    for topic in range(setting.topics):
        found[ids, topic] = model.get_topic_word_dist(topic)
    return Outcome(recovery_error(found, truth), seconds)


def documents(corpus: Corpus) -> Iterator[list[str]]:
    """The tokens of each document, as word ids in letters."""
    names = np.array([str(i) for i in range(corpus.n_words)])
    for block in iter_blocks(list_units(corpus), corpus.n_words):
        for first, last in zip(block.indptr[:-1], block.indptr[1:], strict=True):
            words = np.repeat(block.indices[first:last], block.data[first:last].astype(int))
            if words.size:
                yield names[words].tolist()


def methods(setting: Setting, sweeps: Sequence[int], settings: StodSettings, seed: int) -> dict[str, Outcome]:
    """All methods on one corpus, which is simulated and thrown away."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate_lda(
            folder / "corpus",
            n_documents=setting.documents,
            n_words=setting.words,
            n_topics=setting.topics,
            mean_length=MEAN_LENGTH,
            seed=seed,
        )
        corpus, truth = open_corpus(folder / "corpus"), read_truth(folder / "corpus").word_topic
        uniform = np.full_like(truth, 1 / setting.words)
        found = {"uniform": Outcome(recovery_error(uniform, truth))}
        found["STOD"] = stod(corpus, folder, setting, settings, truth)
        for number in sweeps:
            found[f"Gibbs {number}"] = gibbs(corpus, number, setting, seed, truth)
    return found


def cell(outcomes: Sequence[Outcome]) -> str:
    """Error with its standard deviation, and seconds where there are some."""
    errors = [outcome.error for outcome in outcomes]
    spread = f" ± {np.std(errors, ddof=1):.4f}" if len(errors) > 1 else ""
    seconds = float(np.mean([outcome.seconds for outcome in outcomes]))
    return f"{np.mean(errors):.4f}{spread}" + ("" if np.isnan(seconds) else f", {seconds:.1f} s")


@click.command()
@click.option("--vary", type=click.Choice(list(PAPER_VALUES)), default="documents", show_default=True)
@click.option("--values", default=None, help="Of what varies.  [default: those of the paper]")
@click.option("--documents", "n_documents", default=100_000, show_default=True)
@click.option("--words", default=10_000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--corpora", default=5, show_default=True, type=click.IntRange(1), help="For each value.")
@click.option("--gibbs", "sweeps", default="", metavar="N[,N...]", help="Sweeps of Gibbs sampling.")
@click.option("--alpha0", default="auto", show_default=True, metavar="auto|X")
@click.option("--seed", default=0, show_default=True, help="Of the first corpus.")
def main(
    vary: str,
    values: str | None,
    n_documents: int,
    words: int,
    topics: int,
    corpora: int,
    sweeps: str,
    alpha0: str,
    seed: int,
) -> None:
    """Print a table in Markdown: a row for each value of what varies."""
    base = Setting(n_documents, words, topics)
    numbers = [int(number) for number in sweeps.split(",") if number]
    settings = StodSettings(topics, "auto" if alpha0 == "auto" else float(alpha0))
    header = [vary, "uniform", "STOD", *(f"Gibbs {number}" for number in numbers)]
    click.echo("| " + " | ".join(header) + " |\n" + "|---:" * len(header) + "|")
    for value in (int(text) for text in (values or PAPER_VALUES[vary]).split(",")):
        setting = replace(base, **{vary: value})
        rows = [methods(setting, numbers, settings, seed + i) for i in range(corpora)]
        cells = [cell([row[name] for row in rows]) for name in rows[0]]
        click.echo("| " + " | ".join([f"{value:,}", *cells]) + " |")


if __name__ == "__main__":
    main()
