"""CPU time and memory of ingesting texts, compared with scikit-learn's CountVectorizer with a known vocabulary.

    python -m benchmarks.ingest_throughput SOURCE [--vocabulary-size 20000] [--excerpt 300] [--boilerplate keep]
    python -m benchmarks.ingest_throughput --tree CHECKOUT [--blogs 500000] [--reviews 100000] [--source-format parquet]

SOURCE is a directory of Parquet files with columns ``text`` and ``doc_id``. The whole ingest (reading, splitting,
counting, selecting words, writing and hashing shards) is compared with scikit-learn's ``transform`` alone, on the same
texts in memory with the vocabulary that the ingest selected. Each runs in its own process. With ``--boilerplate keep``,
some documents are also counted again by a slow method.

With ``--tree``, the command ``ingest`` is compared with that of another version, such as ``git worktree add CHECKOUT
5646ae5e``, by one worker, in turns, on simulated texts: posts of 60 words, a tenth of which have characters beyond
ASCII, and reviews of 230 words with line breaks of HTML.
"""

from __future__ import annotations

import multiprocessing
import operator
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.config import IngestRequest
from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.ingestion.ingest import ingest
from streaming_jsmf.jobs.execution import Execution
from streaming_jsmf.process_limits import peak_memory

SAMPLE = 200  # documents that are recounted by hand

#: Simulated texts: words that occur, and texts that are made at once.
WORDS, TEXTS = 60_000, 20_000
SYLLABLES = [a + b for a in "bcdfghjklmnprstvwz" for b in "aeiou"]


@click.command(help=__doc__)
@click.argument("source", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("--tree", type=click.Path(path_type=Path, exists=True), help="Checkout of another version.")
@click.option("--blogs", default=500_000, show_default=True, help="Simulated posts.")
@click.option("--reviews", default=100_000, show_default=True, help="Simulated reviews.")
@click.option("--source-format", default="csv", show_default=True, type=click.Choice(["csv", "parquet"]))
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
    source: Path | None,
    tree: Path | None,
    blogs: int,
    reviews: int,
    source_format: str,
    vocabulary_size: int,
    excerpt: int,
    boilerplate: str,
    repeats: int,
    workers: str,
) -> None:
    if tree is not None:
        for name, texts in (
            ("blogs", (blogs, 60, 0.1, "")),
            ("reviews", (reviews, 230, 0.0, "<br /><br />")),
        ):
            _compare(tree.resolve(), name, texts, source_format, repeats)
        return
    if source is None:
        raise click.UsageError("give a SOURCE or --tree")
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


def _compare(
    tree: Path, name: str, texts: tuple[int, int, float, str], source_format: str, repeats: int
) -> None:
    """Ingest simulated texts with this version and that of another tree, in turns."""
    trees = {"this": Path(__file__).resolve().parents[1], "other": tree}
    runs: dict[str, list[tuple[float, float]]] = {which: [] for which in trees}
    with tempfile.TemporaryDirectory() as scratch:
        source, few, target = (Path(scratch) / f"{part}.{source_format}" for part in (name, "few", "target"))
        # In child processes, as above.
        _alone(simulate, source, *texts)
        _alone(simulate, few, 1000, *texts[1:])
        for path in trees.values():
            run_tree(path, few, target)  # which compiles
        for _ in range(repeats):
            for which, path in trees.items():
                runs[which].append(run_tree(path, source, target))
    cpu, peak = ({which: [run[i] for run in each] for which, each in runs.items()} for i in (0, 1))
    for which in trees:
        found = ", ".join(f"{seconds:.2f}" for seconds in cpu[which])
        click.echo(
            f"{name}, {which}: median {statistics.median(cpu[which]):.2f} CPU s ({found}), "
            f"median peak {statistics.median(peak[which]):.0f} MiB"
        )
    ratio, memory = (
        statistics.median(each["this"]) / statistics.median(each["other"]) for each in (cpu, peak)
    )
    click.echo(
        f"{name}: {ratio:.2f} times the CPU and {memory:.2f} times the memory; load {os.getloadavg()[0]:.1f}"
    )


def run_tree(tree: Path, source: Path, target: Path) -> tuple[float, float]:
    """CPU seconds and peak memory in MiB of the command ``ingest`` of a tree, with its children."""
    shutil.rmtree(target, ignore_errors=True)
    command = ["ingest", str(source), str(target), "--workers", "1", "--quiet"]
    process = subprocess.Popen(
        [sys.executable, "-m", "streaming_jsmf", *command],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"{tree}: ingest of {source} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def simulate(path: Path, number: int, length: int, share: float, line_break: str) -> dict[str, float]:
    """Write texts of Zipfian words with columns of metadata; a ``share`` has some words beyond ASCII."""
    forms, writer = _forms(), None
    for start in range(0, number, TEXTS):
        rng = np.random.default_rng([start, length])
        n = min(TEXTS, number - start)
        table = pa.table(
            {
                "post": np.arange(start, start + n) * 7 + 13,
                "age": rng.integers(13, 48, n),
                "category": pa.array(["Arts", "Student", "Technology", "unknown"]).take(
                    pa.array(rng.integers(0, 4, n))
                ),
                "date": pa.array(np.datetime64("2004-01-01") + rng.integers(0, 900, n)),
                "text": _simulated(rng, n, length, share, line_break, forms),
            }
        )
        if writer is None:
            is_csv = path.suffix == ".csv"
            writer = (pa_csv.CSVWriter if is_csv else pq.ParquetWriter)(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    return {}


def _forms() -> Any:
    """Words as they are, with capitals, with a comma, with a full stop, and with accents and an apostrophe."""
    rng = np.random.default_rng(0)
    words = [
        "".join(rng.choice(SYLLABLES, 1 + min(rng.poisson(1.6), 5))) + f"{i % 7 or ''}" for i in range(WORDS)
    ]
    marked = [f"{word.replace('a', 'á', 1).replace('e', 'é', 1)}\u2019s" for word in words]
    return pa.array(
        [*words, *map(str.capitalize, words), *(f"{w}," for w in words), *(f"{w}." for w in words), *marked]
    )


def _simulated(
    rng: np.random.Generator, number: int, length: int, share: float, line_break: str, forms: Any
) -> Any:
    weights = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    lengths: NDArray[np.int64] = np.maximum(rng.poisson(length * rng.gamma(2, 0.5, number)), 5)
    offsets = np.append(0, np.cumsum(lengths))
    codes = np.searchsorted(weights / weights[-1], rng.random(offsets[-1]))
    form = rng.choice(4, offsets[-1], p=[0.78, 0.08, 0.08, 0.06])
    form[np.repeat(rng.random(number) < share, lengths) & (rng.random(offsets[-1]) < 0.05)] = 4
    words = forms.take(pa.array(np.minimum(codes, WORDS - 1) + WORDS * form))
    if line_break:
        ends = pc.binary_join_element_wise(words, line_break, "")
        words = pc.if_else(pa.array(rng.random(offsets[-1]) < 0.01), ends, words)
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), words), " ")


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
