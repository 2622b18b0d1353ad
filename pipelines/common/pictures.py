"""Figures of the experiments: panels with axes and units, one style per method, and one legend.

Requires matplotlib (extra `notebook`), which is imported only when something is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str
    line: str = "-"
    size: int = 4


# Colorblind-safe palette of Okabe and Ito.
BLACK, GREY, ORANGE, SKY = "#000000", "#7f7f7f", "#e69f00", "#56b4e9"
GREEN, YELLOW, BLUE, VERMILION, PURPLE = "#009e73", "#d0b800", "#0072b2", "#d55e00", "#cc79a7"

#: By method name as in the tables; polished topics have the style of their start, dotted.
LOOKS = {
    "baseline": Look(GREY, "x"),
    "baseline projected": Look(GREY, "+", "--"),
    "DC": Look(YELLOW, "v"),
    "DP": Look(YELLOW, "^", "--"),
    "AP": Look(BLACK, "o", size=8),
    "ENN": Look(BLUE, "s", size=6),
    "ENN printed": Look(BLUE, "s", ":", size=6),
    "ENN printed momentum": Look(BLUE, "s", "-.", size=6),
    "ENN 200 rows": Look(SKY, "1", ":"),
    "ENN 500 rows": Look(SKY, "2", ":"),
    "ENN 1000 rows": Look(SKY, "3", ":"),
    "ENN 2000 rows": Look(SKY, "4", ":"),
    "ENN 3000 rows": Look(SKY, "+", ":"),
    "ENN all rows": Look(SKY, "x", ":"),
    "ENN authors": Look(BLUE, "d", "--"),
    "ENN first rows": Look(BLUE, "v", "--"),
    "LR-JSMF": Look(VERMILION, "D"),
    "LR-JSMF one pass": Look(PURPLE, "D", "--"),
    "fixed hull": Look(GREY, "", "--"),
    "LR-JSMF capped": Look(VERMILION, "d", "--"),
    "LR-JSMF sampled": Look(ORANGE, "P", "--"),
    "LR-JSMF polished": Look(VERMILION, "*", ":"),
    "PALM": Look(GREEN, "^"),
    "PALM converged": Look(GREEN, "^", "--"),
    "iPALM": Look(GREEN, "P", "-."),
    "PALM low-rank": Look(GREEN, "v", ":"),
    "STOD as printed": Look(VERMILION, "o", ":"),
    "STOD, N = n = 10": Look(VERMILION, "x", "-."),
    "STOD, negatives cut": Look(ORANGE, "s", "--"),
    "STOD, noise subtracted": Look(GREEN, "d", "--"),
    "STOD, unfiltered": Look(ORANGE, "d", "--"),
    "STOD": Look(PURPLE, "p"),
    "STOD, alpha0 found": Look(PURPLE, "P", "-."),
    "STOD polished": Look(PURPLE, "*", ":"),
    "TOD as printed": Look(BLACK, "+", ":"),
    "TOD, negatives cut": Look(BLACK, "x", "--"),
    "TOD, noise removed": Look(BLACK, "h", "-."),
    "TOD": Look(BLACK, "h", "--"),
    "polished": Look(VERMILION, "*"),
    "plain": Look(GREY, "x", ":"),
    "relaxed": Look(ORANGE, "d", "--"),
    "drawn": Look(PURPLE, "p", "--"),
    "sequential": Look(BLUE, "s", "-."),
    "annealed": Look(GREEN, "^", "-."),
    "Gibbs": Look(SKY, "<"),
    "Gibbs 10": Look(SKY, "<", "-."),
    "Gibbs 20": Look(SKY, "<", ":"),
    "Gibbs 200": Look(SKY, "<", "--"),
    "Gibbs 1000": Look(SKY, ">"),
    "SC": Look(ORANGE, "X"),
    "FAW": Look(BLUE, "*"),
    "pivoting": Look(BLUE, "s", "--"),
    "random words": Look(GREY, "x", ":"),
    "LDA": Look(GREEN, "v", "--"),
    "uniform": Look(GREY, "", ":"),
    "LR-JSMF uniform": Look(VERMILION, "D", "--"),
    "LR-JSMF polished 30": Look(VERMILION, "+", ":"),
    "gensim LDA": Look(BLUE, "v"),
    "gensim LDA 1 pass": Look(BLUE, "v", ":"),
    "online LDA": Look(GREEN, "<", "--"),
    "MiniBatchNMF": Look(YELLOW, "o"),
    "scan": Look(VERMILION, "o"),
    "scan factors": Look(ORANGE, "o", "--"),
    "TruncatedSVD": Look(GREEN, "o"),
    "gensim LSI": Look(BLUE, "o"),
    "dask-ml SVD": Look(PURPLE, "h"),
}


#: Suffixes of columns with a logarithmic axis.
LOGARITHMIC = ("seconds", "approximation")


def panels(
    rows: int, columns: int, width: float = 2.3, height: float = 2.0
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of ``rows`` x ``columns`` axes; width and height of each in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Keep text as text, and make the bytes reproducible.
    mpl.rcParams.update({"svg.hashsalt": "streaming_jsmf", "svg.fonttype": "none", "font.size": 8})
    figure = Figure(figsize=(width * columns + 0.3, height * rows + 0.5), layout="constrained")
    return figure, [list(row) for row in figure.subplots(rows, columns, squeeze=False)]


def curve(axes: Axes, method: str, points: Mapping[float, Sequence[float | None]]) -> None:
    """Plot means and standard deviations of the values at each x; missing values are omitted."""
    look = LOOKS[method]
    there = {
        x: [v for v in values if v is not None and np.isfinite(v)] for x, values in sorted(points.items())
    }
    there = {x: values for x, values in there.items() if values}
    if not there:
        return
    means = [float(np.mean(values)) for values in there.values()]
    spreads = [float(np.std(values, ddof=1)) if len(values) > 1 else 0.0 for values in there.values()]
    axes.errorbar(
        list(there),
        means,
        spreads if any(spreads) else None,
        color=look.colour,
        marker=look.marker or None,
        linestyle=look.line,
        markersize=look.size,
        linewidth=1.2,
        capsize=2,
        markerfacecolor="none",
        label=method,
    )


def grid(rows: Sequence[Mapping[str, Any]], line: str, x: str, columns: Mapping[str, str]) -> Figure:
    """A row of panels per value of ``line``, a column per entry of ``columns`` (with its label), a curve per method.

    ``x``, seconds and approximation have logarithmic axes, because the approximation of the baseline is very large.
    """
    lines = list(dict.fromkeys(row[line] for row in rows))
    figure, axes = panels(len(lines), len(columns))
    for value, row_of_panels in zip(lines, axes, strict=True):
        there = [row for row in rows if row[line] == value]
        for (column, label), panel in zip(columns.items(), row_of_panels, strict=True):
            if all(row.get(column) is None for row in there):
                panel.set_axis_off()
                continue
            for method in dict.fromkeys(row["method"] for row in there):
                points: dict[float, list[float | None]] = {}
                for row in there:
                    if row["method"] == method:
                        points.setdefault(row[x], []).append(row.get(column))
                curve(panel, method, points)
            panel.set(xscale="log", yscale="log" if column.endswith(LOGARITHMIC) else "linear")
            ticks(panel, [row[x] for row in there])
            panel.set_title(f"{value if line == 'corpus' else f'{line} = {value}'}: {label}", fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel({"K": "topics K", "words": "words N"}.get(x, x))
    legend(figure)
    return figure


def legend(figure: Figure, columns: int = 8) -> None:
    """Add one legend below all panels, in the order of ``LOOKS``."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    order = [*(name for name in LOOKS if name in handles), *(name for name in handles if name not in LOOKS)]
    figure.legend(
        handles=[handles[name] for name in order],
        labels=order,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )


def save(figure: Figure, path: Path) -> None:
    """Write the figure as SVG or PNG without a date; PNG files have 64 colors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.stem}.part{path.suffix}")
    figure.savefig(part, dpi=100, metadata={"Date": None} if path.suffix == ".svg" else None)
    if path.suffix == ".png":
        from PIL import Image

        Image.open(part).convert("RGB").quantize(64).save(part, optimize=True)
    part.replace(path)


def ticks(axes: Axes, values: Iterable[float]) -> None:
    values = sorted(set(values))
    axes.set_xticks(values, [f"{value / 1000:g}k" if value >= 1000 else f"{value:g}" for value in values])
    axes.minorticks_off()
