"""Time of a polish step compared with its arithmetic.

    python -m benchmarks.polish_step [--corpus CORPUS] [--topics 20,50,100] [--repeats 20]

The arithmetic is nonzeros x K x (rounds + 1) x 4 operations at the rate of a bare loop: the same four operations on
consecutive rows in memory, without documents, words or sums. Both are measured in turn, and the minimum CPU time
counts, so other load has little influence. The speed of two threads is wall time and requires an idle machine. Without
a corpus: 20,000 documents of about 90 distinct words out of 10,000.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from pipelines.common.bags import read_counts
from streaming_jsmf.inference.cvb0 import FLOOR
from streaming_jsmf.inference.polish import ROUNDS, step_sums

Single = NDArray[np.float32]

#: Rows of the bare loop: a document of typical length.
BARE_ROWS = 90


@njit(nogil=True, fastmath={"contract", "reassoc", "nsz"})
def bare_rounds(
    topics: Single, shares: Single, weights: Single, sums: Single, counts: Single, rounds: int
) -> float:
    """The four operations of a round (difference, product, sum, weighted sum), row by row."""
    total = np.float32(0)
    for _ in range(rounds):
        for j in range(topics.shape[0]):
            row, share, count = topics[j], shares[j], counts[j]
            for k in range(row.size):
                others = weights[k] - share[k]
                value = row[k] * (others if others > FLOOR else FLOOR)
                share[k] = value
                total += value
            for k in range(row.size):
                sums[k] += count * share[k]
    return total


def bare_call(n_topics: int) -> Callable[[], Any]:
    """A function that computes about a million shares per call."""
    random = np.random.default_rng(0)
    topics = random.random((BARE_ROWS, n_topics), np.float32)
    shares, sums = np.zeros_like(topics), np.zeros(n_topics, np.float32)
    weights, counts = np.ones(n_topics, np.float32), np.full(BARE_ROWS, 1e-3, np.float32)
    rounds = max(1, 1_000_000 // topics.size)
    return lambda: bare_rounds(topics, shares, weights, sums, counts, rounds)


def simulated(n_documents: int = 20_000, n_words: int = 10_000, length: int = 160) -> sparse.csr_array:
    """Documents with Zipf-distributed words, some of them repeated."""
    random = np.random.default_rng(1)
    law = 1 / np.arange(5, n_words + 5)
    words = random.choice(n_words, n_documents * length, p=law / law.sum())
    documents = np.repeat(np.arange(n_documents), length)
    ones = np.ones(words.size, np.float32)
    counts = sparse.coo_array((ones, (documents, words)), shape=(n_documents, n_words)).tocsr()
    counts.sum_duplicates()
    return counts


def least(works: list[Callable[[], Any]], repeats: int, clock: Callable[[], float]) -> list[float]:
    """Minimum seconds of each function; the functions alternate."""
    seconds = [np.inf] * len(works)
    for turn in range(repeats + 1):
        for i, work in enumerate(works):
            started = clock()
            work()
            if turn:  # the first turn compiles
                seconds[i] = min(seconds[i], clock() - started)
    return seconds


@click.command(help=__doc__)
@click.option("--corpus", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--topics", default="20,50,100", show_default=True, help="Numbers of topics, separated by commas."
)
@click.option("--repeats", default=20, show_default=True)
def main(corpus: Path | None, topics: str, repeats: int) -> None:
    counts = read_counts(corpus) if corpus else simulated()
    click.echo(
        f"{counts.shape[0]} documents, {counts.shape[1]} words, {counts.nnz} nonzeros, {ROUNDS} rounds"
    )
    click.echo("| K | bare loop, GF/s | step, ns a nonzero | times its arithmetic | two threads |")
    click.echo("|---:|---:|---:|---:|---:|")
    for n_topics in map(int, topics.split(",")):
        random = np.random.default_rng(2)
        word_topic = random.dirichlet(np.full(counts.shape[1], 0.1), n_topics).T
        prior = np.full(n_topics, 0.1)

        def step(threads: int, word_topic: Any = word_topic, prior: Any = prior) -> None:
            step_sums(counts, word_topic, prior, threads=threads)

        with threadpool_limits(1):
            bare, one = least([bare_call(n_topics), lambda: step(1)], repeats, time.process_time)
            alone, together = least([lambda: step(1), lambda: step(2)], repeats, time.perf_counter)
        rows = BARE_ROWS * max(1, 1_000_000 // (BARE_ROWS * n_topics))
        rate = 4 * rows * n_topics / bare
        arithmetic = counts.nnz * n_topics * (ROUNDS + 1) * 4 / rate
        click.echo(
            f"| {n_topics} | {rate / 1e9:.1f} | {one / counts.nnz * 1e9:.0f} "
            f"| {one / arithmetic:.2f} | {alone / together:.2f} |"
        )


if __name__ == "__main__":
    main()
