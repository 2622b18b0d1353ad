"""Several numbers of topics side by side: a table, and a line for each measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streaming_jsmf.evaluation.choice import EIGENGAP, MEASURES, Choice, Measure, number_text

#: Of a drawing, in its own units, and how far its points keep from the edge.
WIDTH, HEIGHT, EDGE = 320.0, 170.0, 34.0


@dataclass(frozen=True)
class Point:
    """A K on a line: where it is, and its value as text."""

    n_topics: int
    x: float
    y: float
    text: str
    suggested: bool


@dataclass(frozen=True)
class Line:
    """A measure over K; ``good`` says which direction is."""

    title: str
    good: str
    width: float
    height: float
    points: tuple[Point, ...]

    @property
    def path(self) -> str:
        """The points as SVG has them."""
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


def draw_lines(choice: Choice) -> tuple[Line, ...]:
    """A line for each measure that has two values or more; K at equal distances, values from low to high."""
    drawn = []
    for measure in (*MEASURES, EIGENGAP):
        values = [getattr(row, measure.name) for row in choice.rows]
        known = [value for value in values if value is not None]
        if len(known) > 1:
            good = "" if measure is EIGENGAP else "lower is better" if measure.lower else "higher is better"
            drawn.append(Line(measure.title, good, WIDTH, HEIGHT, _points(choice, measure, values)))
    return tuple(drawn)


def _points(choice: Choice, measure: Measure, values: Sequence[float | None]) -> tuple[Point, ...]:
    known = [value for value in values if value is not None]
    low, span = min(known), max(known) - min(known)
    step = (WIDTH - 2 * EDGE) / max(len(values) - 1, 1)
    return tuple(
        Point(
            row.n_topics,
            EDGE + place * step,
            # y grows downwards; equal values lie in the middle.
            HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * ((value - low) / span if span > 0 else 0.5),
            number_text(measure, value),
            row.n_topics == choice.suggested,
        )
        for place, (row, value) in enumerate(zip(choice.rows, values, strict=True))
        if value is not None
    )


def comparison_table(choice: Choice) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Heading and rows as texts: K, the measures, eigengap, loss."""
    measures = (*MEASURES, EIGENGAP)
    heading = ("topics", *(measure.title for measure in measures), "loss")
    rows = [
        (
            str(row.n_topics),
            *(number_text(measure, getattr(row, measure.name)) for measure in measures),
            f"{loss:.1f}",
        )
        for row, loss in zip(choice.rows, choice.losses, strict=True)
    ]
    return heading, rows


@dataclass(frozen=True)
class Compared:
    """A choice as a page shows it.

    Attributes
    ----------
    choice
        Suggestion and reason.
    heading, rows
        Of the table, as texts.
    lines
        A drawing for each measure.
    missing
        Measure -> why it has no values.
    """

    choice: Choice
    heading: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[Line, ...]
    missing: Mapping[str, str]


def compared(choice: Choice, missing: Mapping[str, str]) -> Compared:
    """What is shown of a choice."""
    heading, rows = comparison_table(choice)
    return Compared(choice, heading, tuple(rows), draw_lines(choice), missing)
