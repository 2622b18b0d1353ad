"""Simplex least squares for many words: time and certificates by method.

    python -m benchmarks.simplex [--words 100000] [--topics 100] [--threads 2] [--methods active-set]

Three kinds of rows: `usual` has vertices of condition 5e4, sparse mixtures and noise, like rows of real corpora; `hard`
has the same vertices and mixtures of half of them without noise; `easy` has vertices of condition 10. The gap is the
maximum over words, relative to the squared norm of the row. Compilation is excluded.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import click
import numpy as np
from numpy.typing import NDArray

from streaming_jsmf.config import SimplexMethod
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


@click.command(help=__doc__)
@click.option("--words", default=100_000, show_default=True)
@click.option("--topics", default=100, show_default=True)
@click.option("--threads", default=2, show_default=True)
@click.option("--methods", default="active-set", show_default=True)
def main(words: int, topics: int, threads: int, methods: str) -> None:
    click.echo("| rows | method | seconds | processor seconds | gap | steps, most | nonzeros a word |")
    click.echo("|---|---|---:|---:|---:|---:|---:|")
    for name, kind in KINDS.items():
        rows, vertices = rows_and_vertices(kind, words, topics)
        squares = np.einsum("ij,ij->i", rows, rows)
        for given in methods.split(","):
            method: SimplexMethod = given  # type: ignore[assignment]
            simplex_least_squares(rows[:10], vertices, method=method, threads=1)
            wall, cpu = time.perf_counter(), time.process_time()
            found = simplex_least_squares(rows, vertices, method=method, threads=threads)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            click.echo(
                f"| {name} | {method} | {wall:.1f} | {cpu:.1f} | {(found.gap / squares).max():.1e} "
                f"| {found.iterations} | {np.count_nonzero(found.weights) / words:.1f} |"
            )


if __name__ == "__main__":
    main()
