"""Markdown tables and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def markdown(header: Sequence[str], rows: Sequence[Sequence[object]], text: int = 1) -> str:
    """A Markdown table; the first ``text`` columns are left-aligned, the others right-aligned.

    Examples
    --------
    >>> print(markdown(["method", "K"], [["AP", 5]]))
    | method | K |
    |---|---:|
    | AP | 5 |
    """
    rule = "|".join("---" if column < text else "---:" for column in range(len(header)))
    lines = ["| " + " | ".join(header) + " |", f"|{rule}|"]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value: float | None, digits: int = 3) -> str:
    """Format with ``digits`` significant digits; integers are unchanged, missing values are a dash.

    Examples
    --------
    >>> number(0.012345), number(1234.5), number(20), number(None), number(0.0), number(1.23e-7)
    ('0.0123', '1,230', '20', '-', '0', '1.2e-07')
    """
    if value is None or not np.isfinite(value):
        return "-"
    if value == 0 or isinstance(value, int):
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.1e}"
    places = digits - 1 - int(np.floor(np.log10(abs(value))))
    return f"{round(value, places):,.{max(places, 0)}f}"


def spread(values: Sequence[float | None], digits: int = 3) -> str:
    """Mean and standard deviation of the available values, to the same decimal place.

    Examples
    --------
    >>> spread([0.1, 0.2]), spread([0.15]), spread([None]), spread([20, 20])
    ('0.150 ± 0.071', '0.150', '-', '20')
    """
    there = [value for value in values if value is not None and np.isfinite(value)]
    if not there:
        return "-"
    same = len(set(there)) == 1
    mean = number(there[0] if same else float(np.mean(there)), digits)
    if same:
        return mean
    places = len(mean.partition(".")[2])
    return f"{mean} ± {np.std(there, ddof=1):,.{places}f}"
