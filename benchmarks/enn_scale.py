"""Time, steps and peak memory of ENN and LAW on simulated moments of growing vocabularies.

    python -m benchmarks.enn_scale [--words 10000,30000,100000] [--topics 100] [--threads 2]

The moments are eigenpairs of F F' with F = [B chol(A), T]: K separable topics whose words follow Zipf's law, and random
directions T with eigenvalues among those of the topics, scaled by the root of each word's share like sampling noise.
There is no gap at K, rare words are mostly noise, and Y Y' has many negative entries. Each size runs in its own
process. The last column is the exponent with which CPU time, over all threads, grows from the previous row.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import click
import numpy as np
from dask.utils import format_bytes
from numpy.typing import NDArray

from streaming_jsmf.config import InferSettings
from streaming_jsmf.inference.law import AnchorRules, low_rank_anchor_words
from streaming_jsmf.jobs.blas import single_blas_thread
from streaming_jsmf.linalg.eigen import Eigenpairs
from streaming_jsmf.linalg.panels import gram, panels
from streaming_jsmf.process_limits import peak_memory
from streaming_jsmf.rectification.enn import epsilon_nonnegative

#: Number of random tail directions; documents of the simulated corpus and tokens of each.
TAIL, DOCUMENTS, LENGTH = 40, 200_000, 100

#: Offset of the ranks in Zipf's law, as after stop word removal; shape of the gamma weights that separate the topics.
HEAD, SPREAD = 100, 0.02

#: Fraction of a topic's mass on its anchor.
ANCHOR_MASS = 0.01


def simulated_factor(n_words: int, n_topics: int, seed: int) -> NDArray[np.float32]:
    """Factor F, N x (K + TAIL)."""
    rng = np.random.default_rng(seed)
    share = 1.0 / (np.arange(n_words) + HEAD)
    share /= share.sum()
    # Column by column, to avoid B in float64.
    factor = np.empty((n_words, n_topics + TAIL), dtype=np.float32)
    anchors = rng.choice(n_words // 20, n_topics, replace=False)
    for topic in range(n_topics):
        column = share * rng.gamma(SPREAD, size=n_words)
        column[anchors] = 0.0
        column *= (1 - ANCHOR_MASS) / column.sum()
        column[anchors[topic]] = ANCHOR_MASS
        factor[:, topic] = column
    theta = rng.dirichlet(np.full(n_topics, 0.1), size=20 * n_topics)
    root = np.linalg.cholesky(theta.T @ theta / len(theta)).astype(np.float32)
    for rows in panels(n_words):
        factor[rows, :n_topics] = factor[rows, :n_topics] @ root
    spectrum = np.linalg.eigvalsh(gram(factor[:, :n_topics]))[::-1]
    for number in range(TAIL):
        noise = np.sqrt(share) * rng.standard_normal(n_words)
        strength = spectrum[n_topics // 5] / (1 + 10 * number / TAIL)
        factor[:, n_topics + number] = np.sqrt(strength) * noise / np.linalg.norm(noise)
    return factor


def leading_pairs(factor: NDArray[np.float32], count: int) -> Eigenpairs:
    values, rotation = np.linalg.eigh(gram(factor))
    values, rotation = values[::-1][:count], rotation[:, ::-1][:, :count]
    vectors = np.empty((factor.shape[0], count))
    for rows in panels(len(factor)):
        vectors[rows] = factor[rows] @ (rotation / np.sqrt(values))
    return Eigenpairs(values, vectors)


def measure(n_words: int, n_topics: int, threads: int, seed: int, acceleration: str) -> dict[str, Any]:
    """Run ENN with the defaults of ``infer``, then LAW, in this process."""
    settings = InferSettings(n_topics, acceleration=acceleration)  # type: ignore[arg-type]
    with single_blas_thread():
        factor = simulated_factor(n_words, n_topics, seed)
        row_sum = (factor @ factor.sum(axis=0)).astype(np.float64)
        pairs = leading_pairs(factor, n_topics + 10)
        del factor
        started, cpu = time.perf_counter(), time.process_time()
        found = epsilon_nonnegative(pairs, n_topics, acceleration=settings.acceleration, threads=threads)
        rectified = time.perf_counter()
        frequency = np.rint(DOCUMENTS * -np.expm1(-LENGTH * np.maximum(row_sum, 0))).astype(np.int64)
        topics = low_rank_anchor_words(
            found.rectified,
            row_sum,
            frequency,
            AnchorRules(
                min_document_frequency=settings.anchor_floor(DOCUMENTS),
                shrinkage=settings.shrinkage(DOCUMENTS),
            ),
            threads=threads,
        )
    return {
        "enn": rectified - started,
        "steps": found.iterations,
        "law": time.perf_counter() - rectified,
        "topic_topic_sum": float(topics.topic_topic.sum()),
        "cpu": time.process_time() - cpu,
        "memory": peak_memory(),
        **found.report(),
    }


@click.command(help=__doc__)
@click.option(
    "--words", default="10000,30000,100000", show_default=True, help="Numbers of words, separated by commas."
)
@click.option("--topics", default=100, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--acceleration", default="momentum", show_default=True)
@click.option("--here", is_flag=True, hidden=True, help="Measure one size in this process and print JSON.")
def main(words: str, topics: int, threads: int, seed: int, acceleration: str, here: bool) -> None:
    if here:
        click.echo(json.dumps(measure(int(words), topics, threads, seed, acceleration)))
        return
    click.echo("| words | steps | ENN, s | LAW, s | CPU, s | sum(A) | epsilon | peak memory | exponent |")
    click.echo("|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    before: tuple[int, float] | None = None
    for size in map(int, words.split(",")):
        command = [sys.executable, "-m", "benchmarks.enn_scale", "--here", "--words", str(size)]
        command += ["--topics", str(topics), "--threads", str(threads), "--seed", str(seed)]
        command += ["--acceleration", acceleration]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        seconds = row["cpu"]
        growth = "" if before is None else f"{np.log(seconds / before[1]) / np.log(size / before[0]):.2f}"
        before = (size, seconds)
        click.echo(
            f"| {size:,} | {row['steps']} | {row['enn']:.1f} | {row['law']:.1f} | {row['cpu']:.1f} "
            f"| {row['topic_topic_sum']:.3f} | {row['epsilon']:.1e} | {format_bytes(row['memory'])} | {growth} |"
        )


if __name__ == "__main__":
    main()
