"""Figures of models for papers, slides and notebooks, which are methods of ``TopicModel``, too.

Needs matplotlib, and plotly for interactive ones (extra ``notebook``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_jsmf.config import DocumentQuery
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.documents.model_shares import AnyShares, ModelShares
from streaming_jsmf.documents.shares import metadata_name
from streaming_jsmf.documents.transform import shares_of
from streaming_jsmf.errors import InputError, option
from streaming_jsmf.evaluation.counts import counts_of
from streaming_jsmf.reporting import interactive as plotly
from streaming_jsmf.reporting.contents import read_contents
from streaming_jsmf.reporting.document_map import SAMPLED, document_map
from streaming_jsmf.reporting.figures import (
    COLORS,
    MOST_LABELS,
    OTHER,
    Layer,
    all_or,
    axes_for,
    chosen_topics,
    label_ticks,
    legend_beside,
    plain,
    require,
    require_no_axes,
    set_title,
    shortened,
    topic_name,
)
from streaming_jsmf.reporting.group_lines import course_of, draw_course
from streaming_jsmf.reporting.layout import draw_map, times_chance, topic_tree
from streaming_jsmf.reporting.map_names import write_names
from streaming_jsmf.reporting.views import cells_of
from streaming_jsmf.topics.store import AnyModel, corpus_beside, model_path, read_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Log2 of the ratio at which the color scale of the correlations ends.
END = 3.0


def plot_map(
    model: AnyModel,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
    topics: Sequence[int] | None = None,
    interactive: bool = False,
) -> Any:
    """Draw the topics as circles, near each other if they use the same words, with areas proportional to their shares.

    The layout is that of the report: t-SNE of Hellinger distances, whose axes have no unit; the axis label states how
    many neighbors it preserves. Names are beside their circles or at the end of a line. Reads ``word_topic`` once, and
    no documents.

    Parameters
    ----------
    ax
        Axes to draw on, by default of a new figure.
    figsize
        Width and height of a new figure in inches.
    title
        Title instead of the default one.
    topics
        Numbers of the topics to draw, by default all that are shown, at the same places.
    interactive
        Return a figure of plotly, which shows the words of the topic under the pointer.

    Raises
    ------
    InputError
        If there is no model or topic, or the library for figures is missing.

    Examples
    --------
    >>> sj.TopicModel("model").plot_map(title="Debates")  # doctest: +SKIP
    """
    contents = read_contents(model_path(model), exclusive=False)
    chosen = all_or(contents.topics, topics)
    shown = [contents.topics[place] for place in chosen]
    drawn = draw_map(contents.affinity, np.array([topic.share for topic in contents.topics]))
    points, radii = drawn.points[chosen] * (1, -1), drawn.radii[chosen]
    kept = (
        f"; of each topic's {drawn.neighbors} nearest, {drawn.kept:.0%} are here (by chance {drawn.by_chance:.0%})"
        if drawn.neighbors
        else ""
    )
    note, default = f"near: the same words{kept}", "Map of the topics; areas are shares of the corpus"
    if interactive:
        require_no_axes(ax)
        return plotly.circles(shown, points, radii, note, default if title is None else title, figsize)
    figure, [axes] = axes_for(ax, 1, figsize, (9.0, 6.5))
    from matplotlib.patches import Circle

    for center, radius in zip(points, radii, strict=True):
        axes.add_patch(Circle(tuple(center), radius, facecolor=COLORS[0], edgecolor=COLORS[0], alpha=0.35))
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.1)
    axes.autoscale_view()
    axes.set(xticks=[], yticks=[])
    axes.set_xlabel(note, fontsize=8)
    set_title(figure, [axes], title, default)
    figure.draw_without_rendering()  # lets the layout find the size of the axes
    pixels = radii * np.diff(axes.transData.transform([(0, 0), (1, 0)])[:, 0])
    write_names(
        axes, points, pixels, [topic.number for topic in shown], [shortened(topic.name) for topic in shown]
    )
    return figure


def plot_topics(
    model: AnyModel,
    topics: Sequence[int] | None = None,
    *,
    words: int = 10,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the most probable words of topics as bars of p(word | topic) in percent; by default the six largest topics.

    All words of the vocabulary are drawn if it has fewer than ``words``. ``ax`` are the axes to draw on, one for each
    topic; ``figsize`` and ``title`` are those of the figure. Raises ``InputError`` if a topic does not exist, ``words``
    is below 1, or matplotlib is missing.
    """
    contents = read_contents(model_path(model), words, exclusive=False)
    chosen = chosen_topics(contents.topics, topics)
    columns = min(len(chosen), 3)
    size = (3.6 * columns, (0.7 + 0.19 * words) * -(-len(chosen) // columns))
    figure, grid = axes_for(ax, len(chosen), figsize, size)
    for axes, place in zip(grid, chosen, strict=True):
        topic = contents.topics[place]
        listed = topic.words[:words]
        axes.barh(range(len(listed)), [100 * word.probability for word in listed], color=COLORS[0])
        axes.set_yticks(range(len(listed)), [shortened(word.text) for word in listed], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("p(word | topic), %", fontsize=8)
        name = f"Topic {topic_name(topic).replace(' ', ': ', 1)}"
        axes.set_title(f"{name}\n{topic.share:.1%} of the corpus", fontsize=8)
    if title:
        figure.suptitle(title)
    return figure


def plot_correlations(
    model: AnyModel,
    *,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
    topics: Sequence[int] | None = None,
) -> Figure:
    """Draw observed over expected co-occurrence of topics in documents; topics are ordered by similarity.

    ``topics`` are numbers, by default the twelve largest; of more, at most twelve have labels. ``ax``, ``figsize`` and
    ``title`` are as in ``plot_map``. Raises ``InputError`` if the model has no correlations, a topic does not exist, or
    matplotlib is missing.
    """
    contents = read_contents(model_path(model), exclusive=False)
    if contents.topic_topic is None:
        raise InputError(f"{model}: this model has no correlations between topics; polish makes them")
    wanted = {*chosen_topics(contents.topics, topics, number=MOST_LABELS)}
    order = [place for place in topic_tree(contents.affinity).order.tolist() if place in wanted]
    ratio = times_chance(contents.topic_topic)[np.ix_(order, order)]
    values = np.log2(np.maximum(ratio, 2.0**-END))
    np.fill_diagonal(values, np.nan)
    side = min(4.5 + 0.18 * len(order), 12.0)
    figure, [axes] = axes_for(ax, 1, figsize, (side + 2.0, side))
    if ax is None:
        figure.set_layout_engine("compressed")  # for axes of a fixed shape
    from matplotlib.colors import LinearSegmentedColormap

    cold_to_warm = LinearSegmentedColormap.from_list("cold_to_warm", ["#2166ac", "#f2f2f2", "#b35806"])
    colors = cold_to_warm.with_extremes(bad="#9aa3ad")
    image = axes.imshow(values, cmap=colors, vmin=-END, vmax=END, interpolation="nearest")
    shown = [contents.topics[place] for place in order]
    label_ticks(axes.yaxis, [topic_name(topic) for topic in shown], fontsize=8)
    label_ticks(axes.xaxis, [str(topic.number) for topic in shown], fontsize=8)
    if topics is None and len(order) < len(contents.topics):
        axes.set_xlabel(f"the {len(order)} largest of {len(contents.topics)} topics", fontsize=8)
    ticks = np.arange(-END, END + 1)
    bar = figure.colorbar(image, ax=axes, ticks=ticks, shrink=0.8)
    bar.ax.set_yticklabels([f"{2.0**tick:g}" for tick in ticks])
    bar.set_label("times as often in one document as by chance")
    set_title(figure, [axes], title, "Which topics go together")
    return figure


def plot_over_time(
    model: AnyModel,
    shares: AnyShares | None = None,
    topics: Sequence[int] | None = None,
    *,
    by: str | Sequence[str] | None = None,
    ax: Any = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
    interactive: bool = False,
) -> Any:
    """Draw mean shares of topics over time, or by other columns of ``shares``, with intervals of 95 %.

    Of several columns, each topic has a plot of its own with a line for each group of documents: over time, or with
    bars if no column has times. Open points and light bars mark groups of fewer than 30 documents. Documents without a
    date are left out, and the axis label states their number.

    Parameters
    ----------
    shares
        What ``transform`` wrote with the model or returned, or documents that it reads; by default the corpus of
        ``fit``, whose shares are computed once.
    topics
        Numbers of topics, by default the six whose shares differ most between groups.
    by
        Columns of the documents, ``"date:month"``, ``"party,year"`` or a list; by default one with years or dates.
    ax, figsize, title
        As in ``plot_map``; of several columns, ``ax`` are the axes of each topic.
    interactive
        Return a figure of plotly.

    Raises
    ------
    InputError
        If a topic or column does not exist, the shares are from another model, or the library for figures is missing.

    Examples
    --------
    >>> sj.TopicModel("model").plot_over_time("date:year,party", topics=[3, 7])  # doctest: +SKIP
    """
    columns = DocumentQuery.of({"by": by}).by
    with _shares_of(model, shares) as found:
        cells = cells_of(ModelShares.open(model, found).of_shown, columns)
    if cells is None:
        raise InputError(
            f"{_named(model, shares)}: no column holds a year or a date of few enough years; name one by by="
        )
    contents = read_contents(model_path(model), exclusive=False)
    course = course_of(cells, contents.topics, topics)
    if title is None:
        by_groups = f", by {course.groups}" if course.groups else ""
        title = f"Topics over time{by_groups}" if course.over_time else f"Topics by {course.columns}"
    if interactive:
        require_no_axes(ax)
        return plotly.lines(course, title, figsize)
    width = min(len(course.panels), 3)
    rows = -(-len(course.panels) // width)
    size = (9.0, 4.5) if len(course.panels) == 1 else (3.4 * width + 1.5, 3.0 * rows)
    figure, grid = axes_for(ax, len(course.panels), figsize, size)
    draw_course(grid, course, width)
    named = [title, course.panels[0].title] if len(grid) == 1 else [title]
    set_title(figure, grid, "\n".join(filter(None, named)), "")
    return figure


def plot_documents(
    model: AnyModel,
    shares: AnyShares | None = None,
    *,
    color: str | None = None,
    number: int = SAMPLED,
    seed: int = 0,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
    topics: Sequence[int] | None = None,
    interactive: bool = False,
) -> Any:
    """Draw the map of documents of ``document_map`` as points; errors as there, or if the library is missing.

    ``shares`` are as in ``plot_over_time``. ``color`` is a metadata column, by default the topic: numbers and dates
    have a color scale, and of other values the most frequent ones have a color each. ``topics`` are numbers: only
    documents of which one of them is the largest topic are drawn. ``ax``, ``figsize`` and ``title`` are as in
    ``plot_map``. ``interactive`` returns a figure of plotly, which shows the excerpt of the document under the pointer.
    """
    contents = read_contents(model_path(model), exclusive=False)
    wanted = all_or(contents.topics, topics)
    names = {contents.topics[place].number: topic_name(contents.topics[place]) for place in wanted}
    with _shares_of(model, shares) as found:
        frame = document_map(model, found, number=number, seed=seed)
    if color is not None and color not in frame:
        raise InputError(
            f"{_named(model, shares)}: no column {color!r}; it has {', '.join(frame.columns[5:]) or 'none'}"
        )
    column = None if color is None else metadata_name(color, frame.columns, frame.columns[1:5])
    frame = frame[frame["topic"].isin([*names])]
    if not len(frame):
        raise InputError(
            f"these topics are the largest of no document; give others, or {option.number} of more"
        )
    layers = _layers(frame, column, names)
    legend = plain(color) if color else "topic with the largest share"
    default = f"Map of {len(frame):,} documents; near: similar topics"
    if interactive:
        require_no_axes(ax)
        return plotly.points(layers, names, legend, default if title is None else title, figsize)
    figure, [axes] = axes_for(ax, 1, figsize, (9.0, 6.0))
    for name, rows, fill in layers:
        scale = None if name else "cividis"
        drawn = axes.scatter(rows["x"], rows["y"], 8, fill, cmap=scale, label=name)
    if layers[0].name:
        legend_beside(axes, legend)
    else:
        figure.colorbar(drawn, ax=axes, shrink=0.8, label=legend)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set(xticks=[], yticks=[])
    set_title(figure, [axes], title, default)
    return figure


def _layers(frame: Any, color: str | None, names: dict[int, str]) -> list[Layer]:
    """The points of each color, or all of them with numbers, dates as years, on a color scale."""
    from pandas.api.types import is_datetime64_any_dtype, is_numeric_dtype

    values = frame["topic"].map(names) if color is None else frame[color]
    if is_datetime64_any_dtype(values):
        values = values.dt.year + (values.dt.dayofyear - 1) / 366
    if is_numeric_dtype(values):
        return [Layer("", frame, values.to_numpy(float))]
    most = [*values.value_counts().index[: len(COLORS) - 1]]
    others = frame[~values.isin(most)]
    layers = [Layer("other topics" if color is None else "others", others, OTHER)] if len(others) else []
    for value, fill in zip(most, COLORS, strict=False):
        layers.append(Layer(value if color is None else shortened(str(value)), frame[values == value], fill))
    return layers


def _shares_of(model: AnyModel, shares: Any) -> AbstractContextManager[AnyShares]:
    """Topic shares that are given, or those of the documents of ``fit``, as in ``TopicModel.documents``."""
    require("matplotlib")
    return shares_of(model, shares, getattr(model, "corpus", None))


def _named(model: AnyModel, shares: Any) -> Any:
    return shares if isinstance(shares, str) or hasattr(shares, "__fspath__") else model_path(model)


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
    Raises ``InputError`` if it is missing, a topic does not exist, or matplotlib is missing.

    Examples
    --------
    >>> plot_quality("model", title="Topics of the debates")  # doctest: +SKIP
    """
    require("matplotlib")
    path = model_path(model)
    if (contents := read_contents(path)).quality is None:
        corpus = corpus or getattr(model, "corpus", None) or corpus_beside(path)
        if corpus is None:
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
    drawn = [place for place in all_or(contents.topics, topics) if np.isfinite(coherence[place])]
    shown = [contents.topics[place] for place in drawn]
    points = np.stack([coherence[drawn], exclusivity[drawn]], axis=1)
    areas = np.array([4000 * topic.share for topic in shown])
    figure, [axes] = axes_for(ax, 1, figsize, (8.0, 6.0))
    axes.scatter(points[:, 0], points[:, 1], areas, COLORS[0], alpha=0.35)
    axes.margins(0.12)
    axes.set_xlabel("semantic coherence: the words occur in the same documents")
    axes.set_ylabel("exclusivity: the words belong to one topic")
    set_title(figure, [axes], title, "Coherence and exclusivity of the topics")
    radii = np.sqrt(areas / np.pi) * figure.dpi / 72
    write_names(
        axes, points, radii, [topic.number for topic in shown], [shortened(topic.name) for topic in shown]
    )
    return figure
