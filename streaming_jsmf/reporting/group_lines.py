"""Mean topic shares of groups of documents as lines over time, or as bars: what is drawn, and drawings of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streaming_jsmf.documents.cells import Cells
from streaming_jsmf.documents.groups import FEW_NOTE, Groups, are_times, short_text, values_of
from streaming_jsmf.linalg.typing import Floats, Integers
from streaming_jsmf.reporting.figures import (
    COLORS,
    DASHES,
    LARGEST,
    chosen_topics,
    figure_of,
    label_ticks,
    legend_beside,
    plain,
    shortened,
    topic_name,
)
from streaming_jsmf.reporting.topics import Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Line(NamedTuple):
    """Shares of a topic in percent at ``places`` on the axis, with intervals and numbers of documents, (G,) each."""

    name: str
    color: str
    dash: str
    places: Integers
    shares: Floats
    low: Floats
    high: Floats
    documents: Integers
    is_few: Integers


class Panel(NamedTuple):
    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Course:
    """Lines of topics in one panel; or of groups of documents, in a panel for each topic.

    ``values`` are the names along the ``axis``, ``columns`` the names of all columns, and ``groups`` of those of the
    lines; ``legend`` says how groups of few documents are marked, too.
    """

    panels: tuple[Panel, ...]
    values: tuple[str, ...]
    over_time: bool
    columns: str
    axis: str
    groups: str
    legend: str


def course_of(cells: Cells, topics: Sequence[Topic], wanted: Sequence[int] | None) -> Course:
    """What ``plot_over_time`` draws; ``InputError`` if a wanted topic does not exist."""
    series = cells.groups(cells.time_last)
    over_time = cells.time is not None and are_times(values_of([groups.known for groups in series]))
    left_out = sum(groups.unknown for groups in series) if over_time else 0
    series = tuple(groups.known for groups in series if groups.known.values) if over_time else series
    chosen, values, first = chosen_topics(topics, wanted, _spread(series)), values_of(series), series[0]
    shown = sorted(series, key=lambda groups: -groups.documents.sum())[:LARGEST]
    notes = [f"documents without it, left out: {left_out:,}"] if left_out else []
    notes += [f"the {len(shown)} largest of {len(series)} groups"] if len(shown) < len(series) else []
    places = {value: place for place, value in enumerate(values)}
    if first.within:
        kept = [(shortened(groups.outer), groups) for groups in series if any(groups is one for one in shown)]
        panels = [
            Panel(
                topic_name(topics[topic]), tuple(_line(places, n, *one, topic) for n, one in enumerate(kept))
            )
            for topic in chosen
        ]
    else:
        lines = (_line(places, n, topic_name(topics[topic]), first, topic) for n, topic in enumerate(chosen))
        panels = [Panel("", tuple(lines))]
    few = any(line.is_few.any() for panel in panels for line in panel.lines)
    marks = f"{'open points' if over_time else 'light bars'}:\n{FEW_NOTE}" if few else ""
    groups = plain(" and ".join(name for name, *_ in first.within))
    return Course(
        tuple(panels),
        tuple("not known" if value is None else short_text(value) for value in values),
        over_time,
        plain(first.columns),
        plain(f"{first.column} ({'; '.join(notes)})" if notes else first.column),
        groups,
        "\n".join(filter(None, (groups, marks))),
    )


def _spread(series: Sequence[Groups]) -> Floats:
    """Variances of the shares of each topic over the groups, weighted by their documents, (K,)."""
    means = np.concatenate([groups.shares for groups in series])
    weights = np.concatenate([groups.documents for groups in series])
    spread: Floats = np.average((means - np.average(means, 0, weights)) ** 2, 0, weights)
    return spread


def _line(places: dict[object, int], number: int, name: str, groups: Groups, topic: int) -> Line:
    share, (low, high) = 100 * groups.shares[:, topic], groups.intervals
    # A single document has no interval.
    low, high = (np.where(np.isnan(ends[:, topic]), share, 100 * ends[:, topic]) for ends in (low, high))
    return Line(
        name,
        COLORS[number % len(COLORS)],
        DASHES[number // len(COLORS) % len(DASHES)],
        np.array([places[value] for value in groups.values]),
        share,
        low,
        high,
        groups.documents,
        groups.is_few,
    )


def draw_course(grid: Sequence[Axes], course: Course, columns: int) -> None:
    """Draw each panel on its axes, with one legend beside the last ones of the first row."""
    for place, (axes, panel) in enumerate(zip(grid, course.panels, strict=True)):
        for number, line in enumerate(panel.lines):
            if course.over_time:
                _draw_line(axes, line)
            else:
                _draw_bars(axes, line, number, len(panel.lines))
        label_ticks(axes.xaxis, [*map(shortened, course.values)], fontsize=9)
        _turn_if_wide(axes)
        axes.set_ylim(bottom=0)
        if len(grid) == 1:
            axes.set_xlabel(course.axis)
            axes.set_ylabel("mean share of the documents, %")
            continue
        axes.set_title(panel.title, fontsize=10)
        if place >= len(grid) - columns:
            axes.set_xlabel(course.axis, fontsize=8)
        if place % columns == 0:
            axes.set_ylabel("mean share, %", fontsize=8)
    legend_beside(grid[columns - 1], course.legend)


def _turn_if_wide(axes: Axes) -> None:
    """Turn the labels of the axis if they would touch."""
    labels = axes.get_xticklabels()
    room = axes.get_position().width * figure_of(axes).get_figwidth()
    if sum(len(label.get_text()) + 2 for label in labels) > 12 * room:
        for label in labels:
            label.set(rotation=45, ha="right", rotation_mode="anchor")


def _draw_line(axes: Axes, line: Line) -> None:
    axes.plot(line.places, line.shares, line.dash, color=line.color, label=line.name)
    axes.fill_between(line.places, line.low, line.high, color=line.color, alpha=0.2, lw=0)
    few = line.is_few
    axes.scatter(line.places[few], line.shares[few], 16, "white", edgecolors=line.color, zorder=3)


def _draw_bars(axes: Axes, line: Line, number: int, of: int) -> None:
    width = 0.8 / of
    at = line.places + (number - (of - 1) / 2) * width
    errors = np.stack([line.shares - line.low, line.high - line.shares])
    bars = axes.bar(at, line.shares, width, yerr=errors, color=line.color, label=line.name, capsize=2)
    for bar, few in zip(bars, line.is_few, strict=True):
        bar.set_alpha(0.45 if few else 1.0)
