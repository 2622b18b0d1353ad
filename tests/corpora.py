"""Small corpora with known counts, and functions that read corpora as documents, matrices and files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from streaming_jsmf.corpus import Corpus
from streaming_jsmf.corpus.bags import Documents, Place, checked_bags
from streaming_jsmf.corpus.footer import open_parquet
from streaming_jsmf.corpus.metadata import document_ids, id_column

#: Bags over three words that are not valid: ids, counts, and the beginning of the reason.
BAD_BAGS: dict[str, tuple[list[int | None] | None, list[float] | None, str]] = {
    "null ids": (None, [1.0], "ids is null"),
    "null counts": ([0], None, "counts is null"),
    "null inside": ([0, None], [1.0, 1.0], "ids holds a null"),
    "above": ([1, 3], [1.0, 1.0], "word id 3 is outside 0..2"),
    "below": ([-1], [1.0], "word id -1 is outside 0..2"),
    "falling": ([2, 1], [1.0, 1.0], "id 1 comes after 2"),
    "twice": ([1, 1], [1.0, 1.0], "id 1 comes after 1"),
    "negative": ([1], [-4.0], "count -4.0 is not in (0, 2147483647]"),
    "zero": ([0, 1], [1.0, 0.0], "count 0.0 is not in"),
    "nan": ([0], [float("nan")], "count nan is not in"),
    "infinite": ([2], [float("inf")], "count inf is not in"),
    "large": ([2], [2.0**40], "count 1"),
    "uneven": ([0, 1], [1.0], "2 ids but 1 counts"),
}


@dataclass(frozen=True)
class Planted:
    """counts: documents x words; word_topic: the true topics, words x topics."""

    counts: NDArray[np.int64]
    word_topic: NDArray[np.float64]


def planted(n_documents: int, n_words: int, n_topics: int, *, length: float = 60, seed: int = 0) -> Planted:
    """Draw documents from separable topics: word k is the anchor of topic k, with a tenth of its mass."""
    rng = np.random.default_rng(seed)
    word_topic = rng.dirichlet(np.full(n_words - n_topics, 0.2), size=n_topics).T
    word_topic = np.vstack([0.1 * np.eye(n_topics), 0.9 * word_topic])
    shares = rng.dirichlet(np.full(n_topics, 0.3), size=n_documents)
    lengths = rng.poisson(length, size=n_documents)
    rows = [rng.multinomial(n, word_topic @ share) for n, share in zip(lengths, shares, strict=True)]
    return Planted(np.array(rows, dtype=np.int64), word_topic)


def words(n_words: int) -> list[str]:
    return [f"word{i:04d}" for i in range(n_words)]


def as_lists(counts: NDArray[np.int64]) -> tuple[list[list[int]], list[list[int]]]:
    """Convert dense counts (documents x words) to the lists of the columns ``ids`` and ``counts``."""
    ids = [np.flatnonzero(row).tolist() for row in counts]
    return ids, [row[chosen].tolist() for row, chosen in zip(counts, ids, strict=True)]


def write_lists(
    path: Path, ids: Sequence[object], counts: Sequence[object], *, row_group_rows: int = 50
) -> None:
    """Write one shard from Python lists, which may contain nulls."""
    table = pa.table(
        {"ids": pa.array(ids, pa.list_(pa.int32())), "counts": pa.array(counts, pa.list_(pa.int32()))}
    )
    pq.write_table(table, path, row_group_size=row_group_rows)


def write_corpus(
    directory: Path,
    counts: NDArray[np.int64],
    *,
    shards: int = 3,
    row_group_rows: int = 50,
    names: Sequence[str] | None = None,
) -> Path:
    """Write dense counts as a corpus, and return its directory."""
    spelled = words(counts.shape[1]) if names is None else names
    directory.mkdir(parents=True)
    for number, rows in enumerate(np.array_split(counts, shards)):
        write_lists(directory / f"part-{number:05d}.parquet", *as_lists(rows), row_group_rows=row_group_rows)
    (directory / "vocab.txt").write_text("\n".join(spelled) + "\n", encoding="utf-8")
    return directory


def with_more(
    corpus: Path, directory: Path, counts: NDArray[np.int64], *, shards: int = 2, row_group_rows: int = 50
) -> Path:
    """Copy a corpus with more shards, the last of which is ``part-more-N.parquet``, and return its directory."""
    shutil.copytree(corpus, directory)
    for number, rows in enumerate(np.array_split(counts, shards)):
        path = directory / f"part-more-{number}.parquet"
        write_lists(path, *as_lists(rows), row_group_rows=row_group_rows)
    return directory


def documents_from_batch(batch: Any, n_words: int) -> Documents:
    """A record batch with list columns ``ids`` and ``counts``; documents without an id column are numbered."""
    where, names = Place("the record batch", 0), batch.schema.names
    bags = checked_bags(batch.column("ids"), batch.column("counts"), n_words, where)
    ids = id_column(names)
    numbered = pa.array(np.arange(batch.num_rows, dtype=np.int64))
    identities = numbered if ids is None else document_ids(batch.column(ids), ids, where)
    metadata = {name: batch.column(name) for name in names if name not in ("ids", "counts", ids)}
    return Documents(bags.narrow(), identities, metadata)


def iter_documents(corpus: Corpus) -> Iterator[Documents]:
    """Documents of a corpus in the order of shards and rows, in batches."""
    for shard in corpus.shards:
        path = corpus.shard_path(shard)
        with open_parquet(path) as file:
            for batch in file.iter_batches():
                yield documents_from_batch(batch, corpus.n_words)


def dense(corpus: Corpus) -> NDArray[np.float64]:
    return np.vstack([dense_rows(block, corpus.n_words) for block in iter_documents(corpus)])


def dense_rows(documents: Documents, n_words: int) -> NDArray[np.float64]:
    return documents.bags.matrix(n_words).toarray().astype(float)


def rows_of(corpus: Corpus) -> list[dict[str, Any]]:
    return [row for shard in corpus.shards for row in pq.read_table(corpus.shard_path(shard)).to_pylist()]


def bags_of(corpus: Corpus) -> dict[Any, dict[str, float]]:
    words = corpus.vocabulary().words
    return {
        row["document_id"]: {words[i]: c for i, c in zip(row["ids"], row["counts"], strict=True)}
        for row in rows_of(corpus)
    }


def file_bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def corpus_bytes(root: Path) -> dict[str, bytes]:
    """The files of a corpus, without the request in the manifest, which names its source, and the manifest's hash."""
    found = file_bytes(root)
    manifest = json.loads(found["manifest.json"])
    del manifest["request"], manifest["sha256"]
    return {**found, "manifest.json": json.dumps(manifest).encode()}


def write_texts(path: Path, texts: Mapping[Any, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps({'id': key, 'text': text})}\n" for key, text in texts.items()))
    return path
