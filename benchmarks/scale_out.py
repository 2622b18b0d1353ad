"""Where a scan bends on clusters that nobody here has: the real task graph, replayed with measured costs.

    python -m benchmarks.scale_out [--documents 1e6,1e8,1e10] [--workers 8,64,512,4096] [--json FILE]

What a task costs is measured on this machine, on a simulated corpus: seconds a nonzero of reading and multiplying,
seconds of a fold, bytes of what is committed, seconds that Dask's scheduler spends on a task. Then the graph that a
scan builds (`jobs.fold.FoldJob`) is replayed by a simulator of discrete events: workers of one thread, a scheduler that
does one thing at a time, a store with a latency and a bandwidth for each worker, durations that vary (a log-normal
distribution, and one task in a hundred three times as long). A worker here is a thread there.

`ideal` is all work divided by the workers. `chain` is the least time of the folds, which come one after the other,
`scheduler` that of the scheduler for all tasks; the larger of what bounds a row is named. `tree` replays
pairs of folds in a fixed shape in the place of the chain: what it would bring, not what the code does.

The last table is no simulation: graphs are built, and what they weigh is measured.
"""

from __future__ import annotations

import json
import math
import pickle
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks.replay import Costs, Machine, Replay, Replayed
from benchmarks.scan_throughput import simulate_zipf
from streaming_jsmf import Execution, ScanSettings, open_corpus, open_moments, scan
from streaming_jsmf.blocks.units import list_units, plan_partitions
from streaming_jsmf.jobs.fold import FoldJob, Part, Reduction
from streaming_jsmf.jobs.graph import TaskGraph
from streaming_jsmf.jobs.ledger import Partial, fold_keys
from streaming_jsmf.linalg.blas import single_blas_thread
from streaming_jsmf.moments.stages.projection import ProjectionReduction
from streaming_jsmf.moments.stages.range import RangeReduction

#: Nonzeros of a document, where documents are asked for.
NONZEROS = 75


class NothingDone:
    """A ledger of a scan that has not begun, for building its graph."""

    def parts(self) -> frozenset[str]:
        """None."""
        return frozenset()

    def folded(self, folds: Sequence[str]) -> int:
        """None."""
        del folds
        return 0


class NamedStage:
    """Stands for a reduction where nothing is computed."""

    name = "replayed"

    def compute(self, source: Any, /) -> Partial:
        """Never called."""
        raise NotImplementedError

    def fold(self, folded: Partial | None, partial: Partial, /) -> Partial:
        """Never called."""
        raise NotImplementedError


def fold_graph(n_partitions: int, workers: int) -> dict[Any, Any]:
    """The graph that a scan of so many partitions builds: key -> Dask task."""
    keys = [f"{number:032x}" for number in range(n_partitions)]
    parts = [Part(key, 1) for key in keys]
    job = FoldJob(NothingDone(), NamedStage(), parts, fold_keys(keys, ""))  # type: ignore[arg-type]
    return dict(job.graph(frozenset(), workers).__dask_graph__())  # type: ignore[union-attr]


def chain_tasks(n_partitions: int, workers: int) -> dict[int, tuple[str, int, list[int]]]:
    """The real graph as numbered tasks."""
    graph = fold_graph(n_partitions, workers)
    kinds = {"commit_part": "part", "commit_fold": "chain"}
    seen: dict[str, int] = {"part": 0, "chain": 0}
    tasks = {}
    for (_, number), task in graph.items():
        kind = kinds[task.func.__name__]
        tasks[number] = (kind, seen[kind], [key[1] for key in task.dependencies])
        seen[kind] += 1
    return tasks


def tree_tasks(n_partitions: int) -> dict[int, tuple[str, int, list[int]]]:
    """Parts, and pairs of neighbours folded as soon as both are there, by a shape that hangs on their number alone."""
    tasks: dict[int, tuple[str, int, list[int]]] = {}
    open_subtrees: list[tuple[int, int]] = []  # (height, task), as the digits of a binary counter

    def add(kind: str, index: int, after: list[int]) -> int:
        tasks[len(tasks)] = (kind, index, after)
        return len(tasks) - 1

    for index in range(n_partitions):
        open_subtrees.append((0, add("part", index, [])))
        while len(open_subtrees) > 1 and open_subtrees[-1][0] == open_subtrees[-2][0]:
            (height, right), (_, left) = open_subtrees.pop(), open_subtrees.pop()
            open_subtrees.append((height + 1, add("tree", index, [left, right])))
    while len(open_subtrees) > 1:
        (_, right), (height, left) = open_subtrees.pop(), open_subtrees.pop()
        open_subtrees.append((height, add("tree", n_partitions, [left, right])))
    return tasks


def replay(costs: Costs, documents: float, partition: int, on: Machine, folds: str) -> Replayed:
    """Simulate one scan."""
    nonzeros = documents * NONZEROS
    count = max(1, math.ceil(nonzeros / partition))
    tasks = chain_tasks(count, on.workers) if folds == "chain" else tree_tasks(count)
    seconds = Replay(tasks, costs, min(partition, int(nonzeros)), on).seconds()
    one = costs.fold_seconds + 2 * on.transfer(costs.fold_bytes)
    depth = count if folds == "chain" else math.ceil(math.log2(count + 1))
    work = nonzeros * costs.seconds_per_nonzero + count * one
    return Replayed(
        costs.stage,
        folds,
        documents,
        count,
        on.workers,
        seconds,
        work / on.workers,
        depth * one,
        len(tasks) * on.scheduler_seconds,
    )


def measure_stage(name: str, reduction: Reduction, partitions: Sequence[Any]) -> Costs:
    """Costs of a real reduction on real partitions, in seconds of processor time of one thread."""
    with single_blas_thread():
        started = time.thread_time()
        partials = [reduction.compute(partition) for partition in partitions]
        computed = time.thread_time() - started
        folded = reduction.fold(None, partials[0])
        started = time.thread_time()
        for partial in partials[1:]:
            folded = reduction.fold(folded, partial)
        fold_seconds = (time.thread_time() - started) / (len(partials) - 1)
    nonzeros = sum(partition.nonzeros for partition in partitions)
    sizes = [sum(array.nbytes for array in partial.arrays.values()) for partial in (partials[0], folded)]
    return Costs(name, computed / nonzeros, fold_seconds, *sizes)


def measure(documents: int, words: int, max_topics: int) -> list[Costs]:
    """Costs of both scans of a simulated corpus."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate_zipf(folder / "corpus", documents, words)
        settings = ScanSettings(max_topics=max_topics)
        scan(folder / "corpus", folder / "moments", settings, Execution("threads", 2))
        corpus = open_corpus(folder / "corpus")
        units = list_units(corpus)
        partitions = plan_partitions(units, max(1, corpus.nonzeros // 4))
        store = open_moments(folder / "moments").store
        return [
            measure_stage("scan 1", RangeReduction(corpus.n_words, settings), partitions),
            measure_stage("scan 2", ProjectionReduction.of(store), partitions),
        ]


def scheduler_seconds(tasks: int = 4000) -> float:
    """Seconds that a scheduler spends on a task that does nothing, with one worker process."""
    from distributed import Client, LocalCluster

    graph = TaskGraph()
    waiting = graph.delayed([graph.add(_nothing) for _ in range(tasks)])
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.compute(waiting).result()
        graph = TaskGraph()
        waiting = graph.delayed([graph.add(_nothing) for _ in range(tasks)])
        started = time.perf_counter()
        client.compute(waiting).result()
        return (time.perf_counter() - started) / tasks


def _nothing(*tokens: str) -> str:
    return str(len(tokens))


def weigh_graphs(counts: Sequence[int], workers: int) -> list[dict[str, float]]:
    """Seconds, bytes in memory and bytes on the wire of graphs that are really built."""
    rows = []
    for count in counts:
        tracemalloc.start()
        started = time.process_time()
        graph = fold_graph(count, workers)
        seconds = time.process_time() - started
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append(
            {
                "partitions": count,
                "tasks": len(graph),
                "seconds": seconds,
                "bytes": held,
                "sent": len(pickle.dumps(graph)),
            }
        )
    return rows


def numbers(text: str) -> list[float]:
    """What stands between commas."""
    return [float(item) for item in text.split(",")]


@click.command(help=__doc__)
@click.option(
    "--documents", default="1e6,1e7,1e8,1e9,1e10", show_default=True, help="Sizes to replay, with commas."
)
@click.option("--workers", default="8,64,512,4096", show_default=True, help="Threads, with commas.")
@click.option(
    "--partitions", default="8e6,64e6", show_default=True, help="Nonzeros of a partition, with commas."
)
@click.option("--words", default=50_000, show_default=True, help="Of the corpus that costs are measured on.")
@click.option("--max-topics", default=50, show_default=True)
@click.option(
    "--bandwidth", default=200e6, show_default=True, help="Bytes a second of the store, each worker."
)
@click.option(
    "--latency", default=0.05, show_default=True, help="Seconds of a commit or a read in the store."
)
@click.option(
    "--json", "target", default=None, type=click.Path(path_type=Path), help="Also write all rows here."
)
def main(
    documents: str,
    workers: str,
    partitions: str,
    words: int,
    max_topics: int,
    bandwidth: float,
    latency: float,
    target: Path | None,
) -> None:
    stages = measure(100_000, words, max_topics)
    scheduler = scheduler_seconds()
    for costs in stages:
        click.echo(
            f"{costs.stage}: {costs.seconds_per_nonzero * 1e9:.0f} ns a nonzero, {costs.fold_seconds:.2f} s a fold, "
            f"{costs.part_bytes / 1e6:.0f} MB a part, {costs.fold_bytes / 1e6:.0f} MB a fold"
        )
    click.echo(f"scheduler: {scheduler * 1e3:.2f} ms a task\n")
    rows = []
    click.echo(
        "| stage | folds | documents | partitions | workers | time | efficiency | bound |\n"
        + "|---" * 8
        + "|"
    )
    for costs in stages:
        for size in numbers(documents):
            for partition in numbers(partitions):
                for count in numbers(workers):
                    on = Machine(int(count), scheduler, bandwidth, latency)
                    for folds in ("chain", "tree"):
                        row = replay(costs, size, int(partition), on, folds)
                        rows.append(row)
                        click.echo(
                            f"| {row.stage} | {folds} | {size:.0e} | {row.partitions:,} | {row.workers:,} | "
                            f"{row.seconds / 60:,.1f} min | {row.efficiency:.2f} | {row.bound} |"
                        )
    click.echo("\n| partitions | tasks | CPU seconds to build | MB held | MB sent |\n" + "|---" * 5 + "|")
    graphs = weigh_graphs((1_000, 10_000, 100_000), 512)
    for graph in graphs:
        click.echo(
            f"| {graph['partitions']:,} | {graph['tasks']:,} | {graph['seconds']:.1f} | {graph['bytes'] / 1e6:.0f} | "
            f"{graph['sent'] / 1e6:.0f} |"
        )
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
