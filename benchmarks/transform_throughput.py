"""Documents a second and peak memory of a transform, in a process of its own.

    python -m benchmarks.transform_throughput [--documents 50000] [--topics 50] [--words 90] [--workers 1]

Draws a corpus whose documents have about ``--words`` distinct words, and transforms it and one of four times as many
documents with the command line, given the topics that drew them. Printed for each: documents a second of the
transform's own tasks (compilation, which is kept, is done by a small run before), of the whole command with its start,
and the peak of resident memory, which may not grow with the documents.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
from dask.utils import format_bytes

from streaming_jsmf.corpus import open_corpus
from streaming_jsmf.model.store import Model, write_model
from streaming_jsmf.simulation import read_truth, simulate_lda

VOCABULARY = 20_000

#: Tokens for each distinct word wanted, in a vocabulary of this size.
TOKENS_PER_WORD = 1.25


@click.command(help=__doc__)
@click.option("--documents", default=50_000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--words", default=90, show_default=True)
@click.option("--workers", default=1, show_default=True)
@click.option("--method", default="map", show_default=True)
def main(documents: int, topics: int, words: int, workers: int, method: str) -> None:
    """Two corpora, one model."""
    click.echo("| documents | words each | documents/s, tasks | documents/s, command | CPU s | peak memory |")
    click.echo("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as parent:
        for number in (1_000, documents, 4 * documents):
            corpus = Path(parent) / f"corpus-{number}"
            simulate_lda(
                corpus,
                n_documents=number,
                n_words=VOCABULARY,
                n_topics=topics,
                mean_length=TOKENS_PER_WORD * words,
            )
            model = Path(parent) / f"model-{number}"
            save_truth(corpus, model)
            row = measure(corpus, model, Path(parent) / f"shares-{number}.parquet", workers, method)
            if number > 1_000:
                click.echo(row)


def save_truth(corpus: Path, model: Path) -> None:
    """The topics that drew a corpus, as a model."""
    truth = read_truth(corpus)
    arrays = {
        "word": np.array(open_corpus(corpus).vocabulary().words, dtype=object),
        "word_topic": truth.word_topic,
        "topic_probability": truth.alpha / truth.alpha.sum(),
        "term_count": np.ones(len(truth.word_topic)),
        "alpha": truth.alpha,
    }
    write_model(model, Model(arrays, {}, {}, {"fingerprint": "truth"}))


def measure(corpus: Path, model: Path, out: Path, workers: int, method: str) -> str:
    """A row of the table; Linux only."""
    options = ["--workers", str(workers), "--method", method, "--log-json", f"{out}.log"]
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
    if os.waitstatus_to_exitcode(status):
        raise click.ClickException(f"failed: {' '.join(command)}")
    opened = open_corpus(corpus)
    seconds = task_seconds(Path(f"{out}.log"))
    each = opened.nonzeros / opened.n_documents
    return (
        f"| {opened.n_documents:,} | {each:.0f} | {opened.n_documents / seconds:,.0f} "
        f"| {opened.n_documents / wall:,.0f} | {usage.ru_utime + usage.ru_stime:.1f} "
        f"| {format_bytes(usage.ru_maxrss * 1024)} |"
    )


def task_seconds(log: Path) -> float:
    """Seconds of all tasks together, by the log."""
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return sum(event["seconds"] for event in events if event["event"] == "committed")


if __name__ == "__main__":
    main()
