"""What a report draws, as figures of matplotlib: for papers, slides and notebooks. Needs the extra ``notebook``.

Colours are those of Okabe and Ito (2008), which the colour-blind tell apart, and the map of colours from blue over grey
to brown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_jsmf.reporting.contents import Contents, Groups, Topic
from streaming_jsmf.reporting.correlations import times_chance
from streaming_jsmf.reporting.topic_map import TopicMap, draw_map
from streaming_jsmf.reporting.tree import topic_tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe and Ito's, but for the yellow, which is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")

#: Lines of one colour are told apart by these.
DASHES = ("-", "--", ":", "-.")

#: Topics up to which the axes of the square have names.
MOST_NAMES = 40

#: Characters of a name.
NAME_LENGTH = 28

#: Log2 of the ratio at which the colours of the square end.
END = 3.0


def topic_name(topic: Topic) -> str:
    """Number and name, cut; a dollar sign begins no mathematics."""
    text = topic.name if len(topic.name) <= NAME_LENGTH else f"{topic.name[: NAME_LENGTH - 1]}…"
    return f"{topic.number} {text}".replace("$", r"\$")


def map_figure(contents: Contents) -> Figure:
    """Circles of topics: near where they use the same words, areas as their shares; labels of the largest."""
    from matplotlib.patches import Circle

    shares = np.array([topic.share for topic in contents.topics])
    drawn = draw_map(contents.affinity, shares)
    figure, axes = _figure(8.0, 6.0)
    for topic, (x, y), radius in zip(contents.topics, drawn.points, drawn.radii, strict=True):
        axes.add_patch(Circle((x, -y), radius, facecolor=COLOURS[0], edgecolor=COLOURS[0], alpha=0.35))
        axes.text(x, -y, str(topic.number), ha="center", va="center", fontsize=7)
    for number, x, y in _free_places(contents, drawn):
        name = topic_name(contents.topics[number]).partition(" ")[2]
        axes.text(x, -y, name, ha="center", va="center", fontsize=6, color="#333333")
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.set(xticks=[], yticks=[])
    kept = (
        f"; of each topic's {drawn.neighbours} nearest, {drawn.kept:.0%} are here (by chance {drawn.by_chance:.0%})"
        if drawn.neighbours
        else ""
    )
    axes.set_xlabel(f"near: the same words{kept}", fontsize=8)
    axes.set_title("Map of the topics; areas are shares of the corpus")
    return figure


def _free_places(contents: Contents, drawn: TopicMap) -> list[tuple[int, float, float]]:
    """Topics whose names have room below or above their circles, the largest first, and the middle of each name."""
    width, height = 0.0052 * np.ptp(drawn.points, axis=0).max(), 0.016 * np.ptp(drawn.points, axis=0).max()
    taken: list[tuple[float, float, float]] = []
    found = []
    for number in np.argsort(-drawn.radii, kind="stable"):
        half = width * len(contents.topics[number].name[:NAME_LENGTH])
        x, y = drawn.points[number]
        for middle in (y + drawn.radii[number] + height, y - drawn.radii[number] - height):
            across = np.maximum(np.abs(drawn.points[:, 0] - x) - half, 0)
            down = np.maximum(np.abs(drawn.points[:, 1] - middle) - height / 2, 0)
            on_circle = (np.hypot(across, down) < drawn.radii).any()
            on_name = any(abs(x - a) < half + b and abs(middle - c) < 1.6 * height for a, c, b in taken)
            if not (on_circle or on_name):
                taken.append((x, middle, half))
                found.append((int(number), float(x), float(middle)))
                break
    return found


def topics_figure(contents: Contents, topics: Sequence[int], words: int) -> Figure:
    """The first words of some topics as bars, each on a scale of its own."""
    columns = min(len(topics), 3)
    rows = -(-len(topics) // columns)
    figure, grid = _grid(rows, columns, 3.2 * columns, (0.5 + 0.18 * words) * rows)
    for place, axes in enumerate(grid):
        if place >= len(topics):
            axes.axis("off")
            continue
        topic = contents.topics[topics[place]]
        listed = topic.words[:words]
        names = [word.text[:NAME_LENGTH].replace("$", r"\$") for word in listed]
        axes.barh(range(len(listed)), [100 * word.probability for word in listed], color=COLOURS[0])
        axes.set_yticks(range(len(listed)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("p(word | topic), %", fontsize=8)
        axes.set_title(f"Topic {topic.number}: {topic.share:.1%} of the corpus", fontsize=9)
    return figure


def correlations_figure(contents: Contents) -> Figure:
    """How many times as often as by chance two topics meet, in the order of their similarity.

    Raises
    ------
    ValueError
        If the model has no correlations.
    """
    if contents.topic_topic is None:
        raise ValueError("this model has no correlations between topics; polish makes them")
    order = topic_tree(contents.affinity).order
    ratio = times_chance(contents.topic_topic)[np.ix_(order, order)]
    values = np.log2(np.maximum(ratio, 2.0**-END))
    np.fill_diagonal(values, np.nan)
    side = min(4.0 + 0.18 * len(order), 14.0)
    figure, axes = _figure(side + 1.5, side)
    image = axes.imshow(values, cmap=_cold_to_warm(), vmin=-END, vmax=END, interpolation="nearest")
    if len(order) <= MOST_NAMES:
        names = [topic_name(contents.topics[topic]) for topic in order]
        axes.set_yticks(range(len(order)), names, fontsize=7)
        axes.set_xticks(range(len(order)), [str(topic) for topic in order], fontsize=7, rotation=90)
    else:
        axes.set_ylabel("topics in the order of their similarity")
        axes.set_xlabel("topics in the order of their similarity")
    ticks = np.arange(-END, END + 1)
    bar = figure.colorbar(image, ax=axes, ticks=ticks, shrink=0.8)
    bar.ax.set_yticklabels([f"{2.0**tick:g}" for tick in ticks])
    bar.set_label("times as often in one document as by chance")
    axes.set_title("Which topics go together")
    return figure


def groups_figure(contents: Contents, groups: Groups, topics: Sequence[int]) -> Figure:
    """Mean shares of some topics over groups with an order, with their standard errors; bars for groups without."""
    figure, axes = _figure(8.0, 4.5)
    places = np.arange(len(groups.names))
    for line, number in enumerate(topics):
        colour, dash = COLOURS[line % len(COLOURS)], DASHES[line // len(COLOURS) % len(DASHES)]
        share, error = 100 * groups.shares[:, number], 100 * groups.errors[:, number]
        name = topic_name(contents.topics[number])
        if groups.ordered:
            axes.plot(places, share, dash, color=colour, label=name)
            axes.fill_between(
                places, np.maximum(share - error, 0), share + error, color=colour, alpha=0.2, lw=0
            )
        else:
            width = 0.8 / len(topics)
            shifted = places + (line - (len(topics) - 1) / 2) * width
            axes.bar(shifted, share, width, yerr=error, color=colour, label=name, capsize=2)
    every = -(-len(places) // 16)
    names = [name[:NAME_LENGTH].replace("$", r"\$") for name in groups.names]
    axes.set_xticks(places[::every], names[::every], rotation=0 if groups.ordered else 45)
    axes.set_xlabel(groups.column)
    axes.set_ylabel("mean share of the documents, %")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    axes.set_title("Topics over time" if groups.ordered else f"Topics by {groups.column}")
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure, [axes] = _grid(1, 1, width, height)
    return figure, axes


def _grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure that belongs to no window: notebooks show it, and nothing has to be closed."""
    from streaming_jsmf.reporting.shown_figure import ShownFigure

    figure = ShownFigure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def _cold_to_warm() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("cold_to_warm", ["#2166ac", "#f2f2f2", "#b35806"])
    return colours.with_extremes(bad="#9aa3ad")
