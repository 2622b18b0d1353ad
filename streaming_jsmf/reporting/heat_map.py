"""Which topics go together: p(topic j | topic i) as a square of shaded cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streaming_jsmf.reporting.contents import Contents, Floats
from streaming_jsmf.reporting.wording import percent

#: Topics that the square has room for.
MOST_TOPICS = 60

#: Side of the square, in units of the drawing, without its numbers.
SIDE = 600.0


@dataclass(frozen=True)
class Cell:
    """p(``column`` | ``row``): where the cell begins, how dark it is (from 0 to 1), and the text of its tooltip."""

    x: float
    shade: float
    own: bool
    tooltip: str


@dataclass(frozen=True)
class Row:
    """A topic and its cells, from left to right; ``y`` is where the row begins."""

    number: int
    y: float
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class HeatMap:
    """The square.

    Attributes
    ----------
    side, step
        Of the square and of a cell, in units of the drawing.
    rows
        By topic number.
    darkest
        The probability that is drawn darkest: the largest between two topics.
    left_out
        Topics that there is no room for.
    """

    side: float
    step: float
    rows: tuple[Row, ...]
    darkest: float
    left_out: int


def conditional(topic_topic: Floats) -> Floats:
    """p(j | i) = A_ij / sum_l A_il, (K, K); rows sum to 1, and are 0 where the sum is not positive.

    Examples
    --------
    >>> print(conditional(np.array([[3.0, 1.0], [0.0, 0.0]])).tolist())
    [[0.75, 0.25], [0.0, 0.0]]
    """
    sums = topic_topic.sum(axis=1, keepdims=True)
    given: Floats = np.divide(topic_topic, sums, out=np.zeros_like(topic_topic), where=sums > 0)
    return given


def draw_heat_map(contents: Contents) -> HeatMap | None:
    """Shade the topics of the largest shares, ``MOST_TOPICS`` at most; None without ``topic_topic``.

    A topic's cell with itself, which is far above the others, has a look of its own and no part in the scale.
    """
    if contents.topic_topic is None:
        return None
    given = conditional(contents.topic_topic)
    by_share = sorted(contents.topics, key=lambda topic: (-topic.share, topic.number))
    shown = sorted(topic.number for topic in by_share[:MOST_TOPICS])
    between = given[np.ix_(shown, shown)][~np.eye(len(shown), dtype=bool)]
    darkest = max(float(between.max(initial=0.0)), 0.0)
    step = SIDE / max(len(shown), 8)
    rows = []
    for place, row in enumerate(shown):
        cells = tuple(
            _cell(step * across, row, column, float(given[row, column]), darkest)
            for across, column in enumerate(shown)
        )
        rows.append(Row(row, step * place, cells))
    return HeatMap(step * len(shown), step, tuple(rows), darkest, len(contents.topics) - len(shown))


def _cell(x: float, row: int, column: int, probability: float, darkest: float) -> Cell:
    # Estimates of what hardly ever meets may be a little below 0.
    shade = min(max(probability / darkest, 0.0), 1.0) if darkest > 0 else 0.0
    own = row == column
    return Cell(x, 1.0 if own else shade, own, f"topic {column} given {row}: {percent(probability)}")
