"""Peak memory of a scan at one and four times the documents, each in its own process.

    python -m benchmarks.scan_memory [--documents 60000] [--words 20000] [--workers 2]

Scans simulated Zipf corpora with a fixed partition size and prints peak resident memory and the projection of
`scan_memory`. Memory may grow with vocabulary, widths and partition size, but not with the number of documents.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click
from dask.utils import format_bytes

from streaming_jsmf import ScanSettings, open_corpus
from streaming_jsmf.corpus.units import list_units, plan_partitions
from streaming_jsmf.moments.needs import scan_memory
from streaming_jsmf.simulation import simulate_lda


@click.command(help=__doc__)
@click.option("--documents", default=60_000, show_default=True, help="Documents of the smaller corpus.")
@click.option("--words", default=20_000, show_default=True)
@click.option("--max-topics", default=50, show_default=True)
@click.option("--partition-nonzeros", default=1_000_000, show_default=True)
@click.option("--workers", default=2, show_default=True)
@click.option(
    "--factor", default=4, show_default=True, help="Size of the larger corpus relative to the smaller one."
)
def main(
    documents: int, words: int, max_topics: int, partition_nonzeros: int, workers: int, factor: int
) -> None:
    settings = ScanSettings(max_topics=max_topics, partition_nonzeros=partition_nonzeros)
    click.echo("| documents | nonzeros | partitions | peak memory | projected |\n|---|---|---|---|---|")
    peaks = []
    for times in (1, factor):
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(folder) / "corpus"
            simulate_lda(
                corpus,
                n_documents=documents * times,
                n_words=words,
                n_topics=max_topics,
                zipf=1.05,
                seed=0,
                documents_per_shard=documents // 4,
            )
            peaks.append(measure(corpus, Path(folder) / "moments", settings, workers))
    click.echo(f"{factor}x / 1x: {peaks[1] / peaks[0]:.3f}")


def measure(path: Path, moments: Path, settings: ScanSettings, workers: int) -> int:
    """Scan in a fresh process, print the row and return peak resident memory in bytes."""
    corpus = open_corpus(path)
    partitions = plan_partitions(
        list_units(corpus), settings.partition_budget(corpus.nonzeros, corpus.n_words)
    )
    arguments = ["scan", str(path), str(moments), "--workers", str(workers)]
    arguments += ["--max-topics", str(settings.max_topics)]
    arguments += ["--partition-nonzeros", str(settings.partition_nonzeros)]
    # ru_maxrss of children is that of the largest child so far, so each scan needs an intermediate process.
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
        "stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL); "
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)"
    )
    command = [sys.executable, "-c", script, sys.executable, "-m", "streaming_jsmf", *arguments]
    peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    projected = scan_memory(corpus.n_words, settings, partitions, workers)
    click.echo(
        f"| {corpus.n_documents:,} | {corpus.nonzeros:,} | {len(partitions)} | {format_bytes(peak)} "
        f"| {format_bytes(projected)} |"
    )
    return peak


if __name__ == "__main__":
    main()
