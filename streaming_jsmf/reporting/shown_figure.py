"""Figures that notebooks show. Needs matplotlib, which no other module of the package imports at its head."""

from __future__ import annotations

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that a notebook shows as the last value of a cell; others it shows only once pyplot was imported."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png")
        return stream.getvalue()
