"""Where the time of a scan goes; a whole scan beside the bare sparse products, and two threads beside one.

    python -m benchmarks.scan_throughput [CORPUS] [--max-topics 50] [--shares-only]

Shares are of the processor time of one scan with two threads, by the spans of `streaming_jsmf.timing`: `products` are
H X and H'(H X), `other` what no span sees (Zarr's own thread, planning, imports). The kernel is scipy's H'(H X) in
float32 on the same partitions in memory, as many times as the two scans multiply; the range is that of `--range
factors`. Without CORPUS a Zipf corpus is simulated. Ratios of one run; the seconds belong to the machine.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click
import numpy as np

from streaming_jsmf import Execution, ScanSettings, open_corpus, scan
from streaming_jsmf.blocks.units import list_units, plan_partitions
from streaming_jsmf.corpus import Corpus
from streaming_jsmf.linalg.blas import single_blas_thread
from streaming_jsmf.linalg.factor import apply_gram
from streaming_jsmf.linalg.probes import gaussian_probes
from streaming_jsmf.moments.partition import load_block
from streaming_jsmf.simulation import simulate_lda
from streaming_jsmf.timing import stopwatch


def simulate_zipf(folder: Path, documents: int, words: int) -> None:
    """A corpus of words whose frequencies follow Zipf's law, in eight shards."""
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
    """Seconds of one thread in the products alone: power_steps times the factor's width, once the basis'."""
    partitions = plan_partitions(
        list_units(corpus), settings.partition_budget(corpus.nonzeros, corpus.n_words)
    )
    wide = gaussian_probes(corpus.n_words, settings.factor_width, 0, "wide")
    narrow = np.ascontiguousarray(wide[:, : settings.basis_width])
    total = 0.0
    for partition in partitions:
        block = load_block(partition, corpus.n_words, settings.document_weights)
        with single_blas_thread():
            started = time.perf_counter()
            for _ in range(settings.power_steps):
                apply_gram(block, wide)
            apply_gram(block, narrow)
            total += time.perf_counter() - started
    return total


def scan_seconds(corpus: Corpus, settings: ScanSettings, folder: Path, threads: int) -> float:
    """Seconds of both scans from opened corpus to committed store."""
    started = time.perf_counter()
    scan(corpus.root, folder / f"moments-{threads}", settings, Execution("threads", threads))
    return time.perf_counter() - started


def print_shares(corpus: Corpus, settings: ScanSettings, folder: Path) -> None:
    """Scan with two threads and print seconds and share of each span."""
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
@click.option("--documents", default=200_000, show_default=True, help="To simulate.")
@click.option("--words", default=50_000, show_default=True, help="To simulate.")
@click.option("--partition-nonzeros", default=None, type=int)
@click.option("--shares-only", is_flag=True, help="One scan, without the comparisons.")
def main(
    corpus: str | None,
    max_topics: int,
    documents: int,
    words: int,
    partition_nonzeros: int | None,
    shares_only: bool,
) -> None:
    settings = ScanSettings(
        max_topics=max_topics, partition_nonzeros=partition_nonzeros, range_finder="factors"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if corpus is None:
            corpus = str(folder / "corpus")
            simulate_zipf(Path(corpus), documents, words)
        opened = open_corpus(corpus)
        click.echo(
            f"{opened.n_documents:,} documents, {opened.n_words:,} words, {opened.nonzeros:,} nonzeros"
        )
        print_shares(opened, settings, folder)
        if shares_only:
            return
        kernel = kernel_seconds(opened, settings)
        one, two = (scan_seconds(opened, settings, folder, threads) for threads in (1, 2))
    click.echo(
        f"bare products, one thread: {kernel:.1f} s; whole scan: {one:.1f} s; with two threads: {two:.1f} s"
    )
    click.echo(f"throughput beside the bare products: {kernel / one:.2f}")
    click.echo(f"two threads beside one: {one / two:.2f} x")


if __name__ == "__main__":
    main()
