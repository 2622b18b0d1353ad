"""What all figures share: axes of their own or given ones, titles, colors, legends, and names of topics.

Lines have the colors of Okabe and Ito (2008), which color-blind readers can distinguish.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streaming_jsmf.errors import InputError
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.topics import Topic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Default number of topics.
LARGEST = 6
#: Colors of Okabe and Ito, except yellow, which is too light for lines, and one for what has no color of its own.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
OTHER = "#bbbbbb"
#: Line styles that distinguish lines of the same color.
DASHES = ("-", "--", ":", "-.")
#: Maximum number of characters of a name.
NAME_LENGTH = 28
#: Maximum number of labels on an axis.
MOST_LABELS = 12


class Layer(NamedTuple):
    """Documents of a map, rows of a data frame, with one color or with numbers on a scale, and a name of the color."""

    name: str
    rows: Any
    color: Any


def require(library: str) -> None:
    """Raise ``InputError`` if matplotlib, or plotly for interactive figures, is not installed."""
    try:
        import_module(library)
    except ImportError as error:
        what = "figures" if library == "matplotlib" else "interactive figures"
        raise InputError(
            f"{what} need {library}; install it, or streaming-jsmf with the extra notebook"
        ) from error


def axes_for(
    ax: Any, number: int, figsize: tuple[float, float] | None, default: tuple[float, float]
) -> tuple[Figure, list[Axes]]:
    """The figure and ``number`` axes to draw on: those given, or new ones of a new figure, three in a row."""
    require("matplotlib")
    if ax is None:
        return _new_axes(number, figsize or default, min(number, 3))
    given: list[Axes] = [*np.ravel(np.asarray(ax, dtype=object))]
    if figsize is not None:
        raise InputError("figsize is that of the figure of ax; give one of them")
    if len(given) != number:
        raise InputError(
            f"ax has {len(given)} axes, and {number} are drawn; give as many axes, or fewer topics"
        )
    return figure_of(given[0]), given


def figure_of(axes: Axes) -> Figure:
    """The figure of axes, also of those in a part of a figure."""
    figure: Any = axes.figure
    found: Figure = figure.figure
    return found


def _new_axes(number: int, size: tuple[float, float], columns: int) -> tuple[Figure, list[Axes]]:
    """Axes of a figure that pyplot does not manage: notebooks show it, and it need not be closed."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """Displayed as the last value of a cell, even if pyplot was not imported."""

        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png")
            return stream.getvalue()

    figure = NotebookFigure(figsize=size, layout="constrained")
    grid = figure.subplots(-(-number // columns), columns, squeeze=False).ravel()
    for unused in grid[number:]:
        unused.remove()
    return figure, list(grid[:number])


def set_title(figure: Figure, axes: Sequence[Axes], title: str | None, default: str) -> None:
    """The title of one plot, or of the figure of several."""
    text = default if title is None else title
    if len(axes) == 1:
        axes[0].set_title(text)
    elif text:
        figure.suptitle(text)


def label_ticks(axis: Any, names: Sequence[str], **style: Any) -> None:
    """Labels at the positions 0, 1, ... of an axis; of many names, evenly spaced ones."""
    every = max(1, -(-len(names) // MOST_LABELS))
    places = range(0, len(names), every)
    axis.set_ticks(places, [names[place] for place in places], **style)


def legend_beside(axes: Axes, title: str = "") -> None:
    """A legend to the right of the axes, outside the data."""
    legend = axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0.0,
        fontsize=8,
        frameon=False,
        title=title,
        title_fontsize=8,
        alignment="left",
    )
    legend.get_title().set_color("#555555")


def plain(text: str) -> str:
    """A text with dollar signs escaped, because they start mathematics."""
    return text.replace("$", r"\$")


def shortened(text: str, length: int = NAME_LENGTH) -> str:
    """At most ``length`` characters of a text, escaped as ``plain``."""
    return plain(text if len(text) <= length else f"{text[: length - 1]}…")


def topic_name(topic: Topic) -> str:
    """Number and name, or label, of a topic."""
    return f"{topic.number} {shortened(topic.name)}"


def chosen_topics(
    topics: Sequence[Topic], wanted: Sequence[int] | None, weight: Floats | None = None, number: int = LARGEST
) -> list[int]:
    """Positions of the wanted topics, by default those of largest weight; ``InputError`` if one is not shown."""
    if wanted is None:
        weights = np.array([topic.share for topic in topics]) if weight is None else weight
        return [int(topic) for topic in np.argsort(-weights, kind="stable")[:number]]
    places = {topic.number: place for place, topic in enumerate(topics)}
    wrong = [topic for topic in wanted if topic not in places]
    if wrong or not len(wanted):
        without = "" if len(places) > max(places) - min(places) else ", without those merged or hidden"
        named = f"there is no topic {wrong[0]}" if wrong else "topics is empty"
        raise InputError(f"{named}; the model shows topics {min(places)} to {max(places)}{without}")
    return [places[topic] for topic in wanted]


def all_or(topics: Sequence[Topic], wanted: Sequence[int] | None) -> list[int]:
    """Positions of the wanted topics, by default of all."""
    return [*range(len(topics))] if wanted is None else chosen_topics(topics, wanted)


def require_no_axes(ax: Any) -> None:
    if ax is not None:
        raise InputError(
            "ax has axes of matplotlib, and interactive figures are made by plotly; leave out one of them"
        )
