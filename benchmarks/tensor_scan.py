"""The third-moment pass compared with its dense products alone and with TOD.

    python -m benchmarks.tensor_scan [--topics 50 --topics 100] [--documents 20000] [--tod]

CPU time per document of the whole pass (reading, products, adding, committing), of its sums on documents in memory, and
two measures of the products that these sums require:

- *slices*: the products of r[a:] and r[a:] for all a, as a loop over BLAS; m^3 / 3 multiplications per document
- *floor*: the m (m + 1) (m + 2) / 6 multiplications of a symmetric tensor at the rate of one large square product

One thread, minimum over rounds that each measure everything. Also prints the profile of the pass, the cost of the
corrections for all words (once for all documents, in seconds), and the time of STOD compared with that of the same
power iterations in TOD.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.spans import stopwatch
from pipelines.common.bags import read_counts
from pipelines.common.tod import DocumentMoments, seconds_a_pass
from streaming_jsmf.config import ScanSettings, StodSettings
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.units import list_units, plan_partitions
from streaming_jsmf.inference.stod import tensor_topics
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Event, StageFinished, StageStarted
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.linalg.tensor import packed_size, tensor_sums
from streaming_jsmf.moments.partition import iter_shares
from streaming_jsmf.moments.scan import scan
from streaming_jsmf.moments.store import Moments
from streaming_jsmf.simulation import simulate_lda

REPEATS = 5
ROUNDS = 5

#: Documents per batch of the slice products, as in an earlier version of ``linalg.tensor``.
SLICE_DOCUMENTS = 1024

#: Size of the square product that measures the machine's rate.
LARGE = 1024


def seconds_of(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def fastest(work: Callable[[], object]) -> float:
    """CPU seconds of the fastest of several runs after a warm-up."""
    return min([seconds_of(work) for _ in range(REPEATS + 1)][1:])


def gaussian(rows: int, columns: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)


def slices_alone(width: int, n_documents: int) -> float:
    """Seconds of the products of all slices for this many documents, float32."""
    rows = gaussian(width, SLICE_DOCUMENTS)
    # A copy, because BLAS uses the symmetry of a product of an array with itself.
    other = rows.copy()

    def products() -> None:
        for a in range(width):
            rows[a:] @ other[a:].T

    products()
    times = -(-n_documents // SLICE_DOCUMENTS)
    return seconds_of(lambda: [products() for _ in range(times)]) / (times * SLICE_DOCUMENTS) * n_documents


def floor(width: int, n_documents: int) -> float:
    """Seconds of the multiplications of a symmetric tensor at the rate of a large product, float32."""
    matrix = gaussian(LARGE, LARGE)
    other = matrix.copy()
    return fastest(lambda: matrix @ other) / LARGE**3 * packed_size(width) * n_documents


def loaded(corpus: Corpus) -> list[tuple[csr_array[Any], NDArray[np.float64]]]:
    [partition] = plan_partitions(list_units(corpus), corpus.nonzeros + 1)
    return [*iter_shares(partition, corpus.n_words)]


def print_tod(corpus: Corpus, moments: Moments, topics: int, stod_seconds: float) -> None:
    """Check one pass of TOD against the tensor and extrapolate the time of all its passes."""
    from streaming_jsmf.inference.stod import core_moments, whiten, whitened_tensor

    read = moments.tensor_moments()
    core = core_moments(read)
    whitening = whiten(core, 1.0, topics)
    tensor = whitened_tensor(core, whitening, 1.0)
    documents, w = DocumentMoments(read_counts(Path(corpus.root)), 1.0), read.basis @ whitening.matrix
    v = np.random.default_rng(0).standard_normal(whitening.values.size)
    v /= np.linalg.norm(v)
    exact = tensor @ v @ v
    found = (w.T @ documents.third(w @ v[:, None]))[:, 0]
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    settings = StodSettings(topics, 1.0)
    seconds = seconds_a_pass(documents, w, settings.restarts)
    passes = topics * settings.iterations
    click.echo(
        f"TOD: {seconds:.2f} s a pass of {settings.restarts} starts in memory (off the tensor by {error:.1e}), "
        f"{passes:,} passes: {seconds * passes:,.0f} s; STOD's pass and inference: {stod_seconds:.1f} s"
    )


@dataclass(frozen=True)
class Round:
    """CPU seconds of one round: the whole pass, its spans by name, and the isolated kernels."""

    whole: float
    spans: dict[str, float]
    sums: float
    slices: float
    floor: float


def one_pass(corpus: Corpus, store: Path, settings: ScanSettings) -> tuple[float, dict[str, float]]:
    """Add the third moment to a copy of ``store``; returns seconds of the pass and of its spans."""
    clock: dict[type[Event], float] = {}

    def listen(event: Event) -> None:
        clock[type(event)] = time.thread_time()

    with tempfile.TemporaryDirectory(dir=store.parent) as name, stopwatch() as watch:
        copy = shutil.copytree(store, Path(name) / "moments")
        scan(corpus.root, copy, settings, Execution("synchronous"), listen)
    return clock[StageFinished] - clock[StageStarted], watch.seconds


def measure(corpus: Corpus, topics: int, folder: Path, tod: bool) -> None:
    """Print a row for one K and, with ``tod``, the comparison with TOD."""
    settings = ScanSettings(max_topics=topics)
    store, with_tensor = folder / f"m{topics}", replace(settings, third_moment=True)
    scan(corpus.root, store, settings, Execution("synchronous"))
    complete = shutil.copytree(store, folder / f"complete{topics}")
    moments = scan(corpus.root, complete, with_tensor, Execution("synchronous"))
    read = moments.tensor_moments()
    basis, batches = read.basis.astype(np.float32), loaded(corpus)
    width, n = basis.shape[1], corpus.n_documents
    rounds = []
    for _ in range(ROUNDS):
        whole, spans = one_pass(corpus, store, with_tensor)
        with single_blas_thread():
            sums = seconds_of(lambda: tensor_sums(batches, basis, "capped"))
            rounds.append(Round(whole, spans, sums, slices_alone(width, n), floor(width, n)))
    with single_blas_thread():
        inference = seconds_of(lambda: tensor_topics(read, read.word_mean, StodSettings(topics, 1.0), 1.0))
    print_row(topics, width, rounds, inference, n)
    if tod:
        print_tod(corpus, moments, topics, min(r.whole for r in rounds) + inference)


def print_row(topics: int, width: int, rounds: list[Round], inference: float, n_documents: int) -> None:
    """Print the minimum over rounds, and the time by span of the fastest pass."""
    per = 1e6 / n_documents
    whole, sums, slices, least = (
        per * min(getattr(r, name) for r in rounds) for name in ("whole", "sums", "slices", "floor")
    )
    click.echo(
        f"| {topics} | {width} | {whole:.1f} | {sums:.1f} | {slices:.1f} | {least:.1f} | {whole / slices:.2f} | "
        f"{sums / slices:.2f} | {inference:.1f} |"
    )
    fast = min(rounds, key=lambda r: r.whole)
    parts = {name: per * fast.spans[name] for name in ("read", "products", "cubes")}
    parts["the rest"] = per * fast.whole - sum(parts.values())
    told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
    ratios = ", ".join(f"{r.whole / r.slices:.2f}" for r in rounds)
    click.echo(
        f"  of the pass: {told}; once: {fast.spans['third moment']:.2f} s; pass / slices by rounds: {ratios}"
    )


@click.command(help=__doc__)
@click.option("--topics", multiple=True, type=int, default=(50, 100), show_default=True)
@click.option("--documents", default=20_000, show_default=True)
@click.option("--words", default=10_000, show_default=True)
@click.option("--tod", is_flag=True, help="Also measure a pass of TOD.")
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
        click.echo("| K | m | pass | sums | slices | floor | pass / slices | sums / slices | inference |")
        click.echo("|---|---|---|---|---|---|---|---|---|")
        for k in topics:
            measure(corpus, k, folder, tod)


if __name__ == "__main__":
    main()
