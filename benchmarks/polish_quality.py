"""Polished topics beside those of long sampling, NMF and variational LDA: quality and CPU time, cell by cell.

    python -m benchmarks.peer_topics PEERS --corpus kos=KOS --topics 20,50        # hours; what is there stays
    python -m benchmarks.polish_quality PEERS --corpus kos=KOS --topics 20,50 [--json OUT.json]

A cell is a corpus and a K; its split is that of ``benchmarks.quality``: every fifth document is held out. Prints a
Markdown table with a line for the spectral topics (``scan`` and ``infer``), these polished by 20 steps of 5 rounds (the
default of ``fit``) and by 40 of 5, and each peer whose file is in PEERS: NPMI of the top 10 words among the fitted and
the held-out documents, the share of distinct words among all top words, perplexity of the held-out documents
(``evaluation.perplexity``), and CPU seconds in one thread: of all, and of the steps alone. Then for each cell what the
polished topics win and lose against the longest sampling.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.peer_topics import FILES
from benchmarks.quality import Split, coherence_of, split
from benchmarks.topic_models import LISTED
from pipelines.common.bags import read_counts, write_corpus
from streaming_jsmf import Execution, InferSettings, PolishSettings, ScanSettings, infer, polish, scan
from streaming_jsmf.evaluation.coherence import distinct_share
from streaming_jsmf.evaluation.perplexity import Completer
from streaming_jsmf.inference.words import prominent_words
from streaming_jsmf.model.store import Model
from streaming_jsmf.workflow.given_topics import prior_of

Floats = NDArray[np.float64]

#: What polished topics are held against.
RIVAL = "tomotopy-1000"

#: How ours are polished.
SETTINGS = {"polish 20 x 5": PolishSettings(), "polish 40 x 5": PolishSettings(steps=40)}

ONE = Execution("synchronous")


@dataclass(frozen=True)
class Row:
    """A line of the table; ``start``: the part of ``seconds`` that ``scan`` and ``infer`` took."""

    corpus: str
    n_topics: int
    model: str
    npmi: float
    held_out: float
    distinct: float
    perplexity: float
    seconds: float
    start: float = 0.0

    def cells(self) -> str:
        """Of the Markdown table."""
        name = f"{self.corpus} | {self.n_topics} | {self.model}"
        scores = f"{self.npmi:.3f} | {self.held_out:.3f} | {self.distinct:.2f} | {self.perplexity:.0f}"
        steps = f"{self.seconds - self.start:.1f}" if self.start else ""
        return f"| {name} | {scores} | {self.seconds:.1f} | {steps} |"

    def ahead_of(self, other: Row) -> dict[str, bool]:
        """Each score: whether it is at least as good, in the digits that are shown."""
        return {
            "NPMI": round(self.npmi, 3) >= round(other.npmi, 3),
            "held out": round(self.held_out, 3) >= round(other.held_out, 3),
            "distinct": round(self.distinct, 2) >= round(other.distinct, 2),
            "perplexity": round(self.perplexity) <= round(other.perplexity),
        }


@dataclass(frozen=True)
class Cell:
    """A corpus in memory, cut in two, and K."""

    corpus: str
    documents: Split
    n_topics: int

    def row(self, model: str, word_topic: Floats, prior: Floats, seconds: float, start: float = 0.0) -> Row:
        """Score topics (N, K) with their prior (K,)."""
        top = prominent_words(word_topic, LISTED)
        counted = np.asarray(self.documents.fitted.sum(axis=0), np.float64).ravel()
        completer = Completer.of(word_topic, prior, counted)
        return Row(
            self.corpus,
            self.n_topics,
            model,
            coherence_of(self.documents.fitted, top),
            coherence_of(self.documents.held_out, top),
            distinct_share(top),
            completer.complete(self.documents.held_out, method="cvb0").perplexity,
            seconds,
            start,
        )


def ours(cell: Cell, folder: Path) -> Iterator[Row]:
    """The spectral topics, and what polish makes of them."""
    corpus, settings = folder / "corpus", ScanSettings(max_topics=cell.n_topics)
    write_corpus(corpus, cell.documents.fitted)

    def spectral() -> Model:
        moments = scan(corpus, folder / "moments", settings, ONE)
        return infer(moments, folder / "spectral", InferSettings(cell.n_topics), threads=1)

    model, start = timed(spectral)
    yield cell.row("LR-JSMF", model.arrays["word_topic"], prior_of(model), start)
    for number, (name, steps) in enumerate(SETTINGS.items()):
        polished, seconds = timed(
            lambda n=number, s=steps: polish(folder / "spectral", corpus, folder / f"{n}", s, execution=ONE)
        )
        yield cell.row(name, polished.arrays["word_topic"], prior_of(polished), start + seconds, start)


def timed(work: Callable[[], Model]) -> tuple[Model, float]:
    """What ``work`` returns, and its CPU seconds."""
    began = time.process_time()
    return work(), time.process_time() - began


def peers(cell: Cell, folder: Path) -> Iterator[Row]:
    """Each peer that ``benchmarks.peer_topics`` has fitted for the cell."""
    for name in (file for files in FILES.values() for file in files):
        path = folder / f"{cell.corpus}-k{cell.n_topics}-{name}.npz"
        if path.exists():
            with np.load(path) as file:
                yield cell.row(name, file["word_topic"], file["prior"], float(file["cpu_seconds"]))


def verdicts(rows: list[Row]) -> Iterator[str]:
    """A line for each cell and setting: scores won against the rival, those lost, and how many times as fast."""
    rivals = {(row.corpus, row.n_topics): row for row in rows if row.model == RIVAL}
    for row in rows:
        rival = rivals.get((row.corpus, row.n_topics))
        if row.model in SETTINGS and rival is not None:
            ahead = row.ahead_of(rival)
            lost = ", ".join(name for name, better in ahead.items() if not better) or "nothing"
            speed, alone = rival.seconds / row.seconds, rival.seconds / (row.seconds - row.start)
            yield (
                f"- {row.corpus}, K = {row.n_topics}, {row.model}: {sum(ahead.values())} of 4 at least as good as "
                f"{RIVAL}, behind in {lost}; {speed:.1f} x as fast, its steps alone {alone:.0f} x"
            )


def _load_kernels(documents: Split) -> None:
    """Compiled code is loaded once in a process, and imports of the peers are not in their seconds either."""
    few = Cell("warm", Split(documents.fitted[:500], documents.held_out[:50]), 3)
    with tempfile.TemporaryDirectory() as scratch, threadpool_limits(1):
        for _ in ours(few, Path(scratch)):
            pass


@click.command(help=__doc__)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--corpus", "corpora", multiple=True, required=True, help="NAME=PATH; several in order.")
@click.option("--topics", default="20,50,100", show_default=True, help="Numbers of topics, with commas.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="All figures, as JSON.")
def main(folder: Path, corpora: tuple[str, ...], topics: str, out: Path | None) -> None:
    click.echo("| corpus | K | topics | NPMI | NPMI held out | distinct | perplexity | CPU s | of steps |")
    click.echo("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    rows: list[Row] = []
    for number, corpus in enumerate(corpora):
        name, _, path = corpus.partition("=")
        documents = split(sparse.csr_array(read_counts(Path(path))))
        if not number:
            _load_kernels(documents)
        for n_topics in map(int, topics.split(",")):
            cell = Cell(name, documents, n_topics)
            with tempfile.TemporaryDirectory() as scratch, threadpool_limits(1):
                for row in (*peers(cell, folder), *ours(cell, Path(scratch))):
                    click.echo(row.cells())
                    rows.append(row)
            if out is not None:
                out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    click.echo("\n" + "\n".join(verdicts(rows)))


if __name__ == "__main__":
    main()
