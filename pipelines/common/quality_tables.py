"""Tables and the figure of `pipelines.quality`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipelines.common import pictures
from pipelines.common.chains import CHECKPOINTS
from pipelines.common.results import Row
from pipelines.common.tables import markdown, number, spread

#: Method -> numbers of steps or sweeps.
STEPS: dict[str, tuple[int, ...]] = {
    "polished": (0, 2, 5, 10, 16, 20, 30),
    "plain": (10, 20, 30),
    "relaxed": (10, 30),
    "drawn": (10, 30),
    "sequential": (60, 200),
    "annealed": (60, 200),
    "Gibbs": CHECKPOINTS,
    "anchortopics": (20,),
    "MiniBatchNMF": (200,),
}

#: Columns and their labels.
METRICS = {
    "perplexity": "perplexity, held out",
    "sampled_perplexity": "the same, shares by Gibbs sampling",
    "npmi": "NPMI",
    "held_out_npmi": "NPMI, held out",
    "distinct": "distinct top words",
}

#: Significant digits in tables.
DIGITS = {name: 4 if "perplexity" in name else 3 for name in METRICS}

#: Measures that are judged. Differences of perplexity below so many per cent are ties.
SHORT = {
    "perplexity": "perplexity",
    "npmi": "NPMI",
    "held_out_npmi": "held-out NPMI",
    "distinct": "distinct words",
}
TIE = 0.7

SPECTRAL, DEFAULT = ("polished", 0), ("polished", 10)
PEERS = [("Gibbs", 1000), ("anchortopics", 20), ("MiniBatchNMF", 200)]


def tables(rows: Sequence[Row]) -> str:
    """The default against other libraries and against other schedules, then all means."""
    schedules = [(method, 10) for method in ("plain", "relaxed", "drawn")] + [("polished", 30)]
    swept = [(method, n) for method in ("sequential", "annealed") for n in STEPS[method]]
    parts = [
        mean_table(rows, [SPECTRAL, DEFAULT, *PEERS]),
        difference_table(rows, PEERS),
        difference_table(rows, schedules),
        difference_table(rows, swept),
        mean_table(
            rows, [("polished", n) for n in (0, 2, 10, 30)] + [("Gibbs", n) for n in (50, 200, 1000)] + swept
        ),
        mean_table(rows, []),
    ]
    return "\n\n".join(parts)


Groups = dict[tuple[str, int, str, int], dict[int, Row]]


def _groups(rows: Sequence[Row]) -> Groups:
    """Rows by corpus, K, method and steps, and by seed."""
    groups: Groups = {}
    for row in rows:
        groups.setdefault((row["corpus"], row["K"], row["method"], row["steps"]), {})[row["seed"]] = row
    return groups


def mean_table(rows: Sequence[Row], chosen: Sequence[tuple[str, int]]) -> str:
    """A line per corpus, K, method and steps or sweeps, of all or the ``chosen``: means and deviations over seeds."""
    lines = [
        [
            *group,
            len(several),
            *(spread([row[name] for row in several.values()], DIGITS[name]) for name in METRICS),
            number(float(np.mean([row["seconds"] for row in several.values()])), 2),
        ]
        for group, several in _groups(rows).items()
        if not chosen or group[2:] in chosen
    ]
    header = ["corpus", "K", "method", "steps or sweeps", "seeds", *METRICS.values(), "CPU s"]
    return markdown(header, lines, text=3)


def difference_table(rows: Sequence[Row], chosen: Sequence[tuple[str, int]]) -> str:
    """The default minus each chosen method, seed by seed: means, deviations, and which of them is better.

    Perplexities differ in per cent. A difference is a tie if it is within its deviation, or below ``TIE`` per cent of
    perplexity by one of the two ways to compute shares.
    """
    groups, lines = _groups(rows), []
    for (corpus, n_topics, *which), several in groups.items():
        if (method := tuple(which)) not in chosen:
            continue
        own = groups.get((corpus, n_topics, *DEFAULT), {})
        pairs = [(own[seed], row) for seed, row in several.items() if seed in own]
        found = {name: [difference(name, ours, theirs) for ours, theirs in pairs] for name in METRICS}
        lines.append(
            [
                corpus,
                n_topics,
                *method,
                len(pairs),
                *(shown(found[name], 1 if "perplexity" in name else 3) for name in METRICS),
                *_verdicts(found),
            ]
        )
    labels = [f"{label}, %" if "perplexity" in name else label for name, label in METRICS.items()]
    header = ["corpus", "K", "minus", "steps or sweeps", "seeds", *labels, "better: default", "tie", "other"]
    return markdown(header, lines, text=3)


def difference(name: str, ours: Row, theirs: Row) -> float:
    """Of a measure, in per cent of a perplexity."""
    per_cent = 100 / theirs[name] if "perplexity" in name else 1.0
    return float(ours[name] - theirs[name]) * per_cent


def shown(values: Sequence[float], places: int) -> str:
    """Mean and standard deviation, with a sign."""
    deviation = f" ± {np.std(values, ddof=1):.{places}f}" if len(values) > 1 else ""
    return f"{np.mean(values):+.{places}f}{deviation}"


def _verdicts(found: dict[str, list[float]]) -> list[str]:
    """Measures in which the default is better, those that are ties, and those in which the other method is better."""
    if len(found["npmi"]) < 2:
        return ["one run", "-", "-"]
    better: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for name, short in SHORT.items():
        mean, deviation = np.mean(found[name]), np.std(found[name], ddof=1)
        sign = int(np.sign(mean)) if abs(mean) > deviation else 0
        if name == "perplexity":
            sampled = np.mean(found["sampled_perplexity"])
            sign = -sign if min(abs(mean), abs(sampled)) >= TIE and np.sign(mean) == np.sign(sampled) else 0
        better[sign].append(short)
    return [", ".join(names) or "-" for names in better.values()]


def draw(rows: Sequence[Row], path: Path) -> None:
    """A line of panels per corpus and K, a column per measure, mean quality against mean seconds."""
    cells = list(dict.fromkeys((row["corpus"], row["K"]) for row in rows))
    measures = {name: label for name, label in METRICS.items() if name != "sampled_perplexity"}
    figure, axes = pictures.panels(len(cells), len(measures))
    for cell, line in zip(cells, axes, strict=True):
        own = [row for row in rows if (row["corpus"], row["K"]) == cell]
        for (column, label), panel in zip(measures.items(), line, strict=True):
            for method in ("polished", "plain", "sequential", "annealed", "Gibbs"):
                points: dict[float, list[float | None]] = {}
                for steps in STEPS[method]:
                    if there := [row for row in own if (row["method"], row["steps"]) == (method, steps)]:
                        points[float(np.mean([row["seconds"] for row in there]))] = [
                            row[column] for row in there
                        ]
                pictures.curve(panel, method, points)
            panel.set(xscale="log")
            panel.set_title(f"{cell[0]}, K = {cell[1]}: {label}", fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("processor seconds")
    pictures.legend(figure)
    pictures.save(figure, path)
