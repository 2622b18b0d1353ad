"""Topics of each decade from one scan, matched from one decade to the next.

    python pipelines/topics_over_time.py CORPUS OUT --by year --span 10 --topics 20

CORPUS has a metadata column of whole numbers, as stored by ``ingest``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from pipelines.common.matching import match_topics
from streaming_jsmf import InferSettings, ScanSettings, infer, open_model, scan
from streaming_jsmf.errors import InputError, StreamingJSMFError, TooFewFactorsError
from streaming_jsmf.moments.select import number_of
from streaming_jsmf.moments.store import Moments

#: Words printed for each topic.
LISTED = 6


#: L1 distance (0 to 2) above which two topics of successive periods are considered different.
CUT = 1.3


@dataclass(frozen=True)
class Period:
    """Topics of some years: ``word_topic`` (N, K), columns sum to one; ``shares`` (K,) of the tokens.

    ``name``, such as ``1970..1979``, is also the expression that selects the partitions.
    """

    name: str
    word_topic: NDArray[np.float64]
    shares: NDArray[np.float64]


@dataclass(frozen=True)
class Link:
    """A topic of a period in a chain; ``step`` is the L1 distance to its predecessor, None at the start of a chain."""

    period: Period
    topic: int
    step: float | None = None


def ranges(moments: Moments, span: int) -> list[str]:
    """Expressions for the periods that have documents; periods start at multiples of ``span``."""
    labels = {partition.label for partition in moments.manifest.partitions} - {None}
    numbers = {label: number_of(label) for label in labels}
    other = sorted(str(label) for label, number in numbers.items() if number is None)
    if other:
        raise InputError(f"--by: periods are made of years and ISO dates, not of values such as {other[0]!r}")
    starts = sorted({number // span * span for number in numbers.values()})
    return [f"{start}..{start + span - 1}" for start in starts]


def chains_of(periods: Sequence[Period], cut: float = CUT) -> list[list[Link]]:
    """Chains of topics matched from period to period by assignment.

    If the assigned successor is farther away than ``cut``, the chain ends and the successor starts a new one. Chains
    that start together are ordered by share.
    """
    chains: list[list[Link]] = []
    going: dict[int, list[Link]] = {}
    for before, period in zip([None, *periods], periods, strict=False):
        went_on: dict[int, list[Link]] = {}
        if before is not None:
            matching = match_topics(before.word_topic, period.word_topic)
            for topic, (successor, step) in enumerate(zip(matching.permutation, matching.l1, strict=True)):
                if step <= cut:
                    going[topic].append(Link(period, int(successor), float(step)))
                    went_on[int(successor)] = going[topic]
        for topic in np.argsort(-period.shares, kind="stable").tolist():
            if topic not in went_on:
                went_on[topic] = [Link(period, topic)]
                chains.append(went_on[topic])
        going = went_on
    return chains


def fitted(moments: Moments, out: Path, names: Sequence[str], settings: InferSettings) -> list[Period]:
    """Fit a model per period; periods too small for K topics are skipped and reported."""
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
        periods.append(Period(name, topics, shares))
    return periods


def table(chains: Sequence[Sequence[Link]], words: Sequence[str]) -> list[str]:
    """Lines per chain and period: share, distance to the previous period, words."""
    names, lines = np.array(words), []
    for number, chain in enumerate(chains):
        lines.append(f"chain {number}")
        for link in chain:
            period = link.period
            order = np.argsort(-period.word_topic[:, link.topic], kind="stable")[:LISTED]
            moved = "    " if link.step is None else f"{link.step:4.2f}"
            lines.append(
                f"  {period.name:>12s} {period.shares[link.topic]:6.1%} {moved}  {', '.join(names[order])}"
            )
    return lines


@click.command()
@click.argument("corpus")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--by", default="year", show_default=True, help="Metadata column of years or ISO dates.")
@click.option("--span", default=10, show_default=True, type=click.IntRange(1), help="Values in one period.")
@click.option("--topics", default=20, show_default=True, help="Number of topics in each period.")
@click.option("--cut", default=CUT, show_default=True, help="L1 distance (0 to 2) above which a chain ends.")
@click.option(
    "--anchor-min-df",
    default=None,
    type=float,
    help="As for infer; fractions refer to the documents of a period.",
)
def main(
    corpus: str, out: Path, by: str, span: int, topics: int, cut: float, anchor_min_df: float | None
) -> None:
    """Scan CORPUS once into OUT, fit a model for each period, follow topics from period to period, print them."""
    settings = ScanSettings(max_topics=topics, partition_by=by)
    try:
        moments = scan(corpus, out / "moments", settings)
        names = ranges(moments, span)
        periods = fitted(moments, out, names, InferSettings(topics, anchor_min_df=anchor_min_df))
    except StreamingJSMFError as error:
        raise click.ClickException(str(error)) from error
    if not periods:
        raise click.ClickException(
            f"no period of {span} carries {topics} topics; lower --topics or raise --span"
        )
    click.echo("            period  share  step  words (step: L1 distance to the line above, 0 to 2)")
    for line in table(chains_of(periods, cut), moments.words):
        click.echo(line)


if __name__ == "__main__":
    main()
