"""Cost of a day of ``update`` against a fit of all documents, and how many topics each keeps.

    python -m benchmarks.update [--days 20] [--documents 2000] [--words 8000] [--topics 50]
    python -m benchmarks.update --source FOLDER [--topics 50]

The first command simulates a folder with a file of texts for each day (LDA, Zipf's law), the second takes the files of
a folder, in the order of their names, as days. A model is fitted to all days but the last three, which are then added
one at a time. For each it prints CPU seconds of the command ``update`` and of ``fit`` with all files and the same
words, their ratio, and the number of topics that are within a Hellinger distance of .7 of what they were before the
three days, with the best matching. Each command is a process, with its imports; a first run fills the cache of compiled
code.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streaming_jsmf.topics.identity import SAME, best_match, hellinger
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


def kept(before: np.ndarray, model: Path) -> int:
    distances = hellinger(before, read_model(model).arrays["word_topic"])
    return int(np.sum(distances[np.arange(len(distances)), best_match(distances)] <= SAME))


@click.command()
@click.option("--source", type=click.Path(path_type=Path), default=None)
@click.option("--days", default=20, show_default=True)
@click.option("--documents", default=2000, show_default=True)
@click.option("--words", default=8000, show_default=True)
@click.option("--topics", default=50, show_default=True)
def main(source: Path | None, days: int, documents: int, words: int, topics: int) -> None:
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
        files = sorted(path for path in given.iterdir() if path.is_file())
        present, model = root / "news", root / "model"
        present.mkdir()
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
            fitted = cpu_seconds(
                "fit", present, again, "--topics", topics, "--vocabulary", root / "model.corpus"
            )
            click.echo(
                f"{number + 1:5d}  {updated:6.1f}  {fitted:9.1f}  {updated / fitted:5.2f}  "
                f"{kept(before, model):8d} of {topics}  {kept(before, again):5d} of {topics}"
            )


if __name__ == "__main__":
    main()
