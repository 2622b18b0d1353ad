"""Measured costs of the tasks of a scan: seconds, bytes and requests. Used by `scale_out`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.sparse import csr_array

from benchmarks.replay import Costs
from benchmarks.s3_requests import BUCKET, column_bytes, counting_server, write_corpus
from benchmarks.scan_throughput import simulate_zipf
from streaming_jsmf import Execution, ScanSettings, open_corpus, open_moments, scan
from streaming_jsmf.corpus.units import list_units, plan_partitions
from streaming_jsmf.jobs import run
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.jobs.checkpoints import Checkpoints, PartialResult
from streaming_jsmf.jobs.order import FAN_IN, FoldStep
from streaming_jsmf.jobs.run import Reduction, TaskGraph
from streaming_jsmf.linalg.csr import apply_gram
from streaming_jsmf.moments.records import DOCUMENTS
from streaming_jsmf.moments.stages.eigenpairs import ProductReduction, column_panels
from streaming_jsmf.moments.stages.sums import SumsReduction
from streaming_jsmf.moments.stages.third_moment import ThirdMomentReduction
from streaming_jsmf.storage.arrays import create_group

#: Nonzeros per document.
NONZEROS = 75

#: Words of the wide vocabulary, and documents that its products are measured with.
WIDE_WORDS, WIDE_DOCUMENTS = 1_000_000, 20_000

#: Fraction of sampled documents in the corpus that costs are measured on.
SAMPLED_SHARE = 0.1


def measure_stage(
    name: str,
    reduction: Reduction,
    partitions: Sequence[Any],
    n_words: int,
    folder: Path,
    read: float,
    requests: tuple[float, float, float],
) -> Costs:
    """Costs of a real reduction of real partitions, in CPU seconds of one thread."""
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
    part_bytes, fold_bytes = (
        sum(array.nbytes for name, array in partial.arrays.items() if name not in DOCUMENTS)
        for partial in (partials[0], folded)
    )
    sampled = DOCUMENTS[-1] in partials[0].arrays
    each_byte = seconds_per_byte(folded, folder)
    seconds = computed / nonzeros
    return Costs(
        name, n_words, seconds, fold_seconds, each_byte, part_bytes, fold_bytes, read, requests, sampled
    )


def seconds_per_byte(partial: PartialResult, folder: Path) -> float:
    create_group(folder, {})
    checkpoints = Checkpoints(folder, "measured", "measure again")
    started = time.process_time()
    checkpoints.commit_fold("fold", partial)
    checkpoints.read_fold("fold")
    return (time.process_time() - started) / 2 / sum(array.nbytes for array in partial.arrays.values())


def measure(documents: int, words: int, max_topics: int) -> list[Costs]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate_zipf(folder / "corpus", documents, words)
        settings = ScanSettings(max_topics=max_topics)
        scan(folder / "corpus", folder / "moments", settings, Execution("threads", 2))
        corpus = open_corpus(folder / "corpus")
        units = list_units(corpus)
        partitions = plan_partitions(units, max(1, corpus.nonzeros // 4))
        store = open_moments(folder / "moments")
        read, requests = column_bytes(folder / "corpus") / corpus.nonzeros, measured_requests()
        stages: dict[str, Reduction] = {
            "scan 1, sample": SumsReduction(corpus.n_words, settings, SAMPLED_SHARE),
            "scan 2": ProductReduction.of(store),
            "third moment": ThirdMomentReduction.of(store),
        }
        return [
            measure_stage(
                name, reduction, partitions, corpus.n_words, folder / f"committed-{number}", read, requests
            )
            for number, (name, reduction) in enumerate(stages.items())
        ]


def wide(costs: Costs, max_topics: int) -> Costs:
    """Costs of scan 2 for ``WIDE_WORDS`` words, whose panels are multiplied and added here; the others are given."""
    width = ScanSettings(max_topics=max_topics).basis_width
    cut = [*column_panels(WIDE_WORDS, width)]
    columns = int(cut[0].stop)
    random = np.random.default_rng(0)
    words = np.minimum(random.zipf(1.3, WIDE_DOCUMENTS * NONZEROS) - 1, WIDE_WORDS - 1).astype(np.int32)
    starts = np.arange(0, words.size + 1, NONZEROS, dtype=np.int32)
    block = csr_array((np.ones(words.size, np.float32), words, starts), shape=(WIDE_DOCUMENTS, WIDE_WORDS))
    basis = np.ones((WIDE_WORDS, columns), np.float32)
    apply_gram(block[:1], basis)
    product = np.zeros_like(basis)
    started = time.thread_time()
    apply_gram(block, basis, product)
    computed = time.thread_time() - started
    total = basis.astype(np.float64)
    started = time.thread_time()
    total += product
    return replace(
        costs,
        stage=f"scan 2, N = {WIDE_WORDS:.0e}, K = {max_topics}",
        n_words=WIDE_WORDS,
        seconds_per_nonzero=computed / words.size,
        fold_seconds=time.thread_time() - started,
        part_bytes=product.nbytes,
        fold_bytes=total.nbytes,
        max_topics=max_topics,
        passes=len(cut),
    )


def measured_requests() -> tuple[float, float, float]:
    """Requests to an object store of a part and of an input of a fold, and of the command for each part of a pass."""
    counted, totals = {"commit_part": [0.0], "commit_fold": [0.0]}, []
    with tempfile.TemporaryDirectory() as folder, counting_server() as counts:
        nonzeros = write_corpus(Path(folder, "c"), 20_000, 20_000, metadata=20)

        def counting(name: str) -> Any:
            task = getattr(run, name)

            def inner(*arguments: Any) -> str:
                before, step = counts.requests, arguments[2]
                token: str = task(*arguments)
                inputs = len(step.folds) + len(step.parts) if isinstance(step, FoldStep) else 1
                counted[name].append((counts.requests - before) / inputs)
                return token

            inner.__name__ = name
            return inner

        patched = {name: counting(name) for name in counted}
        with patch.multiple(run, **patched):
            for parts in (10, 20):
                counts.clear()
                settings = ScanSettings(
                    max_topics=5, partition_nonzeros=-(-nonzeros // parts), sample_share=0.5
                )
                scan(Path(folder, "c"), f"s3://{BUCKET}/{parts}", settings, Execution("synchronous"))
                passes = 2 + bool(open_moments(f"s3://{BUCKET}/{parts}").array_digest("directions").shape[1])
                totals.append(counts.requests / passes)
    part, fold = (float(np.mean(found[1:])) for found in counted.values())
    command = (totals[1] - totals[0]) / 10 - part - fold * (1 + 1 / FAN_IN)
    return part, fold, max(command, 0.0)


def scheduler_seconds(tasks: int = 4000) -> float:
    """CPU seconds of an empty task in the process of the scheduler and client."""
    from distributed import Client, LocalCluster

    graph = TaskGraph()
    waiting = graph.delayed([graph.add(f"nothing-{number}", _nothing) for number in range(tasks)])
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.compute(waiting).result()
        graph = TaskGraph()
        waiting = graph.delayed([graph.add(f"nothing-{number}", _nothing) for number in range(tasks)])
        started = time.process_time()
        client.compute(waiting).result()
        return (time.process_time() - started) / tasks


def _nothing(*tokens: str) -> str:
    return str(len(tokens))
