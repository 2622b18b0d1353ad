"""Choice of the number of topics: the losses of each candidate relative to the best, and the reason."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Measures:
    """Quality of the topics of one K; missing measures are None.

    ``perplexity`` is that of documents held out by polish, ``npmi`` and ``distinct_share`` use the top 10 words,
    ``stability`` (0 to 1) is the agreement with topics of resampled documents. The others are informative only:
    ``eigengap``, (lambda_K - lambda_K+1) / lambda_K, and the means over topics of semantic ``coherence`` and
    ``exclusivity``, of which few topics have more of the first and many topics more of the second.
    """

    n_topics: int
    perplexity: float | None = None
    npmi: float | None = None
    distinct_share: float | None = None
    stability: float | None = None
    eigengap: float | None = None
    coherence: float | None = None
    exclusivity: float | None = None


@dataclass(frozen=True)
class Measure:
    """A column of the comparison: its field of ``Measures``, heading, and unit of loss.

    ``unit`` is a noticeable loss, relative if ``ratio``, otherwise absolute; ``lower`` means that lower is better.
    """

    name: str
    title: str
    unit: float = 0.1
    lower: bool = False
    ratio: bool = False

    def of(self, row: Measures) -> Any:
        """The value of this measure, or None."""
        return getattr(row, self.name)

    def loss(self, value: float, best: float) -> float:
        """Distance of a value from the best one in units; at least 0."""
        behind = math.log(value / best) if self.ratio else value - best
        return (behind if self.lower else -behind) / self.unit


#: Measures whose losses are summed. Units define equal losses: 10 % of perplexity equals 0.05 NPMI.
MEASURES = (
    Measure("perplexity", "perplexity", lower=True, ratio=True),
    Measure("npmi", "NPMI", unit=0.05),
    Measure("distinct_share", "distinct"),
    Measure("stability", "stability"),
)

EIGENGAP = Measure("eigengap", "eigengap")
#: Measures that are displayed, and those that comparisons of earlier releases lack.
ADDED = (Measure("coherence", "coherence"), Measure("exclusivity", "exclusive"))
COLUMNS = (*MEASURES, *ADDED, EIGENGAP)


@dataclass(frozen=True)
class Choice:
    """The suggested number of topics: the smallest K with the minimum sum of losses.

    ``rows`` are measures by ascending K, ``losses`` their sums of losses, and ``reason`` one or two sentences.
    """

    rows: tuple[Measures, ...]
    losses: tuple[float, ...]
    suggested: int
    reason: str


def choose(rows: Sequence[Measures]) -> Choice:
    """Suggest the K with the smallest sum of losses; ``rows`` must not be empty.

    Examples
    --------
    >>> choice = choose([Measures(5, 1500.0, 0.2), Measures(10, 1200.0, 0.2), Measures(20, 1190.0, 0.12)])
    >>> choice.suggested, [round(loss, 1) for loss in choice.losses]
    (10, [2.3, 0.1, 1.6])
    """
    ordered = tuple(sorted(rows, key=lambda row: row.n_topics))
    # A measure that is missing for some K would penalize only the others.
    compared = [measure for measure in MEASURES if None not in map(measure.of, ordered)]
    best = [(min if measure.lower else max)(map(measure.of, ordered)) for measure in compared]
    losses = tuple(
        sum(measure.loss(measure.of(row), top) for measure, top in zip(compared, best, strict=True))
        for row in ordered
    )
    place = min(range(len(ordered)), key=lambda i: (losses[i], i))
    return Choice(ordered, losses, ordered[place].n_topics, _reason(ordered, place, compared))


def _reason(rows: Sequence[Measures], place: int, compared: Sequence[Measure]) -> str:
    if len(rows) == 1 or not compared:
        return "there is nothing to compare it with"
    said = [f"smallest loss over {', '.join(measure.title for measure in compared)}"]
    for step in (-1, 1):
        if 0 <= place + step < len(rows):
            other = rows[place + step]
            said.append(f"with {other.n_topics}, {_against(rows[place], other, compared)}")
        elif rows[place].n_topics + step > 1:
            said.append(
                "this is the smallest, also compare fewer"
                if step < 0
                else "this is the largest, also compare more"
            )
    return "; ".join(said)


def _against(chosen: Measures, other: Measures, compared: Sequence[Measure]) -> str:
    losses = [(measure.loss(measure.of(other), measure.of(chosen)), measure) for measure in compared]
    worst, measure = max(losses, key=lambda pair: pair[0])
    if worst <= 0:
        return "no measure is worse"
    values = (number_text(measure, measure.of(row)) for row in (other, chosen))
    return f"{measure.title} is {' instead of '.join(values)}"


def number_text(measure: Measure, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if measure.ratio else f"{value:.3f}"


def comparison_table(choice: Choice) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heading and rows as text: K, the measures, eigengap, loss."""
    rows = [
        (str(row.n_topics), *(number_text(measure, measure.of(row)) for measure in COLUMNS), f"{loss:.1f}")
        for row, loss in zip(choice.rows, choice.losses, strict=True)
    ]
    return ("topics", *(measure.title for measure in COLUMNS), "loss"), rows


def fields_of(choice: Choice, missing: Mapping[str, str]) -> dict[str, Any]:
    """A comparison as JSON values; ``missing`` maps columns to the reason why they are empty."""
    rows = zip(choice.rows, choice.losses, strict=True)
    return {
        "format_version": 1,
        "rows": [{**asdict(row), "loss": loss} for row, loss in rows],
        "suggested": choice.suggested,
        "reason": choice.reason,
        "missing": dict(missing),
    }


def choice_of(fields: Mapping[str, Any]) -> tuple[Choice, dict[str, str]]:
    """Restore a comparison from ``fields_of``; ``ValueError`` for other values and unknown format versions."""
    try:
        if fields["format_version"] != 1:
            raise ValueError(f"format version {fields['format_version']!r} is unknown")
        names = [field for field in Measures.__dataclass_fields__ if field != "n_topics"]
        rows = [
            Measures(
                int(row["n_topics"]), *(None if row[name] is None else float(row[name]) for name in names)
            )
            for row in ({**dict.fromkeys(each.name for each in ADDED), **row} for row in fields["rows"])
        ]
        return choose(rows), {str(name): str(why) for name, why in fields["missing"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
