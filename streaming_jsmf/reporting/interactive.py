"""Figures of plotly for notebooks: the numbers of a point are shown under the pointer, and lines are switched off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.figures import COLORS, MOST_LABELS, Layer, require, shortened
from streaming_jsmf.reporting.group_lines import Course, Line
from streaming_jsmf.reporting.topics import Topic

#: Maximum number of characters of a name in a circle; all of it is shown under the pointer.
SHORT = 16
#: Axes without a unit.
HIDDEN: dict[str, Any] = {"showgrid": False, "showticklabels": False, "zeroline": False}
#: Pixels per inch, and the styles of lines that matplotlib calls otherwise.
DPI = 100
DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}


def lines(course: Course, title: str, figsize: tuple[float, float] | None) -> Any:
    """The lines or bars of ``plot_over_time``."""
    require("plotly")
    from plotly.subplots import make_subplots

    columns = min(len(course.panels), 3)
    rows = -(-len(course.panels) // columns)
    figure = make_subplots(rows, columns, subplot_titles=[_text(panel.title) for panel in course.panels])
    for place, panel in enumerate(course.panels):
        for line in panel.lines:
            for trace in _traces(line, course, first=place == 0):
                figure.add_trace(trace, row=place // columns + 1, col=place % columns + 1)
    figure.update_xaxes(
        type="category", categoryorder="array", categoryarray=course.values, nticks=MOST_LABELS
    )
    figure.update_xaxes(title_text=_text(course.axis), row=rows)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text="mean share of the documents, %", col=1)
    figure.update_layout(legend_title_text=_text(course.legend).replace("\n", "<br>"))
    return _sized(figure, title, figsize or ((9.0, 4.5) if len(course.panels) == 1 else (11.0, 3.5 * rows)))


def _traces(line: Line, course: Course, *, first: bool) -> list[Any]:
    from plotly import graph_objects as go

    name = _text(line.name)
    at = [course.values[place] for place in line.places]
    kept = {"name": name, "legendgroup": name, "x": at, "y": line.shares}
    hover = [
        f"{value}: {share:.2f} % ({low:.2f} to {high:.2f})<br>{documents:,} documents"
        for value, share, low, high, documents in zip(
            at, line.shares, line.low, line.high, line.documents, strict=True
        )
    ]
    told = {"hovertext": hover, "hoverinfo": "text+name", "showlegend": first}
    if not course.over_time:
        error = {"type": "data", "array": line.high - line.shares, "arrayminus": line.shares - line.low}
        return [go.Bar(**kept, **told, error_y=error, marker_color=line.color)]
    symbols = ["circle-open" if few else "circle" for few in line.is_few]
    style = {"color": line.color, "dash": DASHES[line.dash]}
    band = [*at, *at[::-1]], np.concatenate([line.high, line.low[::-1]])
    return [
        go.Scatter(x=band[0], y=band[1], fill="toself", fillcolor=line.color, opacity=0.2, line={"width": 0},
                   legendgroup=name, showlegend=False, hoverinfo="skip", mode="lines"),
        go.Scatter(**kept, **told, mode="lines+markers", line=style, marker={"symbol": symbols, "color": line.color}),
    ]  # fmt: skip


def circles(
    topics: Sequence[Topic],
    points: Floats,
    radii: Floats,
    note: str,
    title: str,
    figsize: tuple[float, float] | None,
) -> Any:
    """The circles of ``plot_map``."""
    require("plotly")
    from plotly import graph_objects as go

    size = figsize or (9.0, 7.0)
    low, high = points.min(axis=0) - radii.max(), points.max(axis=0) + radii.max()
    # The axes have about 80 pixels of margin on each side.
    scale = float(np.min((DPI * np.array(size) - 160) / np.maximum(high - low, 1e-9)))
    texts = [
        f"{topic.number} {_text(topic.name)}<br>{topic.share:.1%} of the corpus<br>"
        f"{_text(', '.join(word.text for word in topic.words))}"
        for topic in topics
    ]
    figure = go.Figure(
        go.Scatter(
            x=points[:, 0],
            y=points[:, 1],
            mode="markers+text",
            marker={"size": 2 * scale * radii, "sizemode": "diameter", "color": COLORS[0], "opacity": 0.4},
            text=[f"{topic.number} {_text(shortened(topic.name_words[0], SHORT))}" for topic in topics],
            hovertext=texts,
            hoverinfo="text",
        )
    )
    figure.update_xaxes(range=[low[0], high[0]], title_text=note, **HIDDEN)
    figure.update_yaxes(range=[low[1], high[1]], scaleanchor="x", **HIDDEN)
    return _sized(figure, title, size)


def points(
    layers: Sequence[Layer],
    names: Mapping[int, str],
    legend: str,
    title: str,
    figsize: tuple[float, float] | None,
) -> Any:
    """The points of ``plot_documents``."""
    require("plotly")
    from plotly import graph_objects as go

    figure = go.Figure()
    for name, rows, color in layers:
        scale = (
            {} if name else {"colorscale": "Cividis", "showscale": True, "colorbar": {"title": _text(legend)}}
        )
        texts = [
            f"{_text(str(row['document_id']))}<br>{_text(names[row['topic']])}: {row['share']:.0%}<br>"
            + "<br>".join(map(_text, wrap(str(row.get("excerpt") or ""), 80)))
            for row in rows.to_dict("records")
        ]
        marker = {"color": color, "size": 6, **scale}
        figure.add_trace(
            go.Scatter(x=rows["x"], y=rows["y"], mode="markers", marker=marker, name=_text(name),
                       hovertext=texts, hoverinfo="text", showlegend=bool(name))
        )  # fmt: skip
    figure.update_xaxes(**HIDDEN).update_yaxes(scaleanchor="x", **HIDDEN)
    figure.update_layout(legend_title_text=_text(legend))
    return _sized(figure, title, figsize or (9.0, 6.0))


def _sized(figure: Any, title: str, size: tuple[float, float]) -> Any:
    return figure.update_layout(
        title=_text(title), width=round(DPI * size[0]), height=round(DPI * size[1]), template="plotly_white"
    )


def _text(text: str) -> str:
    """A text of a corpus without markup: plotly reads some tags of HTML, and a dollar sign as mathematics."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\\$", "$"), ("$", "&#36;")):
        text = text.replace(character, entity)
    return text
