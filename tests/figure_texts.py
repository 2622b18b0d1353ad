"""What is written in a figure, and where: texts that overlap, or run out of the picture."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np


def require_readable(figure: Any, size: tuple[float, float]) -> None:
    """The figure has this size in inches, all texts are within it, no two overlap, and axes have few labels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert tuple(figure.get_size_inches()) == size
    texts = [text for text in _texts(figure) if text.get_visible() and text.get_text().strip()]
    assert texts
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    frame = figure.bbox
    for text, box in zip(texts, boxes, strict=True):
        inside = (box.p0 >= frame.p0 - 1).all() and (box.p1 <= frame.p1 + 1).all()
        assert inside, f"{text.get_text()!r} is cut off"
    for (one, box), (other, second) in combinations(zip(texts, boxes, strict=True), 2):
        assert not _touch(one, box, other, second), f"{one.get_text()!r} and {other.get_text()!r} overlap"


def _texts(figure: Any) -> Iterator[Any]:
    yield from figure.texts
    if figure._suptitle is not None and figure._suptitle not in figure.texts:
        yield figure._suptitle
    for axes in figure.axes:
        yield from (axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts)
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            labels = [
                label
                for place, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
                if low <= place <= high
            ]
            assert len(labels) <= 12
            yield from labels
        if legend := axes.get_legend():
            yield from (legend.get_title(), *legend.get_texts())


def _touch(one: Any, box: Any, other: Any, second: Any) -> bool:
    width = min(box.x1, second.x1) - max(box.x0, second.x0)
    height = min(box.y1, second.y1) - max(box.y0, second.y0)
    if one.get_rotation() == other.get_rotation() == 45:
        # Lines of text in one direction overlap if their distance is below their height.
        width = one.get_fontsize() - abs(box.x1 - second.x1) * np.sin(np.pi / 4)
    return bool(width > 1 and height > 1)


def beside_the_data(axes: Any) -> bool:
    """Whether the legend of axes is outside of what they draw."""
    axes.figure.draw_without_rendering()
    return bool(axes.get_legend().get_window_extent().x0 >= axes.get_window_extent().x1)
