"""CPU time and memory of ingesting texts, compared with scikit-learn's CountVectorizer with a known vocabulary.

    python -m benchmarks.ingest_throughput SOURCE [--vocabulary-size 20000] [--excerpt 300] [--boilerplate keep]

SOURCE is a directory of Parquet files with columns ``text`` and ``doc_id``. The whole ingest (reading, splitting,
counting, selecting words, writing and hashing shards) is compared with scikit-learn's ``transform`` alone, on the same
texts in memory with the vocabulary that the ingest selected. Each runs in its own process. With ``--boilerplate keep``,
some documents are also counted again by a slow method.
"""

from __future__ import annotations

import multiprocessing
import operator
import re
import resource
import statistics
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.process_limits import peak_memory

SAMPLE = 200  # documents that are recounted by hand


@click.command(help=__doc__)
@click.argument("source", type=click.Path(path_type=Path, exists=True))
@click.option("--vocabulary-size", default=20_000, show_default=True)
@click.option("--excerpt", default=300, show_default=True, help="Characters of each text to store.")
@click.option("--boilerplate", default="drop", show_default=True, type=click.Choice(["drop", "keep"]))
@click.option("--repeats", default=3, show_default=True)
@click.option(
    "--workers",
    default="1,2",
    show_default=True,
    help="Numbers of threads, separated by commas.",
)
def main(
    source: Path, vocabulary_size: int, excerpt: int, boilerplate: str, repeats: int, workers: str
) -> None:
    reading = {"excerpt": excerpt, "boilerplate": boilerplate}
    # In a child process, because the peak memory of later children starts from that of this process.
    size = _alone(run_size, source)["size"] / 1e6
    click.echo(f"{size:.1f} MB of text")
    with tempfile.TemporaryDirectory() as scratch:
        for count in workers.split(","):
            runs = []
            for repeat in range(repeats):
                target = Path(scratch) / f"{count}-{repeat}"
                ours = _alone(run_ingest, source, target, vocabulary_size, int(count), reading)
                runs.append((ours, _alone(run_peer, source, target)))
            _report(size, int(count), runs)
        if boilerplate == "keep":
            _check(source, target)


def _report(size: float, workers: int, runs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    ours = [size / run["cpu"] for run, _ in runs]
    peer = [size / run["cpu"] for _, run in runs]
    ratio = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    wall = statistics.median(run["wall"] for run, _ in runs)
    peak = max(run["peak"] for run, _ in runs) / 2**20
    click.echo(
        f"ingest, {workers} threads: {statistics.median(ours):.1f} MB per CPU second, {wall:.1f} s, "
        f"peak {peak:.0f} MiB; CountVectorizer: {statistics.median(peer):.1f} MB per CPU second; "
        f"ratio {ratio:.2f} (of {len(runs)} runs; {min(map(operator.truediv, ours, peer)):.2f} at least)"
    )


def _alone(function: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Call in a fresh process, to measure peak memory and start with cold caches."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def run_size(source: Path) -> dict[str, float]:
    return {"size": sum(len(text.encode()) for text in _texts(source))}


def run_ingest(
    source: Path, target: Path, vocabulary_size: int, workers: int, reading: dict[str, Any]
) -> dict[str, float]:
    started, before = time.perf_counter(), _cpu()
    request = IngestRequest(options=reading, curation={"vocabulary_size": vocabulary_size})
    ingest(source, target, request, Execution("threads", workers))
    return _took(time.perf_counter() - started, _cpu() - before)


def run_peer(source: Path, target: Path) -> dict[str, float]:
    from sklearn.feature_extraction.text import CountVectorizer

    texts = _texts(source)
    vectorizer = CountVectorizer(vocabulary=open_corpus(target).vocabulary().words)
    started, before = time.perf_counter(), _cpu()
    vectorizer.transform(texts)
    return _took(time.perf_counter() - started, _cpu() - before)


def _took(wall: float, cpu: float) -> dict[str, float]:
    return {"wall": wall, "cpu": cpu, "peak": peak_memory()}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _texts(source: Path) -> list[str]:
    texts: list[str] = []
    for path in sorted(source.glob("*.parquet")):
        texts.extend(pq.read_table(path, columns=["text"]).column("text").to_pylist())
    return texts


def _check(source: Path, target: Path) -> None:
    """Recount some documents with a slow method and compare them with the corpus."""
    corpus = open_corpus(target)
    words = corpus.vocabulary().words
    known = set(words)
    found = {}
    for shard in corpus.shards:
        for row in pq.read_table(corpus.shard_path(shard)).to_pylist():
            counts = zip(row["ids"], row["counts"], strict=True)
            found[row["document_id"]] = {words[j]: count for j, count in counts}
    table = [
        row
        for path in sorted(source.glob("*.parquet"))
        for row in pq.read_table(path, columns=["doc_id", "text"]).to_pylist()
    ]
    # Documents without words, and duplicates, are not in the corpus.
    sample = [row for row in table[:: max(1, len(table) // SAMPLE)] if row["doc_id"] in found]
    for row in sample:
        expected = {word: n for word, n in Counter(_words(row["text"])).items() if word in known}
        assert found[row["doc_id"]] == expected, row["doc_id"]
    click.echo(f"{len(sample)} documents counted again by hand: all equal")


def _words(text: str) -> list[str]:
    text = unicodedata.normalize("NFC", text).lower()
    spaced = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in text)
    return [word for word in spaced.split(" ") if re.search(r"[^\W_]", word)]


if __name__ == "__main__":
    main()
