"""Topics of each decade from one scan, followed from one decade to the next.

    python pipelines/topics_over_time.py CORPUS OUT --by year --span 10 --topics 20

CORPUS has a metadata column of whole numbers, as ``ingest`` keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from streaming_jsmf import InferSettings, ScanSettings, infer, open_model, scan
from streaming_jsmf.errors import InputError, TooFewFactorsError
from streaming_jsmf.evaluation.matching import match_topics
from streaming_jsmf.moments.reader import Moments

#: Words printed for each topic.
LISTED = 6


@dataclass(frozen=True)
class Period:
    """Topics of some years.

    Attributes
    ----------
    name
        Such as ``1970..1979``, which is also how its partitions are selected.
    word_topic
        (N, K), columns sum to one, in the order of the chains: column k goes on where column k of the period before
        stopped.
    shares
        (K,) of the tokens, in the same order.
    distances
        (K,) L1 distance to the topic before it, between 0 and 2; NaN in the first period.
    """

    name: str
    word_topic: NDArray[np.float64]
    shares: NDArray[np.float64]
    distances: NDArray[np.float64]


def ranges(moments: Moments, span: int) -> list[str]:
    """Expressions for the periods of ``span`` years that have documents, from multiples of ``span``."""
    labels = {partition.label for partition in moments.store.manifest.partitions} - {None}
    if not all(isinstance(label, int) for label in labels):
        raise InputError(
            f"--by: periods are made of whole numbers, not of values such as {sorted(labels, key=str)[0]!r}"
        )
    starts = sorted({label // span * span for label in labels})
    return [f"{start}..{start + span - 1}" for start in starts]


def followed(
    name: str, word_topic: NDArray[np.float64], shares: NDArray[np.float64], before: Period | None
) -> Period:
    """The topics in the order of those before, each matched with one by assignment; by share in the first period."""
    if before is None:
        order = np.argsort(-shares)
        distances = np.full(shares.size, np.nan)
    else:
        matching = match_topics(before.word_topic, word_topic)
        order, distances = matching.permutation, matching.l1
    return Period(name, word_topic[:, order], shares[order], distances)


def fitted(moments: Moments, out: Path, names: Sequence[str], settings: InferSettings) -> list[Period]:
    """A model for each period, and their topics in chains. A period too small for K topics is left out and named."""
    periods: list[Period] = []
    for name in names:
        path = out / name
        try:
            infer(moments, path, settings, partitions=name, overwrite=True)
        except TooFewFactorsError as error:
            click.echo(f"{name} is left out: {error}", err=True)
            continue
        model = open_model(path).load()
        topics, shares = model["word_topic"].values, model["topic_probability"].values
        periods.append(followed(name, topics, shares, periods[-1] if periods else None))
    return periods


def table(periods: Sequence[Period], words: Sequence[str]) -> list[str]:
    """For each chain of topics a line for each period: share, distance to the line before, words."""
    names, lines = np.array(words), []
    for topic in range(periods[0].shares.size):
        lines.append(f"topic {topic}")
        for period in periods:
            listed = " ".join(names[np.argsort(-period.word_topic[:, topic], kind="stable")[:LISTED]])
            step = period.distances[topic]
            moved = "    " if np.isnan(step) else f"{step:4.2f}"
            lines.append(f"  {period.name:>12s} {period.shares[topic]:6.1%} {moved}  {listed}")
    return lines


@click.command()
@click.argument("corpus")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--by", default="year", show_default=True, help="Metadata column of whole numbers.")
@click.option("--span", default=10, show_default=True, type=click.IntRange(1), help="Values in one period.")
@click.option("--topics", default=20, show_default=True, help="Number of topics in each period.")
@click.option(
    "--anchor-min-df", default=None, type=float, help="As for infer; shares are of a period's documents."
)
def main(corpus: str, out: Path, by: str, span: int, topics: int, anchor_min_df: float | None) -> None:
    """Scan CORPUS once into OUT, fit a model for each period, match topics from period to period, print them."""
    # Selections use the factors alone, so the second scan would be for nothing.
    settings = ScanSettings(max_topics=topics, scans=1, partition_by=by)
    moments = scan(corpus, out / "moments", settings, keep_partitions=True)
    periods = fitted(moments, out, ranges(moments, span), InferSettings(topics, anchor_min_df=anchor_min_df))
    if not periods:
        raise click.ClickException(
            f"no period of {span} carries {topics} topics; lower --topics or raise --span"
        )
    click.echo("            period  share  step  words (step: L1 distance to the line above, 0 to 2)")
    for line in table(periods, moments.words):
        click.echo(line)


if __name__ == "__main__":
    main()
