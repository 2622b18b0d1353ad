"""Figure 2 of LR-JSMF: the co-occurrence space in two dimensions, with the hulls of the anchors of each method.

    python -m pipelines.lr_jsmf_fig2 OUT [--corpus nips=data_specs/uci_nips] [--topics 5] [--words 2000]

First row: words as rows of the row-normalized C (baseline) or C* (other methods), in the coordinates of the two leading
principal components of AP's rows; anchors are numbered vertices. Second row: LR-JSMF with growing vocabularies, each in
its own two components, with the log of the volume of the hull relative to random hulls.

OUT keeps stores and results; it gets fig2.parquet (coordinates), fig2.md (anchors) and fig2.png.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from pipelines.common import options, pictures
from pipelines.common.data import NIPS, prepared
from pipelines.common.methods import Setup
from pipelines.common.results import Arrays, Row, publish
from pipelines.common.scores import Scorer, distances
from pipelines.common.tables import markdown, number
from pipelines.common.volume import log_volume

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("baseline", "AP", "ENN", "PALM", "LR-JSMF")

Floats = NDArray[np.float64]


def rows_in(setup: Setup, found: Arrays, directions: Floats) -> Floats:
    """Rows of normalized C* = Y Y' (or of C without rectification), projected onto N x 2 directions."""
    Y = found["rectified"]
    if Y.size:
        sums = Y @ Y.sum(axis=0)
        along: Floats = (Y @ (Y.T @ directions)) / np.where(sums > 0, sums, np.nan)[:, None]
        return along
    C = setup.moments().cooccurrence()
    plain: Floats = (C @ directions) / C.sum(axis=1, keepdims=True)
    return plain


def components(Y: Floats) -> Floats:
    """The two leading principal directions of the rows of the normalized Y Y', N x 2."""
    q, r = np.linalg.qr(Y)
    sums = Y @ Y.sum(axis=0)
    rows = (Y[sums > 0] @ r.T) / sums[sums > 0, None]
    _, _, turned = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    directions: Floats = q @ turned[:2].T
    # Fix the arbitrary signs, so that the figure is reproducible.
    return directions * np.sign(directions[np.abs(directions).argmax(axis=0), [0, 1]])


def draw_space(panel: Axes, points: Floats, anchors: NDArray[np.int64], method: str, title: str) -> None:
    """Draw words as dots, anchors as numbered vertices, and their convex hull."""
    look = pictures.LOOKS[method]
    panel.plot(points[:, 0], points[:, 1], ".", color=pictures.SKY, markersize=1.5, zorder=1)
    chosen = points[anchors]
    panel.plot(chosen[:, 0], chosen[:, 1], look.marker, color=look.colour, markersize=5, zorder=3)
    try:
        order = ConvexHull(chosen).vertices
        panel.fill(*chosen[order].T, fill=False, edgecolor=look.colour, linewidth=1.2, zorder=2)
    except QhullError:
        pass  # fewer than three corners, or collinear ones: draw the vertices only
    for number_of, (x, y) in enumerate(chosen, 1):
        panel.annotate(str(number_of), (x, y), textcoords="offset points", xytext=(4, 3), fontsize=7)
    panel.set_title(title, fontsize=8)
    panel.set(xlabel="component 1", ylabel="component 2", xticks=[], yticks=[])


def hull_volume(setup: Setup, found: Arrays, n_topics: int) -> float:
    """Log volume of the anchors' hull in C* relative to random hulls; NaN if it has no volume."""
    Y, anchors = found["rectified"], found["anchors"]
    sums = Y @ Y.sum(axis=0)
    volume = log_volume(Y[anchors] @ np.linalg.qr(Y).R.T / sums[anchors, None])
    return float("nan") if volume is None else volume - Scorer(setup).random_volume(n_topics)


@click.command(help=__doc__)
@options.DRAWN_OUT
@click.option(
    "--corpus",
    "named",
    default=f"nips={NIPS}",
    metavar="NAME=SOURCE",
    help="[default: the corpus that ships with the project]",
)
@click.option("--topics", default=5, show_default=True)
@click.option("--words", default=2000, show_default=True, help="Words of the first row.")
@options.several("sizes", [500, 1000, 2000, 4000, 5000], help="Words of the second row.")
@options.quick("300 words")
def main(out: Path, named: str, topics: int, words: int, sizes: list[int], quick: bool) -> None:
    if quick:
        named, topics, words, sizes = f"nips={NIPS}", 4, 300, [100, 150, 200, 250, 300]
    name, corpus = prepared(named, out / "corpora", words)
    setup = Setup(corpus, out / f"{name}-{words}", topics)
    names = np.array(corpus.vocabulary().words)
    figure, axes = pictures.panels(2, max(len(METHODS), len(sizes)), 2.4, 2.4)
    first = setup.topics("AP", topics)
    directions = components(first["rectified"])
    rows: list[Row] = []
    lines = []
    for panel, method in zip(axes[0], METHODS, strict=False):
        found = setup.topics(method, topics)
        points = rows_in(setup, found, directions)
        draw_space(panel, points, found["anchors"], method, f"{method}, N = {words:,}")
        measured = distances(found, first)
        rows += [
            {
                "method": method,
                "word": str(word),
                "x": float(x),
                "y": float(y),
                "anchor": i in found["anchors"],
            }
            for i, (word, (x, y)) in enumerate(zip(names, points, strict=True))
        ]
        anchors = " ".join(str(word) for word in names[found["anchors"]])
        lines.append([method, anchors, measured["anchors_shared"], number(measured["l1"])])
    used = {f"{name}-{words}": corpus}
    for panel, size in zip(axes[1], sizes, strict=False):
        _, cut = prepared(named, out / "corpora", size)
        used[f"{name}-{size}"] = cut
        grown = Setup(cut, out / f"{name}-{size}", topics)
        found = grown.topics("LR-JSMF", topics)
        points = rows_in(grown, found, components(found["rectified"]))
        volume = number(hull_volume(grown, found, topics))
        draw_space(panel, points, found["anchors"], "LR-JSMF", f"N = {size:,}: log relative volume {volume}")
        anchors = " ".join(str(word) for word in np.array(cut.vocabulary().words)[found["anchors"]])
        lines.append([f"LR-JSMF, N = {size:,}", anchors, "-", f"volume {volume}"])
    text = markdown(["method", "anchors", "shared with AP", "mean L1"], lines, text=2)
    publish(out, "fig2", rows, text, used)
    pictures.save(figure, out / "fig2.png")
    click.echo(text)


if __name__ == "__main__":
    main()
