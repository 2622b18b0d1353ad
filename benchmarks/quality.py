"""Topic quality, time and memory beside gensim, scikit-learn and tomotopy, on the same words and documents.

    python -m benchmarks.quality CORPUS --topics 20,50 [--seeds 3] [--models lr-jsmf-capped,tomotopy-200]

Every fifth document is held out; all models fit the counts of the others, each in a process of its own and in one
thread. Prints a Markdown table: mean (and standard deviation over seeds) of the NPMI of the top 10 words, documents as
windows, among the documents that were fitted and among those held out; the share of distinct words among all top
words, which no documents change; the seconds of fitting, reading its input included; the peak memory of the process.
Peers are the extra ``bench``; one that is not installed is left out with a line.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.topic_models import MODELS
from pipelines.common.bags import read_counts
from streaming_jsmf.evaluation.coherence import cooccurrence_counts, distinct_share, npmi

#: One document in so many is held out.
HELD_OUT = 5


@dataclass(frozen=True)
class Split:
    """Counts (documents x words, CSR, int32) of the documents that are fitted and of those held out."""

    fitted: sparse.csr_array
    held_out: sparse.csr_array


@dataclass(frozen=True)
class Fitted:
    """top_words: (K, 10) word ids; seconds: wall; peak: bytes of the process."""

    top_words: NDArray[np.int64]
    seconds: float
    peak: int


@dataclass(frozen=True)
class Scores:
    """What a table shows of one fit."""

    npmi: float
    held_out: float
    distinct: float
    seconds: float
    megabytes: float


def split(counts: sparse.csr_array) -> Split:
    """Hold out every fifth document."""
    held_out = np.arange(counts.shape[0]) % HELD_OUT == HELD_OUT - 1
    return Split(counts[~held_out], counts[held_out])


def fit_apart(name: str, matrix: Path, n_topics: int, seed: int) -> Fitted | str:
    """Fit a model in a fresh process; why not, if it cannot be imported."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_fit, args=(there, name, matrix, n_topics, seed))
    process.start()
    there.close()
    try:
        result: Fitted | str = here.recv()
    except EOFError as error:
        process.join()
        raise click.ClickException(f"{name} with {n_topics} topics ended with {process.exitcode}") from error
    process.join()
    return result


def _fit(pipe: Connection, name: str, matrix: Path, n_topics: int, seed: int) -> None:
    counts = sparse.csr_array(sparse.load_npz(matrix))
    with threadpool_limits(1):
        started = time.perf_counter()
        try:
            top_words = MODELS[name](counts, n_topics, seed)
        except ImportError as error:
            pipe.send(f"{name} is left out: {error}; pip install '.[bench]'")
            return
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    pipe.send(Fitted(top_words, seconds, peak))


def score(documents: Split, fitted: Fitted) -> Scores:
    """Coherence among both kinds of documents, and the rest."""
    words = fitted.top_words
    return Scores(
        coherence_of(documents.fitted, words),
        coherence_of(documents.held_out, words),
        distinct_share(words),
        fitted.seconds,
        fitted.peak / 1e6,
    )


def coherence_of(counts: sparse.csr_array, words: NDArray[np.int64]) -> float:
    """Mean NPMI of topics' words (K, n) among documents."""
    chosen, places = np.unique(words, return_inverse=True)
    pairs = cooccurrence_counts([counts], chosen)
    return float(npmi(np.diag(pairs), pairs, counts.shape[0], places.reshape(words.shape)).mean())


def format_row(name: str, n_topics: int, found: list[Scores]) -> str:
    """One line of the table: mean (standard deviation) over seeds."""

    def cell(field: str, digits: int) -> str:
        values = np.array([getattr(scores, field) for scores in found])
        spread = f" ({values.std(ddof=1):.{digits}f})" if len(values) > 1 else ""
        return f"{values.mean():.{digits}f}{spread}"

    cells = (
        cell("npmi", 3),
        cell("held_out", 3),
        cell("distinct", 2),
        cell("seconds", 1),
        cell("megabytes", 0),
    )
    return f"| {name} | {n_topics} | {' | '.join(cells)} |"


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--topics", default="20,50", show_default=True, help="Numbers of topics, with commas between.")
@click.option("--seeds", default=3, show_default=True, help="Runs of each model, with seeds from 0 on.")
@click.option("--models", default=",".join(MODELS), show_default=True, help="Names, with commas between.")
def main(corpus: Path, topics: str, seeds: int, models: str) -> None:
    names = models.split(",")
    if unknown := sorted({*names} - MODELS.keys()):
        raise click.ClickException(f"unknown models {', '.join(unknown)}; there are {', '.join(MODELS)}")
    documents = split(read_counts(corpus))
    click.echo("| model | K | NPMI@10 | NPMI@10 held out | distinct share | seconds | peak MB |")
    click.echo("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as directory:
        matrix = Path(directory) / "counts.npz"
        sparse.save_npz(matrix, documents.fitted, compressed=False)
        for n_topics in (int(k) for k in topics.split(",")):
            for name in names:
                _print_row(name, n_topics, seeds, matrix, documents)


def _print_row(name: str, n_topics: int, seeds: int, matrix: Path, documents: Split) -> None:
    found = []
    for seed in range(seeds):
        fitted = fit_apart(name, matrix, n_topics, seed)
        if isinstance(fitted, str):
            click.echo(fitted, err=True)
            return
        found.append(score(documents, fitted))
    click.echo(format_row(name, n_topics, found))


if __name__ == "__main__":
    main()
