"""Loss of accuracy from merging factors: leading eigenpairs compared with those of the exact C.

    python -m benchmarks.merge_accuracy CORPUS [--topics 50] [--partitions 1,2,4,8,16,32,64]

YYerr is ||Y Y' - Y* Y*'||_F / ||Y* Y*'||_F with Y = V_+ D_+^(1/2) from the K leading eigenpairs, and Y* from the exact
C by Lanczos. The first table divides one corpus into more and more partitions. The second merges the stores of two
halves of the corpus, each without a sixth of the words and in its own word order, and compares them with one scan of
the same documents over the union of the words.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from pipelines.common.bags import Bag, read_bag
from streaming_jsmf import Execution, ScanSettings, scan
from streaming_jsmf.evaluation.matching import yy_error
from streaming_jsmf.moments.changes import Changes
from streaming_jsmf.moments.reader import Moments

Floats = NDArray[np.float64]
ROW_GROUP = 20


@dataclass(frozen=True)
class Source:
    """Documents with their own vocabulary, and the path of the corpus on disk."""

    path: Path
    bag: Bag


def exact_half(counts: sparse.csr_array, K: int) -> Floats:
    """V_+ D_+^(1/2) (N x K, float64) of the K largest algebraic eigenpairs of Eq. 1 with weights min(n, 200)."""
    counts = counts[counts.sum(axis=1) >= 2]
    n = counts.sum(axis=1)
    weights = np.minimum(n, 200.0)
    pairs = weights / (n * (n - 1)) / weights.sum()
    scaled = sparse.csr_array(sparse.diags_array(np.sqrt(pairs)) @ counts)
    diagonal = counts.T @ pairs
    N = counts.shape[1]
    C = LinearOperator(
        (N, N), matvec=lambda x: scaled.T @ (scaled @ x.ravel()) - diagonal * x.ravel(), dtype=float
    )
    values, vectors = eigsh(C, K, which="LA", v0=np.ones(N), tol=1e-12)
    return vectors * np.sqrt(np.maximum(values, 0.0))


def half(moments: Moments, K: int) -> Floats:
    """V_+ D_+^(1/2) (N x K) of a moments store."""
    pairs = moments.eigenpairs(K, extra=0)
    return pairs.vectors * np.sqrt(np.maximum(pairs.values, 0.0))


def write(bag: Bag, path: Path) -> Source:
    """Write a corpus with small row groups, because partitions consist of whole row groups."""
    path.mkdir()
    counts = bag.counts
    offsets = pa.array(counts.indptr.astype(np.int32))
    table = pa.table(
        {
            "ids": pa.ListArray.from_arrays(offsets, pa.array(counts.indices.astype(np.int32))),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(counts.data.astype(np.int32))),
        }
    )
    pq.write_table(table, path / "part-0.parquet", row_group_size=ROW_GROUP)
    (path / "vocab.txt").write_text("\n".join(bag.words) + "\n", encoding="utf-8")
    return Source(path, bag)


def over(bag: Bag, words: list[str]) -> Bag:
    """The same documents over a larger vocabulary; indices are sorted in a copy, because the arrays would be shared."""
    places = {word: i for i, word in enumerate(words)}
    columns = np.array([places[word] for word in bag.words])
    counts = bag.counts
    wide = sparse.csr_array(
        (counts.data.copy(), columns[counts.indices], counts.indptr),
        shape=(len(bag.counts.indptr) - 1, len(words)),
    )
    wide.sort_indices()
    return Bag(wide, words)


def by_partitions(source: Source, settings: ScanSettings, numbers: list[int], work: Path) -> Iterator[str]:
    K = settings.max_topics
    exact = exact_half(source.bag.counts, K)
    for number in numbers:
        budget = -(-source.bag.counts.nnz // number)
        errors, made = [], 0
        for scans in (1, 2):
            store = work / f"{number}-{scans}"
            moments = scan(
                source.path,
                store,
                replace(settings, scans=scans, partition_nonzeros=budget),
                Execution("threads"),
            )
            made = len(moments.manifest.partitions)
            errors.append(yy_error(half(moments, K), exact))
        yield f"| {made} | {errors[0]:.1e} | {errors[1]:.1e} |"


def sources(bag: Bag, work: Path, rng: np.random.Generator) -> list[Source]:
    """Two halves of the documents; each lacks a random sixth of the words and has its own word order."""
    lacking = np.array_split(rng.permutation(len(bag.words)), 6)
    made = []
    for name, rows, missing in zip(
        "ab", np.array_split(np.arange(bag.counts.shape[0]), 2), lacking, strict=False
    ):
        kept = rng.permutation(np.setdiff1d(np.arange(len(bag.words)), missing))
        counts = sparse.csr_array(bag.counts[rows][:, kept])
        counts.sort_indices()
        made.append(write(Bag(counts, [bag.words[i] for i in kept]), work / name))
    return made


def by_source(bag: Bag, settings: ScanSettings, work: Path) -> Iterator[str]:
    K, parts = settings.max_topics, sources(bag, work, np.random.default_rng(settings.seed))
    for scans in (1, 2):
        each = replace(settings, scans=scans, partition_nonzeros=-(-bag.counts.nnz // 8))
        first, second = (work / f"{source.path.name}-{scans}" for source in parts)
        for source, store in zip(parts, (first, second), strict=True):
            scan(source.path, store, each)
        merged = scan(parts[0].path, first, changes=Changes(merge=[str(second)]))
        stacked = sparse.vstack(
            [over(source.bag, list(merged.words)).counts for source in parts], format="csr"
        )
        whole = write(Bag(sparse.csr_array(stacked), list(merged.words)), work / f"whole-{scans}")
        joint = scan(whole.path, work / f"joint-{scans}", each)
        exact = exact_half(whole.bag.counts, K)
        errors = [
            yy_error(half(joint, K), exact),
            yy_error(half(merged, K), exact),
            yy_error(half(merged, K), half(joint, K)),
        ]
        yield f"| {scans} | " + " | ".join(f"{error:.1e}" for error in errors) + " |"


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--topics", default=50, show_default=True)
@click.option("--partitions", default="1,2,4,8,16,32,64", show_default=True)
@click.option("--seed", default=0, show_default=True)
def main(corpus: Path, topics: int, partitions: str, seed: int) -> None:
    settings, bag = ScanSettings(max_topics=topics, seed=seed), read_bag(corpus)
    with tempfile.TemporaryDirectory() as folder:
        source = write(bag, Path(folder) / "corpus")
        click.echo("| partitions | YYerr, scan 1 alone | YYerr, with scan 2 |\n|---:|---:|---:|")
        for line in by_partitions(source, settings, [int(n) for n in partitions.split(",")], Path(folder)):
            click.echo(line)
        click.echo("\n| scans | joint scan | merged | merged against joint |\n|---:|---:|---:|---:|")
        for line in by_source(bag, settings, Path(folder)):
            click.echo(line)


if __name__ == "__main__":
    main()
