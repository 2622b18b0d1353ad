"""Cost of a day of ``update`` against a fit of all documents, and how many topics each keeps.

    python -m benchmarks.update [--days 20] [--documents 2000] [--words 8000] [--topics 50]
    python -m benchmarks.update --source FOLDER [--topics 50]
    python -m benchmarks.update --parts [--days 10] [--documents 20000]

The first command simulates a folder with a file of texts for each day (LDA, Zipf's law), the second takes the files of
a folder, in the order of their names, as days. A model is fitted to all days but the last three, which are then added
one at a time. For each it prints CPU seconds of the command ``update`` and of ``fit`` with all files and the same
words, their ratio, and the number of topics that are within a Hellinger distance of .7 of what they were before the
three days, with the best matching. Each command is a process, with its imports; a first run fills the cache of compiled
code. With ``--parts``, only the last day is added, in this process, and it prints the CPU seconds of each part of the
update, of ``fit``, and of ``transform``, whose shares are kept beside the model.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streaming_jsmf as sj
from streaming_jsmf.interface import update as updating
from streaming_jsmf.topics.identity import SAME, best_match, topic_distances
from streaming_jsmf.topics.infer import InferPlan
from streaming_jsmf.topics.store import read_model

#: Days that are added one at a time.
ADDED = 3

#: Tokens of a simulated text.
LENGTH = 120


def simulated_day(generator: np.random.Generator, word_topic: np.ndarray, n_documents: int) -> pa.Table:
    """Texts of LDA; ``word_topic`` is K x N."""
    n_topics, n_words = word_topic.shape
    spelled = np.array([f"w{np.base_repr(i + 36, 36).lower()}x" for i in range(n_words)])
    texts = []
    for _ in range(n_documents):
        share = generator.dirichlet(np.full(n_topics, 0.1))
        texts.append(" ".join(spelled[generator.choice(n_words, LENGTH, p=share @ word_topic)]))
    return pa.table({"text": texts})


def cpu_seconds(*arguments: object) -> float:
    """Run a command line, and return the CPU seconds of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = [sys.executable, "-m", "streaming_jsmf", *map(str, arguments), "--quiet", "--workers", "1"]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


#: Parts of an update, and what computes them.
PARTS = (
    ("documents", updating, "grow_corpus"),
    ("moments", updating, "_followed"),
    ("inference", InferPlan, "fit"),
    ("polish", updating, "polish_model"),
    ("shares", updating, "transform"),
)


def parts(files: list[Path], root: Path, topics: int) -> None:
    """Print the CPU seconds of each part of an update by the last of these files."""

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            start = time.process_time()
            result = function(*arguments, **options)
            click.echo(f"{name:10} {time.process_time() - start:6.2f}")
            return result

        return run

    source, model, shares = root / "news", root / "model", root / "model.shares.parquet"
    for path in files[:-1]:
        shutil.copy2(path, source)
    sj.fit(files[0], root / "warm", 5, workers=1)
    timed("fit", sj.fit)(source, model, topics, workers=1)
    timed("transform", sj.transform)(model, root / "model.corpus", shares, workers=1)
    shutil.copy2(files[-1], source)
    for name, owner, function in PARTS:
        setattr(owner, function, timed(f"  {name}", getattr(owner, function)))
    timed("update", sj.update)(model, source, workers=1)


def kept(before: np.ndarray, model: Path) -> int:
    distances = topic_distances(before, read_model(model).arrays["word_topic"])
    return int(np.sum(distances[np.arange(len(distances)), best_match(distances)] <= SAME))


def days_added(files: list[Path], root: Path, topics: int) -> None:
    """Print the cost of each of the last files, and the topics that are kept."""
    present, model = root / "news", root / "model"
    for path in files[:-ADDED]:
        shutil.copy2(path, present)
    cpu_seconds("fit", present, root / "warm", "--topics", topics)
    first = cpu_seconds("fit", present, model, "--topics", topics)
    click.echo(f"fit of {len(files) - ADDED} files: {first:.1f} CPU s")
    before = read_model(model).arrays["word_topic"]
    click.echo("files  update  fit again  ratio  kept by update  kept by fit")
    for number in range(len(files) - ADDED, len(files)):
        shutil.copy2(files[number], present)
        updated = cpu_seconds("update", model, present)
        again = root / f"again{number}"
        fitted = cpu_seconds("fit", present, again, "--topics", topics, "--vocabulary", root / "model.corpus")
        click.echo(
            f"{number + 1:5d}  {updated:6.1f}  {fitted:9.1f}  {updated / fitted:5.2f}  "
            f"{kept(before, model):8d} of {topics}  {kept(before, again):5d} of {topics}"
        )


@click.command()
@click.option("--source", type=click.Path(path_type=Path), default=None)
@click.option("--days", default=20, show_default=True)
@click.option("--documents", default=2000, show_default=True)
@click.option("--words", default=8000, show_default=True)
@click.option("--topics", default=50, show_default=True)
@click.option("--parts", "of_parts", is_flag=True)
def main(
    source: Path | None, days: int, documents: int, words: int, topics: int, *, of_parts: bool = False
) -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        given = root / "given" if source is None else source
        if source is None:
            given.mkdir()
            generator = np.random.default_rng(0)
            prior = 0.03 * words / np.arange(1, words + 1) / np.log(words)
            word_topic = generator.dirichlet(np.maximum(prior, 1e-3), topics)
            for day in range(days):
                pq.write_table(
                    simulated_day(generator, word_topic, documents), given / f"day{day:03d}.parquet"
                )
        (root / "news").mkdir()
        files = sorted(path for path in given.iterdir() if path.is_file())
        (parts if of_parts else days_added)(files, root, topics)


if __name__ == "__main__":
    main()
