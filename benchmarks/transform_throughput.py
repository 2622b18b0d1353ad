"""Throughput and peak memory of a transform, in its own process.

    python -m benchmarks.transform_throughput [--documents 50000] [--topics 50] [--words 90] [--workers 1]

Simulates a corpus whose documents have about ``--words`` distinct words, and transforms it and one of four times as
many documents with the command line, given the true topics. Prints documents per second of the tasks and of the whole
command, and peak resident memory, which must not grow with the documents. Compilation is excluded by a small run. The
last line, documents per CPU second between the two sizes, excludes start-up and is least affected by other load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from dask.utils import format_bytes

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.simulation import read_truth, simulate_lda
from streaming_jsmf.topics.store import Model, write_model

VOCABULARY = 20_000

#: Tokens per distinct word in a vocabulary of this size.
TOKENS_PER_WORD = 1.13


@dataclass(frozen=True)
class Usage:
    """Documents, distinct words per document, task, CPU and wall seconds, and bytes of a transform."""

    documents: int
    words: float
    tasks: float
    cpu: float
    wall: float
    memory: int

    def row(self) -> str:
        return (
            f"| {self.documents:,} | {self.words:.0f} | {self.documents / self.tasks:,.0f} "
            f"| {self.documents / self.wall:,.0f} | {self.cpu:.1f} | {format_bytes(self.memory)} |"
        )


@click.command(help=__doc__)
@click.option("--documents", default=50_000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--words", default=90, show_default=True)
@click.option("--workers", default=1, show_default=True)
def main(documents: int, topics: int, words: int, workers: int) -> None:
    """Two corpora, and a small one before."""
    used = []
    with tempfile.TemporaryDirectory() as parent:
        for number in (1_000, documents, 4 * documents):
            corpus, model = Path(parent) / f"corpus-{number}", Path(parent) / f"model-{number}"
            length = TOKENS_PER_WORD * words
            simulate_lda(
                corpus, n_documents=number, n_words=VOCABULARY, n_topics=topics, mean_length=length, seed=0
            )
            save_truth(corpus, model)
            out = Path(parent) / f"shares-{number}.parquet"
            used.append(measure(corpus, model, out, workers))
    click.echo("| documents | words each | documents/s, tasks | documents/s, command | CPU s | peak memory |")
    click.echo("|---|---|---|---|---|---|")
    for usage in used[1:]:
        click.echo(usage.row())
    small, large = used[1:]
    rate = (large.documents - small.documents) / (large.cpu - small.cpu)
    click.echo(f"documents per second of a CPU, by the difference: {rate:,.0f}")


def save_truth(corpus: Path, model: Path) -> None:
    truth = read_truth(corpus)
    arrays = {
        "word": np.array(open_corpus(corpus).vocabulary().words, dtype=object),
        "word_topic": truth.word_topic,
        "topic_probability": truth.alpha / truth.alpha.sum(),
        "term_count": np.ones(len(truth.word_topic)),
        "alpha": truth.alpha,
    }
    write_model(model, Model(arrays, {}, {}, {"fingerprint": "truth"}))


def measure(corpus: Path, model: Path, out: Path, workers: int) -> Usage:
    log = Path(f"{out}.log")
    options = ["--workers", str(workers), "--log-json", str(log)]
    command = [
        sys.executable,
        "-m",
        "streaming_jsmf",
        "transform",
        str(model),
        str(corpus),
        str(out),
        *options,
    ]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise click.ClickException(f"failed: {' '.join(command)}")
    opened = open_corpus(corpus)
    return Usage(
        opened.n_documents,
        opened.nonzeros / opened.n_documents,
        task_seconds(log),
        usage.ru_utime + usage.ru_stime,
        wall,
        usage.ru_maxrss * 1024,
    )


def task_seconds(log: Path) -> float:
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return sum(event["seconds"] for event in events if event["event"] == "committed")


if __name__ == "__main__":
    main()
