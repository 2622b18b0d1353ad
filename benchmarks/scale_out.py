"""Scaling of a scan on large clusters: the real task graph, simulated with measured costs.

    python -m benchmarks.scale_out [--documents 1e6,1e8,1e10] [--workers 8,64,512,4096] [--json FILE]
    python -m benchmarks.scale_out --costs FILE ...       # with the costs of an earlier run

Costs of tasks are measured on this machine with a simulated corpus: seconds per nonzero for reading and multiplying,
seconds of combining two results, bytes per commit, seconds per byte of writing and reading it, and seconds of Dask's
scheduler per task. Requests of each task are counted at a server that speaks S3, and the bytes of a nonzero are those
of its columns in Parquet. The graph that a scan builds is then run in a discrete-event simulation: workers with one
thread, a scheduler that does one thing at a time, a store with latency per request and bandwidth per worker, and
varying durations (a log-normal distribution, and one task in a hundred three times as long).

Stages: scan 1 with a sample, scan 2 and the third moment. With `--wide`, also scan 2 for a million words, where
multiplying and adding are measured in panels of that size. `efficiency` is the
fraction of worker time spent on the tasks. The last columns name the bottleneck: `folds` is the minimum time of
sequential combinations, `scheduler` that of the scheduler, `records` the time that the command needs for the record of
each partition. `disk` is the maximum size of temporary results in the store, `moved` the bytes of commits relative to
those read of the corpus.

The last table is measured rather than simulated: seconds of planning the partitions of such corpora, in shards of 15
row groups, and of building the graph of their first pass, and its size.
"""

from __future__ import annotations

import itertools
import json
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import click
import cloudpickle
from dask.order import order as dask_order

from benchmarks.replay import ROW_GROUP_NONZEROS, Costs, Load, Machine, Replay, Replayed, Task
from benchmarks.stage_costs import NONZEROS, measure, scheduler_seconds, wide
from streaming_jsmf import ScanSettings
from streaming_jsmf.config.scan import SAMPLED_DOCUMENTS
from streaming_jsmf.corpus.footer import RowGroup, Shard
from streaming_jsmf.corpus.format import Corpus
from streaming_jsmf.corpus.partition_jobs import run_on_partitions
from streaming_jsmf.corpus.units import list_units, partition_part, plan_partitions
from streaming_jsmf.jobs.checkpoints import Checkpoints, Committed
from streaming_jsmf.jobs.execution import Executor
from streaming_jsmf.jobs.order import FoldOrder, FoldStep
from streaming_jsmf.jobs.run import Job, Part
from streaming_jsmf.moments.needs import held_bytes
from streaming_jsmf.moments.stages.sums import SumsReduction
from streaming_jsmf.storage.objects import FILE_THREADS

#: Row groups and documents of a shard of a large corpus.
SHARD_GROUPS, SHARD_DOCUMENTS = 15, 15 * ROW_GROUP_NONZEROS // NONZEROS


def key_of_part(number: int) -> str:
    return f"{number:032x}"


def first_pass(parts: Sequence[Part], store: Path = Path("moments")) -> Job:
    """The first pass of a scan over these parts."""
    order = FoldOrder(tuple(part.key for part in parts), "")
    checkpoints = Checkpoints(store, "sums", "run again", verb="scan")
    return Job(checkpoints, SumsReduction(1, ScanSettings()), parts, order)


class Built(Exception):
    """Carries a graph out of the job that would have computed it."""


class Builder(Executor):
    """Ends a job when its graph is built."""

    def compute(self, tasks: Any, *_: Any) -> None:
        raise Built(tasks)


@cache
def graph_tasks(n_partitions: int, workers: int) -> tuple[Task, ...]:
    """The real graph as input of the simulator, in the order of Dask's priorities."""
    parts = [Part(key_of_part(number), 1) for number in range(n_partitions)]
    graph = dict(first_pass(parts).graph(workers, Committed()).__dask_graph__())  # type: ignore[union-attr]
    places = dask_order(graph)
    by_priority = sorted(graph, key=places.__getitem__)
    numbers = {key: number for number, key in enumerate(by_priority)}
    return tuple(
        Task(
            next((one for one in graph[key].args if isinstance(one, FoldStep)), None),
            any(isinstance(one, Part) for one in graph[key].args),
            [numbers[other] for other in graph[key].dependencies],
        )
        for key in by_priority
    )


def replay(costs: Costs, documents: float, budget: int | None, on: Machine) -> Replayed:
    """Simulate one scan; ``budget`` is ``partition_nonzeros``."""
    nonzeros = documents * NONZEROS
    settings = ScanSettings(max_topics=costs.max_topics)
    partition = budget or settings.partition_budget(int(nonzeros), costs.n_words)
    count = max(1, math.ceil(nonzeros / partition))
    held = min(partition, int(nonzeros))
    share = min(1.0, max(SAMPLED_DOCUMENTS, costs.n_words) / documents)
    sample_bytes = held_bytes(share, held) / 2 if costs.sampled else 0.0
    tasks = graph_tasks(count, on.workers)
    load = Load(tasks, costs, held, sample_bytes, on)
    simulated = Replay(load)
    records = count * costs.requests[2] * on.latency / FILE_THREADS
    return Replayed(
        costs.stage,
        documents,
        count,
        on.workers,
        costs.passes * (simulated.seconds() + records),
        costs.passes * load.work() / on.workers,
        costs.passes * load.longest_path(),
        costs.passes * len(tasks) * on.scheduler_seconds,
        costs.passes * records,
        simulated.most_lying,
        load.bytes_committed() / load.bytes_read(),
    )


def large_corpus(documents: float) -> Corpus:
    """A corpus of that size, as it is known when it is open."""
    groups = (RowGroup(SHARD_DOCUMENTS // SHARD_GROUPS, ROW_GROUP_NONZEROS),) * SHARD_GROUPS
    nonzeros = SHARD_GROUPS * ROW_GROUP_NONZEROS
    shards = tuple(
        Shard(f"part-{n:05d}", SHARD_DOCUMENTS, nonzeros, 1, key_of_part(n) * 2, groups, (1, 2**60 + n))
        for n in range(max(1, round(documents / SHARD_DOCUMENTS)))
    )
    return Corpus("corpus", shards, 1, "", "")


def weigh(documents: float, words: int, max_topics: int, workers: int) -> dict[str, float]:
    """Seconds of planning partitions and of building the graph of their first pass, and its size."""
    corpus, settings = large_corpus(documents), ScanSettings(max_topics=max_topics)
    started = time.process_time()
    partitions = plan_partitions(list_units(corpus), settings.partition_budget(corpus.nonzeros, words))
    planned = time.process_time()
    parts = [partition_part(key_of_part(number), partition) for number, partition in enumerate(partitions)]
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_on_partitions(first_pass(parts, Path(folder)), Builder({}, workers), Committed())
        except Built as built:
            (graph,) = built.args
        return {
            "documents": documents,
            "partitions": len(parts),
            "tasks": len(dict(graph.__dask_graph__())),
            "planned": planned - started,
            "built": time.process_time() - planned,
            "sent": len(cloudpickle.dumps(graph)),
            "listed": sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()),
        }


def measured(documents: int, words: int, max_topics: int) -> tuple[list[Costs], float]:
    return measure(documents, words, max_topics), scheduler_seconds()


def read_costs(path: Path) -> tuple[list[Costs], float]:
    told = json.loads(path.read_text())
    stages = [Costs(**{**costs, "requests": tuple(costs["requests"])}) for costs in told["costs"]]
    return stages, float(told["scheduler_seconds"])


def numbers(text: str) -> list[float]:
    return [float(item) for item in text.split(",") if item]


def replayed(
    stages: Sequence[Costs],
    documents: Sequence[float],
    budgets: Sequence[int | None],
    machines: Sequence[Machine],
) -> list[Replayed]:
    """Print and return a row per stage, corpus size, partition size and machine."""
    click.echo(
        "| stage | documents | partitions | workers | time | efficiency | bound | disk | moved |\n"
        + "|---" * 9
        + "|"
    )
    rows = []
    for costs, size, budget, on in itertools.product(stages, documents, budgets, machines):
        row = replay(costs, size, budget, on)
        rows.append(row)
        click.echo(
            f"| {row.stage} | {size:.0e} | {row.partitions:,} | {row.workers:,} | "
            f"{row.seconds / 60:,.1f} min | {row.efficiency:.2f} | {row.bound} | {row.most_bytes / 1e9:,.2f} GB | "
            f"{row.committed:.2f} |"
        )
    return rows


def weighed(documents: Sequence[float], words: int, max_topics: int) -> list[dict[str, float]]:
    """Print and return a row per corpus size."""
    click.echo(
        "\n| documents | partitions | tasks | CPU s of planning | of the graph | MB sent | bytes a task | "
        "MB of the list of units |\n" + "|---" * 8 + "|"
    )
    graphs = [weigh(number, words, max_topics, 512) for number in documents]
    for graph in graphs:
        click.echo(
            f"| {graph['documents']:.0e} | {graph['partitions']:,} | {graph['tasks']:,} | {graph['planned']:.1f} | "
            f"{graph['built']:.1f} | {graph['sent'] / 1e6:.2f} | {graph['sent'] / graph['tasks']:,.0f} | "
            f"{graph['listed'] / 1e6:.2f} |"
        )
    return graphs


@click.command(help=__doc__)
@click.option(
    "--documents",
    default="1e6,1e7,1e8,1e9,1e10",
    show_default=True,
    help="Numbers of documents, separated by commas.",
)
@click.option(
    "--workers", default="8,64,512,4096", show_default=True, help="Numbers of workers, separated by commas."
)
@click.option(
    "--partitions", default="", help="Nonzeros per partition, separated by commas.  [default: as in a scan]"
)
@click.option("--words", default=50_000, show_default=True, help="Words of the corpus used to measure costs.")
@click.option("--max-topics", default=50, show_default=True)
@click.option(
    "--measured",
    "sample",
    default=100_000,
    show_default=True,
    help="Documents of the corpus used to measure costs.",
)
@click.option(
    "--bandwidth", default=200e6, show_default=True, help="Bytes per second of the store, per worker."
)
@click.option("--latency", default=0.03, show_default=True, help="Seconds per request of the store.")
@click.option(
    "--wide",
    "wide_topics",
    default="100,500",
    show_default=True,
    help="Numbers of topics for a million words.",
)
@click.option(
    "--costs",
    "known",
    default=None,
    type=click.Path(path_type=Path),
    help="A file written by --json, whose costs are used.",
)
@click.option(
    "--json",
    "target",
    default=None,
    type=click.Path(path_type=Path),
    help="Also write costs and rows to this file.",
)
def main(
    documents: str,
    workers: str,
    partitions: str,
    words: int,
    max_topics: int,
    sample: int,
    bandwidth: float,
    latency: float,
    wide_topics: str,
    known: Path | None,
    target: Path | None,
) -> None:
    if known is None:
        stages, scheduler = measured(sample, words, max_topics)
        base = next(costs for costs in stages if costs.stage == "scan 2")
        stages += [wide(base, int(topics)) for topics in numbers(wide_topics)]
    else:
        stages, scheduler = read_costs(known)
    for costs in stages:
        click.echo(
            f"{costs.stage}: {costs.seconds_per_nonzero * 1e9:.0f} ns a nonzero, {costs.fold_seconds:.2f} s a fold, "
            f"{costs.part_bytes / 1e6:.0f} MB a part, {costs.fold_bytes / 1e6:.0f} MB a fold, "
            f"{costs.seconds_per_byte * 1e9:.1f} ns a byte committed"
            + (", and the sample" if costs.sampled else "")
            + f"; {costs.bytes_per_nonzero:.1f} bytes a nonzero read in {costs.passes} pass(es), "
            f"{costs.requests[0]:.1f}, {costs.requests[1]:.1f} and {costs.requests[2]:.1f} requests"
        )
    click.echo(f"scheduler: {scheduler * 1e3:.2f} ms a task\n")
    machines = [Machine(int(count), scheduler, bandwidth, latency) for count in numbers(workers)]
    budgets = [int(number) for number in numbers(partitions)] if partitions else [None]
    rows = replayed(stages, numbers(documents), budgets, machines)
    graphs = weighed(numbers(documents), words, max_topics)
    if target is not None:
        target.write_text(
            json.dumps(
                {
                    "costs": [asdict(costs) for costs in stages],
                    "scheduler_seconds": scheduler,
                    "rows": [asdict(row) for row in rows],
                    "graphs": graphs,
                },
                indent=2,
            )
        )


if __name__ == "__main__":
    main()
