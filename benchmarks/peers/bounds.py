"""Lower bounds for two scans on this machine: decoding, sparse products and dense products alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.peers.methods import scaled
from streaming_jsmf import ScanSettings
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.sampled import BASIS_STEPS


def bounds(corpus: Path, counts: sparse.csr_array, n_topics: int) -> dict[str, float]:
    """CPU seconds of one thread.

    ``decode``: pyarrow reads ids and counts twice, once per scan. ``products``: H'(H X) in float32 with the whole
    matrix in memory, for the total number of columns of two scans and the steps between them. ``dense``: eight BLAS
    products of an N x R block and an R x R matrix, about the cost of orthogonalizing and rotating it in each step.
    """
    settings = ScanSettings(max_topics=n_topics)
    rows = scaled(counts)
    generator = np.random.Generator(np.random.Philox(key=1))
    block = block_width(settings.basis_width + GUARD_VECTORS)
    wide = generator.standard_normal((rows.shape[1], block), dtype=np.float32)
    square = generator.standard_normal((wide.shape[1], wide.shape[1]), dtype=np.float32)
    with threadpool_limits(1):
        pair = _seconds(lambda: rows.T @ (rows @ wide))
        return {
            "decode": 2 * _seconds(lambda: _read(corpus)),
            "products": (3 + BASIS_STEPS) * pair,
            "dense": 8 * _seconds(lambda: wide @ square),
        }


def _seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _read(corpus: Path) -> None:
    for shard in sorted(corpus.glob("*.parquet")):
        pq.read_table(shard, columns=["ids", "counts"], use_threads=False)
