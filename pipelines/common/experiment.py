"""An experiment on a grid of corpora, numbers of topics, methods and seeds: its rows, table and figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from pipelines.common import pictures
from pipelines.common.methods import METHODS, Setup
from pipelines.common.results import CellMissing, Row, publish
from pipelines.common.scores import METRICS, Scorer
from pipelines.common.tables import markdown, number, spread
from streaming_jsmf import StreamingJSMFError
from streaming_jsmf.corpus import Corpus

#: Columns that compare a method with the first one.
COMPARED = {
    "anchors_shared": "anchors shared",
    "l1": "mean L1",
    "median_l1": "median L1",
    "yy_error": "Y Y' off",
    "order_anchors": "anchors of the first order",
    "order_l1": "L1 to the first order",
}


def rows_of(
    name: str, setup: Setup, topics: Sequence[int], methods: Sequence[str], seeds: Sequence[int], first: str
) -> Iterator[Row]:
    """Rows of one corpus; cells that fail (such as for too few eigenpairs) are reported and omitted.

    Methods without randomness have only the first of the ``seeds``.
    """
    scorer = Scorer(setup)
    for n_topics in topics:
        for method in methods:
            for seed in seeds if METHODS[method].random else seeds[:1]:
                try:
                    yield {"corpus": name, **scorer.row(method, n_topics, seed, first)}
                except (StreamingJSMFError, CellMissing, ValueError) as error:
                    click.echo(f"{name}, K = {n_topics}, {method}: {error}", err=True)


def table(rows: Sequence[Row], metrics: Sequence[str]) -> str:
    """Means and standard deviations over seeds, without empty columns; a star marks unconverged rectifications."""
    labels = {**COMPARED, **{name: METRICS[name] for name in metrics}, "sum_A": "sum(A)"}
    labels = {name: label for name, label in labels.items() if any(row.get(name) is not None for row in rows)}
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["corpus"], row["K"], row["method"]), []).append(row)
    lines = []
    for (corpus, n_topics, method), several in groups.items():
        cells = [spread([row.get(name) for row in several]) for name in labels]
        steps = number(max(row["iterations"] for row in several)) + ("" if several[0]["converged"] else "*")
        lines.append([corpus, method, n_topics, *cells, steps])
    return markdown(["corpus", "method", "K", *labels.values(), "steps"], lines, text=2)


def summary(rows: Sequence[Row], metrics: Sequence[str], first: str) -> str:
    """One line per corpus and K, one column per method, over all seeds.

    Anchors shared with ``first`` (fewest to most), mean L1 of topics, and the largest relative difference of a metric
    other than seconds from that of ``first``.
    """
    compared = [name for name in metrics if not name.endswith("seconds")]
    cells: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault((row["corpus"], row["K"]), {}).setdefault(row["method"], []).append(row)
    others = list(dict.fromkeys(row["method"] for row in rows if row["method"] != first))
    lines = []
    for (corpus, n_topics), found in cells.items():
        if first not in found:
            continue
        line = [corpus, str(n_topics)]
        for several in (found.get(method, []) for method in others):
            worst = [_off(_mean(several, name), _mean(found[first], name)) for name in compared]
            cell = f"{_range(several, 'anchors_shared')}, {number(_mean(several, 'l1'), 2)}, {number(max(worst), 2)}"
            line.append(cell if several else "-")
        lines.append(line)
    header = [f"{method}: anchors, L1, metric" for method in others]
    return markdown(["corpus", "K", *header], lines)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else None


def _range(rows: Sequence[Row], name: str) -> str:
    """The least and the largest value, or the only one."""
    values = sorted({row[name] for row in rows if row.get(name) is not None})
    return "-".join(f"{value:g}" for value in dict.fromkeys([*values[:1], *values[-1:]])) or "-"


def _off(value: float | None, reference: float | None) -> float:
    if value is None or not reference:
        return 0.0
    return abs(value / reference - 1.0)


def published(
    out: Path,
    name: str,
    rows: Sequence[Row],
    metrics: Sequence[str],
    first: str,
    corpora: Mapping[str, Corpus],
) -> None:
    """Write and print the results of an experiment as ``NAME.parquet``, ``NAME.md``, ``NAME.svg`` and ``NAME.json``."""
    text = "\n\n".join([table(rows, metrics), *([summary(rows, metrics, first)] if first else [])])
    publish(out, name, rows, text, corpora)
    if rows:
        figure = pictures.grid(rows, "corpus", "K", {metric: METRICS[metric] for metric in metrics})
        pictures.save(figure, out / f"{name}.svg")
    click.echo(text)
