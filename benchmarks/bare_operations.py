"""CPU seconds of the main operations of each stage alone, from raw texts to polished topics.

- ingest: pyarrow decodes the texts; one compiled loop over their bytes lowers letters, finds words, and counts them in
  a hash table; pyarrow writes the shards again with zstd at level 3.
- scan: pyarrow decodes ids and counts once per pass; SciPy's H'(H X) in float32 for all documents with the columns of
  the second and of the third pass, and for the sample with its block, as often as block Davidson multiplies.
- infer: BLAS's N x |I| x K product in float32, once per step of ENN, although some steps compute
  only a part of it. Nothing of the recovery of topics.
- polish: pyarrow decodes ids and counts once per pass; four operations per nonzero, topic and round, at the rate of the
  bare loop of ``benchmarks.polish_step``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.peers.methods import scaled
from benchmarks.polish_step import BARE_ROWS, bare_call
from pipelines.common.bags import read_counts
from streaming_jsmf import open_model, open_moments
from streaming_jsmf.inference.polish import FULL_STEPS, plan_steps
from streaming_jsmf.linalg.eigen import GUARD_VECTORS, block_width
from streaming_jsmf.linalg.sampled import BASIS_STEPS, OUTSIDE_STEPS, SampleParts

#: Places of the hash table, a power of two, several times the number of different words.
PLACES = 1 << 20


@njit
def counted_words(text: NDArray[np.uint8], table: NDArray[np.int64]) -> int:
    """Count the words of ``text`` (UTF-8) by their FNV-1a hash; bytes above 127 count as letters."""
    hashed, length, words = np.uint64(14695981039346656037), 0, 0
    for byte in text:
        letter = byte | 32
        if 97 <= letter <= 122 or byte > 127:
            hashed = (hashed ^ np.uint64(letter)) * np.uint64(1099511628211)
            length += 1
        elif length:
            table[hashed & np.uint64(PLACES - 1)] += 1
            hashed, length, words = np.uint64(14695981039346656037), 0, words + 1
    return words


def seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def decoded(corpus: Path) -> float:
    shards = sorted((corpus / "documents").glob("*.parquet"))
    return seconds(
        lambda: [pq.read_table(shard, columns=["ids", "counts"], use_threads=False) for shard in shards]
    )


def bare_ingest(source: Path, corpus: Path) -> float:
    total = seconds(lambda: pq.read_table(source, columns=["text"], use_threads=False))
    table = np.zeros(PLACES, np.int64)
    counted_words(np.zeros(1, np.uint8), table)  # compiles
    for chunk in pq.read_table(source, columns=["text"])["text"].chunks:
        total += seconds(partial(counted_words, np.frombuffer(chunk.buffers()[-1], np.uint8), table))
    for shard in sorted((corpus / "documents").glob("*.parquet")):
        options = {"compression": "zstd", "compression_level": 3, "use_dictionary": False}
        total += seconds(partial(pq.write_table, pq.read_table(shard), pa.BufferOutputStream(), **options))
    return total


def bare_scan(corpus: Path, store: Path) -> float:
    moments = open_moments(store)
    generator = np.random.default_rng(1)

    def product(rows: Any, columns: int) -> float:
        vectors = generator.standard_normal((rows.shape[1], columns), dtype=np.float32)
        return seconds(lambda: rows.T @ (rows @ vectors))

    second = moments.read("basis").shape[1]
    third = moments.read("directions").shape[1]
    rows = scaled(read_counts(corpus))
    total = (2 + bool(third)) * decoded(corpus) + product(rows, second)
    if third:
        total += product(rows, third)
    share = moments.manifest.sample_share
    assert share is not None, "not halko"
    documents, outside = moments.sample(), moments.settings.max_topics + GUARD_VECTORS
    parts = SampleParts.of(documents, share)
    total += (2 + BASIS_STEPS) * product(parts.fitted, block_width(second + GUARD_VECTORS))
    return total + OUTSIDE_STEPS * product(parts.fitted, block_width(outside))


def bare_inference(store: Path, topics: int) -> float:
    model = open_model(store)
    found = model.attrs["metrics"]["rectification"]
    generator = np.random.default_rng(2)
    tall = generator.standard_normal((model.sizes["word"], topics), dtype=np.float32)
    rows = np.ascontiguousarray(tall[: found["checked_words"]].T)

    def step() -> None:
        # In blocks, like a step, so that no product leaves the cache.
        for start in range(0, len(tall), 256):
            tall[start : start + 256] @ rows

    return float(found["iterations"] * seconds(step))


def bare_polish(corpus: Path, topics: int) -> float:
    counts = read_counts(corpus)
    nonzeros = counts.nnz
    rows = BARE_ROWS * max(1, 1_000_000 // (BARE_ROWS * topics))
    call = bare_call(topics)
    call()  # compiles
    second = min(seconds(call) for _ in range(20)) / (rows * topics)
    visited = sum(step.share * (step.rounds + 1) for step in plan_steps(nonzeros, counts.shape[0]))
    return (1 + FULL_STEPS) * decoded(corpus) + visited * nonzeros * topics * second


def bare_operations(source: Path, folder: Path, topics: int) -> dict[str, float]:
    """By stage, for texts and the ``corpus``, ``moments`` and ``model`` that the stages left in ``folder``."""
    with threadpool_limits(1):
        return {
            "ingest": bare_ingest(source, folder / "corpus"),
            "scan": bare_scan(folder / "corpus", folder / "moments"),
            "infer": bare_inference(folder / "model", topics),
            "polish": bare_polish(folder / "corpus", topics),
        }
