"""The leading subspace of a corpus by a scan, and by dask-ml's TruncatedSVD on the same documents as a Dask array.

    python -m benchmarks.dask_svd CORPUS [--rank 20]

dask-ml's decomposition fails on sparse blocks, so each block is made dense, N float32 a document, when it is used. Both
see sqrt(w / (n (n - 1))) h of each document, whose Gram matrix, less the diagonal of Eq. 1, is C; the SVD cannot take
that diagonal off. Prints seconds by the clock and of the processor, and how much of the sum of C's leading eigenvalues
each subspace holds.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from dask_ml.decomposition import TruncatedSVD
from numpy.typing import NDArray
from scipy.sparse import csr_array

from streaming_jsmf import Execution, ScanSettings, open_corpus, scan, to_dask_array
from streaming_jsmf.linalg.weights import document_weights

Floats = NDArray[np.float64]


def scaled(block: csr_array) -> NDArray[np.float32]:
    """Rows sqrt(w / (n (n - 1))) h, dense; zero for documents below two tokens."""
    lengths = np.asarray(block.sum(axis=1), dtype=np.float64).ravel()
    weights = np.where(lengths >= 2, document_weights(lengths, "capped"), 0.0)
    n = np.maximum(lengths, 2.0)
    return (block.toarray() * np.sqrt(weights / (n * (n - 1)))[:, None]).astype(np.float32)


def timed(work: Callable[[], Floats]) -> tuple[Floats, float, float]:
    """The result, and its seconds by the clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    return work(), time.perf_counter() - wall, time.process_time() - cpu


@click.command(help=__doc__)
@click.argument("corpus", type=click.Path(exists=True, path_type=Path))
@click.option("--rank", type=int, default=20, show_default=True)
def main(corpus: Path, rank: int) -> None:
    opened = open_corpus(corpus)

    def by_svd() -> Floats:
        dense = to_dask_array(opened).map_blocks(scaled, dtype=np.float32, meta=np.empty((0, 0), np.float32))
        found = TruncatedSVD(rank, algorithm="randomized", n_iter=2, random_state=0).fit(dense)
        return np.asarray(found.components_, dtype=np.float64).T

    with tempfile.TemporaryDirectory() as folder:

        def by_scan() -> Floats:
            store = scan(opened, Path(folder) / "m", ScanSettings(max_topics=rank), Execution("threads"))
            return store.eigenpairs(rank, extra=0).vectors

        exact = scan(opened, Path(folder) / "exact", ScanSettings(max_topics=rank, exact=True))
        C = exact.cooccurrence()
        best = exact.eigenpairs(rank, extra=0).values.sum()
        for name, work in (("scan", by_scan), ("dask-ml TruncatedSVD", by_svd)):
            basis, wall, cpu = timed(work)
            held = np.trace(basis.T @ C @ basis) / best
            click.echo(f"{name}: {wall:.1f} s, {cpu:.1f} CPU s, {held:.4f} of the leading {rank} eigenvalues")


if __name__ == "__main__":
    main()
