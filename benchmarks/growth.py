"""Cost of following a corpus that has grown by a tenth, and topics of a period from kept partitions.

    python -m benchmarks.growth [--documents 640000,2560000] [--words 60000] [--topics 50]
    python -m benchmarks.growth --corpus CORPUS [--topics 50]
    python -m benchmarks.growth --corpus SPEECHES --by year --span 10 [--topics 20] [--max-topics 80]

The first command simulates documents (LDA, Zipf's law), scans them, lets the store follow (``scan --follow``) when a
tenth has been added, and scans all of them anew. It prints CPU seconds of one thread and the relative difference of
Y Y' between the two stores of all documents. The second does the same with a corpus, whose last shards (one of eleven)
are added. Each scan runs in its own process; imports and compilation are excluded. The third scans a corpus by a column
of whole numbers, keeps the partitions, and prints mean and largest L1 distance (at most 2) between the topics of
``infer --partitions`` for a period and those of a scan of its documents alone.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipelines.common import options
from pipelines.common.matching import match_topics, yy_error
from streaming_jsmf import InferSettings, ScanSettings, infer, open_corpus, open_moments, scan
from streaming_jsmf.rectification.result import positive_half
from streaming_jsmf.simulation import simulate_lda

#: Number of shards of the first scan; one more is added.
SHARDS = 10


def in_place(source: Path, target: Path, shards: Sequence[str]) -> Path:
    """Make a corpus of some shards of another, with hard links instead of copies."""
    target.mkdir()
    corpus = open_corpus(source)
    (target / "vocab.txt").write_text("\n".join(corpus.vocabulary().words) + "\n", encoding="utf-8")
    for shard in shards:
        os.link(source / shard, target / Path(shard).name)
    return target


def scan_seconds(corpus: Path, moments: Path, n_topics: int) -> float:
    """CPU seconds of a scan, or of following the corpus if there is a store, in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_scan_seconds, (corpus, moments, n_topics))


def _scan_seconds(corpus: Path, moments: Path, n_topics: int) -> float:
    settings = ScanSettings(max_topics=n_topics)
    with tempfile.TemporaryDirectory() as folder:
        # Warm up: imports and compiled code.
        few = Path(folder) / "few"
        simulate_lda(few, n_documents=2000, n_words=1000, n_topics=5, seed=0)
        scan(few, Path(folder) / "m", ScanSettings(max_topics=5), options.ONE_THREAD)
    started = time.process_time()
    scan(corpus, moments, settings, options.ONE_THREAD, follow=True)
    return time.process_time() - started


def simulated(documents: int, words: int, folder: Path) -> Path:
    """Simulate documents with Zipf's law, plus a tenth more in an additional shard."""
    simulate_lda(
        folder,
        n_documents=documents // SHARDS * (SHARDS + 1),
        n_words=words,
        n_topics=80,
        mean_length=90,
        zipf=1.05,
        seed=0,
        documents_per_shard=documents // SHARDS,
    )
    return folder


def grown(every: Path, n_topics: int, folder: Path) -> list[object]:
    """Row: documents, nonzeros, seconds of scan, following and new scan, following / new, relative error of Y Y'."""
    names = [shard.name for shard in open_corpus(every).shards]
    last = len(names) - -(-len(names) // (SHARDS + 1))
    first, whole = (
        in_place(every, folder / name, chosen) for name, chosen in (("first", names[:last]), ("whole", names))
    )
    store, anew = folder / "store.zarr", folder / "anew.zarr"
    seconds = scan_seconds(first, store, n_topics)
    followed, new = (scan_seconds(whole, path, n_topics) for path in (store, anew))
    halves = [positive_half(open_moments(path).eigenpairs(n_topics), n_topics) for path in (store, anew)]
    scanned = open_corpus(first)
    costs = [f"{each:.1f}" for each in (seconds, followed, new)]
    sizes = [f"{scanned.n_documents:,}", f"{scanned.nonzeros / 1e6:.1f} M"]
    return [*sizes, *costs, f"{followed / new:.2f}", f"{yy_error(*halves):.2g}"]


def documents_between(source: Path, target: Path, column: str, first: int, last: int) -> Path:
    """Make a corpus of the documents of a period, with the same vocabulary."""
    corpus = open_corpus(source)
    tables = [pq.read_table(source / shard.name) for shard in corpus.shards]
    table = pa.concat_tables(tables)
    value = table.column(column)
    chosen = table.filter(pc.and_(pc.greater_equal(value, first), pc.less_equal(value, last)))
    in_place(source, target, ())
    pq.write_table(chosen, target / "part-0.parquet", row_group_size=1000)
    return target


def periods(
    source: Path, by: str, span: int, n_topics: int, max_topics: int, folder: Path
) -> Iterator[list[object]]:
    """Rows, one per period: documents, mean and largest L1 distance of topics, and shared anchors."""
    settings = ScanSettings(max_topics=max_topics, partition_by=by)
    scan(source, folder / "all.zarr", settings, options.ONE_THREAD)
    values = np.concatenate(
        [pq.read_table(source / shard.name, columns=[by])[by] for shard in open_corpus(source).shards]
    )
    for first in range(int(values.min()), int(values.max()) + 1, span):
        last = min(first + span - 1, int(values.max()))
        path = folder / f"{first}"
        alone = documents_between(source, path, by, first, last)
        scan(alone, folder / f"{first}.zarr", ScanSettings(max_topics=max_topics), options.ONE_THREAD)
        wanted = InferSettings(n_topics)
        kept = infer(folder / "all.zarr", folder / f"{first}-kept", wanted, partitions=f"{first}..{last}")
        own = infer(folder / f"{first}.zarr", folder / f"{first}-own", wanted)
        l1 = match_topics(kept.arrays["word_topic"], own.arrays["word_topic"]).l1
        shared = np.intersect1d(kept.arrays["anchors"], own.arrays["anchors"]).size
        yield [
            f"{first}..{last}",
            open_corpus(alone).n_documents,
            f"{l1.mean():.4f}",
            f"{l1.max():.4f}",
            shared,
        ]


@click.command(help=__doc__)
@options.several("documents", [640_000], help="Documents of each simulated corpus before it grows.")
@click.option("--words", default=60_000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--max-topics", type=int, help="Width of the scan by periods.  [default: --topics]")
@click.option(
    "--corpus",
    type=click.Path(exists=True, path_type=Path),
    help="Corpus to use instead of simulations.",
)
@click.option("--by", help="Column of whole numbers; measure periods instead of growth.")
@click.option("--span", default=10, show_default=True, help="Values per period.")
def main(
    documents: list[int],
    words: int,
    topics: int,
    max_topics: int | None,
    corpus: Path | None,
    by: str | None,
    span: int,
) -> None:
    if corpus is not None and by is not None:
        click.echo("| period | documents | mean L1 | worst | anchors shared |\n|---|---:|---:|---:|---:|")
        with tempfile.TemporaryDirectory() as folder:
            for row in periods(corpus, by, span, topics, max_topics or topics, Path(folder)):
                click.echo("| " + " | ".join(map(str, row)) + " |")
        return
    click.echo(
        "| documents | nonzeros | scan, CPU s | follow a tenth more | new scan | follow / new | Y Y' |\n"
        "|---:|---:|---:|---:|---:|---:|---:|"
    )
    for number in documents if corpus is None else [0]:
        with tempfile.TemporaryDirectory(dir=None if corpus is None else corpus.parent) as name:
            folder = Path(name)
            every = corpus or simulated(number, words, folder / "every")
            click.echo("| " + " | ".join(map(str, grown(every, topics, folder))) + " |")


if __name__ == "__main__":
    main()
