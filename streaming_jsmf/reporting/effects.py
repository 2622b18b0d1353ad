"""Pictures of effects of covariates: coefficients, or expected shares over a covariate, with intervals of 95 %."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming_jsmf.documents.effects import Effects
from streaming_jsmf.errors import InputError
from streaming_jsmf.reporting.figures import (
    COLORS,
    DASHES,
    LARGEST,
    axes_for,
    label_ticks,
    legend_beside,
    plain,
    set_title,
    shortened,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Most topics, and most terms, in a picture of coefficients.
MOST_TOPICS, MOST_TERMS = 12, 12
INTERCEPT = "Intercept"


def plot_effects(
    effects: Effects,
    variable: str | None = None,
    *,
    at: Mapping[str, Any] | None = None,
    ax: Axes | None = None,
    figsize: tuple[float, float] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the coefficients of each topic with intervals of 95 %, or the expected shares over a covariate with bands.

    At most twelve topics have coefficients, those whose intervals are farthest from 0, and six have curves, those
    whose shares change most; ``effects`` of fewer ``topics`` draws others. ``at`` are the values of other covariates,
    as in ``Effects.predicted``. Raises ``InputError`` if there is no such covariate or level, or matplotlib is missing.

    Examples
    --------
    >>> plot_effects(model.effects("party * year"), "year", at={"party": ["left", "right"]})  # doctest: +SKIP
    """
    figure, [axes] = axes_for(ax, 1, figsize, (8.0, 4.5))
    if variable is None:
        _coefficients(effects, axes)
    else:
        _curves(effects.predicted(variable, at), variable, axes)
    if axes.get_legend_handles_labels()[1]:
        legend_beside(axes)
    set_title(figure, [axes], title, plain(effects.formula))
    return figure


def _name(topic: int, label: str) -> str:
    return f"{topic} {shortened(label)}"


def _coefficients(effects: Effects, ax: Axes) -> None:
    shown = [i for i, term in enumerate(effects.terms) if term not in (INTERCEPT, *effects.dropped)]
    if not 0 < len(shown) <= MOST_TERMS:
        raise InputError(
            f"{effects.formula!r} has {len(shown)} terms; a picture of coefficients has 1 to {MOST_TERMS}: name a "
            "covariate, whose expected shares are drawn"
        )
    values = 100 * effects.coefficients[:, shown]
    errors = 100 * effects.errors[:, shown]
    strength = np.abs(values / np.maximum(errors, 1e-300)).max(axis=1)
    chosen = np.sort(np.argsort(-strength, kind="stable")[:MOST_TOPICS])
    places = np.arange(len(chosen))
    for line, term in enumerate(shown):
        shifted = places + (line - (len(shown) - 1) / 2) * 0.6 / len(shown)
        ax.errorbar(
            values[chosen, line],
            shifted,
            xerr=effects.quantile * errors[chosen, line],
            fmt="os^D"[line // len(COLORS) % 4],
            color=COLORS[line % len(COLORS)],
            capsize=2,
            markersize=4,
            label=shortened(effects.terms[term]),
        )
    ax.axvline(0.0, color="#777777", lw=0.8)
    ax.set_yticks(
        places, [_name(effects.topics[topic], effects.labels[topic]) for topic in chosen], fontsize=8
    )
    ax.invert_yaxis()
    ax.set_xlabel("effect on the share, percentage points, with intervals of 95 %")


def _curves(predicted: pd.DataFrame, variable: str, ax: Axes) -> None:
    others = [*predicted.columns[3:-3]]
    spread = predicted.groupby("topic")["share"].agg(np.ptp)
    chosen = sorted(spread.sort_values(ascending=False, kind="stable").index[:LARGEST])
    lines = [*_lines(predicted[predicted["topic"].isin(chosen)], others)]
    numbers = predicted[variable].dtype.kind in "if" and predicted[variable].nunique() > 2
    levels = [*dict.fromkeys(predicted[variable])]
    for line, (name, rows) in enumerate(lines):
        color, dash = COLORS[line % len(COLORS)], DASHES[line // len(COLORS) % len(DASHES)]
        share, lower, upper = (100 * rows[column].to_numpy() for column in ("share", "lower", "upper"))
        if numbers:
            ax.plot(rows[variable], share, dash, color=color, label=name)
            ax.fill_between(rows[variable], lower, upper, color=color, alpha=0.2, lw=0)
        else:
            places = np.arange(len(rows)) + (line - (len(lines) - 1) / 2) * 0.6 / len(lines)
            ax.errorbar(
                places, share, [share - lower, upper - share], fmt="o", color=color, capsize=2, label=name
            )
    if not numbers:
        label_ticks(ax.xaxis, [shortened(str(level)) for level in levels])
    ax.set_xlabel(plain(variable))
    ax.set_ylabel("expected share, %, with intervals of 95 %")


def _lines(predicted: pd.DataFrame, others: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each topic and combination of other covariates, with their name."""
    for key, rows in predicted.groupby(["topic", *others], sort=True):
        values = "".join(f", {plain(value)}" for value in key[1:])
        yield _name(int(key[0]), str(rows["label"].iloc[0])) + values, rows
