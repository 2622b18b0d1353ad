"""Tables and figures of the cells, as means over seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from pipelines.common import pictures
from pipelines.common.results import Row, publish
from pipelines.common.tables import markdown, number, spread
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


def means(rows: Iterable[Row]) -> list[Row]:
    """One row of means over all seeds per cell; a value missing for any seed is None."""
    return [_mean(found) for found in _cells(rows)]


def _cells(rows: Iterable[Row]) -> list[list[Row]]:
    cells: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        cells.setdefault((row["corpus"], row["part"], row["K"], row["method"]), []).append(row)
    return [*cells.values()]


def _mean(found: Sequence[Row]) -> Row:
    row = dict(found[0])
    for name in (*COSTS, *(name for heads in SCORES.values() for name in heads)):
        values = [each.get(name) for each in found]
        row[name] = None if None in values else mean(v for v in values if v is not None)
    return row


def table(rows: Iterable[Row], makes: str) -> str:
    """Means and standard deviations over the seeds."""
    columns = SCORES[makes] | COSTS
    header = ["corpus", "method", "nonzeros", "K", "runs", *(head for head, _ in columns.values())]
    cells = [
        [
            *(found[0][name] for name in ("corpus", "method")),
            f"{found[0]['nonzeros']:,}",
            found[0]["K"],
            len(found),
            *(_shown(found, name, digits) for name, (_, digits) in columns.items()),
        ]
        for found in _cells(row for row in rows if row["makes"] == makes)
    ]
    return markdown(header, cells, text=2)


def _shown(found: Sequence[Row], name: str, digits: int) -> str:
    values = [row.get(name) for row in found]
    if None in values:
        return "-"
    scale = 1e-6 if name == "peak" else 1.0
    return spread([scale * value for value in values if value is not None], digits)


def write_tables(out: Path, rows: Sequence[Row], best: Sequence[Row], corpora: Mapping[str, Corpus]) -> None:
    """Write ``topics`` and ``basis`` as Markdown and Parquet with a record; lower bounds follow the second table."""
    for makes in SCORES:
        if shown := [{"note": None, **row} for row in rows if row["makes"] == makes]:
            text = table(shown, makes) + ("\n\n" + _bounds(best) if makes == "basis" else "")
            publish(out, makes, shown, text, corpora)


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
    there = [row for row in means(rows) if row.get("cpu") is not None]
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
