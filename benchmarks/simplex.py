"""Simplex least squares for many words: time and certificates.

    python -m benchmarks.simplex [--words 100000] [--topics 100] [--threads 2] [--moments MOMENTS]

Three kinds of rows: `usual` has vertices of condition 5e4, sparse mixtures and noise, like rows of real corpora; `hard`
has the same vertices and mixtures of half of them without noise; `easy` has vertices of condition 10. `--moments` adds
the rows and anchors of a corpus. The gap is the maximum over words, relative to the squared norm of the row. The first
call, which compiles unless ``NUMBA_CACHE_DIR`` has the result, has a line of its own. To compare two versions, run
both with ``--threads 1`` in turn.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

import click
import numpy as np
from numpy.typing import NDArray

import streaming_jsmf as sj
from streaming_jsmf.inference import law
from streaming_jsmf.linalg.simplex import simplex_least_squares

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Kind:
    """Condition number of the vertices, vertices mixed in each row (number or fraction of K), noise of the rows."""

    condition: float
    mixed: float
    noise: float


KINDS = {"usual": Kind(5e4, 8, 1e-3), "hard": Kind(5e4, 0.5, 0.0), "easy": Kind(10.0, 5, 1e-2)}


def rows_and_vertices(kind: Kind, n_words: int, n_topics: int) -> tuple[Floats, Floats]:
    """X (n_words x K) and V (K x K) of one kind; seed 0."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.standard_normal((n_topics, n_topics)))[0] for _ in range(2))
    vertices = left @ np.diag(np.geomspace(1.0, 1.0 / kind.condition, n_topics)) @ right
    mixed = min(int(kind.mixed * n_topics if kind.mixed < 1 else kind.mixed), n_topics)
    rows = np.empty((n_words, n_topics))
    for start in range(0, n_words, 10_000):
        part = rows[start : start + 10_000]
        mixtures = np.zeros((len(part), n_topics))
        chosen = np.argsort(rng.random(mixtures.shape), axis=1)[:, :mixed]
        np.put_along_axis(mixtures, chosen, rng.dirichlet(np.ones(mixed), len(part)), axis=1)
        part[:] = mixtures @ vertices + kind.noise * rng.standard_normal(mixtures.shape)
    return rows, vertices


def rows_and_anchors(moments: str, n_topics: int) -> tuple[Floats, Floats]:
    """The arguments with which ``infer`` solves the simplex problems of a corpus."""
    with tempfile.TemporaryDirectory() as folder, patch.object(law, "simplex_least_squares") as solver:
        solver.side_effect = simplex_least_squares
        sj.infer(moments, Path(folder, "model"), n_topics)
    rows, vertices = solver.call_args.args
    return np.asarray(rows), np.asarray(vertices)


@click.command(help=__doc__)
@click.option("--words", default=100_000, show_default=True)
@click.option("--topics", default=100, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--moments", help="Result of scan, for at least as many topics.")
def main(words: int, topics: int, threads: int, moments: str | None) -> None:
    cpu = time.process_time()
    simplex_least_squares(np.eye(2), np.eye(2), threads=1)
    click.echo(f"First call: {time.process_time() - cpu:.1f} processor seconds\n")
    click.echo("| rows | seconds | processor seconds | gap | nonzeros a word |")
    click.echo("|---|---:|---:|---:|---:|")
    problems = {name: partial(rows_and_vertices, kind, words, topics) for name, kind in KINDS.items()}
    if moments:
        problems[moments] = partial(rows_and_anchors, moments, topics)
    for name, problem in problems.items():
        rows, vertices = problem()
        wall, cpu = time.perf_counter(), time.process_time()
        found = simplex_least_squares(rows, vertices, threads=threads)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        squares = np.einsum("ij,ij->i", rows, rows)
        gap = (found.gap[squares > 0] / squares[squares > 0]).max()
        nonzeros = np.count_nonzero(found.weights) / len(rows)
        click.echo(f"| {name} | {wall:.2f} | {cpu:.2f} | {gap:.1e} | {nonzeros:.1f} |")


if __name__ == "__main__":
    main()
