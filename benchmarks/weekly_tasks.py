"""Time of the weekly tasks of ``notebooks/weekly_tasks.ipynb`` on a table of texts.

    python -m benchmarks.weekly_tasks TABLE [--text COLUMN] [--time COLUMN] [--group COLUMN] [--topics 20]

TABLE is a CSV or Parquet file. The model is fitted to all rows but the last 4 %, which are the new documents. For each
task it prints the call, seconds, and CPU seconds of all threads. ``fit`` includes what the first call compiles, unless
the cache of compiled code has it. Shares of the documents are computed by the first task that needs them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pandas as pd

import streaming_jsmf as sj


def tasks(table: pd.DataFrame, folder: Path, columns: dict[str, str | None], topics: int) -> None:
    """Run and time each task."""
    known, new = table.iloc[: -len(table) // 25], table.iloc[-len(table) // 25 :]
    text = {} if columns["text"] is None else {"text": columns["text"]}

    def timed(task: str, call: str, run: Callable[[], Any]) -> Any:
        clock, cpu = time.perf_counter(), time.process_time()
        result = run()
        clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
        click.echo(f"| {task} | `{call}` | {clock:.2f} | {cpu:.2f} |")
        return result

    click.echo(f"{len(known):,} documents, {len(new):,} new ones, {topics} topics\n")
    click.echo("| task | call | s | CPU s |\n|---|---|---|---|")
    model = timed("fit", f"fit(table, n_topics={topics})",
                  lambda: sj.fit(known, folder / "model", topics, **text))  # fmt: skip
    timed("inspect", "model.topics()", lambda: model.topics())
    timed("label", 'model.label(0, "a name")', lambda: model.label(0, "a name"))
    timed("merge", "model.merge([1, 2])", lambda: model.merge([1, 2]))
    timed("reduce", f"model.reduce({topics * 3 // 4})", lambda: model.reduce(topics * 3 // 4))
    model.unmerge()
    timed("representative documents", "model.documents(topic=0)", lambda: model.documents(topic=0))
    if (period := columns["time"]) is not None:
        timed("over time", f'model.over_time("{period}", topic=0)', lambda: model.over_time(period, topic=0))
    if (group := columns["group"]) is not None:
        timed("per class", f'model.documents(topic=0, by="{group}")',
              lambda: model.documents(topic=0, by=group))  # fmt: skip
    timed(
        "outliers", "model.documents(outliers=model.corpus)", lambda: model.documents(outliers=model.corpus)
    )
    timed("transform", "model.transform(new)", lambda: model.transform(new, **text))
    anchors = [[str(word)] for word in model.topics(words=1)["words"].str[0].str[0][:2]]
    timed("guided topics", "fit(table, n_topics, anchor_words=[...])",
          lambda: sj.fit(known, folder / "guided", topics, anchor_words=anchors, **text))  # fmt: skip
    timed("share a model", 'model.save("copy")', lambda: model.save(folder / "copy"))
    timed("a corpus that grows", "model.update(new)", lambda: model.update(new))
    timed("report", 'report(model, "topics.html")', lambda: sj.report(model, folder / "topics.html"))


@click.command(help=__doc__)
@click.argument("table", type=click.Path(exists=True, path_type=Path))
@click.option("--text", default=None)
@click.option("--time", default=None)
@click.option("--group", default=None)
@click.option("--topics", default=20, show_default=True)
def main(table: Path, topics: int, **columns: str | None) -> None:
    """Print a table."""
    read = pd.read_parquet if table.suffix == ".parquet" else pd.read_csv
    with tempfile.TemporaryDirectory() as folder:
        tasks(read(table), Path(folder), columns, topics)


if __name__ == "__main__":
    main()
