"""Tall matrices are worked through panel by panel: temporaries stay in the cache, and threads change no bit."""

from __future__ import annotations

from collections.abc import Iterator

#: Rows of a panel, unless a loop has a reason for another height.
PANEL_ROWS = 4096


def panels(n_rows: int, height: int | None = None) -> Iterator[slice]:
    """Consecutive slices that cover ``n_rows`` rows, each ``height`` (default ``PANEL_ROWS``) rows but for the last."""
    step = PANEL_ROWS if height is None else height
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))
