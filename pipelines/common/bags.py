"""Corpora in memory, for comparisons with dense or in-memory methods."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from streaming_jsmf.corpus import open_corpus


@dataclass(frozen=True)
class Bag:
    """``counts`` (CSR, documents x words, float64) and ``words`` in column order."""

    counts: sparse.csr_array
    words: list[str]


def read_bag(path: Path) -> Bag:
    words = open_corpus(path).vocabulary().words
    return Bag(read_counts(path).astype(np.float64), [str(word) for word in words])


def read_counts(path: Path) -> sparse.csr_array:
    """Read the counts of a whole corpus, documents x words, int32."""
    corpus = open_corpus(path)
    shards = [_shard(corpus.shard_path(shard), corpus.n_words) for shard in corpus.shards]
    return sparse.vstack(shards, format="csr")


def _shard(path: str, n_words: int) -> sparse.csr_array:
    table = pq.read_table(path, columns=["ids", "counts"])
    ids, counts = (table[name].combine_chunks() for name in ("ids", "counts"))
    starts = np.concatenate([[0], np.cumsum(ids.value_lengths().to_numpy())])
    values = counts.flatten().to_numpy().astype(np.int32)
    return sparse.csr_array((values, ids.flatten().to_numpy(), starts), shape=(len(table), n_words))


def write_corpus(path: Path, counts: sparse.csr_array, documents_per_shard: int = 50_000) -> None:
    """Write a CSR matrix as a Parquet corpus with word ids as words; ``path`` exists only when it is complete."""
    part = path.with_name(path.name + ".part")
    part.mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(range(0, counts.shape[0], documents_per_shard)):
        rows = counts[start : start + documents_per_shard]
        offsets = pa.array(rows.indptr, pa.int32())
        columns = {
            "ids": pa.ListArray.from_arrays(offsets, pa.array(rows.indices, pa.int32())),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(rows.data, pa.int32())),
        }
        pq.write_table(pa.table(columns), part / f"part-{number:05d}.parquet", row_group_size=5_000)
    (part / "vocab.txt").write_text("\n".join(map(str, range(counts.shape[1]))) + "\n", encoding="utf-8")
    part.rename(path)


def cooccurrence_counts(counts: sparse.csr_array, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Documents that contain both words of each pair of distinct ``ids``, (P, P); the diagonal is their frequency."""
    present = (sparse.csr_array(counts)[:, ids] > 0).astype(np.int64)
    pairs: NDArray[np.int64] = (present.T @ present).toarray()
    return pairs
