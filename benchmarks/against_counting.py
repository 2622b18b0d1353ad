"""CPU time from raw texts to polished topics, as a multiple of the time in which scikit-learn counts the words.

    python -m benchmarks.against_counting NAME=TEXTS.parquet [...] [--topics 50] [--repeat 3] [--tree PATH]

Each TEXTS is a Parquet file with a column ``text``. ``CountVectorizer(stop_words="english", min_df=5, max_df=.2)`` gets
the texts in memory, and only ``fit_transform`` is measured. Ingest, scan, inference and polish are commands with one
worker and their defaults, each in its own process, measured from the start of the interpreter to its end; ``fit`` does
all of it in one process. All take turns; each cell is the median over the turns of CPU seconds, and of their ratio to
CountVectorizer in the same turn. ``--tree`` measures another checkout of this repository.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import click
import pyarrow.parquet as pq

from benchmarks.stage_times import ROOT, STAGES, measured, program, require_tree

#: Commands from texts to polished topics; the last one does all of it in one process.
SINGLE = ("ingest", "scan", "infer", "polish")
LINES = {stage: STAGES[stage] for stage in SINGLE}
LINES["fit"] = ("fit", "SOURCE", "fitted", "--topics", "K", "--workers", "1")


def count_words(source: Path) -> float:
    """CPU seconds of CountVectorizer."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts = pq.read_table(source, columns=["text"])["text"].to_pylist()
    began = resource.getrusage(resource.RUSAGE_SELF)
    CountVectorizer(stop_words="english", min_df=5, max_df=0.2).fit_transform(texts)
    ended = resource.getrusage(resource.RUSAGE_SELF)
    return ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime


def turn(tree: Path, source: Path, topics: int) -> dict[str, float]:
    """CPU seconds of counting, of each command, and of all commands."""
    line = [sys.executable, "-m", "benchmarks.against_counting", "--count", str(source)]
    found = {"CountVectorizer": float(subprocess.run(line, check=True, capture_output=True, cwd=ROOT).stdout)}
    with tempfile.TemporaryDirectory() as name:
        for stage, words in LINES.items():
            line = program(*({"SOURCE": str(source), "K": str(topics)}.get(word, word) for word in words))
            found[stage] = measured(tree, line, Path(name)).cpu
    return {**found, "all four": sum(found[stage] for stage in SINGLE)}


@click.command(help=__doc__)
@click.argument("corpora", nargs=-1, metavar="NAME=TEXTS...")
@click.option("--topics", default=50, show_default=True)
@click.option("--repeat", default=3, show_default=True)
@click.option("--tree", default=ROOT, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--count", type=click.Path(exists=True, path_type=Path), hidden=True)
def main(corpora: tuple[str, ...], topics: int, repeat: int, tree: Path, count: Path | None) -> None:
    if count:
        click.echo(count_words(count))
        return
    with tempfile.TemporaryDirectory() as folder:
        require_tree(tree.resolve(), Path(folder))
    columns = (*SINGLE, "all four", "fit")
    click.echo(
        f"| corpus | CountVectorizer | {' | '.join(columns)} |\n|---" + "|---:" * (1 + len(columns)) + "|"
    )
    for corpus in corpora:
        name, _, path = corpus.partition("=")
        turns = [turn(tree.resolve(), Path(path).resolve(), topics) for _ in range(repeat)]
        cells = [f"{median(each['CountVectorizer'] for each in turns):.1f} s"]
        for stage in columns:
            seconds = median(each[stage] for each in turns)
            ratio = median(each[stage] / each["CountVectorizer"] for each in turns)
            cells.append(f"{seconds:.1f} s, {ratio:.2f}")
        click.echo(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
