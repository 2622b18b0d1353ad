"""Profile of a scan; a scan compared with the bare sparse products; two workers compared with one.

    python -m benchmarks.scan_throughput [CORPUS] [--max-topics 50] [--shares-only]
    python -m benchmarks.scan_throughput [CORPUS] --two-workers [--share 1,0.2] [--turns 3]

Shares are fractions of the CPU time of a scan with two threads, by the parts of `benchmarks.spans`: `products` are
H X and H'(H X), `other` is everything outside of them (Zarr's thread, planning, imports). The kernel is scipy's H'(H X)
in float32 on the same partitions in memory, as often as a scan of all documents multiplies. Without CORPUS a Zipf
corpus is simulated. Compare ratios of one run.

`--two-workers` scans with one and two workers in turn, on threads and on processes of a LocalCluster, and prints median
ratios for the *passes* over the partitions and for the *whole* scan, in which one process computes basis and
eigenpairs. *Weak* is the time of one worker for every other shard divided by that of two workers for all shards: 1
means that two workers do twice the work in the same time. Timing starts when the workers are ready. Requires an idle
machine with two cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from benchmarks.growth import in_place
from benchmarks.spans import stopwatch
from pipelines.common.options import Several
from streaming_jsmf import Execution, ScanSettings, open_corpus, scan
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.corpus.units import list_units, plan_partitions
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.events import Event, StageFinished, StageStarted
from streaming_jsmf.linalg.csr import apply_gram
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.linalg.sampled import BASIS_STEPS
from streaming_jsmf.moments.partition import load_block
from streaming_jsmf.simulation import simulate_lda


def simulate_zipf(folder: Path, documents: int, words: int) -> None:
    """Simulate a corpus with Zipf-distributed words, in eight shards."""
    simulate_lda(
        folder,
        n_documents=documents,
        n_words=words,
        n_topics=50,
        mean_length=120,
        zipf=1.05,
        seed=0,
        documents_per_shard=documents // 8,
    )


def kernel_seconds(corpus: Corpus, settings: ScanSettings) -> float:
    """Seconds of one thread for the sparse products of a scan alone, between and in the passes."""
    partitions = plan_partitions(
        list_units(corpus), settings.partition_budget(corpus.nonzeros, corpus.n_words)
    )
    block_columns = block_width(settings.basis_width + GUARD_VECTORS)
    wide = gaussian_probes(corpus.n_words, block_columns, 0, "wide")
    narrow = np.ascontiguousarray(wide[:, : settings.basis_width])
    total = 0.0
    for partition in partitions:
        block = load_block(partition, corpus.n_words, settings.document_weights)
        with single_blas_thread():
            started = time.perf_counter()
            for _ in range(2 + BASIS_STEPS):
                apply_gram(block, wide)
            apply_gram(block, narrow)
            total += time.perf_counter() - started
    return total


class Clock:
    """Event listener: start of the first stage, and total seconds of the passes over the partitions."""

    def __init__(self) -> None:
        self.began, self.passes = 0.0, 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageStarted):
            self.began = self.began or time.perf_counter()
        if isinstance(event, StageFinished):
            self.passes += event.seconds


@dataclass(frozen=True)
class Seconds:
    """Seconds of the passes over the partitions, and from the first stage to the committed store."""

    passes: float
    whole: float


def scan_seconds(corpus: Corpus, settings: ScanSettings, folder: Path, execution: Execution) -> Seconds:
    clock = Clock()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scan(corpus.root, Path(name) / "moments", settings, execution, clock)
        return Seconds(clock.passes, time.perf_counter() - clock.began)


def print_two_workers(
    corpus: Corpus, settings: ScanSettings, folder: Path, schedulers: Sequence[str], turns: int
) -> None:
    """Print the speedup of two workers; runs alternate, so that changes of the machine's load affect both."""
    partitions = len(
        plan_partitions(list_units(corpus), settings.partition_budget(corpus.nonzeros, corpus.n_words))
    )
    half = folder / f"half-{settings.sample_share}"
    less = open_corpus(in_place(Path(corpus.root), half, [shard.name for shard in corpus.shards[::2]]))
    for scheduler in schedulers:
        ratios = []
        for _ in range(turns):
            one, two, part = (
                scan_seconds(documents, settings, folder, Execution(scheduler, workers))
                for documents, workers in ((corpus, 1), (corpus, 2), (less, 1))
            )
            ratios.append((one.passes / two.passes, one.whole / two.whole, part.whole / two.whole))
        passes, whole, weak = (float(np.median(column)) for column in zip(*ratios, strict=True))
        lowest, highest = (f"{bound(ratio[0] for ratio in ratios):.2f}" for bound in (min, max))
        click.echo(
            f"| {settings.sample_share} | {scheduler} | {partitions} | {passes:.2f} | {whole:.2f} | {weak:.2f} | "
            f"{lowest} to {highest} |"
        )


def print_shares(corpus: Corpus, settings: ScanSettings, folder: Path) -> None:
    """Scan with two threads and print seconds and fraction of each span."""
    started = time.process_time()
    with stopwatch() as watch:
        scan(corpus.root, folder / "moments-shares", settings, Execution("threads", 2))
    whole = time.process_time() - started
    seconds = {**watch.seconds, "other": whole - sum(watch.seconds.values())}
    click.echo("| span | CPU seconds | share |\n|---|---|---|")
    for name, value in sorted(seconds.items(), key=lambda item: -item[1]):
        click.echo(f"| {name} | {value:.1f} | {value / whole:.1%} |")
    click.echo(f"outside the matrix products: {1 - watch.seconds['products'] / whole:.1%} of {whole:.1f} s")


@click.command(help=__doc__)
@click.argument("corpus", required=False)
@click.option("--max-topics", default=50, show_default=True)
@click.option("--documents", default=200_000, show_default=True, help="Simulated documents.")
@click.option("--words", default=50_000, show_default=True, help="Simulated words.")
@click.option("--partition-nonzeros", default=None, type=int)
@click.option("--shares-only", is_flag=True, help="Only profile one scan.")
@click.option("--two-workers", is_flag=True, help="Compare two workers with one, and nothing else.")
@click.option(
    "--share", "shares", type=Several(float), default="1,0.2", show_default=True, help="With --two-workers."
)
@click.option("--scheduler", default="threads,cluster", show_default=True, help="With --two-workers.")
@click.option("--turns", default=3, show_default=True, help="With --two-workers.")
def main(
    corpus: str | None,
    max_topics: int,
    documents: int,
    words: int,
    partition_nonzeros: int | None,
    shares_only: bool,
    two_workers: bool,
    shares: list[float],
    scheduler: str,
    turns: int,
) -> None:
    settings = ScanSettings(max_topics=max_topics, partition_nonzeros=partition_nonzeros)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if corpus is None:
            corpus = str(folder / "corpus")
            simulate_zipf(Path(corpus), documents, words)
        opened = open_corpus(corpus)
        click.echo(
            f"{opened.n_documents:,} documents, {opened.n_words:,} words, {opened.nonzeros:,} nonzeros"
        )
        if two_workers:
            click.echo(
                "| share | scheduler | partitions | passes | whole scan | weak | passes, turns |\n"
                + "|---" * 7
                + "|"
            )
            for share in shares:
                wanted = replace(settings, sample_share=share)
                print_two_workers(opened, wanted, folder, scheduler.split(","), turns)
            return
        print_shares(opened, settings, folder)
        if shares_only:
            return
        kernel = kernel_seconds(opened, settings)
        threads = (Execution("threads", workers) for workers in (1, 2))
        one, two = (scan_seconds(opened, settings, folder, execution).whole for execution in threads)
    click.echo(
        f"bare products, one thread: {kernel:.1f} s; whole scan: {one:.1f} s; with two threads: {two:.1f} s"
    )
    click.echo(f"throughput beside the bare products: {kernel / one:.2f}")
    click.echo(f"two threads beside one: {one / two:.2f} x")


if __name__ == "__main__":
    main()
