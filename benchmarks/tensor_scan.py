"""The pass for the third moment beside its dense products alone, and beside TOD, which scans for each iteration.

    python -m benchmarks.tensor_scan [--topics 50 --topics 100] [--documents 20000] [--tod]

Processor time a document of the whole pass (reading, products, adding, committing, and once the corrections for all
words, so that few documents make it dear), of its sums on documents in memory, and of the products of slices alone
that these sums must do; one thread, the smallest of several runs. Then the whole line of STOD beside what TOD would
take: the same power iterations, each of which goes over all documents.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.blocks.units import list_units, plan_partitions
from streaming_jsmf.config import ScanSettings, StodSettings
from streaming_jsmf.corpus import open_corpus, simulate_lda
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.inference.stod.engine import tensor_topics
from streaming_jsmf.linalg.document_tensor import SHORTEST_DOCUMENT, tensor_sums, tensor_weights
from streaming_jsmf.linalg.tensor import COLUMN_BLOCK
from streaming_jsmf.moments.partition import Shares, load_shares
from streaming_jsmf.moments.reader import Moments
from streaming_jsmf.runtime.blas import single_blas_thread
from streaming_jsmf.runtime.events import Event, StageFinished, StageStarted
from streaming_jsmf.runtime.schedulers import Execution
from streaming_jsmf.workflow.scan import scan

REPEATS = 5


def fastest(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest of several runs, the first of which only warms up."""
    seconds = []
    for _ in range(REPEATS + 1):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds[1:])


def slices_alone(width: int) -> float:
    """Seconds a document of the products of all slices, float32: what the sum of cubes cannot do without."""
    rows = np.random.default_rng(0).standard_normal((width, COLUMN_BLOCK)).astype(np.float32)
    # Another array: of one and the same BLAS would use that the product is symmetric.
    other = rows.copy()

    def products() -> None:
        for a in range(width):
            rows[a:] @ other[a:].T

    return fastest(products) / COLUMN_BLOCK


def loaded(corpus: Corpus) -> Shares:
    """All documents of a corpus in memory."""
    [partition] = plan_partitions(list_units(corpus), corpus.nonzeros + 1)
    return load_shares(partition, corpus.n_words)


class TensorByScans:
    """M3(W, v, v) by one pass over the documents, as TOD needs it in each iteration; Eqs. 6 and 8, mended.

    Parameters
    ----------
    shares
        Documents.
    whitening
        W, N x k.
    alpha0
        Sum of the prior.
    """

    def __init__(self, shares: Shares, whitening: NDArray[np.float64], alpha0: float) -> None:
        weights = tensor_weights(shares.lengths, "capped")
        total, n = weights.sum(), np.maximum(shares.lengths, SHORTEST_DOCUMENT)
        self.block, self.w, self.alpha0 = shares.block.astype(np.float64), whitening, alpha0
        self.lengths = n
        self.pair, self.mean = weights * n / (n - 1) / total, weights / total
        self.triple = self.pair * n / (n - 2)

    def __call__(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        """One pass; v is (k,)."""
        x, direction, n = self.block, self.w @ v, self.lengths
        p, p2 = x @ direction, x @ direction**2
        # A document's triples along v: (c'd)^2 c - 2 (c'd)(c o d) - (c'd^2) c + 2 c o d^2, over l^3.
        three = x.T @ (self.triple * (p * p - p2 / n))
        three += direction * (x.T @ (-2 * self.triple * p / n)) + direction**2 * (
            x.T @ (2 * self.triple / n**2)
        )
        two = x.T @ (self.pair * p) - direction * (x.T @ (self.pair / n))
        one, a0 = x.T @ self.mean, self.alpha0
        m, pair = one @ direction, direction @ two
        dense = (a0 + 1) * (a0 + 2) / 2 * three - a0 * (a0 + 1) / 2 * (2 * m * two + pair * one)
        product: NDArray[np.float64] = self.w.T @ (dense + a0**2 * m * m * one)
        return product


def print_tod(shares: Shares, moments: Moments, topics: int, stod_seconds: float) -> None:
    """One pass of TOD checked against the tensor, and what all its passes would take."""
    from streaming_jsmf.inference.stod.whitening import core_moments, whiten, whitened_tensor

    read = moments.tensor_moments()
    core = core_moments(read.moments, read.basis)
    whitening = whiten(core, 1.0, topics)
    tensor = whitened_tensor(core, whitening, 1.0)
    one_pass = TensorByScans(shares, read.basis @ whitening.matrix, 1.0)
    v = np.random.default_rng(0).standard_normal(whitening.values.size)
    v /= np.linalg.norm(v)
    exact = tensor @ v @ v
    error = np.linalg.norm(one_pass(v) - exact) / np.linalg.norm(exact)
    seconds, settings = fastest(lambda: one_pass(v)), StodSettings(topics, 1.0)
    passes = topics * settings.restarts * settings.iterations
    click.echo(
        f"TOD: {seconds:.2f} s a pass in memory (differs from the tensor by {error:.1e}), {passes:,} passes: "
        f"{seconds * passes:,.0f} s; STOD's pass and inference: {stod_seconds:.1f} s"
    )


def measure(corpus: Corpus, topics: int, folder: Path, tod: bool) -> None:
    """Print a row of the table for one K, and the comparison with TOD if asked for."""
    clock: dict[type[Event], float] = {}

    def listen(event: Event) -> None:
        # Of the last stage what stays is when it began and ended.
        clock[type(event)] = time.thread_time()

    settings = ScanSettings(max_topics=topics, third_moment=True, scans=1, power_steps=2)
    moments = scan(corpus.root, folder / f"m{topics}", settings, Execution("synchronous"), listen)
    tensor_pass = clock[StageFinished] - clock[StageStarted]
    shares, read = loaded(corpus), moments.tensor_moments()
    basis = read.basis.astype(np.float32)
    weights = tensor_weights(shares.lengths, "capped")
    with single_blas_thread():
        sums = fastest(lambda: tensor_sums(shares.block, shares.lengths, weights, basis))
        alone = slices_alone(basis.shape[1])
        started = time.thread_time()
        tensor_topics(read.moments, read.basis, StodSettings(topics, 1.0))
        inference = time.thread_time() - started
    per = 1e6 / corpus.n_documents
    whole = tensor_pass * per
    click.echo(
        f"| {topics} | {basis.shape[1]} | {whole:.1f} | {sums * per:.1f} | {alone * 1e6:.1f} | "
        f"{whole / (alone * 1e6):.2f} | {sums * per / (alone * 1e6):.2f} | {inference:.1f} |"
    )
    if tod:
        print_tod(shares, moments, topics, tensor_pass + inference)


@click.command(help=__doc__)
@click.option("--topics", multiple=True, type=int, default=(50, 100), show_default=True)
@click.option("--documents", default=20_000, show_default=True)
@click.option("--words", default=10_000, show_default=True)
@click.option("--tod", is_flag=True, help="Also a pass of TOD.")
def main(topics: tuple[int, ...], documents: int, words: int, tod: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate_lda(
            str(folder / "corpus"), n_documents=documents, n_words=words, n_topics=50, mean_length=100, seed=0
        )
        corpus = open_corpus(str(folder / "corpus"))
        click.echo(
            f"{corpus.n_documents:,} documents, {corpus.n_words:,} words, {corpus.nonzeros:,} nonzeros"
        )
        click.echo("microseconds a document; inference in seconds, alpha0 given")
        click.echo("| K | m | pass | sums | slices alone | pass / alone | sums / alone | inference |")
        click.echo("|---|---|---|---|---|---|---|---|")
        for k in topics:
            measure(corpus, k, folder, tod)


if __name__ == "__main__":
    main()
