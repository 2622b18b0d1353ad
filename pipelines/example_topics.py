"""Words of matched topics of both engines and, optionally, Gibbs sampling, as in Table 3 of the STOD paper.

    python -m pipelines.example_topics CORPUS OUT [--topics 25] [--shown 4] [--gibbs 200]

One moments store in OUT serves both engines. Topics are matched with those of STOD by L1 distance, and those on which
all methods agree best are shown, without near-duplicates. Gibbs sampling requires tomotopy. If STOD finds fewer topics
than requested, the other methods use the same number.

OUT keeps the stores; it gets example_topics.parquet, example_topics.md and example_topics.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from pipelines.common import options, peers
from pipelines.common.bags import read_counts
from pipelines.common.matching import match_topics
from pipelines.common.results import Row, publish
from pipelines.common.tables import markdown
from streaming_jsmf import InferSettings, ScanSettings, StodSettings, infer, open_corpus, scan
from streaming_jsmf.inference.words import prominent_words

Floats = NDArray[np.float64]

LISTED = 10


@dataclass(frozen=True)
class Column:
    """Top words of a method's topics (K x n ids), in the order of the first method, and L1 distances to its topics."""

    name: str
    listed: NDArray[np.int64]
    distances: Floats


def beside(name: str, word_topic: Floats, listed: NDArray[np.int64], first: Floats) -> Column:
    """Topics reordered to match those of the first method."""
    matching = match_topics(first, word_topic)
    return Column(name, listed[matching.permutation], matching.l1)


def rows_of(
    columns: list[Column], shown: int, words: NDArray[np.str_], allowed: NDArray[np.bool_]
) -> list[Row]:
    """One row per shown topic and method."""
    worst = np.max([column.distances for column in columns], axis=0)
    chosen = [int(topic) for topic in np.argsort(worst, kind="stable") if allowed[topic]][:shown]
    return [
        {
            "topic": number,
            "method": column.name,
            "words": " ".join(words[column.listed[topic, :LISTED]]),
            "l1": float(column.distances[topic]) if column is not columns[0] else None,
            "seed": 0,
        }
        for number, topic in enumerate(chosen, 1)
        for column in columns
    ]


def table(rows: list[Row]) -> str:
    shown = [
        [row["topic"], row["method"], row["words"], "" if row["l1"] is None else f"{row['l1']:.2f}"]
        for row in rows
    ]
    return markdown(["topic", "method", "words", "L1"], shown, text=3)


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@options.OUT
@click.option("--topics", default=25, show_default=True)
@click.option("--shown", default=4, show_default=True)
@click.option("--gibbs", "sweeps", default=0, metavar="N", help="Sweeps of Gibbs sampling.  [default: none]")
def main(corpus: Path, out: Path, topics: int, shown: int, sweeps: int) -> None:
    opened = open_corpus(corpus)
    moments = scan(corpus, out / "moments", ScanSettings(max_topics=topics, third_moment=True))
    tensor = infer(moments, out / "stod", StodSettings(topics), overwrite=True).arrays
    first = tensor["word_topic"]
    topics = first.shape[1]
    anchored = infer(moments, out / "lr-jsmf", InferSettings(topics), overwrite=True).arrays
    columns = [
        Column("STOD", tensor["prominent_words"], np.zeros(topics)),
        beside("LR-JSMF", anchored["word_topic"], anchored["prominent_words"], first),
    ]
    if sweeps:
        sampled = next(peers.gibbs(read_counts(corpus), topics, 0, [sweeps])).word_topic
        columns.append(beside(f"Gibbs, {sweeps}", sampled, prominent_words(sampled, LISTED), first))
    words = np.array(opened.vocabulary().words)
    rows = rows_of(columns, shown, words, tensor["duplicate_of"] < 0)
    publish(out, "example_topics", rows, table(rows), {corpus.name: opened})
    click.echo(table(rows))


if __name__ == "__main__":
    main()
