"""The verb ``over-time``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from streaming_jsmf.cli.answer import Answer, answer_options
from streaming_jsmf.cli.verb import options_of, path, verb
from streaming_jsmf.config import OverTimeRequest
from streaming_jsmf.display import table, wrapped

if TYPE_CHECKING:
    from streaming_jsmf.documents.over_time import TopicsOverTime

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
    """Print the topics that rose and fell most over time.

    SHARES are topic shares that transform wrote with MODEL. The change of a topic is that of its mean share from the
    first to the last third of the periods. With --topic: its share in each period, with an interval of 95 % (1.96
    standard errors of the mean). --csv, --json and --out contain all topics and periods.
    """
    from streaming_jsmf.documents.over_time import over_time_of

    answer = Answer.pop(options)
    found = over_time_of(model, shares, options.pop("by"), **options)
    if answer.is_text:
        one = options.get("topic") is not None
        return "\n".join(_one(found.table().to_pylist()) if one else _changes(found))
    return answer.text(found.table(), "over-time")


def _changes(found: TopicsOverTime) -> Iterator[str]:
    """The topics that rose and fell most, and their words in each period if known."""
    periods, values = found.periods, found.periods.values
    documents = periods.documents.sum()
    yield f"{len(values)} values of {periods.column}, {values[0]} to {values[-1]}; {documents:,} documents"
    if len(values) == 1:
        yield "one period has no change; --by takes shorter ones, such as COLUMN:month"
        return
    risen, fallen = periods.risen_and_fallen(SHOWN)
    yield _means(found, risen, fallen)
    words = found.words or {}
    for topic in (*risen, *fallen) if words else ():
        number = found.shown.numbers[topic]
        yield f"topic {number}: {found.shown.names[topic]}"
        for period in values:
            yield from wrapped(", ".join(words[period].get(number, ())), f"  {period}  ")


def _means(found: TopicsOverTime, risen: list[int], fallen: list[int]) -> str:
    """Mean shares in the first and the last third of the periods, and their difference."""
    periods, shown = found.periods, found.shown
    spans = [
        [value for value, weight in zip(periods.values, of, strict=True) if weight] for of in periods.thirds
    ]
    first, last = periods.thirds @ periods.shares
    change, error = periods.change
    lines = [("topic", *(f"{span[0]}..{span[-1]}" for span in spans), "change", "label")]
    for title, group in (("rose", risen), ("fell", fallen)):
        lines.append((title, "", "", "", ""))
        lines += [
            (
                *(str(shown.numbers[topic]), f"{first[topic]:.1%}", f"{last[topic]:.1%}"),
                *(_change(change[topic], error[topic]), shown.names[topic]),
            )
            for topic in group
        ]
    return table(lines, ">>>><")


def _one(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The periods of a topic."""
    period = next(iter(rows[0]))
    yield f"topic {rows[0]['topic']}: {rows[0]['label']}; change {_change(rows[0]['change'], rows[0]['change_error'])}"
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


def _change(value: float | None, error: float | None) -> str:
    """A change with 1.96 standard errors; each is None or NaN if unknown."""
    from streaming_jsmf.documents.groups import NORMAL

    if value is None or math.isnan(value):
        return "-"
    return f"{value:+.1%}" + ("" if error is None or math.isnan(error) else f" +- {NORMAL * error:.1%}")
