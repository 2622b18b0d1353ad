"""The verb ``over-time``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from streaming_jsmf.cli.answer import Answer, answer_options
from streaming_jsmf.cli.verb import options_of, path, verb
from streaming_jsmf.config import OverTimeRequest
from streaming_jsmf.display import table, wrapped

#: The periods of a topic.
Series = list[dict[str, Any]]

#: Number of topics that rose most, and that fell most, in the answer.
SHOWN = 5


@verb(
    "streaming-jsmf over-time MODEL SHARES.parquet --by date:month",
    "streaming-jsmf over-time MODEL SHARES.parquet --by year --corpus CORPUS",
    "streaming-jsmf over-time MODEL SHARES.parquet --by year --csv > years.csv",
    name="over-time",
    long=False,
)
@path("model")
@path("shares")
@options_of(OverTimeRequest)
@answer_options
def over_time(model: str, shares: str, **options: Any) -> str:
    """Print the topics that rose and fell most over time, from SHARES, which transform wrote with MODEL.

    The change of a topic is that of its mean share from the first to the last third of the periods. With --topic: its
    share in each period, with an interval of 95 % (1.96 standard errors of the mean). --csv, --json and --out contain
    all topics and periods.
    """
    from streaming_jsmf.documents.over_time import over_time_table

    answer = Answer.pop(options)
    found = over_time_table(model, shares, options.pop("by"), **options)
    if answer.is_text:
        rows = found.to_pylist()
        return "\n".join(_one(rows) if options.get("topic") is not None else _changes(rows))
    return answer.text(found, "over-time")


def _changes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The topics that rose and fell most, and their words in each period if known."""
    period = next(iter(rows[0]))
    by_topic = groupby(sorted(rows, key=lambda row: row["topic"]), key=lambda row: row["topic"])
    topics = [list(series) for _, series in by_topic]
    names = [row[period] for row in topics[0]]
    documents = sum(row["documents"] for row in topics[0])
    yield f"{len(names)} values of {period}, {names[0]} to {names[-1]}; {documents:,} documents"
    if len(names) == 1:
        yield "one period has no change; --by takes shorter ones, such as COLUMN:month"
        return
    ordered = sorted(topics, key=lambda series: -series[0]["change"])
    rising = [series for series in ordered if series[0]["change"] > 0][:SHOWN]
    falling = [series for series in reversed(ordered) if series[0]["change"] < 0][:SHOWN]
    yield _means(period, rising, falling)
    for series in (*rising, *falling) if "words" in rows[0] else ():
        yield f"topic {series[0]['topic']}: {series[0]['label']}"
        for row in series:
            yield from wrapped(row["words"], f"  {row[period]}  ")


def _means(period: str, rising: list[Series], falling: list[Series]) -> str:
    """Mean shares in the first and the last third of the periods, and their difference."""
    import numpy as np

    from streaming_jsmf.documents.over_time import thirds

    first = (rising or falling)[0]
    weights = thirds(np.array([row["documents"] for row in first]))
    spans = [[row[period] for row, weight in zip(first, of, strict=True) if weight] for of in weights]
    lines = [("topic", *(f"{span[0]}..{span[-1]}" for span in spans), "change", "label")]
    for title, group in (("rose", rising), ("fell", falling)):
        lines.append((title, "", "", "", ""))
        for series in group:
            means = (f"{mean:.1%}" for mean in weights @ [row["share"] for row in series])
            lines.append((str(series[0]["topic"]), *means, _change(series[0]), series[0]["label"]))
    return table(lines, ">>>><")


def _one(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The periods of a topic."""
    period = next(iter(rows[0]))
    yield f"topic {rows[0]['topic']}: {rows[0]['label']}; change {_change(rows[0])}"
    heading = (period, "documents", "share", "95 % interval", *(["words"] if "words" in rows[0] else []))
    lines = [
        (
            *(str(row[period]), f"{row['documents']:,}", f"{row['share']:.2%}"),
            "-" if row["low"] is None else f"{row['low']:.2%} to {row['high']:.2%}",
            *([row["words"]] if "words" in row else []),
        )
        for row in rows
    ]
    yield table([heading, *lines], "<>>>" + "<" * (len(heading) - 4))


def _change(row: dict[str, Any]) -> str:
    if row["change"] is None:
        return "-"
    from streaming_jsmf.documents.over_time import NORMAL

    error = "" if row["change_error"] is None else f" +- {NORMAL * row['change_error']:.1%}"
    return f"{row['change']:+.1%}{error}"
