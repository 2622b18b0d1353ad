"""Names of circles on a map, placed where they hide nothing: in the circle, beside it, or at the end of a line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from streaming_jsmf.linalg.typing import Floats
from streaming_jsmf.reporting.figures import figure_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Directions of names from their circles, in order: below, above, right, left, and between.
DIRECTIONS = np.deg2rad([270, 90, 0, 180, 300, 240, 60, 120, 330, 210, 30, 150, *range(15, 360, 30)])
#: Distances of names from their circles in heights of a line; beyond the first, a line leads to the circle.
DISTANCES = (0.15, 1.2, 2.4, 3.6, 5.0, 7.0, 9.0, 12.0, 16.0)
#: Size of numbers and names in points, and pixels between texts, and between a name and the circles of others.
SIZE, GAP, APART = 7.5, 2.0, 5.0


def write_names(
    axes: Axes, points: Floats, radii: Floats, numbers: Sequence[int], names: Sequence[str]
) -> None:
    """Write numbers and names of circles at ``points`` (K, 2) of the axes with ``radii`` (K,) in pixels.

    A number is in its circle if it fits, and otherwise before the name. Of a name, fewer words are written if they are
    nearer; a name stays away only if there is no room for one word within sixteen lines around its circle. The limits
    of the axes and the layout must not change afterwards.
    """
    _Names(axes, points, radii).write(numbers, names)


class _Names:
    """Places in pixels that are taken by circles and texts."""

    def __init__(self, axes: Axes, points: Floats, radii: Floats) -> None:
        self.axes, self.points, self.radii = axes, points, radii
        self.figure = cast("Any", figure_of(axes))
        self.figure.draw_without_rendering()  # lets the layout find the size of the axes
        self.renderer = self.figure._get_renderer()
        self.centers = np.asarray(axes.transData.transform(points), float)
        self.frame = axes.get_window_extent(self.renderer)
        self.boxes: Floats = np.zeros((0, 4))
        self.sizes: dict[str, tuple[float, float]] = {}

    def write(self, numbers: Sequence[int], names: Sequence[str]) -> None:
        order = np.argsort(-self.radii, kind="stable").tolist()
        outside = []
        for place in order:
            width, height = self._size(str(numbers[place]))
            if np.hypot(width, height) / 2 <= self.radii[place]:
                self._text(place, str(numbers[place]), np.zeros(2))
            else:
                outside.append(place)
        for place in order:
            number = f"{numbers[place]} " if place in outside else ""
            found = self._free(place, _variants(number, names[place]))
            if found is not None:
                self._text(place, *found)

    def _size(self, text: str) -> tuple[float, float]:
        if text not in self.sizes:
            drawn = self.axes.text(0, 0, text, fontsize=SIZE)
            box = drawn.get_window_extent(self.renderer)
            drawn.remove()
            self.sizes[text] = (box.width + GAP, box.height + GAP)
        return self.sizes[text]

    def _text(self, place: int, text: str, offset: Floats) -> None:
        """Write a text at the center of a circle, moved by an offset in pixels."""
        from matplotlib.transforms import ScaledTranslation

        figure = self.figure
        right, up = offset / figure.dpi
        moved = self.axes.transData + ScaledTranslation(right, up, figure.dpi_scale_trans)
        x, y = self.points[place]
        self.axes.text(x, y, text, ha="center", va="center", fontsize=SIZE, transform=moved, zorder=4)
        half = np.array(self._size(text)) / 2
        center = self.centers[place] + offset
        self.boxes = np.vstack([self.boxes, [*(center - half), *(center + half)]])
        start, end = self._leader(place, center, half)
        if np.hypot(*(end - start)) > 1.5 * half[1]:
            ends = self.axes.transData.inverted().transform([start, end])
            self.axes.plot(*ends.T, color="#888888", lw=0.6, zorder=3, scalex=False, scaley=False)

    def _leader(self, place: int, center: Floats, half: Floats) -> tuple[Floats, Floats]:
        """Ends of the line from a circle to the box of its name."""
        between = center - self.centers[place]
        length = float(np.hypot(*between))
        if not length:
            return center, center
        direction = between / length
        # How far the box reaches towards the circle.
        with np.errstate(divide="ignore"):
            reach = float(np.min(half / np.abs(direction)))
        start, end = self.radii[place], max(length - reach, self.radii[place])
        return self.centers[place] + start * direction, self.centers[place] + end * direction

    def _free(self, place: int, texts: Sequence[str]) -> tuple[str, Floats] | None:
        """The text and its nearest offset at which it hides no circle and no other text, and its line neither."""
        for crossing, distance, text, angle in product((False, True), DISTANCES, texts, DIRECTIONS):
            width, height = self._size(text)
            half, direction = np.array([width, height]) / 2, np.array([np.cos(angle), np.sin(angle)])
            # The box touches the circle, or is a distance away.
            reach = float(np.min(half / np.maximum(np.abs(direction), 1e-9)))
            offset: Floats = direction * (self.radii[place] + distance * height + reach)
            center = self.centers[place] + offset
            if self._is_free(place, center - half, center + half) and self._is_open(
                place, center, half, crossing
            ):
                return text, offset
        return None

    def _is_free(self, place: int, low: Floats, high: Floats) -> bool:
        frame = self.frame
        inside = (low >= frame.p0).all() and (high <= frame.p1).all()
        nearest = np.clip(self.centers, low, high)
        apart = np.where(np.arange(len(self.radii)) == place, 0.0, APART)
        on_circle = np.hypot(*(nearest - self.centers).T) < self.radii + apart
        return bool(inside) and not on_circle.any() and not _touch(self.boxes, low, high).any()

    def _is_open(self, place: int, center: Floats, half: Floats, crossing: bool) -> bool:
        """Whether the line to a name crosses no text and no other circle, or, for ``crossing``, no text."""
        start, end = self._leader(place, center, half)
        others = np.arange(len(self.radii)) != place
        for point in start + np.linspace(0, 1, 12)[:, None] * (end - start):
            on_circle = np.hypot(*(self.centers - point).T) < self.radii
            if (on_circle[others].any() and not crossing) or _touch(self.boxes, point, point).any():
                return False
        return True


def _touch(boxes: Floats, low: Floats, high: Floats) -> Any:
    return ((boxes[:, :2] < high) & (boxes[:, 2:] > low)).all(axis=1)


def _variants(number: str, name: str) -> list[str]:
    """The name, and its first words alone."""
    words = name.split(", ")
    return [number + ", ".join(words[:count]) for count in range(len(words), 0, -1)]
