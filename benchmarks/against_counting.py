"""CPU time from raw texts to polished topics, compared with scikit-learn's word counts and with bare operations.

    python -m benchmarks.against_counting NAME=TEXTS.parquet [...] [--topics 50] [--repeat 3] [--tree PATH]

Each TEXTS is a Parquet file with a column ``text``. ``CountVectorizer(stop_words="english", min_df=5, max_df=.2)`` gets
the texts in memory, and only ``fit_transform`` is measured. Ingest, scan, inference and polish are commands with one
worker and their defaults, each in its own process, measured from the start of the interpreter to its end; ``fit`` does
all of it in one process, with one worker and with two; ``start`` is an interpreter that only imports. All take turns.
The rows of a corpus:

- CPU seconds, and the mean load of the machine (number of running or waiting processes), as medians over the turns;
- elapsed seconds, medians;
- the ratio to CountVectorizer in the same turn, median;
- CPU seconds of bare operations (``benchmarks.bare_operations``), and the ratio to them without the start, medians;
- the largest peak memory of any turn in MB.

The first turn may include compilation. ``--tree`` measures another checkout of this repository, without bare
operations, because this checkout may be unable to read its stores.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import TypeVar

import click
import pyarrow.parquet as pq

from benchmarks.bare_operations import bare_operations
from benchmarks.stage_times import ROOT, STAGES, Usage, measured, program, require_tree

#: Commands from texts to polished topics; the last one does all of it in one process.
SINGLE = ("ingest", "scan", "infer", "polish")
LINES = {stage: program(*STAGES[stage]) for stage in SINGLE}
for column, workers in (("fit", 1), ("fit, two", 2)):
    LINES[column] = program("fit", "SOURCE", f"fitted-{workers}", "--topics", "K", "--workers", workers)
LINES["start"] = ["-c", "from streaming_jsmf import cli, infer, ingest, polish, scan"]

COUNTING = "CountVectorizer"
COLUMNS = (COUNTING, "start", *SINGLE, "all four", "fit", "fit, two")

Result = TypeVar("Result")


@dataclass(frozen=True)
class Turn:
    """Usage of each column, bare CPU seconds of the stages, and the mean load."""

    usage: dict[str, Usage]
    bare: dict[str, float]
    load: float

    @classmethod
    def of(cls, tree: Path, source: Path, topics: int) -> Turn:
        usage, loads = {COUNTING: alone(count_words, source)}, [os.getloadavg()[0]]
        with tempfile.TemporaryDirectory() as name:
            for stage, words in LINES.items():
                given = {"SOURCE": str(source), "K": str(topics)}
                usage[stage] = measured(tree, [given.get(word, word) for word in words], Path(name))
                loads.append(os.getloadavg()[0])
            bare = alone(bare_operations, source, Path(name), topics) if tree == ROOT.resolve() else {}
        four = [usage[stage] for stage in SINGLE]
        usage["all four"] = Usage(
            sum(each.cpu for each in four),
            max(each.memory for each in four),
            sum(each.seconds for each in four),
        )
        return cls(usage, bare, fmean(loads))

    def ratio(self, column: str) -> float:
        return self.usage[column].cpu / self.usage[COUNTING].cpu

    def above_bare(self, stage: str) -> float:
        return (self.usage[stage].cpu - self.usage["start"].cpu) / self.bare[stage]


def alone(function: Callable[..., Result], *arguments: object) -> Result:
    """Call in a fresh process, because the peak memory of a process starts from that of its parent."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def count_words(source: Path) -> Usage:
    """CPU seconds of CountVectorizer, and peak memory with the texts."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts = pq.read_table(source, columns=["text"])["text"].to_pylist()
    began, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    CountVectorizer(stop_words="english", min_df=5, max_df=0.2).fit_transform(texts)
    ended = resource.getrusage(resource.RUSAGE_SELF)
    cpu = ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime
    return Usage(cpu, ended.ru_maxrss * 1024, time.perf_counter() - started)


def table(corpus: str, turns: Sequence[Turn]) -> list[str]:
    """The rows of a corpus."""

    def row(label: str, cells: dict[str, str]) -> str:
        return f"| {label} | {' | '.join(cells.get(column, '') for column in COLUMNS)} |"

    load = median(turn.load for turn in turns)
    seconds = {column: f"{median(turn.usage[column].cpu for turn in turns):.1f}" for column in COLUMNS}
    elapsed = {column: f"{median(turn.usage[column].seconds for turn in turns):.1f}" for column in COLUMNS}
    ratios = {column: f"{median(turn.ratio(column) for turn in turns):.2f}" for column in COLUMNS}
    stages = turns[0].bare
    bare = {stage: f"{median(turn.bare[stage] for turn in turns):.1f}" for stage in stages}
    above = {stage: f"{median(turn.above_bare(stage) for turn in turns):.1f}" for stage in stages}
    peaks = {column: f"{max(turn.usage[column].memory for turn in turns) / 1e6:,.0f}" for column in COLUMNS}
    return [
        row(f"{corpus}, load {load:.1f} | CPU s", seconds),
        row("| s", elapsed),
        row(f"| / {COUNTING}", ratios),
        row("| bare, CPU s", bare),
        row("| / bare", above),
        row("| peak MB", peaks),
    ]


@click.command(help=__doc__)
@click.argument("corpora", nargs=-1, metavar="NAME=TEXTS...")
@click.option("--topics", default=50, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--tree", default=ROOT, type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(corpora: tuple[str, ...], topics: int, repeat: int, tree: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        require_tree(tree.resolve(), Path(folder))
    click.echo(f"| corpus | | {' | '.join(COLUMNS)} |\n|---|---" + "|---:" * len(COLUMNS) + "|")
    for corpus in corpora:
        name, _, path = corpus.partition("=")
        turns = [Turn.of(tree.resolve(), Path(path).resolve(), topics) for _ in range(repeat)]
        click.echo("\n".join(table(name, turns)))


if __name__ == "__main__":
    main()
