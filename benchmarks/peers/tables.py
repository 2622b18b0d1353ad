"""Tables and figures of the cells, as medians over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from pipelines.common import pictures
from pipelines.common.results import Row, publish
from pipelines.common.tables import markdown, number
from streaming_jsmf.corpus import Corpus

if TYPE_CHECKING:
    from matplotlib.axis import Axis

#: Column of a row -> header in the table, and significant digits.
COSTS = {"cpu": ("CPU s", 3), "wall": ("s", 3), "peak": ("peak MB", 3), "load": ("load", 2)}
SCORES = {
    "topics": {
        "npmi": ("NPMI", 3),
        "held_out_npmi": ("NPMI held out", 3),
        "distinct": ("distinct", 2),
        "perplexity": ("perplexity", 4),
    },
    "basis": {"yy_error": ("error of YY'", 2)},
}


def medians(rows: Iterable[Row]) -> list[Row]:
    """One row of medians over all seeds per cell; a value missing for any seed is None."""
    cells: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["corpus"], row["part"], row["K"], row["method"]), []).append(row)
    return [_median(found) for found in cells.values()]


def _median(found: Sequence[Row]) -> Row:
    row: Row = {**found[0], "runs": len(found)}
    for name in (*COSTS, *(name for heads in SCORES.values() for name in heads)):
        values = [each.get(name) for each in found]
        row[name] = None if None in values else median(v for v in values if v is not None)
    return row


def write_tables(out: Path, rows: Sequence[Row], best: Sequence[Row], corpora: Mapping[str, Corpus]) -> None:
    """Write ``topics`` and ``basis`` as Markdown and Parquet with a record; lower bounds follow the second table."""
    for makes, heads in SCORES.items():
        shown = [row for row in medians(rows) if row["makes"] == makes]
        if not shown:
            continue
        columns = heads | COSTS
        header = ["corpus", "method", "nonzeros", "K", "runs", *(head for head, _ in columns.values())]
        cells = [
            [
                row["corpus"],
                row["method"],
                f"{row['nonzeros']:,}",
                row["K"],
                row["runs"],
                *_values(row, columns),
            ]
            for row in shown
        ]
        text = markdown(header, cells, text=2)
        if makes == "basis":
            text += "\n\n" + _bounds(best)
        publish(out, makes, [{"note": None, **row} for row in rows if row["makes"] == makes], text, corpora)


def _values(row: Row, columns: dict[str, tuple[str, int]]) -> list[str]:
    value = {**row, "peak": None if row["peak"] is None else row["peak"] / 1e6}
    return [number(value[name], digits) for name, (_, digits) in columns.items()]


def _bounds(best: Sequence[Row]) -> str:
    heads = {"decode": ("decode twice, CPU s", 3), "products": ("products", 3), "dense": ("dense", 3)}
    header = ["corpus, one document in", "K", *(head for head, _ in heads.values())]
    cells = [
        [f"{row['corpus']}, {row['part']}", row["K"], *(number(row[n], d) for n, (_, d) in heads.items())]
        for row in best
    ]
    return markdown(header, cells)


def write_pictures(out: Path, rows: Sequence[Row]) -> None:
    """Draw quality against time (a row of panels per corpus), and time against nonzeros (a panel per K and kind)."""
    there = [row for row in medians(rows) if row.get("cpu") is not None]
    topics = [row for row in there if row["makes"] == "topics"]
    if topics:
        _draw_quality(out, topics)
    sizes = Counter(cell for cell, _ in {(_panel(row), row["nonzeros"]) for row in there})
    several = [row for row in there if sizes[_panel(row)] > 1]
    if several:
        _draw_time(out, several)


def _draw_quality(out: Path, topics: Sequence[Row]) -> None:
    cells = _fullest(topics)
    shown = {
        "held_out_npmi": "NPMI, held out",
        "distinct": "share of distinct words",
        "perplexity": "perplexity",
    }
    figure, axes = pictures.panels(len(cells), len(shown))
    for line, cell in zip(axes, cells, strict=True):
        for place, (name, label) in zip(line, shown.items(), strict=True):
            for row in topics:
                if (row["corpus"], row["K"], row["part"]) == cell:
                    pictures.curve(place, row["method"], {row["cpu"]: [row[name]]})
            place.set(xscale="log", xlabel="CPU seconds", ylabel=label, title=_title(*cell))
            _label_seconds(place.xaxis)
    pictures.legend(figure, columns=4)
    pictures.save(figure, out / "quality.svg")


def _fullest(topics: Sequence[Row]) -> list[tuple[str, int, int]]:
    """Corpus, K, and the part of the documents to which most methods were fitted, the largest one of several."""
    methods = Counter((row["corpus"], row["K"], row["part"]) for row in topics)
    order = sorted(methods, key=lambda cell: (methods[cell], -cell[2]))
    return sorted({cell[:2]: cell for cell in order}.values())


def _title(corpus: str, n_topics: int, part: int) -> str:
    return f"{corpus}{'' if part == 1 else f' / {part}'}, K = {n_topics}"


def _panel(row: Row) -> tuple[str, int, str]:
    return row["corpus"], row["K"], row["makes"]


def _label_seconds(axis: Axis) -> None:
    """Labels 1, 2, 5, 10, ... on a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def _draw_time(out: Path, rows: Sequence[Row]) -> None:
    cells = sorted({_panel(row) for row in rows})
    figure, axes = pictures.panels(1, len(cells), width=3.2, height=2.6)
    for place, cell in zip(axes[0], cells, strict=True):
        chosen = [row for row in rows if _panel(row) == cell]
        for method in {row["method"]: None for row in chosen}:
            times = {row["nonzeros"] / 1e6: [row["cpu"]] for row in chosen if row["method"] == method}
            pictures.curve(place, method, times)
        place.set(xscale="log", yscale="log", xlabel="nonzeros, millions", ylabel="CPU seconds")
        pictures.ticks(place, [round(row["nonzeros"] / 1e6, 1) for row in chosen])
        _label_seconds(place.yaxis)
        place.set_title(f"{cell[0]}, K = {cell[1]}, {cell[2]}")
    pictures.legend(figure, columns=4)
    pictures.save(figure, out / "time.svg")
