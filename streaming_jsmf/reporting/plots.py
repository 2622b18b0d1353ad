"""Matplotlib figures of models for papers, slides and notebooks. Needs the extra ``notebook``.

Lines have the colors of Okabe and Ito (2008), which color-blind readers can distinguish.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.documents.groups import Groups
from streaming_jsmf.documents.model_shares import AnyShares, ModelShares
from streaming_jsmf.errors import InputError
from streaming_jsmf.evaluation.counts import counts_of
from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.contents import Contents, groups_of, read_contents
from streaming_jsmf.reporting.document_map import SAMPLED, document_map
from streaming_jsmf.reporting.layout import TopicMap, draw_map, times_chance, topic_tree
from streaming_jsmf.reporting.topics import Topic
from streaming_jsmf.topics.store import AnyModel, corpus_beside, model_path, read_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Default number of topics.
LARGEST = 6
#: Colors of Okabe and Ito, except yellow, which is too light for lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
#: Line styles that distinguish lines of the same color.
DASHES = ("-", "--", ":", "-.")
#: Maximum number of topics whose names are on the axes of the correlations.
MOST_NAMES = 40
#: Maximum number of characters of a name.
NAME_LENGTH = 28
#: Places of a name around its point, in points.
OFFSETS = (
    (0, 0),
    (0, 10),
    (0, -10),
    (0, 20),
    (0, -20),
    (50, 0),
    (-50, 0),
    (50, 14),
    (-50, 14),
    (50, -14),
    (-50, -14),
)
#: Log2 of the ratio at which the color scale of the correlations ends.
END = 3.0


def plot_map(model: AnyModel) -> Figure:
    """Draw the topics as circles, near each other if they use the same words, with areas proportional to their shares.

    The layout is that of the report: t-SNE of Hellinger distances, whose axes have no unit; the axis label states how
    many neighbors it preserves. Reads ``word_topic`` once, and no documents. Raises ``InputError`` if there is no
    model, or matplotlib is missing.
    """
    contents = _contents(model)
    from matplotlib.patches import Circle

    shares = np.array([topic.share for topic in contents.topics])
    drawn = draw_map(contents.affinity, shares)
    figure, axes = _figure(8.0, 6.0)
    for topic, (x, y), radius in zip(contents.topics, drawn.points, drawn.radii, strict=True):
        axes.add_patch(Circle((x, -y), radius, facecolor=COLORS[0], edgecolor=COLORS[0], alpha=0.35))
        axes.text(x, -y, str(topic.number), ha="center", va="center", fontsize=7)
    for number, x, y in _label_positions(contents, drawn):
        name = _topic_name(contents.topics[number]).partition(" ")[2]
        axes.text(x, -y, name, ha="center", va="center", fontsize=6, color="#333333")
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.set(xticks=[], yticks=[])
    kept = (
        f"; of each topic's {drawn.neighbors} nearest, {drawn.kept:.0%} are here (by chance {drawn.by_chance:.0%})"
        if drawn.neighbors
        else ""
    )
    axes.set_xlabel(f"near: the same words{kept}", fontsize=8)
    axes.set_title("Map of the topics; areas are shares of the corpus")
    return figure


def plot_topics(model: AnyModel, topics: Sequence[int] | None = None, *, words: int = 10) -> Figure:
    """Draw the most probable words of topics as bars of p(word | topic) in percent; by default the six largest topics.

    All words of the vocabulary are drawn if it has fewer than ``words``. Raises ``InputError`` if a topic does not
    exist, ``words`` is below 1, or matplotlib is missing.
    """
    contents = _contents(model, words)
    chosen = _chosen(contents, topics)
    columns = min(len(chosen), 3)
    rows = -(-len(chosen) // columns)
    figure, grid = _grid(rows, columns, 3.2 * columns, (0.5 + 0.18 * words) * rows)
    for place, axes in enumerate(grid):
        if place >= len(chosen):
            axes.axis("off")
            continue
        topic = contents.topics[chosen[place]]
        listed = topic.words[:words]
        names = [word.text[:NAME_LENGTH].replace("$", r"\$") for word in listed]
        axes.barh(range(len(listed)), [100 * word.probability for word in listed], color=COLORS[0])
        axes.set_yticks(range(len(listed)), names, fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("p(word | topic), %", fontsize=8)
        axes.set_title(f"Topic {topic.number}: {topic.share:.1%} of the corpus", fontsize=9)
    return figure


def plot_correlations(model: AnyModel) -> Figure:
    """Draw observed over expected co-occurrence of topics in documents; topics are ordered by similarity.

    Raises ``InputError`` if the model has no correlations, or matplotlib is missing.
    """
    contents = _contents(model)
    if contents.topic_topic is None:
        raise InputError(f"{model}: this model has no correlations between topics; polish makes them")
    from matplotlib.colors import LinearSegmentedColormap

    order = topic_tree(contents.affinity).order
    ratio = times_chance(contents.topic_topic)[np.ix_(order, order)]
    values = np.log2(np.maximum(ratio, 2.0**-END))
    np.fill_diagonal(values, np.nan)
    cold_to_warm = LinearSegmentedColormap.from_list("cold_to_warm", ["#2166ac", "#f2f2f2", "#b35806"])
    colors = cold_to_warm.with_extremes(bad="#9aa3ad")
    side = min(4.0 + 0.18 * len(order), 14.0)
    figure, axes = _figure(side + 1.5, side)
    image = axes.imshow(values, cmap=colors, vmin=-END, vmax=END, interpolation="nearest")
    if len(order) <= MOST_NAMES:
        names = [_topic_name(contents.topics[topic]) for topic in order]
        axes.set_yticks(range(len(order)), names, fontsize=7)
        axes.set_xticks(
            range(len(order)),
            [str(contents.topics[topic].number) for topic in order],
            fontsize=7,
            rotation=90,
        )
    else:
        axes.set_ylabel("topics in the order of their similarity")
        axes.set_xlabel("topics in the order of their similarity")
    ticks = np.arange(-END, END + 1)
    bar = figure.colorbar(image, ax=axes, ticks=ticks, shrink=0.8)
    bar.ax.set_yticklabels([f"{2.0**tick:g}" for tick in ticks])
    bar.set_label("times as often in one document as by chance")
    axes.set_title("Which topics go together")
    return figure


def plot_over_time(
    model: AnyModel, shares: str | Path, topics: Sequence[int] | None = None, *, by: str | None = None
) -> Figure:
    """Draw mean shares of topics over time, or by another column of ``shares``, with standard errors.

    Documents without a date are left out, and the axis label states their number. ``shares`` is the file that
    ``transform`` wrote with the model. ``topics`` are numbers, by default the six whose shares differ most between
    groups. ``by`` is a metadata column, by default one with years or dates. Raises ``InputError`` if a topic or column
    does not exist, the shares are from another model, or matplotlib is missing.
    """
    contents = _contents(model)
    groups = groups_of(ModelShares.open(model, shares).of_shown, by)
    if groups is None:
        raise InputError(f"{shares}: no column holds a year or a date of few enough years; name one by by=")
    deviation = groups.drawn.shares.std(axis=0)
    return _groups_figure(contents, groups, _chosen(contents, topics, deviation))


def plot_documents(
    model: AnyModel, shares: AnyShares, *, color: str | None = None, number: int = SAMPLED, seed: int = 0
) -> Figure:
    """Draw the map of documents of ``document_map`` as points; errors as there, or if matplotlib is missing.

    ``color`` is a metadata column, by default the topic: numbers and dates have a color scale, and of other values the
    most frequent ones have a color each.
    """
    _require_matplotlib()
    frame = document_map(model, shares, number=number, seed=seed)
    if color is not None and color not in frame:
        raise InputError(f"{shares}: no column {color!r}; it has {', '.join(frame.columns[5:]) or 'none'}")
    color = color or "topic"
    from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

    figure, axes = _figure(8.0, 6.0)
    values = frame[color]
    if color != "topic" and (is_numeric_dtype(values) or is_datetime64_any_dtype(values)):
        drawn = axes.scatter(frame["x"], frame["y"], 8, values.astype(float), cmap="cividis")
        figure.colorbar(drawn, ax=axes, shrink=0.8, label=color)
    else:
        most = [*values.value_counts().index[: len(COLORS) - 1]]
        others = frame[~values.isin(most)]
        axes.scatter(others["x"], others["y"], 8, "#bbbbbb")
        for value, fill in zip(most, COLORS, strict=False):
            own = frame[values == value]
            axes.scatter(own["x"], own["y"], 8, fill, label=str(value)[:NAME_LENGTH].replace("$", r"\$"))
        axes.legend(title=color, fontsize=8)
    axes.set_aspect("equal")
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"Map of {len(frame):,} documents; near: similar topics")
    return figure


def plot_quality(
    model: AnyModel,
    topics: Sequence[int] | None = None,
    *,
    corpus: Corpus | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the exclusivity of topics against their semantic coherence; up and to the right are the good ones.

    Coherence (Mimno et al. 2011) tells whether the top 10 words of a topic occur in the same documents, exclusivity
    (FREX of Bischof and Airoldi 2012, summed as by R's stm) whether they belong to it alone. Areas are shares of the
    corpus. ``topics`` are numbers, by default all; merged ones have no values and are left out. Words that ``evaluate``
    has not counted in the training corpus are counted in ``corpus``, by default the one next to the model, in one pass.
    Raises ``InputError`` if there is none, a topic does not exist, or matplotlib is missing.

    Examples
    --------
    >>> plot_quality("model", title="Topics of the debates")  # doctest: +SKIP
    """
    _require_matplotlib()
    path = model_path(model)
    if (contents := read_contents(path)).quality is None:
        if (corpus := corpus or corpus_beside(path)) is None:
            raise InputError(
                f"{path}: its words were not counted in its corpus; run evaluate once with corpus=CORPUS"
            )
        counts_of(path, read_model(path), corpus)
        contents = read_contents(path)
    if contents.quality is None:
        raise InputError(
            f"{path}: was not fitted to this corpus, or has one word per topic; coherence is not defined"
        )
    coherence, exclusivity = contents.quality
    chosen = range(len(contents.topics)) if topics is None else _chosen(contents, topics)
    drawn = [topic for topic in chosen if np.isfinite(coherence[topic])]
    axes = _figure(*(figsize or (8.0, 6.0)))[1] if ax is None else ax
    figure: Any = axes.figure.figure  # also of axes in a part of a figure
    areas = [4000 * contents.topics[topic].share for topic in drawn]
    axes.scatter(coherence[drawn], exclusivity[drawn], areas, COLORS[0], alpha=0.35)
    axes.margins(0.12)
    axes.set_xlabel("semantic coherence: the words occur in the same documents")
    axes.set_ylabel("exclusivity: the words belong to one topic")
    axes.set_title("Coherence and exclusivity of the topics" if title is None else title)
    places = [(coherence[topic], exclusivity[topic], _topic_name(contents.topics[topic])) for topic in drawn]
    _write_names(figure, axes, places)
    return cast("Figure", figure)


def _write_names(figure: Any, axes: Axes, places: Sequence[tuple[float, float, str]]) -> None:
    """Write names at points, or numbers if there is no room, where they overlap no other and stay within the axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    figure.draw_without_rendering()  # the layout is known then
    inside, taken = axes.get_window_extent(renderer), list[Any]()
    for x, y, name in places:
        for text, (across, down) in product((name, name.partition(" ")[0]), OFFSETS):
            note = axes.annotate(
                text, (x, y), (across, down), textcoords="offset points", fontsize=7, ha="center", va="center"
            )
            box = note.get_window_extent(renderer)
            fits = box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1
            if fits and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            note.remove()


def _contents(model: AnyModel, words: int | None = None) -> Contents:
    _require_matplotlib()
    return read_contents(model_path(model), words, exclusive=False)


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InputError(
            "figures need matplotlib; install it, or streaming-jsmf with the extra notebook"
        ) from error


def _chosen(contents: Contents, topics: Sequence[int] | None, weight: Floats | None = None) -> Sequence[int]:
    if topics is None:
        weights = np.array([topic.share for topic in contents.topics]) if weight is None else weight
        return [int(topic) for topic in np.argsort(-weights, kind="stable")[:LARGEST]]
    indices = {topic.number: index for index, topic in enumerate(contents.topics)}
    wrong = [topic for topic in topics if topic not in indices]
    if wrong or not topics:
        without = "" if len(indices) > max(indices) - min(indices) else ", without those merged or hidden"
        named = f"there is no topic {wrong[0]}" if wrong else "topics is empty"
        raise InputError(f"{named}; the model shows topics {min(indices)} to {max(indices)}{without}")
    return [indices[topic] for topic in topics]


def _topic_name(topic: Topic) -> str:
    """Number and short name, with dollar signs escaped because they start mathematics."""
    text = topic.name if len(topic.name) <= NAME_LENGTH else f"{topic.name[: NAME_LENGTH - 1]}…"
    return f"{topic.number} {text}".replace("$", r"\$")


def _label_positions(contents: Contents, drawn: TopicMap) -> list[tuple[int, float, float]]:
    """Topics whose names fit below or above their circles, largest first, with the center of each name."""
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


def _groups_figure(contents: Contents, groups: Groups, topics: Sequence[int]) -> Figure:
    figure, axes = _figure(8.0, 4.5)
    left_out = groups.unknown if groups.ordered else 0
    note, groups = (f" (documents without it, left out: {left_out:,})" if left_out else ""), groups.drawn
    positions = np.arange(len(groups.names))
    for line, number in enumerate(topics):
        color, dash = COLORS[line % len(COLORS)], DASHES[line // len(COLORS) % len(DASHES)]
        share, error = 100 * groups.shares[:, number], 100 * np.nan_to_num(groups.errors[:, number])
        name = _topic_name(contents.topics[number])
        if groups.ordered:
            axes.plot(positions, share, dash, color=color, label=name)
            axes.fill_between(
                positions, np.maximum(share - error, 0), share + error, color=color, alpha=0.2, lw=0
            )
        else:
            width = 0.8 / len(topics)
            shifted = positions + (line - (len(topics) - 1) / 2) * width
            axes.bar(shifted, share, width, yerr=error, color=color, label=name, capsize=2)
    every = -(-len(positions) // 16)
    names = [name[:NAME_LENGTH].replace("$", r"\$") for name in groups.names]
    axes.set_xticks(positions[::every], names[::every], rotation=0 if groups.ordered else 45)
    axes.set_xlabel(groups.column + note)
    axes.set_ylabel("mean share of the documents, %")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    axes.set_title("Topics over time" if groups.ordered else f"Topics by {groups.column}")
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure, [axes] = _grid(1, 1, width, height)
    return figure, axes


def _grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure that pyplot does not manage: notebooks show it, and it need not be closed."""
    from matplotlib.figure import Figure

    class NotebookFigure(Figure):
        """Displayed as the last value of a cell, even if pyplot was not imported."""

        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png")
            return stream.getvalue()

    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())
