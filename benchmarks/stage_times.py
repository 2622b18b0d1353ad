"""CPU time and peak memory of every stage, optionally in two source trees in turn.

    python -m benchmarks.stage_times [--old PATH] [--new PATH] [--repeat 5] [--corpus NAME=SOURCE ...] [--topics 20]

Each stage is a command in its own process, measured by the operating system: user and system time including the start
of the interpreter, and peak resident memory. Both trees run each stage directly after one another, in alternating
order. Before that, each tree runs all stages on a small corpus to compile its kernels. Without ``--old`` there is one
tree and no ratio.

The default corpora are simulated texts (``--documents``) and ``data_specs/uci_nips``. Ratios are new to old, by minimum
and by median over all repeats. On a machine with other load use the minimum.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1]
MIB = 2**20

ONE = ("--workers", "1")

#: Command line of each stage; each runs in the folder with the results of the previous stages.
STAGES: dict[str, tuple[str, ...]] = {
    "--help": ("--help",),
    "ingest": ("ingest", "SOURCE", "corpus", *ONE),
    "scan": ("scan", "corpus", "moments", "--max-topics", "K", *ONE),
    "third moment": ("scan", "corpus", "moments", "--max-topics", "K", "--third-moment", *ONE),
    "infer": ("infer", "moments", "model", "--topics", "K", *ONE),
    "infer stod": ("infer", "moments", "stod", "--topics", "K", "--engine", "stod", *ONE),
    "polish": ("polish", "model", "corpus", "polished", *ONE),
    "transform": ("transform", "polished", "corpus", "shares.parquet", *ONE),
    "documents": ("documents", "polished", "shares.parquet", "--topic", "0"),
    "evaluate": ("evaluate", "polished", "--corpus", "corpus", *ONE),
    "report": ("report", "polished", "page.html", "--shares", "shares.parquet"),
}


@dataclass(frozen=True)
class Usage:
    """User and system seconds, peak resident memory in bytes, and elapsed seconds."""

    cpu: float
    memory: int
    seconds: float


def measured(tree: Path, line: Sequence[str], folder: Path) -> Usage:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    # Installed modules are compiled once, not at every start.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *line], cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-2000:]
            raise click.ClickException(f"{tree}: {' '.join(line)} ended with {process.returncode}: {said}")
    return Usage(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, seconds)


def program(*arguments: object) -> list[str]:
    return ["-m", "streaming_jsmf", *map(str, arguments)]


def require_tree(tree: Path, folder: Path) -> None:
    """Check that ``tree``, not an installed package, is imported."""
    expected = tree / "streaming_jsmf" / "__init__.py"
    check = f"import streaming_jsmf, sys; sys.exit(streaming_jsmf.__file__ != {str(expected)!r})"
    measured(tree, ["-c", check], folder)


def simulate_texts(tree: Path, folder: Path, documents: int) -> Path:
    """Texts with the word counts of a Zipf corpus, in two Parquet files."""
    size = ("--documents", documents, "--vocabulary-size", 20_000, "--topics", 50, "--mean-length", 150)
    drawn, texts = folder / "drawn", folder / "texts"
    measured(tree, program("simulate", drawn, *size, "--zipf", 1.05, "--separable"), folder)
    words = np.array(pq.read_table(drawn / "vocabulary.parquet")["word"].to_pylist())
    texts.mkdir()
    whole = pa.concat_tables([pq.read_table(path) for path in sorted((drawn / "documents").iterdir())])
    rows = zip(whole["ids"].to_pylist(), whole["counts"].to_pylist(), strict=True)
    lines = [" ".join(np.repeat(words[ids], counts)) for ids, counts in rows]
    for number, part in enumerate(np.array_split(np.arange(len(lines)), 2)):
        chosen = lines[part[0] : part[-1] + 1]
        table = pa.table({"text": chosen, "id": part, "year": 1990 + part % 20})
        pq.write_table(table, texts / f"part-{number}.parquet", row_group_size=2000)
    return texts


def turn(
    trees: Sequence[Path], source: Path, topics: int, parent: Path, number: int = 0
) -> list[dict[str, Usage]]:
    """Run all stages once in each tree; every stage runs in all trees before the next."""
    found: list[dict[str, Usage]] = [{} for _ in trees]
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folders = [Path(name) / str(place) for place in range(len(trees))]
        for folder in folders:
            folder.mkdir()
        for stage, words in STAGES.items():
            line = program(*({"SOURCE": str(source), "K": str(topics)}.get(word, word) for word in words))
            for place in sorted(range(len(trees)), reverse=bool(number % 2)):
                found[place][stage] = measured(trees[place], line, folders[place])
    return found


def table(corpus: str, turns: Sequence[Sequence[dict[str, Usage]]]) -> list[str]:
    """Rows of one corpus: minimum and median of each tree by stage, and the ratios."""
    rows = []
    for stage in STAGES:
        row = f"| {corpus} | {stage} |"
        for name, unit, digits in (("cpu", 1.0, 2), ("memory", MIB, 0)):
            values = [[getattr(tree[stage], name) / unit for tree in one] for one in zip(*turns, strict=True)]
            row += "".join(f" {min(each):.{digits}f} / {median(each):.{digits}f} |" for each in values)
            if len(values) == 2:
                row += (
                    f" {min(values[1]) / min(values[0]):.3f} / {median(values[1]) / median(values[0]):.3f} |"
                )
        rows.append(row)
    return rows


@click.command(help=__doc__)
@click.option("--old", default=None, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--new", default=ROOT, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--repeat", default=5, show_default=True)
@click.option(
    "--corpus", "corpora", multiple=True, metavar="NAME=SOURCE", help="Sources to ingest; may be repeated."
)
@click.option("--documents", default=20_000, show_default=True, help="Simulated documents.")
@click.option("--topics", default=20, show_default=True)
@click.option(
    "--folder", default=None, type=click.Path(exists=True, file_okay=False), help="Directory for the results."
)
def main(
    old: Path | None,
    new: Path,
    repeat: int,
    corpora: tuple[str, ...],
    documents: int,
    topics: int,
    folder: str | None,
) -> None:
    trees = [tree.resolve() for tree in (old, new) if tree is not None]
    with tempfile.TemporaryDirectory(dir=folder) as name:
        scratch = Path(name)
        for tree in trees:
            require_tree(tree, scratch)
        sources = {name: Path(path).resolve() for name, _, path in (each.partition("=") for each in corpora)}
        if not sources:
            sources["texts"] = simulate_texts(trees[-1], scratch, documents)
            sources["nips"] = ROOT / "data_specs" / "uci_nips"
        (scratch / "small").mkdir()
        turn(trees, simulate_texts(trees[-1], scratch / "small", 1000), 5, scratch)
        names = ("old", "new", "new/old") if len(trees) == 2 else ("",)
        columns = [f"{unit} {name}".strip() for unit in ("CPU s", "MiB") for name in names]
        click.echo("Each cell: least / median\n")
        click.echo(f"| corpus | stage | {' | '.join(columns)} |\n" + "|---" * (2 + len(columns)) + "|")
        for corpus, source in sources.items():
            turns = [turn(trees, source, topics, scratch, number) for number in range(repeat)]
            click.echo("\n".join(table(corpus, turns)))


if __name__ == "__main__":
    main()
